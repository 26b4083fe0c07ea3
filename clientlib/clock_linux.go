// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is CLOCK_BOOTTIME: unlike the monotonic time of package time it runs
// while the machine is suspended.
type bootClock struct{ fallback *monotonicClock }

func systemClock() Clock { return bootClock{fallback: newMonotonicClock()} }

func (c bootClock) Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Not on any Linux that runs this Go; the answer is the same each time.
		return c.fallback.Now()
	}
	return time.Duration(ts.Nano())
}
