// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

var setBackSeeds = flag.Int("sim.setbacks", 2, "how many seeds of volumes that are set back to run")

// TestVolumeSetBack sets the volume back to an earlier state, as who restores a backup does, under
// servers with data directories: nothing that was acknowledged is lost silently. An operator then
// recovers it, is told what may be lost, and the service goes on.
func TestVolumeSetBack(t *testing.T) {
	scenarios(t, *setBackSeeds, setBackScenario)
}

func setBackScenario(t *testing.T, seed uint64) {
	c := newSetBack(t, seed)
	defer func() { // nothing is left in the bubble, where it fails
		c.stop()
		c.workers.Wait()
		c.Shutdown()
	}()
	for range 2 {
		time.Sleep(time.Duration(c.Rand.IntN(3000)) * time.Millisecond)
		name, heal := c.drawDataDir(t)
		time.Sleep(time.Duration(c.Rand.IntN(8000)) * time.Millisecond)
		heal()
		c.one(t, name)
	}
	time.Sleep(5 * time.Second)
	backup, high := c.Disk.Clone(), c.Ledger.High()
	// Long enough for a server to note what was committed since, and maybe to keep its table.
	time.Sleep(10*time.Second + time.Duration(c.Rand.IntN(50))*time.Second)
	c.stop()
	c.workers.Wait()
	c.endAll()
	if c.Ledger.High() <= high {
		t.Fatalf("nothing was acknowledged behind the backup's LSN %d: that means little", high)
	}
	c.Disk = backup
	c.refuseAll(t)
	plan := c.recover(t)
	c.judgePlan(t, plan)
	for _, m := range Members() {
		c.start(t, m.ID)
	}
	c.one(t, "after the recovery")
	before := len(c.Ledger.Acks())
	last := c.Ledger.High()
	w := &worker{scenario: c.Scenario, id: "later", lock: "later", file: "later.txt"}
	w.run(t.Context(), 3)
	for _, a := range c.Ledger.Acks()[before:] {
		if a.Outcome.LSN <= last {
			t.Errorf("%v has LSN %d after %d was told before the volume was set back", a.Request.Op, a.Outcome.LSN, last)
		}
	}
	if n := len(c.Ledger.Acks()) - before; n != 3*4 {
		t.Errorf("%d operations acknowledged after the recovery, want %d", n, 3*4)
	}
	c.Shutdown()
	for _, bad := range append(c.Ledger.Bad(), c.verifyVolume(c.Disk)...) {
		t.Error(bad)
	}
}

// newSetBack is a cluster whose servers have data directories.
func newSetBack(t *testing.T, seed uint64) *Cluster {
	t.Helper()
	disk := volumetest.New(seed)
	s := newScenario(t, disk, volumetest.ProfileLocal())
	s.Random, s.Clocks, s.Pace = chacha(seed), seed, pace/3
	if _, err := volume.Init(t.Context(), disk.Host(9, s.Profile), Members(), chacha(seed+1)); err != nil {
		t.Fatal(err)
	}
	c := NewCluster(s, rand.New(rand.NewPCG(seed, 6)))
	c.DataDirs = map[cluster.ServerID]string{}
	for _, m := range Members() {
		c.DataDirs[m.ID] = t.TempDir()
		c.start(t, m.ID)
	}
	c.Work(10000)
	c.one(t, "start")
	return c
}

func (c *Cluster) start(t *testing.T, id cluster.ServerID) {
	t.Helper()
	if err := c.Start(id); err != nil {
		t.Fatal(err)
	}
}

// endAll ends every server, some as kill -9 does: those keep no table in the end.
func (c *Cluster) endAll() {
	for _, m := range Members() {
		if c.Rand.IntN(2) == 0 {
			c.Terminate(m.ID)
			continue
		}
		restore := frozen(c.DataDirs[m.ID])
		c.Kill(m.ID)
		restore()
	}
}

// frozen keeps what is in a directory; call the returned function to have that there again.
func frozen(dir string) (restore func()) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	kept := map[string][]byte{}
	files, err := os.ReadDir(dir)
	must(err)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a temporary one
		}
		must(err)
		kept[f.Name()] = b
	}
	return func() {
		files, err := os.ReadDir(dir)
		must(err)
		for _, f := range files {
			must(os.Remove(filepath.Join(dir, f.Name())))
		}
		for name, b := range kept {
			must(os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
	}
}

// drawDataDir is draw, or restarts a server that has lost its data directory, or has none for a while.
func (c *Cluster) drawDataDir(t *testing.T) (name string, heal func()) {
	id := cluster.ServerID(1 + c.Rand.IntN(3))
	dir := c.DataDirs[id]
	switch c.Rand.IntN(4) {
	case 0:
		c.Kill(id)
		delete(c.DataDirs, id)
		c.start(t, id)
		return "no data directory", func() {
			c.Terminate(id)
			c.DataDirs[id] = dir
			c.start(t, id)
		}
	case 1:
		c.Kill(id)
		return "a new data directory", func() {
			c.DataDirs[id] = t.TempDir()
			c.start(t, id)
		}
	}
	return c.draw(t)
}

// refuseAll starts the servers on a volume that lacks what they know to be committed.
func (c *Cluster) refuseAll(t *testing.T) {
	t.Helper()
	for _, id := range c.Rand.Perm(3) {
		c.start(t, cluster.ServerID(id+1))
		time.Sleep(time.Duration(c.Rand.IntN(2000)) * time.Millisecond)
	}
	for range 200 {
		if ids := c.Primaries(); len(ids) > 0 {
			t.Fatalf("silently lost: server %v is primary on a volume that was set back", ids)
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.Shutdown()
}

// recover is what an operator does, who at first agrees to no loss.
func (c *Cluster) recover(t *testing.T) *recovery.Plan {
	t.Helper()
	opt := recovery.Options{Restored: true, Random: c.Random, FirstSegment: firstSegment}
	for _, id := range slices.Sorted(maps.Keys(c.DataDirs)) {
		dir := c.DataDirs[id]
		known, err := replica.ReadKnown(dir)
		if err != nil {
			t.Fatal(err)
		}
		opt.Copies = append(opt.Copies, recovery.Copy{Name: dir, Snapshot: checkpoint.Snapshot{Cluster: known.Cluster, Epoch: known.Epoch, At: wal.Position{LSN: known.LSN}}})
		kept, err := replica.ReadKept(dir)
		if err == nil && c.Rand.IntN(2) == 0 { // or that disk is lost
			opt.Copies = append(opt.Copies, recovery.Copy{Name: dir, Snapshot: kept})
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	host := c.Disk.Host(9, c.Profile)
	plan, err := recovery.Run(context.Background(), host, opt)
	if err == nil && !plan.Complete || err != nil && !errors.Is(err, recovery.ErrLossNotAccepted) {
		t.Fatalf("recover without --accept-loss: %v, %+v", err, plan)
	}
	if err != nil {
		opt.AcceptLoss = true
		plan, err = recovery.Run(context.Background(), host, opt)
	}
	if err != nil || !plan.Done {
		t.Fatalf("recover: %v, %+v", err, plan)
	}
	return plan
}

// judgePlan wants what the plan says it has to be there, and all else to be told as what may be lost.
func (c *Cluster) judgePlan(t *testing.T, plan *recovery.Plan) {
	t.Helper()
	quarantined := map[string]bool{}
	for _, f := range plan.Files {
		if f.Fate != "kept" {
			quarantined[f.Path] = true
		}
	}
	lost := 0
	for _, a := range c.Ledger.Acks() {
		if a.Outcome.LSN > plan.End {
			lost++
			continue
		}
		if a.Request.Op != locktable.OpAppend {
			continue
		}
		path := volume.ProtectedPath(a.Request.File)
		content, _ := c.Disk.ReadFile(path)
		if !bytes.Contains(content, a.Request.Data) && !quarantined[path] && !quarantined[string(a.Request.File)] {
			t.Errorf("silently lost: %s/%d was appended at LSN %d, the recovery has LSN %d, and it is not in %s", a.Request.Client, a.Request.ID, a.Outcome.LSN, plan.End, path)
		}
	}
	if lost > 0 && (plan.Complete || len(plan.Lost) == 0) {
		t.Errorf("silently lost: %d operations behind LSN %d, and the plan says that it is complete: %+v", lost, plan.End, plan)
	}
	t.Logf("LSN %d of %d, %d operations are lost; %s", plan.End, c.Ledger.High(), lost, strings.Join(plan.Lost, "; "))
}
