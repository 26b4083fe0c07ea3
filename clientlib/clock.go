// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"sync"
	"time"
)

// monotonicClock is used where there is no better clock. Go's monotonic time may stand still
// while the machine sleeps, so it reads the time of day too, and between two readings believes
// the one that went further: a lease may then end too early, but not too late.
type monotonicClock struct {
	mu struct {
		sync.Mutex
		last    time.Time
		elapsed time.Duration
	}
}

func newMonotonicClock() *monotonicClock {
	c := new(monotonicClock)
	c.mu.last = time.Now()
	return c
}

func (c *monotonicClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.mu.elapsed += max(0, now.Sub(c.mu.last), now.Round(0).Sub(c.mu.last.Round(0)))
	c.mu.last = now
	return c.mu.elapsed
}

// fresh reads the clock itself, also where Now returns a reading of a moment ago.
func fresh(c Clock) time.Duration {
	if f, ok := c.(interface{ fresh() time.Duration }); ok {
		return f.fresh()
	}
	return c.Now()
}

// driftMargin is by how much the clocks of client and service may differ over a lease: 1 % and 10
// ms.
func driftMargin(ttl time.Duration) time.Duration { return ttl/100 + 10*time.Millisecond }

// A lease counts for how long a lock is certainly held. The zero value counts nothing.
type lease struct {
	ttl      time.Duration
	deadline time.Duration // on the Clock
	limit    time.Duration // that no renewal moves; 0 = none
	half     time.Duration // when half of what the latest renewal left has passed
	counted  bool
}

// bound notes that at sent, hold was left of the time that no renewal extends. Each answer gives
// the same end, and the latest has the smallest margin: the limit never falls.
func (l *lease) bound(sent, hold time.Duration) {
	l.limit = max(l.limit, sent+hold-driftMargin(hold))
}

// extend counts left from sent, when the question was sent that was answered with it. The answer
// to an older question never shortens the lease. The limit does, also where more was counted
// before: an older service answers a repeated Acquire with a whole TTL.
func (l *lease) extend(sent, left time.Duration) {
	at := sent + left - driftMargin(left)
	if l.limit > 0 {
		at, left = min(at, l.limit), max(0, min(left, l.limit-sent))
	}
	l.half = max(l.half, sent+left-left/2)
	if !l.counted || at > l.deadline {
		l.deadline, l.counted = at, true
	}
	if l.limit > 0 {
		l.deadline = min(l.deadline, l.limit)
	}
}

// danger is when half of what was left of the lease at its latest renewal, at most its
// TTL, has passed without another one.
func (l lease) danger() time.Duration { return l.half }

// over reports whether the lease can no longer be relied on.
func (l lease) over(now time.Duration) bool { return l.counted && now >= l.deadline }
