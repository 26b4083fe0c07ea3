// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"
)

// TestQuorumThatIsMissed looks after each step of time whether there is a majority. What is silent
// decides whether clients are answered, what is missed whether the term ends.
func TestQuorumThatIsMissed(t *testing.T) {
	const every = 50 * time.Millisecond
	steps := func(n int, of time.Duration) (all []time.Duration) {
		for range n {
			all = append(all, of)
		}
		return all
	}
	for _, test := range []struct {
		name           string
		steps          []time.Duration // between looks without a majority
		silent, missed time.Duration
	}{
		{"just heard", nil, 0, 0},
		{"on time", steps(20, every), time.Second, time.Second},
		{"one sleep", append(steps(2, every), time.Hour+every), time.Hour + 3*every, 3 * every},
		{"sleeps, of which the longest does not count", []time.Duration{time.Second + every, 5*time.Second + every, time.Second + every}, 7*time.Second + 3*every, 2*time.Second + 3*every},
		{"late at each look", steps(10, 10*every), 100 * every, 91 * every},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			q := quorum{heard: now, looked: now}
			now = now.Add(time.Minute)
			if late := q.look(now, every, time.Hour, true); late != time.Minute-every {
				t.Errorf("the first look was %v late", late)
			}
			for _, step := range test.steps {
				now = now.Add(step)
				if late := q.look(now, every, time.Hour, false); late != step-every {
					t.Errorf("a look after %v was %v late", step, late)
				}
			}
			if silent := q.silent(now); silent != test.silent {
				t.Errorf("silent for %v, want %v", silent, test.silent)
			}
			for _, allowance := range []time.Duration{0, min(test.missed, 60*time.Millisecond)} {
				if q.lost(now, test.missed-allowance, allowance) {
					t.Errorf("with an allowance of %v it is lost after %v", allowance, test.missed)
				}
				if !q.lost(now, test.missed-allowance-1, allowance) {
					t.Errorf("with an allowance of %v it is not lost after more than %v", allowance, test.missed)
				}
			}
		})
	}
}

// A primary that wakes up has a whole storage timeout for its next check, and no more.
func TestSleepIsNoStall(t *testing.T) {
	const every, timeout = 50 * time.Millisecond, 5 * time.Second
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	checked := now
	q := quorum{heard: now, looked: now}
	look := func(step time.Duration, want bool) {
		t.Helper()
		now = now.Add(step)
		q.look(now, every, timeout, false)
		if got := q.stalled(now, now.Sub(checked), timeout); got != want {
			t.Errorf("%v after the last check: stalled: %v", now.Sub(checked), got)
		}
	}
	look(every, false)
	look(time.Minute, false) // it slept
	for range timeout / every {
		look(every, false)
	}
	look(every, true)
	checked = now
	look(every, false)
	look(timeout/2, false) // late, and awake
	look(timeout/2, true)
}
