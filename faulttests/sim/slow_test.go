// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
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

// A canary that hangs may blind the replicas. It may not keep its server from
// reigning again.
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
			t.Errorf("server %d reigns, want the lowest that lives, %d", again, id)
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
		if err := c.Disk.Write(newest, 0, make([]byte, volume.BlockSize)); err != nil {
			t.Fatal(err)
		}
		before := c.epoch()
		c.restart(t)
		time.Sleep(time.Hour)
		if burned := c.epoch() - before; burned == 0 || burned > 3 {
			t.Errorf("in an hour %d numbers were burned", burned)
		}
		if err := c.Disk.Write(newest, 0, content[:volume.BlockSize]); err != nil {
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
