// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Strike is one fault that ended a term.
type Strike struct {
	Kind  string
	At    time.Time
	Epoch cluster.Epoch // of the term that it ended
}

// Failovers returns, for each kind of strike, the sorted times from a strike to the first grant or
// append that a later term acknowledged to a client. It leaves out strikes without such an answer.
func Failovers(strikes []Strike, appends []Append, grants []Grant) map[string][]time.Duration {
	first := map[cluster.Epoch]time.Time{}
	note := func(e cluster.Epoch, at time.Time) {
		if old, seen := first[e]; !seen || at.Before(old) {
			first[e] = at
		}
	}
	for _, a := range appends {
		if a.Acked {
			note(a.Receipt.Epoch, a.Answered)
		}
	}
	for _, g := range grants {
		note(g.Epoch, g.Answered)
	}
	epochs := slices.Collect(maps.Keys(first))
	slices.Sort(epochs)
	all := map[string][]time.Duration{}
	for _, s := range strikes {
		i, _ := slices.BinarySearch(epochs, s.Epoch+1)
		var least time.Time
		for _, e := range epochs[i:] {
			// The first answer of a later term may repeat what an earlier one decided.
			if at := first[e]; least.IsZero() || at.Before(least) {
				least = at
			}
		}
		if !least.IsZero() {
			all[s.Kind] = append(all[s.Kind], least.Sub(s.At))
		}
	}
	for _, d := range all {
		slices.Sort(d)
	}
	return all
}

// Quantile returns the q-quantile of sorted durations; 0 if there are none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Describe formats the median, p99 and maximum of every kind.
func Describe(failovers map[string][]time.Duration) string {
	var kinds []string
	for k := range failovers {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	var b strings.Builder
	for _, k := range kinds {
		d := failovers[k]
		fmt.Fprintf(&b, "  %-28s %3d times: median %v, p99 %v, max %v\n", k, len(d),
			Quantile(d, 0.5).Round(time.Millisecond), Quantile(d, 0.99).Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond))
	}
	return b.String()
}
