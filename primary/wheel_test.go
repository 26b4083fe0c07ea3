// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWheelIsOnTime adds, removes and takes at random and compares with the times asked for.
func TestWheelIsOnTime(t *testing.T) {
	type entry struct {
		at    time.Duration
		place uint64
	}
	const grain = 10 * time.Millisecond
	rng := rand.New(rand.NewPCG(1, 1))
	w := newWheel(grain, func(e *entry) *uint64 { return &e.place })
	in := map[*entry]bool{}
	now := time.Duration(0)
	for range 20_000 {
		for range rng.IntN(5) {
			e := &entry{at: now + time.Duration(rng.Int64N(int64(100*time.Second)))}
			w.add(e, e.at)
			in[e] = true
		}
		for e := range in {
			if rng.IntN(3) == 0 {
				w.remove(e)
				w.remove(e)
				delete(in, e)
			}
			break
		}
		now += time.Duration(rng.Int64N(int64(60 * time.Millisecond)))
		taken := map[*entry]bool{}
		for {
			e, ok := w.due(now)
			if !ok {
				break
			}
			if taken[e] {
				t.Fatalf("an entry for %v is taken again and again at %v", e.at, now)
			}
			taken[e] = true
			if !in[e] || e.place != 0 {
				t.Fatal("an entry was taken that is not in the wheel")
			}
			if e.at > now { // too far ahead for the wheel
				w.add(e, e.at)
				continue
			}
			delete(in, e)
		}
		if w.n != len(in) {
			t.Fatalf("%d entries are counted, there are %d", w.n, len(in))
		}
	}
	for e := range in {
		if e.at < now-grain {
			t.Fatalf("an entry for %v was not taken by %v", e.at, now)
		}
	}
}
