// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// trouble does one random thing to a random server.
func (w *world) trouble(r *rand.Rand) {
	id := w.members[r.IntN(len(w.members))].ID
	other := w.members[r.IntN(len(w.members))].ID
	s := w.server(id)
	if s == nil {
		w.start(id)
		return
	}
	switch r.IntN(11) {
	case 0, 1:
		w.resume(id)
		w.kill(id)
	case 2:
		w.pause(id)
	case 3:
		w.resume(id)
	case 4:
		w.isolate(id)
	case 5, 6:
		w.cut(id, other)
	case 7:
		w.healLinks()
		w.mu.Lock()
		w.mu.delay, w.mu.loss = time.Duration(r.Int64N(int64(30*time.Millisecond))), 0.1*r.Float64()
		w.mu.Unlock()
	case 8:
		s.change(func(s *server) { s.mu.noVolume = !s.mu.noVolume })
	case 9:
		s.change(func(s *server) { s.mu.cannot = !s.mu.cannot })
	case 10:
		s.change(func(s *server) { s.mu.slowClaim = time.Duration(r.Int64N(int64(time.Second))) })
	}
}

// healAll ends every fault.
func (w *world) healAll() {
	w.healLinks()
	for _, id := range w.members.IDs() {
		if w.server(id) == nil {
			w.start(id)
		}
		w.resume(id)
		w.server(id).change(func(s *server) { s.mu.noVolume, s.mu.cannot, s.mu.slowClaim = false, false, 0 })
	}
}

// spoil leaves one fault for ever.
func (w *world) spoil(r *rand.Rand) {
	ids := w.members.IDs()
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	id, other := ids[0], ids[1]
	switch r.IntN(6) {
	case 0:
		w.kill(id)
	case 1:
		w.pause(id)
	case 2:
		w.isolate(id)
	case 3:
		w.cut(id, other)
	case 4:
		w.server(id).change(func(s *server) { s.mu.noVolume = true })
	case 5:
		w.server(id).change(func(s *server) { s.mu.cannot = true })
	}
}

// Whatever happened, once it is over one primary comes and stays; also when one
// tolerated fault is not over.
func TestRandomFaults(t *testing.T) {
	// A server that failed again and again may be in its longest back-off, or
	// an ID in conflict by a ping that outlived its process.
	const bound = 15 * time.Second
	for n, seeds := range map[int]uint64{2: 150, 3: 300, 5: 100} {
		if testing.Short() {
			seeds /= 10
		}
		var healed, spoiled []time.Duration
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, n, seed)
				defer w.stop()
				r := rand.New(rand.NewPCG(seed, 2))
				w.startAll()
				for range 5 + r.IntN(20) {
					w.advance(time.Duration(r.Int64N(int64(1500 * time.Millisecond))))
					w.trouble(r)
				}
				w.healAll()
				healed = append(healed, w.calms(bound))
				w.spoil(r)
				spoiled = append(spoiled, w.calms(bound))
				if t.Failed() {
					t.Logf("%d servers, seed %d", n, seed)
				}
			})
		}
		for name, all := range map[string][]time.Duration{"healed": healed, "one fault for ever": spoiled} {
			slices.Sort(all)
			t.Logf("%d servers, %s: a stable primary after %v (median), %v (99%%), %v (longest)", n, name, all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
		}
	}
}

// calms watches until one primary has stayed, alone and without further claims,
// for some seconds, and tells how long that took to begin.
func (w *world) calms(bound time.Duration) time.Duration {
	w.t.Helper()
	const calm = 8 * time.Second
	began := time.Now()
	since := began
	var last cluster.ServerID
	claims := w.claims()
	for ; time.Since(since) < calm; w.advance(10 * time.Millisecond) {
		id, _ := w.primary()
		if id == 0 || id != last || w.claims() != claims {
			last, claims, since = id, w.claims(), time.Now()
		}
		if time.Since(began) > bound+calm {
			w.dump()
			w.t.Fatalf("no stable primary after %v: %d, %d claims", bound, id, w.claims())
		}
	}
	return since.Sub(began)
}
