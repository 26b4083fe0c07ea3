// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"math/rand/v2"
	"testing"
)

// TestIndexIsAMap puts and removes at random, with many keys and with few.
func TestIndexIsAMap(t *testing.T) {
	type entry struct{ key uint64 }
	rng := rand.New(rand.NewPCG(1, 1))
	x := newIndex(func(e *entry) uint64 { return e.key })
	want := map[uint64]*entry{}
	for _, keys := range []uint64{10, 5000, 200_000, 3000, 1} {
		for range 200_000 {
			e := &entry{key: rng.Uint64N(keys)}
			if rng.IntN(2) == 0 {
				x.put(e)
				want[e.key] = e
			} else {
				x.remove(e.key)
				delete(want, e.key)
			}
			if x.get(e.key) != want[e.key] || x.len() != len(want) {
				t.Fatalf("key %d: %v of %d entries, want %v of %d", e.key, x.get(e.key), x.len(), want[e.key], len(want))
			}
		}
		for k, e := range want {
			if x.get(k) != e {
				t.Fatalf("key %d is lost", k)
			}
			if k >= 10 {
				x.remove(k)
				delete(want, k)
			}
		}
		places := 0
		for i := range x.shards {
			places += len(x.shards[i].tags)
		}
		if places > 9*len(x.shards) {
			t.Errorf("%d places for %d entries", places, x.len())
		}
	}
}
