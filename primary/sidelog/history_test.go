// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"testing"
	"time"
	"unsafe"
)

// stepped is what time.Now returns when somebody has set the time of day forward by so many
// seconds: the monotonic reading is the same.
func stepped(now time.Time, seconds uint64) time.Time {
	(*[2]uint64)(unsafe.Pointer(&now))[0] += seconds << 30 // wall: 1 bit, 33 of seconds, 30 of nanoseconds
	return now
}

func TestClockThatWasSetIsNotBelieved(t *testing.T) {
	const day = 24 * 60 * 60
	begin := time.Now()
	if ahead := stepped(begin, day); ahead.Sub(begin) != 0 || ahead.Round(0).Sub(begin.Round(0)) != day*time.Second {
		t.Fatalf("this Go has other times: %v", ahead.Sub(begin))
	}
	var c evenClock
	for _, step := range []struct {
		after time.Duration // on the monotonic clock
		ahead uint64
		want  bool
	}{
		{0, 0, false}, // it may have been wrong before
		{30 * time.Minute, 0, false},
		{time.Hour, 0, true},
		{2 * time.Hour, 30, true},
		{3 * time.Hour, 90 * day, false},
		{3*time.Hour + 10*time.Minute, 90 * day, false},
		{3*time.Hour + 20*time.Minute, 0, false},
		{4 * time.Hour, 0, false},
		{5 * time.Hour, 0, true},
	} {
		now := stepped(begin.Add(step.after), step.ahead)
		if got := c.believed(now, now.Round(0)); got != step.want {
			t.Errorf("after %v, %d s ahead: %v, want %v", step.after, step.ahead, got, step.want)
		}
	}
}
