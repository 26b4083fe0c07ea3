// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// link is one direction between two servers.
type link [2]cluster.ServerID

// hubs are the servers with links in both directions to enough others for a majority.
func (w *world) hubs(cuts map[link]bool) (hubs []cluster.ServerID) {
	for _, id := range w.members.IDs() {
		n := 1
		for _, other := range w.members.IDs() {
			if other != id && !cuts[link{id, other}] && !cuts[link{other, id}] {
				n++
			}
		}
		if n >= w.members.Majority() {
			hubs = append(hubs, id)
		}
	}
	return hubs
}

// drawCuts draws some links, in one direction or in both.
func (w *world) drawCuts(r *rand.Rand) map[link]bool {
	n := len(w.members)
	cuts := map[link]bool{}
	for range 1 + r.IntN(2*n-3) {
		from, to := cluster.ServerID(1+r.IntN(n)), cluster.ServerID(1+r.IntN(n))
		if from == to {
			continue
		}
		cuts[link{from, to}] = true
		if r.IntN(2) == 0 {
			cuts[link{to, from}] = true
		}
	}
	return cuts
}

// Several links are cut for ever, and maybe one server has no volume. Where somebody still has a
// majority in both directions, one primary comes and stays.
func TestSeveralCutsForEver(t *testing.T) {
	for _, test := range []struct {
		servers, seeds int
		sick           bool
	}{{3, 25, false}, {5, 15, false}, {5, 15, true}} {
		t.Run(fmt.Sprintf("%d servers, one without volume: %v", test.servers, test.sick), func(t *testing.T) {
			for seed := range uint64(test.seeds) {
				synctest.Test(t, func(t *testing.T) { severalCuts(t, test.servers, seed, test.sick) })
			}
		})
	}
}

func severalCuts(t *testing.T, n int, seed uint64, sick bool) {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	w := newWorld(t, n, seed)
	defer w.stop()
	w.startAll()
	w.awaitPrimary(2*time.Second, anybody)
	place := cluster.ServerID(1 + r.IntN(n))
	w.placePrimary(place)
	cuts := w.drawCuts(r)
	lost := map[link]bool{}
	for c := range cuts {
		lost[c] = true
	}
	id := cluster.ServerID(0)
	if sick {
		id = cluster.ServerID(1 + r.IntN(n))
		for _, o := range w.members.IDs() {
			lost[link{id, o}], lost[link{o, id}] = true, true
		}
	}
	hubs := w.hubs(lost)
	if len(hubs) == 0 {
		return
	}
	for c := range cuts {
		w.cut(c[0], c[1])
	}
	if sick {
		w.server(id).change(func(s *server) { s.mu.noVolume = true })
	}
	w.advance(20 * time.Second)
	before, serving := w.claims(), 0
	const looks = 300
	for range looks {
		w.advance(100 * time.Millisecond)
		if _, ok := w.primary(); ok {
			serving++
		}
	}
	if more := w.claims() - before; more > 1 || serving < looks*9/10 {
		t.Errorf("seed %d: hubs %v, primary was %d, cuts %v, without volume %d: 20 to 50 s behind the cut %d claims, and a primary in %d of %d looks",
			seed, hubs, place, cuts, id, more, serving, looks)
	}
}
