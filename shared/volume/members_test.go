// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/backup"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// fourth is a server that is added, and is a member when it is able.
func fourth() cluster.Member { return cluster.Member{ID: 4, Client: "h4:1", Peer: "h4:3"} }

// change logs a change of the list of servers.
func (x *term) change(kind cluster.ChangeKind, m cluster.Member) {
	x.t.Helper()
	out := x.do(locktable.Request{Op: locktable.OpMembers, Members: &locktable.MembersRequest{First: members(), Change: cluster.MemberChange{Kind: kind, Server: m}}}, locktable.FileFacts{})
	if out.Status != cluster.StatusOK {
		x.t.Fatalf("change of the list: %v %s", out.Status, out.Message)
	}
}

func (x *term) list() cluster.Membership { return x.table.MembersOr(members()) }

func (x *term) publish(list cluster.Membership) {
	x.t.Helper()
	if err := x.r.PublishMembers(list); err != nil {
		x.t.Fatal(err)
	}
}

// exchanged is a volume whose log removed server 3 and added server 4, which is a member.
func exchanged(t *testing.T) (*volumetest.Disk, cluster.Membership) {
	d := newDisk(t)
	x := begin(t, d, 1)
	x.change(cluster.RemoveServer, cluster.Member{ID: 3})
	x.change(cluster.AddServer, fourth())
	x.apply(x.table.DecideMember(4, x.r.Epoch(), nil))
	x.publish(x.list())
	x.kill()
	return d, x.list()
}

// TestMembersAreRead: MEMBERS counts where it can be read and is of this cluster; CLUSTER does otherwise, with an error.
func TestMembersAreRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, want := exchanged(t)
		h := host(d, 9)
		c, err := volume.ReadCluster(h)
		if err != nil {
			t.Fatal(err)
		}
		reads := func(when string, version uint64, fails error) {
			t.Helper()
			list, err := volume.ReadMembers(h, c)
			if list.Version != version || !errors.Is(err, fails) {
				t.Errorf("%s: version %d, %v; want version %d, %v", when, list.Version, err, version, fails)
			}
			if err == nil && version == want.Version && list.Text() != want.Text() {
				t.Errorf("%s: %s, want %s", when, list.Text(), want.Text())
			}
		}
		reads("as published", 4, nil)
		content, err := d.ReadFile("MEMBERS")
		if err != nil {
			t.Fatal(err)
		}
		for when, b := range map[string]string{
			"cut": string(content[:len(content)-9]), "empty": "", "no list": `{"cluster_id":"` + c.ID.String() + `"}`,
			"of another cluster": cluster.MembersText(cluster.ID{1}, 1, want),
		} {
			rewrite(t, d, b)
			reads(when, 1, volume.ErrDamaged)
		}
		if err := d.Remove("MEMBERS"); err != nil {
			t.Fatal(err)
		}
		reads("missing", 1, nil)
	})
}

// TestWhoMayOpen: a server that was removed never opens the volume again, whatever list it reads that says so; one that was added does.
func TestWhoMayOpen(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, _ := exchanged(t)
		for id, want := range map[cluster.ServerID]error{1: nil, 2: nil, 3: cluster.ErrRemoved, 4: nil, 5: cluster.ErrNoMember} {
			v, err := open(host(d, id), id)
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("server %d opens the volume: %v, want %v", id, err, want)
			}
			if err == nil {
				err = v.Close()
			}
			if want == nil && err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAnyDamageOfMembersIsSeen: no byte of MEMBERS can be wrong so that another list is read.
func TestAnyDamageOfMembersIsSeen(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, list := exchanged(t)
		c := clusterOf(t, d)
		content, err := d.ReadFile("MEMBERS")
		if err != nil {
			t.Fatal(err)
		}
		for i := range content {
			for bit := range 8 {
				bad := slices.Clone(content)
				bad[i] ^= 1 << bit
				rewrite(t, d, string(bad))
				if got, err := volume.ReadMembers(host(d, 9), c); err == nil && got.Text() != list.Text() {
					t.Fatalf("%s is read as %s", bad, got.Text())
				}
			}
		}
	})
}

// TestAddedServerIsToldOfDamage: it is not in CLUSTER, so it cannot start while MEMBERS cannot be read; that is no removal.
func TestAddedServerIsToldOfDamage(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, _ := exchanged(t)
		rewrite(t, d, "{")
		if _, err := open(host(d, 4), 4); !errors.Is(err, volume.ErrDamaged) || errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("server 4 opens the volume: %v", err)
		}
	})
}

// FuzzMembers: what is read is a valid list.
func FuzzMembers(f *testing.F) {
	var id cluster.ID
	f.Add([]byte(cluster.MembersText(id, 3, cluster.FirstMembership(members()))))
	f.Add([]byte(`{"cluster_id":"00000000000000000000000000000000","crc32c":"00000000"}`))
	d := volumetest.New(1)
	f.Fuzz(func(t *testing.T, b []byte) {
		rewrite(t, d, string(b))
		list, err := volume.ReadMembers(host(d, 9), volume.Cluster{ID: id, Servers: members()})
		if err == nil && list.Validate() != nil || err != nil && (list.Version != 1 || !errors.Is(err, volume.ErrDamaged)) {
			t.Fatalf("%q is read as %s, %v", b, list.Text(), err)
		}
	})
}

// TestEndedTermPublishesNoMembers: a term that knows that it has ended leaves MEMBERS to its successor.
func TestEndedTermPublishesNoMembers(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.change(cluster.RemoveServer, cluster.Member{ID: 3})
		old := x.list()
		y := begin(t, d, 2)
		y.change(cluster.AddServer, fourth())
		y.publish(y.list())
		if err := x.r.Check(); !errors.Is(err, volume.ErrFenced) {
			t.Fatalf("the first term goes on: %v", err)
		}
		if err := x.r.PublishMembers(old); !errors.Is(err, volume.ErrDeposed) {
			t.Errorf("it publishes: %v", err)
		}
		if list, err := y.r.ReadMembers(); err != nil || list.Version != 3 {
			t.Errorf("MEMBERS shows version %d, %v", list.Version, err)
		}
	})
}

// TestFsckComparesMembers with the log.
func TestFsckComparesMembers(t *testing.T) {
	for name, x := range map[string]struct {
		spoil func(t *testing.T, d *volumetest.Disk, list cluster.Membership, id cluster.ID)
		code  string
	}{
		"as it was": {func(*testing.T, *volumetest.Disk, cluster.Membership, cluster.ID) {}, ""},
		"damaged": {func(t *testing.T, d *volumetest.Disk, _ cluster.Membership, _ cluster.ID) {
			rewrite(t, d, "{")
		}, "members-damaged"},
		"missing": {func(t *testing.T, d *volumetest.Disk, _ cluster.Membership, _ cluster.ID) {
			if err := d.Remove("MEMBERS"); err != nil {
				t.Fatal(err)
			}
		}, "members-behind"},
		"older": {func(t *testing.T, d *volumetest.Disk, list cluster.Membership, id cluster.ID) {
			list.Version--
			rewrite(t, d, cluster.MembersText(id, 1, list))
		}, "members-behind"},
		"of a newer state": {func(t *testing.T, d *volumetest.Disk, list cluster.Membership, id cluster.ID) {
			list.Version++
			rewrite(t, d, cluster.MembersText(id, 1, list))
		}, "members-ahead"},
		"another list": {func(t *testing.T, d *volumetest.Disk, list cluster.Membership, id cluster.ID) {
			list.HighestID++
			rewrite(t, d, cluster.MembersText(id, 1, list))
		}, "members-differ"},
	} {
		bubble(t, name, func(t *testing.T) {
			d, list := exchanged(t)
			c, err := volume.ReadCluster(host(d, 9))
			if err != nil {
				t.Fatal(err)
			}
			x.spoil(t, d, list, c.ID)
			r, err := fsck.Run(t.Context(), host(d, 9), fsck.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, f := range r.Findings {
				if strings.HasPrefix(f.Code, "members-") || f.Code == "unknown-name" {
					codes = append(codes, f.Code)
				}
				if f.Code == x.code && x.code != "members-ahead" && !strings.Contains(f.Advice, cluster.MembersText(c.ID, 1, list)) {
					t.Errorf("it advises: %s", f.Advice)
				}
			}
			if want := slices.DeleteFunc([]string{x.code}, func(s string) bool { return s == "" }); !slices.Equal(codes, want) {
				t.Errorf("found %q, want %q: %+v", codes, want, r.Findings)
			}
		})
	}
}

// rewrite gives MEMBERS another content.
func rewrite(t *testing.T, d *volumetest.Disk, content string) {
	t.Helper()
	err := host(d, 9).Replace("MEMBERS", func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecoveredMembers: a recovery shows the list of what it recovered, so that servers which were added can start. Where that is
// complete, it is the list of the log; else no version and no ID that was given after it is given again.
func TestRecoveredMembers(t *testing.T) {
	for name, x := range map[string]struct {
		lost    func(t *testing.T, d *volumetest.Disk, list cluster.Membership)
		version uint64
		highest cluster.ServerID
	}{
		"nothing is known to be lost": {func(*testing.T, *volumetest.Disk, cluster.Membership) {}, 4, 4},
		"MEMBERS is ahead": {func(t *testing.T, d *volumetest.Disk, list cluster.Membership) {
			list.Version += 2
			rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
		}, 7, 4},
		"MEMBERS has a server more": {func(t *testing.T, d *volumetest.Disk, list cluster.Membership) {
			list, err := list.With(cluster.MemberChange{Kind: cluster.AddServer, Server: cluster.Member{ID: 5, Client: "h5:1", Peer: "h5:3"}})
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
		}, 6, 5},
		"MEMBERS is of another history": {func(t *testing.T, d *volumetest.Disk, list cluster.Membership) {
			list.Servers = list.Servers[:2]
			rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
		}, 5, 4},
		"a server more ran": {func(t *testing.T, d *volumetest.Disk, _ cluster.Membership) {
			l, err := volume.TakeGuard(host(d, 9), 5)
			if err == nil {
				err = l.Unlock()
			}
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, d, "{")
		}, 5, 5},
	} {
		bubble(t, name, func(t *testing.T) {
			d, list := exchanged(t)
			x.lost(t, d, list)
			if _, err := recovery.Run(t.Context(), host(d, 9), recovery.Options{Restored: true, SeenLSN: 100, AcceptLoss: true, Random: rand.Reader, FirstSegment: 32 << 10}); err != nil {
				t.Fatal(err)
			}
			list.Version, list.HighestID = x.version, x.highest
			if x.version > 4 {
				list.Version-- // a server may go on with the old state before START
			}
			if got, err := volume.ReadMembers(host(d, 9), clusterOf(t, d)); err != nil || got.Text() != list.Text() {
				t.Errorf("MEMBERS shows %s, %v; want %s", got.Text(), err, list.Text())
			}
			list.Version = x.version
			y := begin(t, d, 4)
			if y.list().Text() != list.Text() {
				t.Errorf("the log has %s, want %s", y.list().Text(), list.Text())
			}
			y.kill()
		})
	}
}

// TestRecoveredMembersOfALowerLevel: where the state is of a lower feature level, servers that know no list can take over.
func TestRecoveredMembersOfALowerLevel(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.MembersLevel - 1); err != nil {
			t.Fatal(err)
		}
		list := cluster.FirstMembership(members())
		list.Version++
		rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
		if _, err := recovery.Run(t.Context(), host(d, 9), recovery.Options{Restored: true, SeenLSN: 100, AcceptLoss: true, Random: rand.Reader, FirstSegment: 32 << 10}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.ReadFile("MEMBERS"); err == nil {
			t.Error("MEMBERS is there")
		}
		y := begin(t, d, 1)
		if list, made := y.table.Members(); made {
			t.Errorf("the log has %s", list.Text())
		}
		y.kill()
	})
}

// TestMembersShowLoss: a list of servers that is newer than the log proves that records are lost.
func TestMembersShowLoss(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, list := exchanged(t)
		needed := func(want bool) {
			t.Helper()
			p, err := recovery.NewPlan(t.Context(), host(d, 9), recovery.Options{Random: rand.Reader})
			if err != nil || p.Needed != want {
				t.Errorf("MEMBERS has version %d: a recovery is needed: %t, %v, %v", list.Version, p.Needed, p.Reasons, err)
			}
			if _, _, err := volume.Offline(host(d, 9), clusterOf(t, d)).Preview(t.Context()); errors.Is(err, volume.ErrDamaged) != want {
				t.Errorf("MEMBERS has version %d: a claimant would take over: %v", list.Version, err)
			}
		}
		needed(false)
		list.Version++
		rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
		needed(true)
	})
}

// TestRecoveryGuardsAddedServers: while a server that was added runs, nothing is recovered.
func TestRecoveryGuardsAddedServers(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, _ := exchanged(t)
		v, err := open(host(d, 4), 4)
		if err != nil {
			t.Fatal(err)
		}
		_, err = recovery.Run(t.Context(), host(d, 9), recovery.Options{Restored: true, AcceptLoss: true, Random: rand.Reader})
		if !errors.Is(err, recovery.ErrServersRun) || !strings.Contains(err.Error(), "server 4") {
			t.Errorf("recovered while server 4 runs: %v", err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRestoredMembers: a restored volume is a new cluster, whose list is that of its CLUSTER: the members of the old one.
func TestRestoredMembers(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, _ := exchanged(t)
		x := begin(t, d, 2)
		x.change(cluster.AddServer, cluster.Member{ID: 5, Client: "h5:1", Peer: "h5:3"})
		x.kill()
		to, _ := backedUp(t, host(d, 20), backup.Options{})
		fresh := volumetest.New(3)
		p, err := backup.Restore(t.Context(), host(to, 3), host(fresh, 9), restoreOptions())
		if err != nil {
			t.Fatal(err)
		}
		if ids := p.Servers.IDs(); !slices.Equal(ids, []cluster.ServerID{1, 2, 4}) {
			t.Errorf("its servers are %v, want those that are members", ids)
		}
		if _, err := fresh.ReadFile("MEMBERS"); err == nil {
			t.Error("it has MEMBERS")
		}
		y := begin(t, fresh, 4)
		if list, made := y.table.Members(); made {
			t.Errorf("its log has a list of its own: %s", list.Text())
		}
		y.kill()
	})
}

// TestRecoveryGuardsRemovedServers: one that was removed and does not know it yet is a member of what is recovered, maybe; one that was
// added may be so while MEMBERS is damaged.
func TestRecoveryGuardsRemovedServers(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.change(cluster.AddServer, fourth())
		x.publish(x.list())
		v, err := open(host(d, 4), 4)
		if err != nil {
			t.Fatal(err)
		}
		x.change(cluster.RemoveServer, cluster.Member{ID: 4})
		x.publish(x.list())
		x.kill()
		for _, damaged := range []bool{false, true} {
			if damaged {
				rewrite(t, d, "{")
			}
			_, err = recovery.Run(t.Context(), host(d, 9), recovery.Options{Restored: true, AcceptLoss: true, Random: rand.Reader})
			if !errors.Is(err, recovery.ErrServersRun) || !strings.Contains(err.Error(), "server 4") {
				t.Errorf("MEMBERS is damaged: %t: recovered while server 4 runs: %v", damaged, err)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAddedServerIsWitness: the canary of a server that was added shows that a term of it is gone, also after its removal.
func TestAddedServerIsWitness(t *testing.T) {
	for name, removed := range map[string]bool{"member": false, "removed": true} {
		bubble(t, name, func(t *testing.T) {
			d, list := exchanged(t)
			v, err := open(host(d, 4), 4)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(v.WriteCanary(volume.Canary{Epoch: 2, Value: 1}), v.Close()); err != nil {
				t.Fatal(err)
			}
			if removed {
				if list, err = list.With(cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: 4}}); err != nil {
					t.Fatal(err)
				}
				rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
			}
			s := start(t, d, 1)
			if _, err := s.takeOver(s.claim(), nil); !errors.Is(err, volume.ErrDamaged) || !strings.Contains(err.Error(), "servers/4.canary") {
				t.Errorf("taken over without epoch 2: %v", err)
			}
		})
	}
}

func clusterOf(t *testing.T, d *volumetest.Disk) volume.Cluster {
	t.Helper()
	c, err := volume.ReadCluster(host(d, 9))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMembersSurviveCrashes at every call of their writing, also where the power fails then: there is the list of before or the new one. A
// server that was removed opens the volume only where its removal is not shown, and the next primary shows it.
func TestMembersSurviveCrashes(t *testing.T) {
	for _, powerFails := range []bool{false, true} {
		for n, more := 0, true; more; n++ {
			for how, crash := range []volumetest.Action{volumetest.Crash(), volumetest.CrashTorn(40), volumetest.CrashAfter()} {
				bubble(t, fmt.Sprintf("power fails %t, call %d, %d", powerFails, n, how), func(t *testing.T) {
					more = crashed(t, powerFails, n, crash)
				})
			}
		}
	}
}

// crashed has a primary crash at its n-th call while it writes MEMBERS, with server 4, and then without. It returns false if there are fewer calls.
func crashed(t *testing.T, powerFails bool, n int, crash volumetest.Action) (more bool) {
	d := newDisk(t)
	x := begin(t, d, 1)
	x.change(cluster.AddServer, fourth())
	x.publish(x.list())
	x.change(cluster.RemoveServer, cluster.Member{ID: 4})
	x.host.SetHook(volumetest.At(x.host.Calls()+n+1, crash))
	err := x.r.PublishMembers(x.list())
	x.kill()
	if powerFails {
		d.Crash(d.Rand())
	}
	shown, readErr := volume.ReadMembers(host(d, 9), clusterOf(t, d))
	if readErr != nil || shown.Version < 2 || err == nil && shown.Version != 3 {
		t.Errorf("publish: %v; MEMBERS shows %s, %v", err, shown.Text(), readErr)
	}
	v, openErr := open(host(d, 4), 4)
	if (openErr == nil) != (shown.Version == 2) || openErr != nil && !errors.Is(openErr, cluster.ErrRemoved) {
		t.Errorf("MEMBERS shows version %d, and the removed server opens the volume: %v", shown.Version, openErr)
	}
	if openErr == nil {
		openErr = v.Close()
	}
	if shown.Version == 2 && openErr != nil {
		t.Error(openErr)
	}
	y := begin(t, d, 2)
	if err := y.r.RemoveTemporaryMembers(); err != nil {
		t.Error(err)
	}
	y.publish(y.list())
	y.kill()
	r, fsckErr := fsck.Run(t.Context(), host(d, 9), fsck.Options{})
	if fsckErr != nil {
		t.Fatal(fsckErr)
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Path, "MEMBERS") {
			t.Errorf("fsck finds: %+v", f)
		}
	}
	if shown, err := volume.ReadMembers(host(d, 9), clusterOf(t, d)); err != nil || !shown.Removed(4) {
		t.Errorf("in the end MEMBERS shows %s, %v", shown.Text(), err)
	}
	return err != nil
}

// TestCrashedRecoveryLeavesAListToGoOnWith: wherever a recovery ends, a server takes over from the old state or the new one, and a repeat
// gives neither an ID nor a version again.
func TestCrashedRecoveryLeavesAListToGoOnWith(t *testing.T) {
	opt := recovery.Options{Restored: true, SeenLSN: 100, AcceptLoss: true, Random: rand.Reader, FirstSegment: 32 << 10}
	for n, more := 1, true; more; n += 2 {
		bubble(t, fmt.Sprint("call ", n), func(t *testing.T) {
			d, list := exchanged(t)
			l, err := volume.TakeGuard(host(d, 9), 5)
			if err == nil {
				err = l.Unlock()
			}
			if err != nil {
				t.Fatal(err)
			}
			h := host(d, 9)
			h.SetHook(volumetest.At(n, volumetest.Crash()))
			_, err = recovery.Run(t.Context(), h, opt)
			if more = h.Dead(); !more && err != nil {
				t.Fatal(err)
			}
			other := d.Clone()
			x := begin(t, other, 4)
			if err := x.r.LostMembers(x.table); err != nil {
				t.Errorf("a server that takes over after the crash: %v", err)
			}
			x.kill()
			if _, err := recovery.Run(t.Context(), host(d, 10), opt); err != nil {
				t.Fatal(err)
			}
			y := begin(t, d, 4)
			if now := y.list(); y.r.LostMembers(y.table) != nil || now.HighestID != 5 || now.Version <= list.Version {
				t.Errorf("after the repeat: %s", now.Text())
			}
			y.kill()
		})
	}
}

// TestOpenByTheListThatWasRead: who has read MEMBERS opens the volume by that, whatever it shows by now.
func TestOpenByTheListThatWasRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		read := cluster.FirstMembership(members())
		list, err := read.With(cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: 3}})
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, d, cluster.MembersText(clusterOf(t, d).ID, 1, list))
		for known, want := range map[*cluster.Membership]uint64{nil: 2, &read: 1} {
			v, err := volume.Open(host(d, 1), volume.Options{Server: 1, Members: known, Random: rand.Reader})
			if err != nil {
				t.Fatal(err)
			}
			if got := v.Members(); got.Version != want {
				t.Errorf("opened by version %d of the list, want %d", got.Version, want)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
