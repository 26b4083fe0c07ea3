// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A takeover may last longer than the storage timeout: under the clear policy,
// or because there is much to read. Its peers must let it finish.

func TestTakeoverThatWaitsForLeasesIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		c.Shutdown()
		c.Timing.Policy = cluster.PolicyClear
		c.restart(t)
		id, _ := c.one(t, "start")
		out, err := c.server(id).node.Do(t.Context(), &locktable.Request{
			Op: locktable.OpAcquire, Client: "holder", ID: 1, Lock: "l", TTL: 30 * time.Second,
		})
		if err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("acquire: %v %v", out.Status, err)
		}
		c.Kill(id)
		time.Sleep(2 * time.Second)
		if err := c.Start(id); err != nil {
			t.Fatal(err)
		}
		before := c.epoch()
		_, took, err := c.AwaitPrimary(time.Minute)
		if err != nil || c.epoch() > before+1 {
			t.Errorf("after %v: %v; %d claims", took, err, c.epoch()-before)
		}
		c.End()
		c.Shutdown()
	})
}

func TestTakeoverThatReadsForLongIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		c.one(t, "start")
		time.Sleep(time.Second)
		c.Shutdown()
		c.restart(t)
		for id := cluster.ServerID(1); id <= 3; id++ {
			var reads atomic.Int64
			c.server(id).host.SetHook(func(k volumetest.Call) volumetest.Action {
				if k.Op == volumetest.OpReadAt && strings.Contains(k.Name, "wal-") && reads.Add(1) <= 2 {
					time.Sleep(c.Timing.StorageTimeout * 4 / 5) // one that takes the whole of it hangs
				}
				return volumetest.Proceed()
			})
		}
		before := c.epoch()
		_, took, err := c.AwaitPrimary(time.Minute)
		if err != nil || c.epoch() > before+1 {
			t.Errorf("after %v: %v; %d claims", took, err, c.epoch()-before)
		}
		c.End()
		c.Shutdown()
	})
}

// TestProposedTimingSparesClaims: on a share whose every call takes 100 ms, with the default timing
// others claim while the first one still does, and it gives way. With the timing that is
// proposed for such a share a failover has one claim.
func TestProposedTimingSparesClaims(t *testing.T) {
	const call = 100 * time.Millisecond
	proposed := cluster.DefaultTiming().Covering(cluster.Latency{Check: 2 * call, Write: call})
	const failovers = 4
	if n := claimsOnASlowShare(t, cluster.DefaultTiming(), call, failovers); n == failovers {
		t.Errorf("the defaults: a claim in each failover, so nothing would have to be proposed")
	}
	if n := claimsOnASlowShare(t, proposed, call, failovers); n != failovers {
		t.Errorf("as proposed: %d claims in %d failovers", n, failovers)
	}
}

// claimsOnASlowShare counts the claims of failovers, each of a cluster of its own.
func claimsOnASlowShare(t *testing.T, timing cluster.Timing, call time.Duration, failovers int) (claims int) {
	t.Helper()
	for seed := range uint64(failovers) {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterOn(t, volumetest.ProfileNetwork(), seed+1, 0)
			c.Shutdown()
			c.Timing = timing
			c.restart(t)
			for id := cluster.ServerID(1); id <= 3; id++ {
				c.server(id).host.SetHook(slowFrom(call)(0, nil))
			}
			first, _, err := c.AwaitPrimary(time.Minute)
			time.Sleep(time.Minute) // the others prepare their claims
			before := c.epoch()
			c.Kill(first)
			next, took, nextErr := c.AwaitPrimary(time.Minute)
			if err := errors.Join(err, nextErr); err != nil {
				t.Error(err)
			}
			t.Logf("seed %d: %d claims until server %d was primary, which took %v", seed+1, c.epoch()-before, next, took)
			claims += c.epoch() - before
			c.End()
			c.Shutdown()
		})
	}
	return claims
}

// A canary that hangs may blind the replicas. It may not keep its server from
// ever becoming primary again.
func TestHungCanaryHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		id, _ := c.one(t, "start")
		gate := volumetest.NewGate()
		c.server(id).host.SetHook(func(k volumetest.Call) volumetest.Action {
			if k.Op == volumetest.OpWriteAt && strings.HasSuffix(k.Name, ".canary") {
				return volumetest.Pause(gate)
			}
			return volumetest.Proceed()
		})
		<-gate.Arrived()
		if _, err := c.server(id).node.Handover(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		next, _ := c.one(t, "after the handover")
		c.Kill(next)
		if again, _ := c.one(t, "after its successor was killed"); again != id {
			t.Errorf("server %d is primary, want the lowest that lives, %d", again, id)
		}
		gate.Resume()
		c.End()
		c.Shutdown()
	})
}

// A volume that nobody can take over needs an operator. Servers find that out once, and claim
// again when it is mended.
func TestDamagedVolumeIsClaimedOnceByEachServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		c.one(t, "start")
		time.Sleep(time.Second)
		c.Shutdown()
		newest := ""
		for name := range c.Disk.Files("epochs/") {
			if strings.HasSuffix(name, ".log") && !strings.HasSuffix(name, "next.log") {
				newest = max(newest, name)
			}
		}
		content, err := c.Disk.ReadFile(newest)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Disk.Write(newest, 0, make([]byte, vfs.BlockSize)); err != nil {
			t.Fatal(err)
		}
		before := c.epoch()
		c.restart(t)
		time.Sleep(time.Hour)
		if burned := c.epoch() - before; burned == 0 || burned > 3 {
			t.Errorf("in an hour %d numbers were burned", burned)
		}
		if err := c.Disk.Write(newest, 0, content[:vfs.BlockSize]); err != nil {
			t.Fatal(err)
		}
		if _, took, err := c.AwaitPrimary(5 * time.Minute); err != nil {
			t.Errorf("mended since %v: %v", took, err)
		}
		c.End()
		c.Shutdown()
	})
}

// restart starts all three servers.
func (c *Cluster) restart(t *testing.T) {
	t.Helper()
	for id := cluster.ServerID(1); id <= 3; id++ {
		if err := c.Start(id); err != nil {
			t.Fatal(err)
		}
	}
}
