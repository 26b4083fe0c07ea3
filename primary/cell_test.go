// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// newCell is a volume that is cell 0 of a site, in which cell 1 has what begins with p/.
func newCell(t *testing.T) *volumetest.Disk {
	t.Helper()
	d := volumetest.New(1)
	primarytest.InitCell(t, d.Host(9, volumetest.ProfileLocal()), primarytest.Members())
	return d
}

func (x *term) own() (own *cluster.Own) {
	x.t.Helper()
	x.read(func(v serving.View) { own = v.Table.Own() })
	return own
}

// TestCellRefusesWhatOthersOwn, from its first request on, in every term, and does nothing for it.
func TestCellRefusesWhatOthersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCell(t)
		x := serve(t, d, 1, primary.Options{})
		if out := x.sees(acquire("c1", 1, "p/job", 0), cluster.StatusWrongCell); out.Cell != 1 || out.LSN != 0 {
			t.Errorf("it is told as %+v", out)
		}
		if own := x.own(); own == nil || own.Owns("p/job") {
			t.Fatalf("it owns %+v", own)
		}
		got := x.ok(acquire("c1", 1, "job", 0))
		if got.LSN != 3 { // after what it owns, and the beginning of the term
			t.Errorf("the first grant has LSN %d", got.LSN)
		}
		if out, err := x.p.Renew(context.Background(), "p/job", got.Token); err != nil || out.Status != cluster.StatusWrongCell || out.Cell != 1 {
			t.Errorf("a renewal: %+v, %v", out, err)
		}
		before := len(d.Files("files/"))
		x.sees(appendTo("c1", 2, "job", got.Token, "p/log", "one\n"), cluster.StatusWrongCell)
		x.sees(&locktable.Request{Op: locktable.OpBind, Client: "c1", ID: 2, Lock: "job", Token: got.Token, File: "p/log"}, cluster.StatusWrongCell)
		if after := d.Files("files/"); len(after) != before {
			t.Errorf("a file of another cell was made: %v", after)
		}
		if _, _, out, err := x.p.File(context.Background(), "p/log"); err != nil || out.Status != cluster.StatusWrongCell || out.Cell != 1 {
			t.Errorf("the state of a file: %+v, %v", out, err)
		}
		x.ok(appendTo("c1", 2, "job", got.Token, "log", "one\n"))
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		if own := y.own(); own == nil || own.Cell != 0 {
			t.Errorf("the next term owns %+v", own)
		}
		y.sees(acquire("c2", 1, "p/job", 0), cluster.StatusWrongCell)
		if out := y.ok(acquire("c1", 1, "job", 0)); !out.Repeat {
			t.Errorf("a repeat is told as %+v", out)
		}
		if out := y.ok(acquire("c2", 1, "other", 0)); out.LSN != 7 { // 4 and 5 are of the file, 6 is the beginning of the term
			t.Errorf("the next grant has LSN %d: what the cell owns is logged again", out.LSN)
		}
		y.kill()
	})
}

// TestVolumeWithoutASiteLogsNothing of cells, and has all names.
func TestVolumeWithoutASiteLogsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		if out := x.ok(acquire("c1", 1, "p/job", 0)); out.LSN != 2 || x.own() != nil {
			t.Errorf("the first grant has LSN %d, and it owns %+v", out.LSN, x.own())
		}
		x.kill()
	})
}

// TestCellTermThatLoggedNothing: the first term dies after its START, with what it owns in no frame, in half a one, or in a whole one.
// Whoever follows owns the same, and no request is decided before.
func TestCellTermThatLoggedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, action := range map[string]volumetest.Action{"before": volumetest.Crash(), "torn": volumetest.CrashTorn(100), "after": volumetest.CrashAfter()} {
			d := newCell(t)
			started := false
			h := d.Host(1, volumetest.ProfileLocal())
			h.SetHook(func(c volumetest.Call) volumetest.Action {
				switch {
				case strings.HasSuffix(c.Name, "/fence") && strings.HasPrefix(c.Name, "epochs/0000000001") && c.Op == volumetest.OpWriteAt:
					started = true
				case started && c.Op == volumetest.OpWriteAt && strings.HasPrefix(c.Name, "epochs/0000000001"):
					return action
				}
				return volumetest.Proceed()
			})
			x := claimOn(t, h, 1, small(), primary.Options{MaxBatch: 8 << 10})
			synctest.Wait()
			if err := x.end(); err == nil || !started {
				t.Errorf("%s: the first term ended with %v, started %t", what, err, started)
			}
			y := serve(t, d, 2, primary.Options{})
			if own := y.own(); own == nil || own.Cell != 0 || own.Owns("p/x") {
				t.Errorf("%s: the next term owns %+v", what, own)
			}
			y.sees(acquire("c1", 1, "p/x", 0), cluster.StatusWrongCell)
			y.ok(acquire("c1", 1, "x", 0))
			y.kill()
		}
	})
}

// TestLogOfAnotherCellIsNotAdopted: it is refused as damage.
func TestLogOfAnotherCellIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCell(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(acquire("c1", 1, "x", 0))
		x.kill()
		// The CLUSTER of cell 1, with the ID of this volume.
		other := volumetest.New(2)
		own := *cellOwn(t)
		own.Cell = 1
		c, err := volume.InitCell(other.Host(9, volumetest.ProfileLocal()), volume.FeatureLevel, primarytest.Members(), &own, rand.Reader, func(volume.Cluster) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		mine, err := volume.ReadCluster(d.Host(9, volumetest.ProfileLocal()))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := other.ReadFile("CLUSTER")
		if err != nil {
			t.Fatal(err)
		}
		mixed := strings.Replace(string(theirs), c.ID.String(), mine.ID.String(), 1)
		if err := errors.Join(d.Truncate("CLUSTER", 0), d.Write("CLUSTER", 0, []byte(mixed))); err != nil {
			t.Fatal(err)
		}
		y := claim(t, d, 2, primary.Options{})
		synctest.Wait()
		if err := y.end(); !errors.Is(err, volume.ErrDamaged) || !strings.Contains(err.Error(), "these are files of two volumes") || !primary.Refused(err) {
			t.Errorf("the term ended with %v", err)
		}
	})
}

func cellOwn(t *testing.T) *cluster.Own {
	t.Helper()
	c, err := volume.ReadCluster(newCell(t).Host(9, volumetest.ProfileLocal()))
	if err != nil {
		t.Fatal(err)
	}
	return c.Cell
}
