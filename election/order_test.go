// SPDX-License-Identifier: Apache-2.0

package election

import (
	"testing"
	"time"
)

// TestPingsCountInTheirOrder: late pings do not count, but a number far ahead of its time hides those that
// follow only until none with a higher one has come for a while, and some have risen.
func TestPingsCountInTheirOrder(t *testing.T) {
	const silence = 300 * time.Millisecond
	p, now := &peer{}, time.Unix(1000, 0)
	ping := func(after time.Duration, seq uint64, counts bool, what string) {
		t.Helper()
		now = now.Add(after)
		got := p.inOrder(seq, now, silence)
		if got {
			p.ping.at = now
		}
		if got != counts {
			t.Errorf("ping %d, %s: it counts: %v", seq, what, got)
		}
	}
	ping(0, 7, true, "the first")
	for seq := range uint64(5) {
		ping(50*time.Millisecond, 8+seq, true, "in order")
	}
	for seq := range uint64(5) {
		if p.inOrder(2+seq, now, silence) {
			t.Errorf("ping %d, a late ping counts", 2+seq)
		}
	}
	ping(0, 1<<64-1, true, "far ahead")
	for seq := range uint64(6) {
		ping(50*time.Millisecond, 13+seq, false, "hidden")
	}
	ping(50*time.Millisecond, 19, false, "rises once")
	ping(50*time.Millisecond, 19, false, "a repeat")
	ping(50*time.Millisecond, 20, false, "rises twice")
	ping(50*time.Millisecond, 18, false, "late")
	ping(50*time.Millisecond, 21, false, "rises thrice")
	ping(50*time.Millisecond, 22, true, "rises")
	ping(50*time.Millisecond, 23, true, "in order again")
	ping(50*time.Millisecond, 22, false, "late")
}
