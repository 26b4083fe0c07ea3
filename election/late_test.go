// SPDX-License-Identifier: Apache-2.0

package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestLatenessOfTicks has ticks come late, and looks at the worst lateness afterwards.
func TestLatenessOfTicks(t *testing.T) {
	const ms, sleep = time.Millisecond, time.Second
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name  string
		late  []time.Duration // of ticks, one after the other
		quiet time.Duration   // how long ticks are on time after these
		since time.Duration   // since the last tick was due
		want  time.Duration
	}{
		{"no tick was due", nil, 0, 0, 0},
		{"ticks on time", []time.Duration{0, 0, 0}, 0, 0, 0},
		{"one late tick", []time.Duration{0, 80 * ms, 0}, 0, 0, 80 * ms},
		{"the worst of several", []time.Duration{20 * ms, 300 * ms, 80 * ms}, 0, 0, 300 * ms},
		{"a tick that has not come yet", []time.Duration{20 * ms}, 0, 700 * ms, 700 * ms},
		{"remembered", []time.Duration{0, 80 * ms}, 3 * time.Second, 0, 80 * ms},
		{"forgotten", []time.Duration{0, 80 * ms}, 5 * time.Second, 0, 0},
		{"a worse one before a slight one", []time.Duration{300 * ms, 80 * ms}, 3 * time.Second, 0, 300 * ms},
		{"a sleep is not remembered", []time.Duration{80 * ms, time.Hour, 40 * ms}, 0, 0, 40 * ms},
		{"nor a short one", []time.Duration{80 * ms, sleep + 1}, 0, 0, 80 * ms},
		{"which is longer than this", []time.Duration{80 * ms, sleep}, 0, 0, sleep},
		{"a sleep that has not ended", nil, 0, time.Hour, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l lateness
			const every = 50 * ms
			now := began
			l.tick(now, every, sleep)
			for _, late := range test.late {
				now = l.due.Add(late)
				if got := l.tick(now, every, sleep); got != late {
					t.Errorf("a tick was %v late, want %v", got, late)
				}
				if got := l.tick(l.due.Add(-1), every, sleep); got != 0 {
					t.Errorf("before the next tick is due it is %v late", got)
				}
			}
			for end := now.Add(test.quiet); now.Before(end); l.tick(now, every, sleep) {
				now = l.due
			}
			if got := l.worst(l.due.Add(test.since)); got != test.want {
				t.Errorf("the worst lateness is %v, want %v", got, test.want)
			}
		})
	}
	var none lateness
	if got := none.worst(began); got != 0 {
		t.Errorf("without any tick the worst lateness is %v", got)
	}
}

// TestAllowanceIsBounded looks at what a server waits for that was late by so much. Nothing is
// shorter than configured, and only two times are longer.
func TestAllowanceIsBounded(t *testing.T) {
	configured := cluster.DefaultTiming()
	most := mostAllowance * configured.Suspicion
	for late, want := range map[time.Duration]time.Duration{
		0:                     0,
		10 * time.Millisecond: 40 * time.Millisecond,
		time.Second / 2:       2 * time.Second,
		time.Second:           most,
		time.Hour:             most,
		1<<63 - 1:             most, // four times that would be negative
	} {
		e := New(Options{Self: 1, Members: cluster.Members{{ID: 1}}, Timing: configured})
		now := time.Now()
		e.mu.late = lateness{due: now, began: now, slots: [lateSlots]time.Duration{late}}
		wanted := configured
		wanted.Suspicion += want
		wanted.MajorityWindow += want
		if got := e.timingLocked(now); got != wanted {
			t.Errorf("late by %v: %+v, want %+v", late, got, wanted)
		}
	}
}

// TestOversleptIsNoStall: what a primary that wakes up has not done in its sleep is not told as a stall, for a moment.
func TestOversleptIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sleep, grace = 4 * time.Second, 300 * time.Millisecond
		began, role := time.Now(), RolePrimary
		e := New(Options{
			Self: 1, Nonce: 1, Members: listOf(1, 2), Timing: cluster.DefaultTiming(), Transport: refusing{},
			Status: func() Status { return Status{Role: role, Progress: time.Since(began), Storage: time.Since(began)} },
		})
		told := func(when string, want time.Duration) {
			t.Helper()
			if st := e.HandlePing(Ping{From: 2, Seq: 1}).Status; st.Progress > want || st.Progress < want-grace || st.Progress != st.Storage {
				t.Errorf("%s: %v without progress, %v without a check, want %v", when, st.Progress, st.Storage, want)
			}
		}
		e.tick(time.Now())
		told("awake", 0)
		time.Sleep(sleep) // all of it
		told("it has not noticed", grace)
		role = RoleReplica
		told("a replica", sleep)
		role = RolePrimary
		time.Sleep(grace)
		told("its ticks hang", sleep+grace)
		e.tick(time.Now())
		told("it has noticed", grace)
		time.Sleep(grace - time.Millisecond)
		e.tick(time.Now())
		told("a moment later", 2*grace)
		time.Sleep(time.Millisecond)
		told("it does nothing", sleep+2*grace)
	})
}
