// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// TestRaise: the level of the cluster is raised once, by a record that names the binary, and outlives the term.
func TestRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.BaseLevel); err != nil {
			t.Fatal(err)
		}
		x := serve(t, d, 1, primary.Options{Version: "v4"})
		raise := func(x *term, level uint32, want cluster.Status, at uint32) {
			t.Helper()
			out, err := x.p.Raise(t.Context(), level)
			if err != nil || out.Status != want || x.p.Level() != at {
				t.Errorf("raised to %d: %v %q, %v; the level is %d, want %d", level, out.Status, out.Message, err, x.p.Level(), at)
			}
		}
		raise(x, locktable.BaseLevel, cluster.StatusOK, locktable.BaseLevel)
		raise(x, locktable.MaxLevel+1, cluster.StatusInvalidArgument, locktable.BaseLevel)
		before := x.p.LSN()
		raise(x, locktable.MaxLevel, cluster.StatusOK, locktable.MaxLevel)
		raise(x, locktable.MaxLevel, cluster.StatusOK, locktable.MaxLevel)
		if n := x.p.LSN() - before; n != 1 {
			t.Errorf("raised by %d records", n)
		}
		x.read(func(v serving.View) {
			if n, by := v.Table.Level(); n != locktable.MaxLevel || by != "v4" {
				t.Errorf("the table has level %d by %q", n, by)
			}
		})
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		if n := y.p.Level(); n != locktable.MaxLevel {
			t.Errorf("the next term begins with level %d", n)
		}
		raise(y, locktable.MaxLevel, cluster.StatusOK, locktable.MaxLevel)
	})
}

// TestRaiseIsToldWhenItIsCommitted: a term that is fenced tells of no new level.
func TestRaiseIsToldWhenItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.BaseLevel); err != nil {
			t.Fatal(err)
		}
		x := serve(t, d, 1, primary.Options{})
		x.fence(d)
		if out, err := x.p.Raise(t.Context(), locktable.MaxLevel); err != nil || out.Status != cluster.StatusUnknown || x.p.Level() != locktable.BaseLevel {
			t.Errorf("a fenced term: %v, %v, level %d", out.Status, err, x.p.Level())
		}
	})
}

// TestRecordsNeedTheLevelOfTheCluster at most, or that of the servers that are reached, if it is lower.
func TestRecordsNeedTheLevelOfTheCluster(t *testing.T) {
	for _, x := range []struct{ cluster, reached, want uint32 }{{3, 0, 3}, {3, 9, 3}, {4, 9, 4}, {4, 2, 2}, {3, 1, 1}} {
		if got := primary.RecordLevel(x.cluster, x.reached); got != x.want {
			t.Errorf("a cluster of level %d reaches level %d: records of level %d, want %d", x.cluster, x.reached, got, x.want)
		}
	}
}

// TestRaisesToldInAnyOrder: of two raises that are committed together, the lower one may be told last, and changes nothing.
func TestRaisesToldInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n := newLoop(t).Raised(9, 8); n != 9 {
			t.Errorf("raised to 9 and 8: level %d", n)
		}
	})
}
