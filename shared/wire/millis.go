// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"time"
)

// maxMillis is the longest duration on the wire, about 292 years.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

// Millis returns the duration of so many milliseconds, limited to what a Duration can hold.
func Millis(ms int64) time.Duration {
	return time.Duration(max(min(ms, maxMillis), -maxMillis)) * time.Millisecond
}

// FloorMillis rounds down: for leases, which must not look longer than they are.
func FloorMillis(d time.Duration) int64 { return d.Milliseconds() }

// CeilMillis rounds up: for waits, ages and what must not look like 0.
func CeilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
