// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// forged plays with three servers that have data directories, and somebody who reaches them.
func forged(t *testing.T, play func(*testing.T, *Cluster, *Forger)) {
	t.Helper()
	dir := t.TempDir()
	quiet(t, func(t *testing.T, c *Cluster) {
		c.keepBelow(t, dir)
		c.restartAll(t)
		c.grant(t, "before")
		play(t, c, c.NewForger(rand.New(rand.NewPCG(1, 17))))
	})
}

// restartAll ends all servers as a power cut does, and starts them.
func (c *Cluster) restartAll(t *testing.T) {
	t.Helper()
	c.Shutdown()
	for id := cluster.ServerID(1); id <= 3; id++ {
		if err := c.Start(id); err != nil {
			t.Fatal(err)
		}
	}
	c.one(t, "after a restart")
	time.Sleep(3 * time.Second)
}

// grant has the primary grant a lock, and returns its LSN.
func (c *Cluster) grant(t *testing.T, lock cluster.LockName) cluster.LSN {
	t.Helper()
	id, _ := c.one(t, "to grant "+string(lock))
	out, err := c.server(id).node.Do(t.Context(), &locktable.Request{Op: locktable.OpAcquire, Client: cluster.ClientID(lock), ID: 1, Lock: lock, TTL: time.Minute})
	if err != nil || out.Status != cluster.StatusOK {
		t.Fatalf("acquire %s: %v, %v", lock, out.Status, err)
	}
	return cluster.LSN(out.Token)
}

// fed is after how long a server that was cut off surely is fed again: a push that was lost is waited for for 2 s, and tried again within one.
const fed = 4 * time.Second

// shows demands that every server shows the lock held, at an LSN that is not beyond the primary's,
// and of an epoch that there is.
func (c *Cluster) shows(t *testing.T, when string, lock cluster.LockName) {
	t.Helper()
	id, _ := c.one(t, when)
	end, newest := c.server(id).node.Status(), cluster.Epoch(c.epoch())
	for id := cluster.ServerID(1); id <= 3; id++ {
		x, held := c.server(id).node, false
		r, err := x.Read(t.Context(), func(v serving.View) {
			l, known := v.Table.Lock(lock)
			held = known && l.Holders > 0
		})
		if err != nil || r.Status != cluster.StatusOK || !held || r.LSN > end.Servers[id-1].LSN+1000 || r.LSN >= farLSN {
			t.Errorf("%s: server %d shows %s held: %v, at LSN %d (%v, %v)", when, id, lock, held, r.LSN, r.Status, err)
		}
		s := x.Status()
		if s.Epoch > newest || slices.ContainsFunc(s.Servers[id-1].Warnings, func(w string) bool { return strings.Contains(w, "OLDER") }) {
			t.Errorf("%s: server %d tells of epoch %d, there are %d; it warns of %q", when, id, s.Epoch, newest, s.Servers[id-1].Warnings)
		}
	}
}

// A push of a term that the volume does not show changes nothing: the primary's go on to count.
func TestPushOfNoTermChangesNothing(t *testing.T) {
	for _, epoch := range []cluster.Epoch{1000, farEpoch} {
		forged(t, func(t *testing.T, c *Cluster, f *Forger) {
			for id := cluster.ServerID(1); id <= 3; id++ {
				for _, err := range []error{f.Snapshot(id, epoch, farLSN), f.Snapshot(id, epoch, 1), f.Frame(id, epoch)} {
					if !errors.Is(err, node.ErrUnseenTerm) {
						t.Errorf("server %d takes a push of epoch %d: %v", id, epoch, err)
					}
				}
			}
			c.grant(t, "after")
			time.Sleep(100 * time.Millisecond) // no longer than any push takes
			c.shows(t, "at once", "after")
			c.restartAll(t)
			c.shows(t, "after a restart", "after")
		})
	}
}

// A term that is over pushes nothing to a replica that has heard of none yet.
func TestPushOfAFormerTermChangesNothing(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		other := c.Primaries()[0]%3 + 1
		c.Kill(other)
		c.keepBelow(t, "")
		c.Net.Isolate(other, true) // else the primary's push may come first
		if err := c.Start(other); err != nil {
			t.Fatal(err)
		}
		if err := f.Snapshot(other, 1, farLSN); !errors.Is(err, node.ErrUnseenTerm) {
			t.Errorf("a push of epoch 1, of %d: %v", c.epoch(), err)
		}
		c.Net.Heal()
		time.Sleep(2 * time.Second)
		c.shows(t, "two seconds later", "before")
	})
}

// A number that was claimed and never began is no term either.
func TestPushOfABurnedNumberChangesNothing(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		first := c.Primaries()[0]
		e := c.epochOf(first)
		other := first%3 + 1
		c.yieldBeside(t, other)
		if err := f.Snapshot(6-first-other, e+1, farLSN); !errors.Is(err, node.ErrUnseenTerm) {
			t.Errorf("a push of epoch %d, which was claimed and never began: %v", e+1, err)
		}
		c.grant(t, "after")
		time.Sleep(time.Second)
		c.shows(t, "a second later", "after")
	})
}

// TestForgedRemovalEndsNoServer: a server that was removed ends for good, so it believes no push of that which MEMBERS does not confirm.
func TestForgedRemovalEndsNoServer(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		first := c.Primaries()[0]
		other := first%3 + 1
		c.Net.Isolate(first, true) // else the primary's push may come first
		if err := f.Removal(other, c.epochOf(first), farLSN); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		c.Net.Heal()
		select {
		case <-c.server(other).done:
			t.Errorf("server %d ended: %v", other, c.server(other).err)
		case <-time.After(5 * time.Second):
		}
		c.grant(t, "after")
		time.Sleep(fed)
		c.shows(t, "when it is fed again", "after")
	})
}

// TestForgedListChangesNothing: a pushed list is no more than a reason to read MEMBERS. Here it has addresses where nobody is, and so many electors
// that nobody could be primary.
func TestForgedListChangesNothing(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		first := c.Primaries()[0]
		c.Net.Isolate(first, true)
		var all cluster.Members
		for id := cluster.ServerID(1); id <= elsewhere; id++ {
			all = append(all, cluster.Member{ID: id, Client: fmt.Sprintf("forged%d:1", id), Peer: fmt.Sprintf("forged%d:3", id)})
		}
		for id := cluster.ServerID(1); id <= 3; id++ {
			if id == first {
				continue
			}
			if err := f.List(id, c.epochOf(first), farLSN, all); err != nil {
				t.Fatal(err)
			}
		}
		within(t, healing, "the other two have a primary", func() bool {
			return slices.ContainsFunc(c.Primaries(), func(id cluster.ServerID) bool { return id != first })
		})
		time.Sleep(3 * time.Second)
		for id := cluster.ServerID(1); id <= 3; id++ {
			if s := c.server(id).node.Status(); s.Members != 1 || len(s.Servers) != 3 || s.Servers[1].Member != Members()[1] {
				t.Errorf("server %d follows version %d of the list: %+v", id, s.Members, s.Servers)
			}
		}
		c.Net.Heal()
		c.grant(t, "after")
		time.Sleep(fed)
		c.shows(t, "when it is fed again", "after")
	})
}

// A push with the term's own epoch that is not the primary's counts until the primary pushes, and
// is no reason to refuse anything later.
func TestPushOfTheTermIsNotBelievedForLong(t *testing.T) {
	for _, lsn := range []cluster.LSN{1, farLSN} {
		forged(t, func(t *testing.T, c *Cluster, f *Forger) {
			for id := cluster.ServerID(1); id <= 3; id++ {
				e := c.epochOf(c.Primaries()[0])
				_ = f.Frame(id, e)
				_ = f.Snapshot(id, e, lsn)
			}
			time.Sleep(3 * time.Second)
			c.shows(t, "three seconds later", "before")
			for id := cluster.ServerID(1); id <= 3; id++ {
				_ = f.Snapshot(id, c.epochOf(c.Primaries()[0]), lsn)
			}
			c.restartAll(t)
			c.shows(t, "after a restart", "before")
			to, err := c.server(c.Primaries()[0]).node.Handover(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if id, _ := c.one(t, "behind a handover"); id != to {
				t.Errorf("server %d is primary: server %d, to which somebody pushed LSN %d once, is not", id, to, lsn)
			}
		})
	}
}

// Without a word of the primary, the volume tells that a table is not the primary's, by what it
// says of the same LSN, or of less.
func TestVolumeContradictsWhatWasPushed(t *testing.T) {
	for name, forge := range map[string]func(c *Cluster, f *Forger, e cluster.Epoch) error{
		"beyond": func(_ *Cluster, f *Forger, e cluster.Epoch) error { return f.Snapshot(3, e, farLSN) },
		"as far": func(c *Cluster, f *Forger, e cluster.Epoch) error {
			return f.Snapshot(3, e, c.tells(1).LSN)
		},
	} {
		t.Run(name, func(t *testing.T) {
			forged(t, func(t *testing.T, c *Cluster, f *Forger) {
				if id := c.Primaries()[0]; id != 1 {
					t.Fatalf("server %d is primary", id)
				}
				c.Net.Late(func(from, to cluster.ServerID) time.Duration {
					if from == 1 && to == 3 {
						return time.Hour // its pushes; its answers come
					}
					return 0
				})
				time.Sleep(3 * time.Second)
				if err := forge(c, f, c.epochOf(1)); err != nil {
					t.Fatal(err)
				}
				if r, _ := c.server(3).node.Read(t.Context(), func(serving.View) {}); r.Status != cluster.StatusOK {
					t.Fatalf("nothing was forged: %v", r.Status)
				}
				time.Sleep(4 * time.Second)
				if r, _ := c.server(3).node.Read(t.Context(), func(serving.View) {}); r.Status != cluster.StatusSecondaryMode {
					t.Errorf("four seconds later server 3 still shows a table at LSN %d that is not the primary's: %v", r.LSN, r.Status)
				}
				c.Net.Late(nil)
				time.Sleep(3 * time.Second)
				c.shows(t, "with pushes again", "before")
			})
		})
	}
}

// A server is handed the primary role over only if the volume shows that this one has resigned.
func TestHandoverIsProvenOnTheVolume(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		first := c.Primaries()[0]
		e := c.epochOf(first)
		epochs := c.epoch()
		for id := cluster.ServerID(1); id <= 3; id++ {
			for _, epoch := range []cluster.Epoch{0, 1, e - 1, e, e + 1, farEpoch} {
				if err := f.Handover(id, epoch); err == nil {
					t.Errorf("server %d takes over from epoch %d, which has not resigned", id, epoch)
				}
			}
		}
		time.Sleep(3 * time.Second)
		if now, _ := c.one(t, "afterwards"); now != first || c.epoch() != epochs {
			t.Errorf("server %d was primary, server %d is; %d epochs became %d", first, now, epochs, c.epoch())
		}
		if to, err := c.server(first).node.Handover(t.Context(), 0); err != nil {
			t.Errorf("a handover to server %d: %v", to, err)
		}
		time.Sleep(200 * time.Millisecond)
		ids := c.Primaries()
		if len(ids) != 1 || ids[0] == first {
			t.Fatalf("200 ms after the handover these are primary: %v", ids)
		}
		third := 6 - first - ids[0]
		c.Net.Cut(ids[0], third) // it does not hear which server is primary, and server first has resigned
		c.Net.Cut(third, ids[0])
		time.Sleep(500 * time.Millisecond)
		if err := f.Handover(third, e); !errors.Is(err, node.ErrLateHandover) {
			t.Errorf("server %d, which does not hear the next term, is told of the last one's end: %v", third, err)
		}
	})
}

// A number that somebody speaks of, and no server is primary in, is forgotten, and nobody passes it on.
func TestEpochOfNobodyIsForgotten(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		checks := func() (n int) {
			x := c.server(c.Primaries()[0])
			x.host.SetHook(func(k volumetest.Call) volumetest.Action {
				if k.Op == volumetest.OpReadAt && strings.HasSuffix(k.Name, "/fence") {
					n++
				}
				return volumetest.Proceed()
			})
			time.Sleep(10 * time.Second)
			x.host.SetHook(nil)
			return n
		}
		usual := checks()
		for to := cluster.ServerID(1); to <= 3; to++ {
			for from := cluster.ServerID(1); from <= 3; from++ {
				f.Ask(from, to, farEpoch)
				f.Ping(from, to, 1<<40, election.Status{Role: election.RolePrimary, Epoch: farEpoch, LSN: farLSN, Beat: 1 << 62})
			}
		}
		time.Sleep(3 * time.Second)
		c.shows(t, "three seconds later", "before")
		if n := checks(); n > usual+1 {
			t.Errorf("the primary looks for epoch %d for ever: %d checks in 10 s, %d before", farEpoch, n, usual)
		}
	})
}

// A ping with a number far ahead hides those of the server in whose name it comes only for a moment.
func TestPingFarAheadHidesNobody(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, f *Forger) {
		first := c.Primaries()[0]
		epochs := c.epoch()
		for from := cluster.ServerID(1); from <= 3; from++ {
			if from != first {
				f.Ping(from, first, 1<<64-1, election.Status{Epoch: 1})
			}
		}
		time.Sleep(20 * time.Second)
		if now, _ := c.one(t, "afterwards"); now != first || c.epoch() != epochs {
			t.Errorf("server %d was primary, server %d is; %d epochs became %d", first, now, epochs, c.epoch())
		}
	})
}

// On a filesystem whose listings are old, too, a replica follows a new term at once.
func TestNewTermIsSeenThroughOldCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOn(t, volumetest.ProfileNetwork(), 1, 0)
		if first, _ := c.one(t, "start"); first != 1 {
			t.Fatalf("server %d is primary first", first)
		}
		time.Sleep(2 * time.Second)
		c.browse(3)
		f := c.NewForger(rand.New(rand.NewPCG(1, 17)))
		if err := f.Snapshot(3, c.epochOf(1)+1, farLSN); !errors.Is(err, node.ErrUnseenTerm) {
			t.Errorf("a push of the next term, before there is one: %v", err)
		}
		c.Kill(1)
		c.one(t, "the next term")
		lsn := c.grant(t, "a")
		time.Sleep(100 * time.Millisecond)
		if r, _ := c.server(3).node.Read(t.Context(), func(serving.View) {}); r.LSN < lsn {
			t.Errorf("server 3 stands at LSN %d (%v) 100 ms after LSN %d", r.LSN, r.Status, lsn)
		}
		c.End()
		c.Shutdown()
	})
}

// A replica that no answer tells of the term finds it in the listing, when its cache shows that.
func TestNewTermIsSeenInTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOn(t, volumetest.ProfileNetwork(), 1, 0)
		c.one(t, "start")
		time.Sleep(2 * time.Second)
		c.browse(3)
		c.Net.Late(func(from, to cluster.ServerID) time.Duration {
			if from == 3 && to == 2 {
				return time.Hour // server 3 asks server 2 in vain, and hears it
			}
			return 0
		})
		if to, err := c.server(1).node.Handover(t.Context(), 2); err != nil || to != 2 {
			t.Fatal(to, err)
		}
		lsn := c.grant(t, "a")
		time.Sleep(volumetest.ProfileNetwork().Stale + 2*time.Second)
		if r, _ := c.server(3).node.Read(t.Context(), func(serving.View) {}); r.LSN < lsn {
			t.Errorf("server 3 stands at LSN %d (%v) when its caches show the term", r.LSN, r.Status)
		}
		c.End()
		c.Shutdown()
	})
}

// Messages of all kinds by somebody who is no server, at random moments, beside kills, handovers and
// partitions, lose nothing, and there is one primary soon; so also after a restart of all.
func TestForgedMessagesCostNothing(t *testing.T) {
	for seed := *first; seed < *first+6; seed++ {
		dir := t.TempDir()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds = 30
				profile := volumetest.ProfileLocal()
				if seed%3 == 0 {
					profile = volumetest.ProfileNetwork()
				}
				c := newClusterOn(t, profile, seed, rounds)
				c.Outages = true
				c.keepBelow(t, dir)
				c.restartAll(t)
				f := c.NewForger(rand.New(rand.NewPCG(seed, 17)))
				over, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for !closed(over) {
						f.Message()
						time.Sleep(time.Duration(f.rng.IntN(100)) * time.Millisecond)
					}
				}()
				for range 6 {
					time.Sleep(time.Duration(c.Rand.IntN(3000)) * time.Millisecond)
					name, heal := c.draw(t)
					time.Sleep(time.Duration(c.Rand.IntN(5000)) * time.Millisecond)
					heal()
					c.one(t, fmt.Sprintf("seed %d after %s", seed, name))
				}
				close(over)
				<-done
				c.restartAll(t)
				c.finish(t, rounds)
			})
		})
	}
}

// A server that starts with the copy of a table that it kept has it, though another term than that
// of the copy is the newest by then.
func TestCopyOfAFormerTermIsWarm(t *testing.T) {
	forged(t, func(t *testing.T, c *Cluster, _ *Forger) {
		first := c.Primaries()[0]
		other := first%3 + 1
		c.Kill(other)
		if _, err := c.server(first).node.Handover(t.Context(), 6-first-other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c.one(t, "behind a handover")
		c.Net.Isolate(other, true)
		if err := c.Start(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if r, err := c.server(other).node.Read(t.Context(), func(serving.View) {}); err != nil || r.Status != cluster.StatusOK || r.LSN == 0 {
			t.Errorf("server %d: started anew it shows LSN %d: %v, %v", other, r.LSN, r.Status, err)
		}
		c.Net.Heal()
	})
}
