// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
)

// A copy of another cluster, or of nobody knows which, replaces nothing, however
// far it is.
func TestRecoverRefusesForeignCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		other := begin(t, newDisk(t), 1)
		other.fill(400)
		foreign := recovery.Copy{Name: "foreign", Snapshot: other.snapshot()}
		third := begin(t, newDisk(t), 1)
		third.fill(5)
		unknown := foreign
		unknown.Cluster = cluster.ID{}
		ran := newDisk(t)
		burner := start(t, ran, 1)
		burner.claim()
		burner.host.Kill()
		for _, c := range []struct {
			name   string
			fresh  bool
			copies []recovery.Copy
		}{
			{"foreign", false, []recovery.Copy{foreign}},
			{"unknown", false, []recovery.Copy{unknown}},
			{"unknown, on a fresh volume", true, []recovery.Copy{unknown}},
			{"of two clusters, on a fresh volume", true, []recovery.Copy{foreign, {Name: "third", Snapshot: third.snapshot()}}},
		} {
			d := l.disk
			if c.fresh {
				d = newDisk(t)
			}
			opt := recoverOptions()
			opt.Copies = c.copies
			before := d.Snapshot()
			if _, err := recovery.NewPlan(t.Context(), host(d, 9), opt); !errors.Is(err, recovery.ErrForeignCopy) {
				t.Errorf("%s: %v", c.name, err)
			}
			if plan, err := recovery.Run(t.Context(), host(d, 9), opt); !errors.Is(err, recovery.ErrForeignCopy) || plan.Done {
				t.Errorf("%s: %v", c.name, err)
			}
			after := d.Snapshot()
			for name, s := range before {
				if after[name] != s {
					t.Errorf("%s: %s was changed", c.name, name)
				}
			}
		}
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{foreign}
		if _, err := recovery.Run(t.Context(), host(ran, 9), opt); !errors.Is(err, recovery.ErrForeignCopy) {
			t.Errorf("a volume that a server claimed on: %v", err)
		}
		usable(t, l.disk, l.table.Hash())
	})
}

// A recovery into a fresh volume is repeated like any other.
func TestRecoverIntoAFreshVolumeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		x := begin(t, l.disk, 1)
		x.redo()
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{{Name: "a", Snapshot: x.snapshot()}}
		d := newDisk(t)
		named(t, d, opt)
		if plan := recovered(t, d, opt); plan.Source != "a" || plan.End != x.table.LSN() {
			t.Errorf("%+v", plan)
		}
	})
}

// Where a copy is further than the volume's own log, what only that one has is dropped, and the plan says it.
func TestRecoverSaysWhatACopyDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		backup := l.disk.Clone()
		x := begin(t, l.disk, 1)
		x.redo()
		x.fill(9)
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{{Name: "a", Snapshot: x.snapshot()}}
		plan, err := recovery.NewPlan(t.Context(), host(backup, 9), opt)
		if err != nil || plan.Source != "a" || !strings.Contains(strings.Join(plan.Lost, "\n"), "what the log of epochs/0000000004 has") {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}
