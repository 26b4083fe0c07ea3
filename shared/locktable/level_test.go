// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/locktable"
)

func (h *harness) level(want uint32, version string) {
	h.tb.Helper()
	if n, by := h.table.Level(); n != want || by != version {
		h.tb.Errorf("feature level %d by %q, want %d by %q", n, by, want, version)
	}
}

// TestLevelOnlyRises, is part of the state, and stays through all that may happen to a table.
func TestLevelOnlyRises(t *testing.T) {
	h := busy(t)
	h.level(0, "")
	before := h.table.Hash()
	export := h.table.BeginExport()
	h.apply(h.table.DecideLevel(locktable.BaseLevel, "v3", h.epoch, nil))
	h.level(locktable.BaseLevel, "v3")
	if h.table.Hash() == before {
		t.Error("the level is no part of the hash")
	}
	for more := true; more; {
		var all []locktable.Entity
		if all, more = export.Next(100, nil); slices.ContainsFunc(all, func(e locktable.Entity) bool { return e.Level != nil }) {
			t.Error("an export has the level that came after it began")
		}
	}
	h.apply(h.table.DecideLevel(locktable.MaxLevel, "v4", h.epoch, nil))
	h.level(locktable.MaxLevel, "v4")
	for _, n := range []uint32{locktable.BaseLevel, locktable.MaxLevel} {
		if recs := h.table.DecideLevel(n, "late", h.epoch, nil); len(recs) > 0 {
			t.Errorf("level %d is raised to %d: %+v", locktable.MaxLevel, n, recs)
		}
		h.illegal("a level that is not higher", record{Kind: locktable.KindLevel, Level: n})
	}
	h.reload()
	h.table = h.table.Clone()
	h.apply(h.table.DecideForceClear(h.epoch, nil))
	h.apply(h.table.DecideTerm(2, h.epoch+1, nil))
	h.level(locktable.MaxLevel, "v4")
	h.reload()
	h.level(locktable.MaxLevel, "v4")
}

// TestNewerLevelIsRefused: a binary neither applies a level that it does not know, nor loads a state with one, and says
// which version it takes.
func TestNewerLevelIsRefused(t *testing.T) {
	const says = "it was raised to feature level 8 by holdfast 9.8, and this binary knows levels up to 7: run holdfast 9.8 or a newer one"
	h := newHarness(t)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, locktable.ErrUnknownLevel) || !locktable.Newer(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := record{LSN: 1, Epoch: 1, Kind: locktable.KindLevel, Level: locktable.MaxLevel + 1, Version: "9.8"}
	_, err := locktable.DecodeHeader(r.AppendHeader(nil))
	refused("a record", err)
	refused("to apply it", h.table.Apply(&r))
	for what, states := range map[string][]locktable.LevelState{
		"too high": {{Level: locktable.MaxLevel + 1, Version: "9.8"}}, "none": {{}}, "twice": {{Level: 4}, {Level: 4}}, "no text": {{Level: 4, Version: "\xff"}},
	} {
		_, err := locktable.Restore(7, func(yield func(locktable.Entity, error) bool) {
			for i := range states {
				if !yield(locktable.Entity{Level: &states[i]}, nil) {
					return
				}
			}
		})
		if !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("a state with a level that is %s: %v", what, err)
		}
		if what == "too high" {
			refused("a state", err)
		}
	}
}
