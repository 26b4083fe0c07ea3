// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-lock/holdfast/primary"
)

// stepped is what time.Now returns where the time of day was set forward, or back, by whole
// seconds at that moment: the monotonic reading is the same.
func stepped(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	then := now
	const second = 1 << 30 // of a time's first word: 1 bit, 33 of seconds, 30 of nanoseconds
	(*[2]uint64)(unsafe.Pointer(&then))[0] += uint64(int64(by/time.Second) * second)
	if d := then.Sub(now); d != 0 || then.Round(0).Sub(now.Round(0)) != by {
		t.Fatalf("this Go keeps times otherwise: %v", d)
	}
	return then
}

// A step of the time of day is no stall: a primary whose check is older than the storage
// timeout is deposed. Nor does a step hide one.
func TestAgesDoNotFollowTheTimeOfDay(t *testing.T) {
	// Not in a bubble: its times have no monotonic reading.
	x := serve(t, newDisk(t), 1, primary.Options{})
	defer x.end() //nolint:errcheck // it is stopped
	x.ok(acquire("c1", 1, "l", 0))
	for _, by := range []time.Duration{10 * time.Second, -time.Hour} {
		now := time.Now()
		progress, check := x.p.Ages(now)
		steppedProgress, steppedCheck := x.p.Ages(stepped(t, now, by))
		// The core loop and the checks go on meanwhile: ages may have become less, by little.
		for what, d := range map[string]time.Duration{"progress": progress - steppedProgress, "check": check - steppedCheck} {
			if d < -time.Second || d > 5*time.Second {
				t.Errorf("the time of day went by %v at this moment: %s is younger by %v", by, what, d)
			}
		}
	}
}
