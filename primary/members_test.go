// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// change is a request of an operator to change the list of servers.
func change(id cluster.RequestID, kind cluster.ChangeKind, m cluster.Member, ifVersion uint64) *locktable.Request {
	return &locktable.Request{Op: locktable.OpMembers, Client: "ann", ID: id, Members: &locktable.MembersRequest{Change: cluster.MemberChange{Kind: kind, Server: m, IfVersion: ifVersion}}}
}

// fourth is a server that is added.
func fourth() cluster.Member { return cluster.Member{ID: 4, Client: "h4:1", Peer: "h4:3"} }

// shown is the list of servers that the volume shows.
func shown(t *testing.T, d *volumetest.Disk) cluster.Membership {
	t.Helper()
	h := d.Host(9, volumetest.ProfileLocal())
	c, err := volume.ReadCluster(h)
	if err != nil {
		t.Fatal(err)
	}
	list, err := volume.ReadMembers(h, c)
	if err != nil {
		t.Error(err)
	}
	return list
}

// put replaces MEMBERS, as a primary that was paused may.
func put(t *testing.T, d *volumetest.Disk, content []byte) {
	t.Helper()
	err := d.Host(9, volumetest.ProfileLocal()).Replace("MEMBERS", func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMembersChangeOnce: a change is a request like others, over terms too; the volume shows it at once.
func TestMembersChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		if list, ok := x.p.Members(); !ok || list.Version != 1 || len(list.Servers) != 3 {
			t.Errorf("the first list is %s", list.Text())
		}
		if _, err := d.ReadFile("MEMBERS"); err == nil {
			t.Error("a cluster whose list never changed has MEMBERS")
		}
		out := x.ok(change(1, cluster.AddServer, fourth(), 1))
		if out.Version != 2 {
			t.Errorf("it is told of version %d", out.Version)
		}
		time.Sleep(time.Millisecond)
		if list := shown(t, d); list.Version != 2 || len(list.Servers) != 4 {
			t.Errorf("the volume shows %s", list.Text())
		}
		if list, ok := x.p.Members(); !ok || list.Version != 2 {
			t.Errorf("the term tells version %d", list.Version)
		}
		x.sees(change(2, cluster.RemoveServer, cluster.Member{ID: 3}, 1), cluster.StatusInvalidArgument)
		x.sees(change(2, cluster.RemoveServer, cluster.Member{ID: 1}, 0), cluster.StatusInvalidArgument) // the primary
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		if out := y.ok(change(1, cluster.AddServer, fourth(), 1)); out.Version != 2 || !out.Repeat {
			t.Errorf("a repeat is told %+v", out)
		}
		y.ok(change(2, cluster.RemoveServer, cluster.Member{ID: 1}, 2))
		if list, _ := y.p.Members(); list.Version != 3 || !list.Removed(1) {
			t.Errorf("the list is %s", list.Text())
		}
		// Nor does this primary remove itself.
		y.sees(change(3, cluster.RemoveServer, cluster.Member{ID: 2}, 0), cluster.StatusInvalidArgument)
	})
}

// TestMembersNeedTheirLevel: below it, the list does not change.
func TestMembersNeedTheirLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.MembersLevel - 1); err != nil {
			t.Fatal(err)
		}
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.sees(change(1, cluster.AddServer, fourth(), 0), cluster.StatusInvalidArgument)
		if out, err := x.p.Raise(t.Context(), locktable.MembersLevel); err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("raise: %v, %v", out.Status, err)
		}
		x.p.SetLevel(locktable.MembersLevel - 1) // a server that is reached knows less
		x.sees(change(1, cluster.AddServer, fourth(), 0), cluster.StatusInvalidArgument)
		x.p.SetLevel(locktable.MembersLevel)
		x.ok(change(1, cluster.AddServer, fourth(), 0))
	})
}

// TestMembersAreToldWhenCommitted: a term that is fenced neither tells nor shows a list that it decided.
func TestMembersAreToldWhenCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.fence(d)
		x.sees(change(1, cluster.AddServer, fourth(), 0), cluster.StatusUnknown)
		time.Sleep(10 * time.Second)
		if list, _ := x.p.Members(); list.Version != 1 {
			t.Errorf("the term tells %s", list.Text())
		}
		if list := shown(t, d); list.Version != 1 {
			t.Errorf("the volume shows %s", list.Text())
		}
	})
}

// TestOldMembersAreWrittenAgain: what a primary that was paused put in place of MEMBERS lasts seconds, as does what is damaged.
func TestOldMembersAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.ok(change(1, cluster.AddServer, fourth(), 0))
		time.Sleep(time.Second)
		old, err := d.ReadFile("MEMBERS")
		if err != nil {
			t.Fatal(err)
		}
		x.ok(change(2, cluster.RemoveServer, cluster.Member{ID: 3}, 0))
		time.Sleep(time.Second)
		for _, content := range [][]byte{old, []byte("{"), nil} {
			put(t, d, content)
			time.Sleep(5 * time.Second)
			if list := shown(t, d); list.Version != 3 {
				t.Errorf("MEMBERS was %.20q, and shows %s", content, list.Text())
			}
		}
	})
}

// TestRemovedServerFindsItselfMissing: a server that was removed, and claims all the same, ends before its START with a number that is
// used up, and its successor goes on.
func TestRemovedServerFindsItselfMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		h := d.Host(2, volumetest.ProfileLocal())
		cutOff, err := volume.Open(h, volume.Options{Server: 2, Random: rand.Reader, FirstSegment: 32 << 10, Segment: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		x := serve(t, d, 1, primary.Options{})
		x.ok(acquire("c", 1, "l", 0))
		x.ok(change(1, cluster.RemoveServer, cluster.Member{ID: 2}, 0))
		prepared, err := cutOff.Prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := cutOff.Claim(t.Context(), prepared)
		if err != nil {
			t.Fatal(err)
		}
		p := primary.New(r, primary.Options{Server: 2, Timing: cluster.DefaultTiming()})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := p.Run(ctx); !errors.Is(err, cluster.ErrRemoved) || primary.Refused(err) {
			t.Errorf("the removed server: %v", err)
		}
		if _, ok := p.Members(); ok {
			t.Error("it tells a list")
		}
		if err := cutOff.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) // it checks once a second
		if err := x.end(); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("the first term: %v", err)
		}
		y := serve(t, d, 3, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		if y.p.Epoch() != 3 {
			t.Errorf("epoch %d follows", y.p.Epoch())
		}
		y.sees(acquire("d", 1, "l", 0), cluster.StatusHeld)
	})
}

// TestMemberIsAdmitted: a server that joined becomes a member by one record, where every server that is reached knows such records, and when MEMBERS
// shows that it joins.
func TestMemberIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.host.SetHook(volumetest.AtOp(volumetest.OpReplaceCreate, ".MEMBERS", 0, volumetest.FailBefore(syscall.ENOSPC)))
		x.ok(change(1, cluster.AddServer, fourth(), 0))
		admit := func(id cluster.ServerID, want cluster.Status, version uint64) {
			t.Helper()
			out, err := x.p.Admit(t.Context(), id)
			if list, _ := x.p.Members(); err != nil || out.Status != want || list.Version != version {
				t.Errorf("server %d: %v %q, %v; version %d of the list, want %v and %d", id, out.Status, out.Message, err, list.Version, want, version)
			}
		}
		x.p.SetLevel(locktable.MembersLevel)
		admit(4, cluster.StatusStorageUnavailable, 2)
		x.host.SetHook(nil)
		time.Sleep(5 * time.Second)
		x.p.SetLevel(locktable.MembersLevel - 1)
		admit(4, cluster.StatusError, 2)
		x.p.SetLevel(locktable.MembersLevel)
		admit(4, cluster.StatusOK, 3)
		admit(4, cluster.StatusOK, 3)
		admit(5, cluster.StatusOK, 3)
		if list, _ := x.p.Members(); list.Admits(4) != nil {
			t.Errorf("the list is %s", list.Text())
		}
	})
}

// TestRemovalKeepsAMajority, unless it is forced; a repeat is answered as before, also when that would be refused by now.
func TestRemovalKeepsAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keeps atomic.Bool
		var asked atomic.Pointer[cluster.Members]
		x := serve(t, newDisk(t), 1, primary.Options{Keeps: func(m cluster.Members) bool { asked.Store(&m); return keeps.Load() }})
		defer x.end() //nolint:errcheck // it is stopped
		x.sees(change(1, cluster.RemoveServer, cluster.Member{ID: 3}, 0), cluster.StatusInvalidArgument)
		if m := asked.Load(); m == nil || len(*m) != 2 {
			t.Errorf("it was asked about %v", m)
		}
		x.ok(change(1, cluster.AddServer, fourth(), 0))
		time.Sleep(time.Second) // MEMBERS shows it
		forced := change(2, cluster.RemoveServer, cluster.Member{ID: 3}, 0)
		forced.Members.Change.Force = true
		x.ok(forced)
		if out := x.ok(change(2, cluster.RemoveServer, cluster.Member{ID: 3}, 0)); !out.Repeat {
			t.Errorf("a repeat is told %+v", out)
		}
		time.Sleep(time.Second)
		keeps.Store(true)
		x.ok(change(3, cluster.RemoveServer, cluster.Member{ID: 2}, 0))
	})
}

// TestMembersChangeBehindMEMBERS: the list changes again only when the volume shows it, so MEMBERS is one version behind at most.
func TestMembersChangeBehindMEMBERS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.host.SetHook(volumetest.AtOp(volumetest.OpReplaceCreate, ".MEMBERS", 0, volumetest.FailBefore(syscall.ENOSPC)))
		x.ok(change(1, cluster.AddServer, fourth(), 0))
		for range 3 {
			x.sees(change(2, cluster.RemoveServer, cluster.Member{ID: 3}, 0), cluster.StatusStorageUnavailable)
			time.Sleep(time.Minute)
		}
		if out := x.ok(change(1, cluster.AddServer, fourth(), 0)); !out.Repeat {
			t.Errorf("a repeat is told %+v", out)
		}
		x.host.SetHook(nil)
		time.Sleep(5 * time.Second)
		x.ok(change(2, cluster.RemoveServer, cluster.Member{ID: 3}, 0))
	})
}

// TestMembersShowLoss: a log whose list is older than the volume has shown is not adopted, and MEMBERS stays as it is.
func TestMembersShowLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(change(1, cluster.AddServer, fourth(), 0))
		time.Sleep(time.Second)
		x.kill()
		right, err := d.ReadFile("MEMBERS")
		if err != nil {
			t.Fatal(err)
		}
		c, err := volume.ReadCluster(d.Host(9, volumetest.ProfileLocal()))
		if err != nil {
			t.Fatal(err)
		}
		list := shown(t, d)
		list.Version++
		ahead := cluster.MembersText(c.ID, 7, list)
		put(t, d, []byte(ahead))
		y := claim(t, d, 2, primary.Options{})
		time.Sleep(time.Minute)
		if err := y.end(); !errors.Is(err, volume.ErrDamaged) || !primary.Refused(err) {
			t.Errorf("the takeover: %v", err)
		}
		if now, err := d.ReadFile("MEMBERS"); err != nil || string(now) != ahead {
			t.Errorf("MEMBERS is %s, %v", now, err)
		}
		put(t, d, right)
		z := serve(t, d, 2, primary.Options{})
		defer z.end() //nolint:errcheck // it is stopped
		if z.p.Epoch() != 3 {
			t.Errorf("epoch %d serves", z.p.Epoch())
		}
	})
}

// TestFencedTakeoverBlamesNoLog: the list in MEMBERS that is newer may be that of the term which fenced this one.
func TestFencedTakeoverBlamesNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(change(1, cluster.AddServer, fourth(), 0))
		time.Sleep(time.Second)
		x.kill()
		h := d.Host(2, volumetest.ProfileLocal())
		gate := volumetest.NewGate()
		h.SetHook(volumetest.AtOp(volumetest.OpOpen, "MEMBERS", 2, volumetest.Pause(gate))) // the first is that of Open
		y := claimOn(t, h, 2, volume.Options{FirstSegment: 32 << 10, Segment: 64 << 10}, primary.Options{})
		<-gate.Arrived()
		z := serve(t, d, 3, primary.Options{})
		defer z.end() //nolint:errcheck // it is stopped
		z.ok(change(2, cluster.RemoveServer, cluster.Member{ID: 1}, 0))
		time.Sleep(time.Second)
		gate.Resume()
		time.Sleep(time.Second)
		if err := y.end(); !errors.Is(err, volume.ErrFenced) || primary.Refused(err) {
			t.Errorf("the takeover: %v", err)
		}
	})
}
