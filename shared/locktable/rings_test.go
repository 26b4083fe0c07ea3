// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// ringText shows a ring as "a>l:7 b>m:3": who waits for which lock, behind which grant.
func ringText(r locktable.Ring) (text string) {
	for i := range r {
		text += fmt.Sprintf(" %s>%s:%d", r[i].Waiter.Client, r[i].Waiter.Lock, r[i].Token)
	}
	return text
}

// TestRings: clients that wait for each other are told, from any lock of the ring, and nothing else is.
func TestRings(t *testing.T) {
	h := newHarness(t)
	wants := func(why string, all string, of map[cluster.LockName]string) {
		t.Helper()
		rings, complete := h.table.Rings(8, 1000)
		text := ""
		for _, r := range rings {
			text += ringText(r)
		}
		if text != all || !complete {
			t.Errorf("%s: the rings are %q, %t, want %q", why, text, complete, all)
		}
		for lock, want := range of {
			if got := ringText(h.table.RingOf(lock, 1000)); got != want {
				t.Errorf("%s: the ring of %s is %q, want %q", why, lock, got, want)
			}
		}
	}
	h.want(ok, acquire("a", 1, "l", 0))            // token 1
	h.want(ok, acquire("b", 1, "m", 0))            // 2
	h.want(ok, acquire("c", 1, "n", 0))            // 3
	h.want(pending, acquire("a", 2, "l", forever)) // another thread of a: no ring of one
	h.want(pending, acquire("x", 1, "l", forever)) // it holds nothing
	h.want(pending, acquire("a", 3, "m", forever)) // a waits for b
	h.want(pending, acquire("b", 2, "n", forever)) // b waits for c
	h.want(pending, acquire("a", 4, "n", forever)) // and so does a
	h.want(ok, share("s", 1, "shared", 0))         // 9
	h.want(ok, share("c", 2, "shared", 0))         // 10
	h.want(ok, acquire("d", 1, "other", 0))        // d waits for nobody
	h.want(pending, acquire("c", 4, "other", forever))
	wants("a chain", "", map[cluster.LockName]string{"l": "", "m": "", "n": "", "free": ""})
	h.want(pending, acquire("c", 3, "l", forever))
	wants("a ring of two and one of three, of which one is told", " a>m:2 b>n:3 c>l:1", map[cluster.LockName]string{
		"l": " a>m:2 b>n:3 c>l:1", "m": " b>n:3 c>l:1 a>m:2", "n": " c>l:1 a>m:2 b>n:3", "shared": "",
	})
	h.want(pending, acquire("b", 3, "shared", forever))
	if rings, all := h.table.Rings(1, 1000); len(rings) != 1 || all {
		t.Errorf("one ring: %d, all %t", len(rings), all)
	}
	if rings, all := h.table.Rings(8, 1); len(rings) != 0 || all {
		t.Errorf("one look: %d, all %t", len(rings), all)
	}
	h.want(ok, release("c", 5, "n", 3)) // b gets it
	h.want(cluster.StatusCancelled, cancel("b", 3))
	wants("it is open", "", map[cluster.LockName]string{"l": "", "m": "", "n": ""})
	h.reload()
}

// compareRings compares with all that can be reached by the public views.
func (w *world) compareRings() {
	if w.table.LSN()%4 > 0 {
		return
	}
	waitsFor := map[cluster.ClientID]map[cluster.ClientID]bool{}
	for l := range w.table.Locks("", "") {
		for x := range w.table.Waiters(l.Name) {
			for g := range w.table.Grants(l.Name) {
				if g.Client == x.Client || x.Permit.Limit > 0 && uint64(x.Permit.Weight)+uint64(g.Permit.Weight) <= uint64(x.Permit.Limit) {
					continue
				}
				if waitsFor[x.Client] == nil {
					waitsFor[x.Client] = map[cluster.ClientID]bool{}
				}
				waitsFor[x.Client][g.Client] = true
			}
		}
	}
	ringed := false
	for from := range waitsFor {
		reached, todo := map[cluster.ClientID]bool{}, []cluster.ClientID{from}
		for len(todo) > 0 {
			next := todo[0]
			todo = todo[1:]
			for to := range waitsFor[next] {
				if !reached[to] {
					reached[to] = true
					todo = append(todo, to)
				}
			}
		}
		ringed = ringed || reached[from]
	}
	rings, all := w.table.Rings(4, 1e6)
	if ringed != (len(rings) > 0) || !all && len(rings) < 4 {
		w.tb.Fatalf("rings %v, all %t; there is one: %t", rings, all, ringed)
	}
	for _, r := range rings {
		w.counts["ring"]++
		for i := range r {
			next := r[(i+1)%len(r)].Waiter.Client
			if g, live := w.table.Live(r[i].Waiter.Lock, r[i].Token); !live || g.Client != next || len(r) < 2 {
				w.tb.Fatalf("ring %s: token %d is of %+v", ringText(r), r[i].Token, g)
			}
		}
		if of := w.table.RingOf(r[0].Waiter.Lock, 1e6); len(of) < 2 {
			w.tb.Fatalf("ring %s: from lock %s it is %s", ringText(r), r[0].Waiter.Lock, ringText(of))
		}
	}
}
