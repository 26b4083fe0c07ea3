// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/backup"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// cellOf is what one of two cells owns, of which cell 1 has what begins with p/.
func cellOf(t *testing.T, cell cluster.CellID) *cluster.Own {
	t.Helper()
	d, err := cluster.Divide(1, []cluster.Pin{{Prefix: "p/", Cell: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster.Own{Site: cluster.ID{7}, Cell: cell, Version: 1, Division: d}
}

func initCell(h *volumetest.Host, own *cluster.Own) (volume.Cluster, error) {
	return volume.InitCell(h, volume.FeatureLevel, members(), own, rand.Reader, func(volume.Cluster) error { return nil })
}

// newCell is a volume that is a cell, and whose first term has begun as a primary does.
func newCell(t *testing.T, cell cluster.CellID) (*volumetest.Disk, *term) {
	t.Helper()
	d := volumetest.New(1)
	if _, err := initCell(host(d, 9), cellOf(t, cell)); err != nil {
		t.Fatal(err)
	}
	x := begin(t, d, 1)
	x.apply(x.table.DecideOwn(x.r.Born(), x.r.Epoch(), nil))
	return d, x
}

// take acquires a lock, which has to be owned.
func (x *term) take(lock cluster.LockName) {
	x.t.Helper()
	if out := x.do(locktable.Request{Op: locktable.OpAcquire, Lock: lock, TTL: time.Minute}, locktable.FileFacts{}); out.Status != cluster.StatusOK {
		x.t.Errorf("acquire %q: %v %s", lock, out.Status, out.Message)
	}
}

// TestInterruptedInitOfACell: wherever an init stops, the volume that is there, or that the next one makes, is that cell from its first
// moment on. An init for another cell, or for none, does not finish it.
func TestInterruptedInitOfACell(t *testing.T) {
	own := cellOf(t, 1)
	for name, action := range interruptions() {
		bubble(t, name, func(t *testing.T) {
			for n := 1; ; n++ {
				d := volumetest.New(1)
				h := host(d, 9)
				h.SetHook(volumetest.At(n, action))
				_, first := initCell(h, own)
				if h.Calls() < n {
					return
				}
				h.Kill()
				d.Crash(mathrand.New(mathrand.NewPCG(uint64(n), 5)))
				if n%2 == 0 { // an init that is none of this site comes between
					other := cellOf(t, 0)
					if n%4 == 0 {
						other = nil
					}
					if _, err := volume.ReadEpochZero(host(d, 7)); err == nil {
						if _, err := initCell(host(d, 7), other); err == nil {
							t.Errorf("call %d (%v): an init for another cell says that it made it", n, first)
						}
					}
				}
				if c, err := volume.ReadCluster(host(d, 7)); err == nil && (c.Cell == nil || c.Cell.Text() != own.Text()) {
					t.Errorf("call %d (%v): CLUSTER is that of %+v", n, first, c.Cell)
				}
				if _, err := initCell(host(d, 8), own); err != nil && !errors.Is(err, volume.ErrExists) {
					t.Errorf("call %d (%v): the second init failed: %v", n, first, err)
					continue
				}
				if c, err := volume.ReadCluster(host(d, 7)); err != nil || c.Cell == nil || c.Cell.Text() != own.Text() {
					t.Errorf("call %d (%v): CLUSTER is that of %+v, %v", n, first, c.Cell, err)
				}
				x := begin(t, d, 3)
				if x.r.Born().Text() != own.Text() {
					t.Errorf("call %d: the term begins as %+v", n, x.r.Born())
				}
				x.kill()
			}
		})
	}
}

// TestTwoInitsOfCellsAtOnce agree on one cell: of two for different cells one fails at least.
func TestTwoInitsOfCellsAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		for n := 1; ; n++ {
			d, gate, done := volumetest.New(1), volumetest.NewGate(), make(chan error, 1)
			h := host(d, 8)
			h.SetHook(volumetest.At(n, volumetest.Pause(gate)))
			go func() {
				_, err := initCell(h, cellOf(t, 0))
				done <- err
			}()
			synctest.Wait()
			_, second := initCell(host(d, 9), cellOf(t, 1))
			gate.Resume()
			first := <-done
			c, err := volume.ReadCluster(host(d, 7))
			if err != nil || c.Cell == nil || first == nil && c.Cell.Cell != 0 || second == nil && c.Cell.Cell != 1 || first != nil && second != nil {
				t.Errorf("call %d: %v, %v; CLUSTER is that of %+v, %v", n, first, second, c.Cell, err)
			}
			if h.Calls() < n {
				return
			}
		}
	})
}

// TestDamagedCellIsNoCell: until it is logged, only CLUSTER says which names a cell owns.
func TestDamagedCellIsNoCell(t *testing.T) {
	d := volumetest.New(1)
	if _, err := initCell(host(d, 9), cellOf(t, 1)); err != nil {
		t.Fatal(err)
	}
	good, err := d.ReadFile("CLUSTER")
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string][2]string{
		"another cell":        {`"cell": 1,` + "\n    \"version\"", `"cell": 0,` + "\n    \"version\""},
		"another range":       {`"0000000000000000"`, `"0000000000000001"`},
		"no cell":             {`"cell": {`, `"cell_": {`},
		"no checksum":         {`"cell_crc32c": "`, `"cell_crc32c_": "`},
		"a level below cells": {`"feature_level": 8`, `"feature_level": 6`},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if bad == string(good) {
			t.Fatalf("%s: nothing is changed in %s", what, good)
		}
		c := d.Clone()
		if err := errors.Join(c.Truncate("CLUSTER", 0), c.Write("CLUSTER", 0, []byte(bad))); err != nil {
			t.Fatal(err)
		}
		if _, err := volume.ReadCluster(host(c, 7)); !errors.Is(err, volume.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := volume.InitCell(host(volumetest.New(1), 9), locktable.CellsLevel-1, members(), cellOf(t, 1), rand.Reader, func(volume.Cluster) error { return nil }); err == nil {
		t.Error("a cell begins below the level of cells")
	}
	if _, err := initCell(host(volumetest.New(1), 9), &cluster.Own{Site: cluster.ID{7}}); err == nil {
		t.Error("a cell owns nothing")
	}
}

// TestCellFitsItsLog: a log of another cell, or of none, is not taken for that of this one.
func TestCellFitsItsLog(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		_, x := newCell(t, 1)
		x.take("p/x")
		_, zero := newCell(t, 0)
		plain := begin(t, newDisk(t), 1)
		plain.take("p/x")
		mine := volume.Cluster{Cell: cellOf(t, 1)}
		elsewhere, narrower := cellOf(t, 1), cellOf(t, 1)
		elsewhere.Site = cluster.ID{8}
		narrower.Pins = []cluster.Pin{{Prefix: "p/x/", Cell: 1}}
		for _, c := range []struct {
			name  string
			of    volume.Cluster
			table *locktable.Table
			fits  bool
		}{
			{"its own", mine, x.table, true}, {"an empty one", mine, locktable.New(), true}, {"of a volume that names no cell", volume.Cluster{}, x.table, true},
			{"another cell's", mine, zero.table, false}, {"that of no cell", mine, plain.table, false},
			{"of another site", volume.Cluster{Cell: elsewhere}, x.table, false}, {"with other names", volume.Cluster{Cell: narrower}, x.table, false},
		} {
			if err := c.of.FitsCell(c.table); (err == nil) != c.fits || err != nil && !errors.Is(err, volume.ErrDamaged) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// TestCellIsRestored: a volume that is made of a backup is the same cell, and a recovered one too.
func TestCellIsRestored(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d, x := newCell(t, 1)
		x.take("p/x")
		x.checkpoint()
		x.take("p/y")
		x.kill()
		r, err := fsck.Run(t.Context(), host(d, 8), fsck.Options{})
		if err != nil || slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return f.Severity == fsck.SeverityError }) {
			t.Errorf("fsck: %+v, %v", r, err)
		}
		is := func(what string, d *volumetest.Disk, own *cluster.Own) {
			t.Helper()
			y := begin(t, d, 2)
			if got := y.table.Own(); got.Text() != own.Text() || y.r.Born() != nil && y.r.FitsCell(y.table) != nil {
				t.Errorf("%s owns %+v", what, got)
			}
			y.kill()
		}
		to, _ := backedUp(t, host(d, 20), backup.Options{})
		fresh := volumetest.New(3)
		if _, err := backup.Restore(t.Context(), host(to, 3), host(fresh, 9), restoreOptions()); err != nil {
			t.Fatal(err)
		}
		if c, err := volume.ReadCluster(host(fresh, 7)); err != nil || c.Cell == nil || c.Cell.Text() != cellOf(t, 1).Text() {
			t.Errorf("the restored volume is %+v, %v", c.Cell, err)
		}
		is("what is restored", fresh, cellOf(t, 1))
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{{Name: "a copy", Snapshot: x.snapshot()}}
		named := newDisk(t)
		recovered(t, named, opt)
		is("what is recovered from a copy", named, cellOf(t, 1))
		// Into a cell of another number it does not go.
		other := volumetest.New(4)
		if _, err := initCell(host(other, 9), cellOf(t, 0)); err != nil {
			t.Fatal(err)
		}
		if plan, err := recovery.Run(t.Context(), host(other, 9), opt); !errors.Is(err, volume.ErrDamaged) || plan.Done {
			t.Errorf("recovered as another cell: %v", err)
		}
	})
}

// TestFsckComparesTheCell with what the log says.
func TestFsckComparesTheCell(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := volumetest.New(1)
		if _, err := initCell(host(d, 9), cellOf(t, 1)); err != nil {
			t.Fatal(err)
		}
		x := begin(t, d, 1)
		x.apply(x.table.DecideOwn(cellOf(t, 0), x.r.Epoch(), nil)) // files of two volumes
		x.kill()
		r, err := fsck.Run(context.Background(), host(d, 8), fsck.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Code == "cell-differs" && f.Severity == fsck.SeverityError && strings.Contains(f.Problem, "CLUSTER says that this is cell 1 of site") {
				return
			}
		}
		t.Errorf("fsck finds %+v", r.Findings)
	})
}
