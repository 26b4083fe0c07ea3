// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

var twoSeeds = flag.Int("sim.two", 20, "how many seeds of schedules of two servers to run")

// newTwo is a cluster of two servers, and clients that work.
func newTwo(t *testing.T, profile volumetest.Profile, seed uint64, rounds int) *Cluster {
	t.Helper()
	s := newScenario(t, volumetest.New(seed), profile)
	s.Servers = 2
	return newClusterWith(t, s, seed, rounds, asMade)
}

// alone demands that one server, and only it, is primary, of those that are not hung.
func (c *Cluster) alone(t *testing.T, what string, hung ...cluster.ServerID) (id cluster.ServerID, took time.Duration) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ids := slices.DeleteFunc(c.Primaries(), func(id cluster.ServerID) bool { return slices.Contains(hung, id) })
		if took = time.Since(began); len(ids) == 1 {
			return ids[0], took
		}
		if took > healing {
			t.Errorf("%s: primaries after %v: %v", what, took, ids)
			return 0, took
		}
	}
}

// ofTwo is what may happen to one of two servers.
type ofTwo struct {
	name string
	// inject has it happen, and returns what ends it and whether the server is hung until then.
	inject func(t *testing.T, c *Cluster, id cluster.ServerID) (heal func(), hangs bool)
}

// startAgain starts servers that were killed. A process takes longer to start than what the one before it sent is on its way: else both
// would be heard in turn.
func (c *Cluster) startAgain(t *testing.T, ids ...cluster.ServerID) {
	time.Sleep(c.Timing.Heartbeat)
	for _, id := range ids {
		if err := c.Start(id); err != nil {
			t.Errorf("restart: %v", err)
		}
	}
}

func faultsOfTwo() []ofTwo {
	return []ofTwo{
		{"killed", func(t *testing.T, c *Cluster, id cluster.ServerID) (func(), bool) {
			c.Kill(id)
			return func() { c.startAgain(t, id) }, false
		}},
		{"cut off from the other", func(_ *testing.T, c *Cluster, id cluster.ServerID) (func(), bool) {
			c.Net.Isolate(id, true)
			return c.Net.Heal, false
		}},
		{"unheard by the other", func(_ *testing.T, c *Cluster, id cluster.ServerID) (func(), bool) {
			c.Net.Cut(id, 3-id)
			return c.Net.Heal, false
		}},
		{"on a hung volume", func(_ *testing.T, c *Cluster, id cluster.ServerID) (func(), bool) {
			return c.Hang(id).Resume, true
		}},
		{"paused", func(_ *testing.T, c *Cluster, id cluster.ServerID) (func(), bool) {
			gate := c.Hang(id)
			c.Net.Isolate(id, true)
			return func() { c.Net.Heal(); gate.Resume() }, true
		}},
		{"told to stop", func(t *testing.T, c *Cluster, id cluster.ServerID) (func(), bool) {
			c.Terminate(id)
			return func() { c.startAgain(t, id) }, false
		}},
	}
}

// TestPermanentFaultsOfTwo keeps one fault of one of two servers for ever, of the primary and of the replica: there is one primary,
// the same all the time, after seconds.
func TestPermanentFaultsOfTwo(t *testing.T) {
	for _, f := range faultsOfTwo() {
		for id := cluster.ServerID(1); id <= 2; id++ {
			t.Run(fmt.Sprintf("server %d %s", id, f.name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { permanentOfTwo(t, f, id) })
			})
		}
	}
}

func permanentOfTwo(t *testing.T, f ofTwo, id cluster.ServerID) {
	const rounds = 40
	c := newTwo(t, volumetest.ProfileLocal(), 5, rounds)
	if first, _ := c.one(t, "start"); first != 1 {
		t.Errorf("server %d is primary first", first)
	}
	time.Sleep(1500 * time.Millisecond)
	before := c.epoch()
	heal, hangs := f.inject(t, c, id)
	var hung []cluster.ServerID
	if hangs {
		hung = []cluster.ServerID{id}
	}
	time.Sleep(c.Timing.Suspicion)
	primary, took := c.alone(t, "with the fault", hung...)
	t.Logf("server %d is primary after %v", primary, took)
	if limit := c.Timing.StorageTimeout + 3*time.Second; took > limit {
		t.Errorf("one primary after %v, want at most %v", took, limit)
	}
	ended := id == 1 && f.name != "cut off from the other" && f.name != "unheard by the other"
	if want := map[bool]cluster.ServerID{false: 1, true: 2}[ended]; primary != want {
		t.Errorf("server %d is primary, want %d", primary, want)
	}
	time.Sleep(time.Minute)
	if now, _ := c.alone(t, "later", hung...); now != primary {
		t.Errorf("server %d is primary, and was not", now)
	}
	if n := c.epoch() - before; n > 1 || n > 0 && !ended {
		t.Errorf("%d claims", n)
	}
	heal()
	c.one(t, "when it is over")
	c.finish(t, rounds)
}

// TestSchedulesOfTwo draws faults of two servers by seed, as TestClusterSchedules does of three.
func TestSchedulesOfTwo(t *testing.T) {
	for name, profile := range map[string]volumetest.Profile{"one host": volumetest.ProfileLocal(), "stale caches": volumetest.ProfileNetwork()} {
		for seed := *first; seed < *first+uint64(*twoSeeds); seed++ {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { scheduleOfTwo(t, profile, seed) })
			})
		}
	}
}

func scheduleOfTwo(t *testing.T, profile volumetest.Profile, seed uint64) {
	const rounds, faults = 20, 6
	c := newTwo(t, profile, seed, rounds)
	c.Outages = true
	c.one(t, "start")
	var all []string
	for range faults {
		time.Sleep(time.Duration(c.Rand.IntN(3000)) * time.Millisecond)
		if profile.Kind.Network {
			c.browse(1)
			c.browse(2)
		}
		name, heal := c.drawOfTwo(t)
		all = append(all, name)
		time.Sleep(time.Duration(c.Rand.IntN(10000)) * time.Millisecond)
		heal()
		c.one(t, fmt.Sprintf("seed %d after %s", seed, name))
	}
	c.finish(t, rounds)
	if n := c.claimed(); n > 1+2*faults {
		t.Errorf("seed %d: %d terms over %s: some primary that was well was deposed", seed, n, strings.Join(all, ", "))
	}
}

func (c *Cluster) drawOfTwo(t *testing.T) (name string, heal func()) {
	id := cluster.ServerID(1 + c.Rand.IntN(2))
	switch c.Rand.IntN(5) {
	case 0:
		c.Shutdown()
		return "kill both", func() { c.startAgain(t, 1, 2) }
	case 1:
		c.Shutdown()
		c.Disk.Crash(c.Rand)
		return "power loss", func() { c.startAgain(t, 1, 2) }
	case 2:
		return c.drawStorage(id)
	}
	all := faultsOfTwo()
	f := all[c.Rand.IntN(len(all))]
	heal, _ = f.inject(t, c, id)
	return fmt.Sprintf("server %d %s", id, f.name), heal
}

// On a share whose calls take long, and with a short storage timeout, one of two servers follows as one of three does: its looks take
// long, and its last write is seldom a moment old.
func TestOneOfTwoFollowsOnASlowShare(t *testing.T) {
	for _, x := range []struct{ storage, call time.Duration }{
		{5 * time.Second, 100 * time.Millisecond},
		{5 * time.Second, 300 * time.Millisecond},
		{1500 * time.Millisecond, 30 * time.Millisecond},
		{time.Second, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			what := fmt.Sprintf("%v a call, a storage timeout of %v", x.call, x.storage)
			c := newTwo(t, volumetest.ProfileLocal(), 1, 0)
			c.Shutdown()
			c.Timing.StorageTimeout = x.storage
			c.startAgain(t, 1, 2)
			for id := cluster.ServerID(1); id <= 2; id++ {
				c.server(id).host.SetHook(slowFrom(x.call)(0, nil))
			}
			first, _, err := c.AwaitPrimary(time.Minute)
			if err != nil {
				t.Errorf("%s: at the start: %v", what, err)
			}
			time.Sleep(time.Minute) // the other one has a claim prepared
			before := c.epoch()
			c.Kill(first)
			_, took, err := c.AwaitPrimary(time.Minute)
			t.Logf("%s: the other one is primary after %v", what, took)
			if n := c.epoch() - before; err != nil || n > 2 {
				t.Errorf("%s: %v after %d claims", what, err, n)
			}
			c.End()
			c.Shutdown()
		})
	}
}

// A share that stalls for both of two servers ends no term, also where they do not hear each other.
func TestShareThatStallsForTwoEndsNoTerm(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newTwo(t, volumetest.ProfileLocal(), 1, 0)
			c.one(t, "start")
			time.Sleep(2 * time.Second)
			c.Net.Isolate(1, cut)
			epochs := c.epoch()
			gates := []*volumetest.Gate{c.Hang(1), c.Hang(2)}
			time.Sleep(2 * c.Timing.StorageTimeout)
			gates[1].Resume() // the replica notices first
			time.Sleep(2 * time.Second)
			gates[0].Resume()
			time.Sleep(2 * c.Timing.StorageTimeout)
			if id, _ := c.one(t, "afterwards"); id != 1 || c.epoch() != epochs {
				t.Errorf("cut %v: server %d is primary, %d epochs became %d", cut, id, epochs, c.epoch())
			}
			c.End()
			c.Shutdown()
		})
	}
}

// A takeover that takes long, because all leases have to end first, is left alone by a server that hears nothing of it.
func TestSlowTakeoverOfOneOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScenario(t, volumetest.New(1), volumetest.ProfileLocal())
		s.Servers = 2
		c := newClusterWith(t, s, 1, 0, asMade)
		c.one(t, "start")
		time.Sleep(2 * time.Second)
		out, err := c.server(1).node.Do(t.Context(), &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: 1, Lock: "l", TTL: time.Minute})
		if err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("acquire: %v, %v", out.Status, err)
		}
		c.Shutdown()
		c.Timing.Policy = cluster.PolicyClear
		c.Net.Isolate(1, true)
		c.startAgain(t, 1, 2)
		time.Sleep(8 * time.Second)
		before := c.epoch()
		poll(func() bool { return len(c.Primaries()) > 0 }) // when all leases must have ended
		time.Sleep(30 * time.Second)
		c.one(t, "in the end")
		if n := c.epoch() - before; n > 0 || before > 4 { // the first one, that of the start, and a claim by each
			t.Errorf("%d epochs, and %d more: a takeover was ended by a server that did not hear it", before, n)
		}
		c.End()
		c.Shutdown()
	})
}

// The last of three serves when an operator permits it, and only then, once.
func TestTakeoverByTheLastServer(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		asks := func(when string, id cluster.ServerID, want cluster.Status, says string) {
			t.Helper()
			if out := c.server(id).node.Takeover(); out.Status != want || !strings.Contains(out.Message, says) {
				t.Errorf("%s: %v %q, want %v %q", when, out.Status, out.Message, want, says)
			}
		}
		asks("all is well", 3, cluster.StatusError, "server 1 is primary")
		asks("all is well", 1, cluster.StatusOK, "already")
		c.Net.Isolate(3, true)
		time.Sleep(5 * time.Second)
		asks("it is cut off", 3, cluster.StatusError, "server 1 writes to the volume as primary")
		if w := strings.Join(c.tells(3).Warnings, "; "); !strings.Contains(w, "server 1 writes to the volume as primary") {
			t.Errorf("cut off, its status says %q", w)
		}
		c.Kill(1)
		poll(func() bool { return len(c.Primaries()) == 0 })
		time.Sleep(2 * time.Second)
		asks("the primary has just ended", 3, cluster.StatusError, "try again in 3s")
		c.Net.Heal()
		c.one(t, "two of three")
		time.Sleep(time.Second)
		asks("two of three have a primary", 3, cluster.StatusError, "server 2 is primary")
		c.Kill(2)
		time.Sleep(10 * time.Second)
		if w := strings.Join(c.tells(3).Warnings, "; "); len(c.Primaries()) != 0 || !strings.Contains(w, "holdfast takeover --yes") {
			t.Errorf("alone, %v are primary, and its status says %q", c.Primaries(), w)
		}
		gate := c.Hang(3)
		time.Sleep(c.Timing.StorageTimeout + 2*time.Second)
		asks("its volume hangs", 3, cluster.StatusError, "server 3 cannot be primary: THE VOLUME HAS TAKEN NO WRITE")
		gate.Resume()
		time.Sleep(10 * time.Second)
		asks("it is alone", 3, cluster.StatusOK, "server 3 takes over")
		if id, took := c.one(t, "permitted"); id != 3 || took > 2*time.Second {
			t.Errorf("server %d is primary after %v", id, took)
		}
		asks("again", 3, cluster.StatusOK, "already")
		time.Sleep(time.Minute)
		c.one(t, "a minute later")
		c.Kill(3)
		c.startAgain(t, 3)
		time.Sleep(time.Minute)
		if ids := c.Primaries(); len(ids) > 0 {
			t.Errorf("started again, %v are primary by a permission that was used", ids)
		}
		c.startAgain(t, 1)
		c.one(t, "two of three again")
	})
}

// A server that hears no majority, but one that does, is not permitted to take over: the others are about to.
func TestNoTakeoverBesideAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScenario(t, volumetest.New(1), volumetest.ProfileLocal())
		s.Servers = 5
		c := newClusterWith(t, s, 1, 0, asMade)
		c.one(t, "start")
		for other := cluster.ServerID(1); other <= 3; other++ {
			c.Net.Cut(5, other)
			c.Net.Cut(other, 5)
		}
		time.Sleep(5 * time.Second)
		c.Kill(1)
		said := ""
		for began := time.Now(); time.Since(began) < time.Second && !strings.Contains(said, "majority"); time.Sleep(time.Millisecond) {
			out := c.server(5).node.Takeover()
			if said = out.Message; out.Status == cluster.StatusOK {
				t.Fatalf("permitted: %s", said)
			}
		}
		if want := "server 4 reaches a majority of the servers"; !strings.Contains(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
		c.one(t, "four of five")
		c.End()
		c.Shutdown()
	})
}

// A server that answers and cannot write to the volume counts for no majority: it keeps nobody from permitting the last one that can.
func TestTakeoverBesideAServerWithoutAVolume(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		gate := c.Hang(2)
		time.Sleep(c.Timing.StorageTimeout + time.Second)
		c.Kill(1)
		time.Sleep(15 * time.Second)
		if w := strings.Join(c.tells(3).Warnings, "; "); len(c.Primaries()) != 0 || !strings.Contains(w, "holdfast takeover --yes") {
			t.Errorf("%v are primary, and the status of server 3 says %q", c.Primaries(), w)
		}
		out := c.server(3).node.Takeover()
		if id, took := c.alone(t, "permitted", 2); out.Status != cluster.StatusOK || id != 3 || took > 2*time.Second {
			t.Errorf("server %d is primary after %v: %v %q", id, took, out.Status, out.Message)
		}
		time.Sleep(time.Minute)
		c.alone(t, "a minute later", 2)
		gate.Resume()
		time.Sleep(2 * time.Second)
		c.one(t, "its volume is back")
	})
}

// A primary that stepped down because the others are gone may be permitted to serve again: its own last beat is none of another one.
func TestTakeoverByThePrimaryThatSteppedDown(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.Shutdown()
		c.startAgain(t, 1)
		time.Sleep(5 * time.Second) // alone, it looks at the volume
		c.startAgain(t, 2, 3)
		c.one(t, "three again")
		time.Sleep(2 * time.Second)
		c.Kill(2)
		c.Kill(3)
		poll(func() bool { return len(c.Primaries()) == 0 })
		time.Sleep(time.Second)
		if w := strings.Join(c.tells(1).Warnings, "; "); strings.Contains(w, "server 1 writes") {
			t.Errorf("its status says %q", w)
		}
		out := c.server(1).node.Takeover()
		if id, took := c.one(t, "permitted"); out.Status != cluster.StatusOK || id != 1 || took > 4*time.Second {
			t.Errorf("server %d is primary after %v: %v %q", id, took, out.Status, out.Message)
		}
	})
}
