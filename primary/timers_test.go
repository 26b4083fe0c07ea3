// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"slices"
	"testing"
	"time"
)

// The earliest deadline comes first, also when others were swept from between.
func TestTimersStayInOrderWhenSwept(t *testing.T) {
	var all timers
	for _, at := range []time.Duration{1, 50, 2, 60, 70, 3, 4, 65, 80, 75, 90, 5, 6} {
		all.add(timer{at: at})
	}
	all.sweep(func(x timer) bool { return x.at != 1 && x.at != 2 && x.at != 50 })
	var got []time.Duration
	for x, due := all.due(100); due; x, due = all.due(100) {
		got = append(got, x.at)
	}
	if len(got) != 10 || !slices.IsSorted(got) {
		t.Errorf("due were %v", got)
	}
}
