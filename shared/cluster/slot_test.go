// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestSlotsAreInOrder: every pair of these is in the order of the list.
func TestSlotsAreInOrder(t *testing.T) {
	list := []cluster.Slot{
		"0", "1", "2", "9", "10", "099", "99", "100", "18446744073709551616", "2026-11-22x", "2026-W09", "2026-W10", "build-9", "build-10", "build-10.1", "build-10.02", "build-10a", "x",
	}
	dates := []cluster.Slot{"2026-9-30", "2026-11-22", "2026-11-22T06:00:00Z", "2026-11-22T18:00:00Z", "2026-11-23", "2027-01-01"}
	for _, list := range [][]cluster.Slot{list[:9], list[9:], dates} {
		for i, a := range list {
			if err := a.Validate(); err != nil {
				t.Error(err)
			}
			for j, b := range list {
				if got, want := a.Compare(b), map[bool]int{true: -1, false: 1}[i < j]; i != j && got != want || i == j && got != 0 {
					t.Errorf("%s and %s: %d", a, b, got)
				}
			}
		}
	}
	for _, bad := range []cluster.Slot{"", "a b", "a\n", "é", "\x7f", cluster.Slot(strings.Repeat("x", cluster.MaxSlot+1))} {
		if bad.Validate() == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzSlots wants an order: any three texts can be sorted, and none is equal to another one.
func FuzzSlots(f *testing.F) {
	f.Add("a01", "a1", "a1b")
	f.Add("10", "9", "9-10")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		all := []cluster.Slot{cluster.Slot(a), cluster.Slot(b), cluster.Slot(c)}
		slices.SortFunc(all, cluster.Slot.Compare)
		for i, x := range all {
			for j, y := range all {
				if got := x.Compare(y); got > 0 && i < j || got != -y.Compare(x) || (got == 0) != (x == y) {
					t.Errorf("%q and %q: %d, sorted %q", x, y, got, all)
				}
			}
		}
	})
}
