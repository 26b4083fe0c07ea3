// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

var (
	clusterSeeds = flag.Int("sim.clusters", 30, "how many seeds of cluster schedules to run")
	clusterSeed  = flag.Uint64("sim.cluster", 0, "run only this seed")
)

// healing is how long a cluster may take to have one primary again: a takeover
// that failed backs off, and a hung filesystem is noticed after the storage timeout.
const healing = 30 * time.Second

// pace makes the clients of a cluster work for about as long as its faults last.
const pace = 1500 * time.Millisecond

// newCluster is three servers that run, and clients that work.
func newCluster(t *testing.T, seed uint64, rounds int) *Cluster {
	t.Helper()
	return newClusterOn(t, volumetest.ProfileLocal(), seed, rounds)
}

func newClusterOn(t *testing.T, profile volumetest.Profile, seed uint64, rounds int) *Cluster {
	t.Helper()
	return newClusterOf(t, profile, seed, rounds, asMade)
}

// asMade leaves a new volume as it is.
func asMade(*volumetest.Disk) error { return nil }

// newClusterOf is a cluster on a volume that prepare changes before there is a server.
func newClusterOf(t *testing.T, profile volumetest.Profile, seed uint64, rounds int, prepare func(*volumetest.Disk) error) *Cluster {
	t.Helper()
	return newClusterWith(t, newScenario(t, volumetest.New(seed), profile), seed, rounds, prepare)
}

// newClusterWith is a cluster on a new volume of a scenario, with as many servers as that says.
func newClusterWith(t *testing.T, s *Scenario, seed uint64, rounds int, prepare func(*volumetest.Disk) error) *Cluster {
	t.Helper()
	disk := s.Disk
	s.Random = chacha(seed)
	if _, err := volume.InitCell(disk.Host(9, s.Profile), volume.FeatureLevel, s.members(), s.Cell, chacha(seed+1), func(volume.Cluster) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := prepare(disk); err != nil {
		t.Fatal(err)
	}
	s.Pace, s.Clocks = pace, seed
	return startCluster(t, s, seed, rounds)
}

// startCluster starts the servers and the clients of a scenario on a volume.
func startCluster(t *testing.T, s *Scenario, seed uint64, rounds int) *Cluster {
	t.Helper()
	c := NewCluster(s, rand.New(rand.NewPCG(seed, 3)))
	for _, m := range s.members() {
		if err := c.Start(m.ID); err != nil {
			t.Fatal(err)
		}
	}
	c.Work(rounds)
	return c
}

// finish waits for the clients, ends everything and judges.
func (c *Cluster) finish(t *testing.T, rounds int) {
	t.Helper()
	poll(func() bool { return c.progress.Load() >= int32(3*rounds) })
	if high := c.Ledger.High(); !c.MirrorShows(high, healing) {
		t.Errorf("the mirror does not show LSN %d after %v", high, healing)
	}
	c.End()
	c.Shutdown()
	bad := append(c.EndMirror(), c.Verify(c.Disk)...)
	if got, want := len(c.Ledger.Acks()), 3*rounds*4; got != want {
		bad = append(bad, fmt.Sprintf("%d operations acknowledged, want %d", got, want))
	}
	if len(bad) > 0 {
		t.Error(strings.Join(bad, "\n  "))
	}
}

// one demands one primary within the limit, the same for a while, and progress.
func (c *Cluster) one(t *testing.T, what string) (cluster.ServerID, time.Duration) {
	t.Helper()
	id, took, err := c.AwaitPrimary(healing)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return id, took
}

func TestLowestServerIsPrimaryFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 3)
		id, took := c.one(t, "start")
		if id != 1 || took > 2*time.Second {
			t.Errorf("server %d is primary after %v", id, took)
		}
		c.finish(t, 3)
		if c.counted == 0 {
			t.Error("no primary compared what it counts for quotas with its table")
		}
	})
}

func TestHandoverIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 12)
		c.one(t, "start")
		time.Sleep(time.Second)
		began := time.Now()
		go c.Terminate(1)
		poll(func() bool { ids := c.Primaries(); return len(ids) == 1 && ids[0] != 1 })
		t.Logf("server %v is primary %v after SIGTERM of server 1", c.Primaries(), time.Since(began))
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("a planned handover took %v", took)
		}
		c.finish(t, 12)
	})
}

// TestPermanentFaults keeps one fault of each tolerated kind for ever: the
// others must have one primary, and keep it.
func TestPermanentFaults(t *testing.T) {
	type fault struct {
		name   string
		inject func(c *Cluster, id cluster.ServerID)
	}
	faults := []fault{
		{"killed", func(c *Cluster, id cluster.ServerID) { c.Kill(id) }},
		{"isolated", func(c *Cluster, id cluster.ServerID) { c.Net.Isolate(id, true) }},
		{"volume gone", func(c *Cluster, id cluster.ServerID) { c.Hang(id) }},
	}
	for from := cluster.ServerID(1); from <= 3; from++ {
		for to := cluster.ServerID(1); to <= 3; to++ {
			if from != to {
				faults = append(faults, fault{fmt.Sprintf("deaf from %d to %d", from, to), func(c *Cluster, id cluster.ServerID) {
					if id == from {
						c.Net.Cut(from, to)
					}
				}})
			}
		}
	}
	for _, f := range faults {
		for id := cluster.ServerID(1); id <= 3; id++ {
			t.Run(fmt.Sprintf("server %d %s", id, f.name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { permanent(t, func(c *Cluster) { f.inject(c, id) }) })
			})
		}
	}
}

func permanent(t *testing.T, inject func(*Cluster)) {
	const rounds = 40
	c := newCluster(t, 5, rounds)
	c.one(t, "start")
	time.Sleep(time.Second)
	inject(c)
	time.Sleep(20 * time.Second)
	id, _ := c.one(t, "with the fault")
	epochs := c.epoch()
	for range 60 {
		time.Sleep(time.Second)
		if ids := c.Primaries(); len(ids) != 1 || ids[0] != id {
			t.Errorf("the term of server %d is not stable: %v", id, ids)
			break
		}
	}
	if now := c.epoch(); now != epochs {
		t.Errorf("terms alternate: epoch %d became %d", epochs, now)
	}
	c.finish(t, rounds)
}

// claimed is the number of the newest epoch.
func (c *Cluster) claimed() (top int) {
	for name := range c.Disk.Files("epochs/") {
		dir, _, _ := strings.Cut(strings.TrimPrefix(name, "epochs/"), "/")
		if n, err := strconv.Atoi(dir); err == nil {
			top = max(top, n)
		}
	}
	return top
}

// TestClusterSchedules draws kills, restarts, partitions, terminations and faults
// of one server's filesystem by seed; after each healing there must be one
// primary, and in the end nothing lost.
func TestClusterSchedules(t *testing.T) {
	runClusters(t, volumetest.ProfileLocal(), 1)
}

// TestClusterSchedulesOnStaleCaches does so where every server believes its
// caches for 30 seconds.
func TestClusterSchedulesOnStaleCaches(t *testing.T) {
	runClusters(t, volumetest.ProfileNetwork(), 3)
}

// runClusters runs every stride-th seed.
func runClusters(t *testing.T, profile volumetest.Profile, stride uint64) {
	var waits []time.Duration
	var simulated time.Duration
	seeds := 0
	for seed := *first; seed < *first+uint64(*clusterSeeds); seed += stride {
		if *clusterSeed != 0 {
			seed = *clusterSeed
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				waits = append(waits, clusterSchedule(t, profile, seed)...)
				simulated += time.Since(began)
				seeds++
			})
		})
		if *clusterSeed != 0 || t.Failed() {
			break
		}
	}
	slices.Sort(waits)
	if n := len(waits); n > 0 {
		t.Logf("%d seeds from %d on, %.1f simulated hours, %d healings; one primary again after median %v, p99 %v, max %v",
			seeds, *first, simulated.Hours(), n, waits[n/2], waits[n*99/100], waits[n-1])
	}
}

func clusterSchedule(t *testing.T, profile volumetest.Profile, seed uint64) (waits []time.Duration) {
	const rounds, faults = 30, 8
	c := newClusterOn(t, profile, seed, rounds)
	c.Outages = true
	if err := c.Mirror(); err != nil {
		t.Fatal(err)
	}
	c.one(t, "start")
	for range faults {
		time.Sleep(time.Duration(c.Rand.IntN(3000)) * time.Millisecond)
		if profile.Kind.Network {
			for id := cluster.ServerID(1); id <= 3; id++ {
				c.browse(id)
			}
		}
		name, heal := c.draw(t)
		time.Sleep(time.Duration(c.Rand.IntN(8000)) * time.Millisecond)
		heal()
		_, took := c.one(t, fmt.Sprintf("seed %d after %s", seed, name))
		waits = append(waits, took)
	}
	c.finish(t, rounds)
	if n := c.claimed(); n > 1+2*faults {
		t.Errorf("%d terms over %d faults: some primary that was well was deposed", n, faults)
	}
	if c.Compared < 10 {
		t.Errorf("the mirror was compared at %d LSNs only", c.Compared)
	}
	return waits
}

// draw injects a fault and returns what heals it.
func (c *Cluster) draw(t *testing.T) (name string, heal func()) {
	id := cluster.ServerID(1 + c.Rand.IntN(3))
	other := 1 + (id+cluster.ServerID(c.Rand.IntN(2)))%3
	start := func(id cluster.ServerID) {
		if err := c.Start(id); err != nil {
			t.Errorf("restart: %v", err)
		}
	}
	switch c.Rand.IntN(13) {
	case 0:
		c.Kill(id)
		return fmt.Sprintf("kill %d", id), func() { start(id) }
	case 1:
		c.Kill(id)
		c.Kill(other)
		return fmt.Sprintf("kill %d and %d", id, other), func() { start(id); start(other) }
	case 2:
		c.Shutdown()
		return "kill all", func() { start(1); start(2); start(3) }
	case 3:
		c.Net.Isolate(id, true)
		return fmt.Sprintf("isolate %d", id), c.Net.Heal
	case 4:
		c.Net.Cut(id, other)
		return fmt.Sprintf("cut %d to %d", id, other), c.Net.Heal
	case 5:
		gate := c.Hang(id)
		return fmt.Sprintf("hang the volume of %d", id), gate.Resume
	case 6:
		c.Terminate(id)
		return fmt.Sprintf("terminate %d", id), func() { start(id) }
	case 7:
		c.Shutdown()
		c.Disk.Crash(c.Rand)
		return "power loss", func() { start(1); start(2); start(3) }
	default:
		return c.drawStorage(id)
	}
}

// drawStorage injects a fault of one server's filesystem.
func (c *Cluster) drawStorage(id cluster.ServerID) (name string, heal func()) {
	host := c.server(id).host
	next := host.Calls() + 1
	heal = func() { host.SetHook(nil) }
	switch c.Rand.IntN(5) {
	case 0:
		host.SetHook(volumetest.From(next, volumetest.FailBefore(syscall.ESTALE)))
		return fmt.Sprintf("ESTALE for %d", id), heal
	case 1:
		host.SetHook(volumetest.At(next+c.Rand.IntN(40), volumetest.FailBefore(syscall.EIO)))
		return fmt.Sprintf("EIO once for %d", id), heal
	case 2:
		host.SetHook(slowFrom(time.Duration(1+c.Rand.IntN(40))*time.Millisecond)(next, nil))
		return fmt.Sprintf("slow volume of %d", id), heal
	case 3:
		host.LoseLocks()
		return fmt.Sprintf("locks of %d expire", id), heal
	default:
		host.SetHook(retransmitted([]error{syscall.EEXIST, syscall.ENOENT}[c.Rand.IntN(2)])(next+c.Rand.IntN(200), nil))
		return fmt.Sprintf("lost answer for %d", id), heal
	}
}
