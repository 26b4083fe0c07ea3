// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"
	"time"
)

// The time of day was a day ahead for a moment, and was set back: what comes then is told.
func TestReleasesAreToldAfterTheClockWasSetBack(t *testing.T) {
	l := NewLimiter(2)
	now := int64(1_700_000_000_000)
	l.allow(now)
	l.allow(now + 24*time.Hour.Milliseconds())
	for i := range 360 {
		now += 10_000
		if !l.allow(now) {
			t.Fatalf("release %d within the hour after that, at one in 10 s, is only counted", i)
		}
	}
}
