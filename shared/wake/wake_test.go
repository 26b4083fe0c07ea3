// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wake"
)

// However often a goroutine is notified while it is busy, it looks once more.
func TestOneSignalIsPending(t *testing.T) {
	s := wake.NewSignal()
	for range 3 {
		s.Notify()
	}
	<-s
	select {
	case <-s:
		t.Error("a second signal is pending")
	default:
	}
	s.Notify()
	<-s
}

// Looks with one period meet, whenever they began and however late one comes, and are never far from a period apart.
func TestLooksMeet(t *testing.T) {
	const short, long = 50 * time.Millisecond, time.Second
	start := time.Unix(1700000000, 0)
	for at := time.Duration(0); at < long; at += 997 * time.Microsecond {
		for _, period := range []time.Duration{short, long} {
			now := start.Add(at)
			for range 3 {
				next := wake.Next(now, period)
				if next < period*3/4 || next > wake.Longest(period) {
					t.Fatalf("at %v, the next look with period %v is %v later", at, period, next)
				}
				now = now.Add(next)
			}
			if !now.Equal(now.Truncate(period)) {
				t.Fatalf("begun at %v, looks with period %v do not meet: the third is at %v", at, period, now)
			}
		}
	}
	early := start.Add(-time.Microsecond) // by this clock, the timer came early
	if next := wake.Next(early, short); next != short+time.Microsecond {
		t.Errorf("after a look that came early, the next one is %v later", next)
	}
}
