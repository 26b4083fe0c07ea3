// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// quiet plays with three servers whose clients do nothing, of which server 1 is primary.
func quiet(t *testing.T, play func(*testing.T, *Cluster)) {
	t.Helper()
	quietOn(t, asMade, play)
}

// quietOn is quiet on a volume that prepare changes before there is a server.
func quietOn(t *testing.T, prepare func(*volumetest.Disk) error, play func(*testing.T, *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, volumetest.ProfileLocal(), 1, 0, prepare)
		if first, _ := c.one(t, "start"); first != 1 {
			t.Fatalf("server %d is primary first", first)
		}
		time.Sleep(2 * time.Second)
		play(t, c)
		c.End()
		c.Shutdown()
	})
}

// A primary whose volume hangs is replaced: it says so at once, although its goroutines are
// stuck, and gives its process up.
func TestStuckTermGivesItsProcessUp(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		x := c.server(1)
		gate := c.Hang(1)
		id, _, err := c.AwaitPrimary(time.Second)
		for began := time.Now(); id == 1 || err != nil; id, _, err = c.AwaitPrimary(time.Second) {
			if time.Since(began) > healing {
				t.Fatalf("server 1 hangs, %v are primary", c.Primaries())
			}
			time.Sleep(50 * time.Millisecond)
		}
		select {
		case <-x.stuck:
		case <-time.After(3 * c.Timing.StorageTimeout):
			t.Error("the process of the stuck term goes on")
		}
		if role := x.node.Role(); role != election.RoleReplica {
			t.Errorf("a term that is over, and stuck, is %v", role)
		}
		if m, _, ok := x.node.Primary(); ok && m.ID == 1 {
			t.Errorf("server 1, stuck in a term that is over, sends its clients to itself, and not to server %d", id)
		}
		gate.Resume()
	})
}

// Where the volume shows nothing for a while, what was prepared for a takeover is kept: a new claim
// takes 16 MiB of writes, on a volume that has just come back.
func TestTakeoverAfterAWhileWithoutTheVolumeUsesThePreparedClaim(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		var hidden atomic.Bool
		hidden.Store(true)
		before := map[cluster.ServerID]int{}
		for id := cluster.ServerID(2); id <= 3; id++ {
			h := c.server(id).host
			before[id] = len(h.Trace())
			h.SetHook(func(call volumetest.Call) volumetest.Action {
				if hidden.Load() && call.Op == volumetest.OpReadDir && call.Name == "epochs" {
					return volumetest.FailBefore(syscall.ESTALE)
				}
				return volumetest.Proceed()
			})
		}
		c.Kill(1)
		time.Sleep(3 * time.Second)
		hidden.Store(false)
		id, _ := c.one(t, "the volume is there again")
		for _, call := range c.server(id).host.Trace()[before[id]:] {
			if call.Op == volumetest.OpRename && strings.HasPrefix(call.NewName, "epochs/") {
				break
			}
			if call.Op == volumetest.OpMkdir {
				t.Errorf("server %d prepared a claim anew: %v", id, call)
			}
		}
	})
}

// A primary that nobody hears says NO_QUORUM after the suspicion time, and steps down after
// the quorum timeout, though nobody can follow.
func TestLastServerOfThreeStepsDown(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		x := c.server(1)
		c.Kill(2)
		c.Kill(3)
		acquire := func(id cluster.RequestID) cluster.Status {
			out, err := x.node.Do(t.Context(), &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: id, Lock: "l", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return out.Status
		}
		time.Sleep(c.Timing.MajorityWindow + c.Timing.Suspicion + 2*c.Timing.Heartbeat)
		if got := acquire(1); got != cluster.StatusNoQuorum {
			t.Errorf("without a majority it answers %v", got)
		}
		time.Sleep(c.Timing.QuorumTimeout)
		if got := acquire(1); got != cluster.StatusSecondaryMode {
			t.Errorf("without a majority for the quorum timeout it answers %v", got)
		}
	})
}

// When the whole share stalls everybody waits: the term goes on afterwards.
func TestShareThatStallsEndsNoTerm(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		epochs := c.epoch()
		gates := []*volumetest.Gate{c.Hang(1), c.Hang(2), c.Hang(3)}
		time.Sleep(2 * c.Timing.StorageTimeout)
		for _, g := range gates {
			g.Resume()
		}
		time.Sleep(2 * c.Timing.StorageTimeout)
		if id, _ := c.one(t, "afterwards"); id != 1 || c.epoch() != epochs {
			t.Errorf("server %d is primary, %d epochs became %d", id, epochs, c.epoch())
		}
	})
}

// A server that cannot write is no successor: neither by the primary's choice, nor when it is
// named all the same.
func TestServerThatCannotWriteIsNoSuccessor(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.server(2).host.SetHook(func(k volumetest.Call) volumetest.Action {
			if strings.HasSuffix(k.Name, ".process") {
				return volumetest.FailBefore(syscall.EIO)
			}
			return volumetest.Proceed()
		})
		time.Sleep(c.Timing.StorageTimeout + 2*time.Second)
		if err := c.server(2).node.HandleHandover(c.epochOf(1)); !errors.Is(err, node.ErrNotAble) {
			t.Errorf("named to follow, it says %v", err)
		}
		if _, err := c.server(1).node.Handover(t.Context(), 2); !errors.Is(err, node.ErrNoSuccessor) {
			t.Errorf("a handover to it: %v", err)
		}
		if to, err := c.server(1).node.Handover(t.Context(), 0); err != nil || to != 3 {
			t.Errorf("a handover to anybody went to server %d: %v", to, err)
		}
	})
}

// Of those that are able the lowest follows.
func TestHandoverGoesToTheLowest(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		if to, err := c.server(1).node.Handover(t.Context(), 0); err != nil || to != 2 {
			t.Errorf("it went to server %d: %v", to, err)
		}
	})
}

// A primary that hears of a higher epoch looks at its fence at once, and not at the next of its
// checks, of which an idle one makes one a second.
func TestHigherEpochIsLookedIntoAtOnce(t *testing.T) {
	for phase := range 5 {
		quiet(t, func(t *testing.T, c *Cluster) {
			time.Sleep(time.Duration(phase) * 200 * time.Millisecond)
			c.Net.Isolate(1, true) // for less than it takes to end its term
			poll(func() bool { return c.server(2).node.Role() == election.RoleFencing })
			c.Net.Isolate(1, false)
			began := time.Now()
			poll(func() bool { return c.server(1).node.Role() != election.RolePrimary })
			if took := time.Since(began); took > 400*time.Millisecond {
				t.Errorf("fenced, server 1 believed to be primary for %v", took)
			}
		})
	}
}

// A server of an older binary can apply what the primary decides as long as it is reached, from
// the first record of a term on; behind that, records are of the new forms.
func TestOlderReplicaKeepsThePrimaryToOldForms(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		nonce := uint64(0)
		opens := func(when string, at cluster.ServerID, marked bool) {
			t.Helper()
			nonce++
			out, err := c.server(at).node.Do(t.Context(), &locktable.Request{Op: locktable.OpOpenClient, Nonce: nonce})
			if _, mark := out.Client.OpenedBy(); err != nil || out.Status != cluster.StatusOK || (mark != 0) != marked {
				t.Errorf("%s: client %s is opened (%v, %v), marked should be %v", when, out.Client, out.Status, err, marked)
			}
		}
		hears := 4 * c.Timing.Heartbeat
		opens("all are new", 1, true)
		c.Net.Older(3, true)
		time.Sleep(hears)
		opens("server 3 is older", 1, false)
		if to, err := c.server(1).node.Handover(t.Context(), 0); err != nil || to != 2 {
			t.Fatalf("handed over to server %d: %v", to, err)
		}
		poll(func() bool { return c.server(2).node.Role() == election.RolePrimary })
		opens("first in a term", 2, false)
		c.Kill(3)
		time.Sleep(c.Timing.MajorityWindow + hears)
		opens("it is gone", 2, true)
		if err := c.Start(3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		opens("it is back, and as old", 2, false)
		c.Kill(3)
		c.Net.Older(3, false)
		if err := c.Start(3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		opens("it is upgraded", 2, true)
	})
}

// TestStatusTellsTheFeatureLevels that others said they have, and none of a server that is silent.
func TestStatusTellsTheFeatureLevels(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.Net.Older(2, true)
		c.Kill(3)
		time.Sleep(2 * time.Second)
		var levels []uint32
		for _, s := range c.server(1).node.Status().Servers {
			levels = append(levels, s.FeatureLevel)
		}
		if want := []uint32{volume.FeatureLevel, 1, 0}; !slices.Equal(levels, want) {
			t.Errorf("server 1 tells of levels %d, want %d", levels, want)
		}
		c.Net.Older(2, false)
		if err := c.Start(3); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUpgradeWaitsForAllServers: the primary raises the level when every server has said for ten seconds that it
// knows it, and says whom it waits for until then.
func TestUpgradeWaitsForAllServers(t *testing.T) {
	older := func(d *volumetest.Disk) error { return d.BeginAt(locktable.BaseLevel) }
	quietOn(t, older, func(t *testing.T, c *Cluster) {
		tries := func(when string, level uint32, want cluster.Status, says string) {
			t.Helper()
			out, err := c.server(1).node.Upgrade(t.Context(), level)
			waits := strings.Join(c.server(1).node.Status().NextWaits, "; ")
			if err != nil || out.Status != want || !strings.Contains(out.Message, says) || want == cluster.StatusError && !strings.Contains(waits, says) {
				t.Errorf("%s: %v %q, %v, and status says %q; want %v %q", when, out.Status, out.Message, err, waits, want, says)
			}
		}
		tries("at once", locktable.MaxLevel, cluster.StatusError, "has said so for ")
		c.Net.Older(3, true)
		time.Sleep(levelWait)
		tries("server 3 is older", locktable.MaxLevel, cluster.StatusError, "server 3 knows feature level 1 only: upgrade it")
		c.Net.Older(3, false)
		c.Kill(2)
		time.Sleep(levelWait + time.Second)
		tries("server 2 is down", locktable.MaxLevel, cluster.StatusError, "server 2 is not heard: start it")
		if err := c.Start(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(levelWait / 2)
		tries("server 2 is back", locktable.MaxLevel, cluster.StatusError, "server 2 knows level 7, and has said so for 4s: 10s are needed")
		time.Sleep(levelWait/2 + time.Second)
		tries("a level that nobody knows", locktable.MaxLevel+1, cluster.StatusInvalidArgument, "the highest that a server knows is 7")
		if out, err := c.server(2).node.Upgrade(t.Context(), locktable.MaxLevel); err != nil || out.Status != cluster.StatusSecondaryMode {
			t.Errorf("a replica raises the level: %v, %v", out.Status, err)
		}
		if s := c.server(1).node.Status(); s.Level != 3 || s.Next != locktable.MaxLevel || len(s.NextWaits) > 0 {
			t.Errorf("all say so: %d, %d, %q", s.Level, s.Next, s.NextWaits)
		}
		tries("all say so", locktable.MaxLevel, cluster.StatusOK, "feature level 7")
		tries("again", locktable.MaxLevel, cluster.StatusOK, "already")
		time.Sleep(time.Second)
		for id := cluster.ServerID(1); id <= 3; id++ {
			if s := c.server(id).node.Status(); s.Level != locktable.MaxLevel || s.Next != 0 {
				t.Errorf("server %d tells level %d, next %d", id, s.Level, s.Next)
			}
		}
	})
}

// TestServerThatIsTooOldSaysSo: what its primary sends is of a level that it does not know. It neither follows nor takes over,
// and says which version it takes.
func TestServerThatIsTooOldSaysSo(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		const says = "THIS SERVER IS TOO OLD FOR THE CLUSTER, and neither follows nor takes over"
		told := func() bool {
			warnings := strings.Join(c.tells(2).Warnings, "; ")
			return strings.Contains(warnings, says) && strings.Contains(warnings, "run holdfast 9.8 or a newer one")
		}
		if !c.tells(2).Able || told() {
			t.Fatalf("server 2 is not able, or too old, from the start: %q", c.tells(2).Warnings)
		}
		epoch := c.server(1).node.Status().Epoch
		at, err := c.server(2).node.HandlePush(push.Push{Epoch: epoch})
		if err != nil {
			t.Fatal(err)
		}
		r := locktable.Record{LSN: at.At.LSN + 1, Epoch: epoch, Kind: locktable.KindLevel, Level: locktable.MaxLevel + 1, Version: "9.8"}
		entries := []wal.Entry{{Header: r.AppendHeader(nil)}}
		frame := wal.AppendFrame(nil, wal.FrameHeader{
			Kind: wal.FrameRecords, Elided: true, Epoch: epoch, First: r.LSN, Count: 1, Chain: wal.VerifyChain(at.At.Chain, entries),
		}, entries)
		if _, err := c.server(2).node.HandlePush(push.Push{Epoch: epoch, Before: at.At, Frames: frame}); err != nil {
			t.Fatal(err)
		}
		if !told() || c.tells(2).Able {
			t.Errorf("server 2 is able: %v; it says %q", c.tells(2).Able, c.tells(2).Warnings)
		}
		time.Sleep(2 * time.Second) // its primary sends it a state that it knows
		if told() || !c.tells(2).Able {
			t.Errorf("server 2 follows: able %v, %q", c.tells(2).Able, c.tells(2).Warnings)
		}
	})
}

// levelWait is for how long servers have to say that they know a level.
const levelWait = 10 * time.Second

// TestStatusTellsTheFreeSpace of the volume, also that of a replica.
func TestStatusTellsTheFreeSpace(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		for id := cluster.ServerID(1); id <= 3; id++ {
			if s := c.tells(id); s.FreeBytes <= 0 {
				t.Errorf("server %d tells of %d free bytes", id, s.FreeBytes)
			}
		}
	})
}

// TestAServerThatHandedOverGoesOnWithItsTable: it is sent what it lacks, and no snapshot.
func TestAServerThatHandedOverGoesOnWithItsTable(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		acquire := func(at cluster.ServerID, id cluster.RequestID) {
			t.Helper()
			lock := cluster.LockName(fmt.Sprint("l", id))
			out, err := c.server(at).node.Do(t.Context(), &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: id, Lock: lock, TTL: time.Minute})
			if err != nil || out.Status != cluster.StatusOK {
				t.Fatalf("acquire at server %d: %v, %v", at, out.Status, err)
			}
		}
		acquire(1, 1)
		before := c.Net.Whole(1)
		if to, err := c.server(1).node.Handover(t.Context(), 2); err != nil || to != 2 {
			t.Fatalf("handed over to server %d: %v", to, err)
		}
		poll(func() bool { return c.server(2).node.Role() == election.RolePrimary })
		acquire(2, 2)
		time.Sleep(3 * time.Second)
		if n := c.Net.Whole(1) - before; n > 0 {
			t.Errorf("server 1 was sent %d pieces of a snapshot", n)
		}
		if own, other := c.tells(1).LSN, c.tells(2).LSN; own != other || own == 0 {
			t.Errorf("server 1 stands at LSN %d, the primary at %d", own, other)
		}
	})
}
