// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	full := func() uint64 { return math.MaxUint64 }
	p := Pauses{Random: full}
	limits := []time.Duration{10, 20, 40, 60, 60}
	for i, limit := range limits {
		if d := p.Next(0, false); d <= 0 || d > limit*time.Millisecond {
			t.Errorf("pause %d is %v, want at most %v", i, d, limit*time.Millisecond)
		}
	}
	p.paused = early
	if d := p.Next(0, false); d <= 0 || d > backoffCap {
		t.Errorf("a late pause is %v", d)
	}
	if d := p.Next(0, true); d > takeoverCap {
		t.Errorf("pause during a takeover is %v", d)
	}
	if d := p.Next(500*time.Millisecond, false); d < 500*time.Millisecond || d > 500*time.Millisecond+takeoverCap {
		t.Errorf("pause is %v where the server said 500 ms", d)
	}
	if d := p.Next(time.Hour, false); d > maxRetryAfter+takeoverCap {
		t.Errorf("pause is %v where the server said an hour", d)
	}
	for range 200 { // the shift must not overflow
		p.Next(0, false)
	}
	spread := map[time.Duration]bool{}
	q := Pauses{Random: rand.Uint64}
	for range 100 {
		spread[q.Next(0, false)] = true
	}
	if len(spread) < 50 {
		t.Errorf("%d different pauses of 100", len(spread))
	}
}
