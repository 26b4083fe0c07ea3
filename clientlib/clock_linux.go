// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bootFresh is for how long the lead of one clock over the other is believed.
const bootFresh = time.Millisecond

// bootClock is CLOCK_BOOTTIME: unlike the monotonic time of package time it runs while the
// machine is suspended. Reading it is a system call, reading the other is not; so only the lead
// of the one over the other, which nothing but a suspension changes, is read every bootFresh.
// Nothing can be done within a millisecond of waking up that could not have been done just before
// falling asleep.
type bootClock struct {
	start    time.Time
	fallback *monotonicClock
	// looked is when the lead was read last, lead the most that was certain each
	// time; both are nanoseconds since start.
	looked, lead atomic.Int64
}

func systemClock() Clock {
	c := &bootClock{start: time.Now(), fallback: newMonotonicClock()}
	c.looked.Store(-int64(bootFresh))
	return c
}

func (c *bootClock) Now() time.Duration {
	mono := int64(time.Since(c.start))
	if mono-c.looked.Load() < int64(bootFresh) {
		return time.Duration(mono + c.lead.Load())
	}
	return c.fresh()
}

// fresh reads the lead now.
func (c *bootClock) fresh() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Not on any Linux that runs this Go; the answer is the same each time.
		return c.fallback.Now()
	}
	// Read afterwards, the other clock may be late and the lead too small, never too
	// large: so it only grows, and the clock does not go back.
	mono := int64(time.Since(c.start))
	for lead, old := ts.Nano()-mono, c.lead.Load(); lead > old; old = c.lead.Load() {
		if c.lead.CompareAndSwap(old, lead) {
			break
		}
	}
	c.looked.Store(mono)
	return time.Duration(mono + c.lead.Load())
}
