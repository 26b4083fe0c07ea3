// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func TestTotalPartitionOfEachServer(t *testing.T) {
	for _, id := range []cluster.ServerID{1, 2, 3} {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.awaitPrimary(time.Second, only(1))
			w.advance(time.Second)
			w.isolate(id)
			w.advance(3 * time.Second)
			if p, ok := w.primary(); !ok || p == id {
				t.Fatalf("server %d isolated: primary is %d (%v)", id, p, ok)
			}
			w.staysStable(60 * time.Second)
			if w.claims() > 2 {
				t.Errorf("server %d isolated: %d claims", id, w.claims())
			}
			w.healLinks()
			w.staysStable(20 * time.Second)
		})
	}
}

// placePrimary makes server id the primary of a healthy cluster.
func (w *world) placePrimary(id cluster.ServerID) {
	w.t.Helper()
	first, _ := w.awaitPrimary(time.Second, anybody)
	w.advance(time.Second)
	if id != first {
		w.server(first).change(func(s *server) { s.mu.resign <- struct{}{} })
		w.nominate(id)
		w.awaitPrimary(time.Second, only(id))
		w.advance(2 * time.Second)
	}
	if p, ok := w.primary(); !ok || p != id {
		w.t.Fatalf("primary is %d, want %d", p, id)
	}
}

// Every link cut in one direction for ever, with the primary in every place: the
// case that lets careless elections alternate without end.
func TestOneWayCutForEver(t *testing.T) {
	for place := cluster.ServerID(1); place <= 3; place++ {
		for from := cluster.ServerID(1); from <= 3; from++ {
			for to := cluster.ServerID(1); to <= 3; to++ {
				if from == to {
					continue
				}
				t.Run(fmt.Sprintf("primary %d, %d to %d", place, from, to), func(t *testing.T) {
					bubble(t, 3, func(t *testing.T, w *world) {
						w.placePrimary(place)
						w.cut(from, to)
						w.settles(5 * time.Second)
						for _, id := range w.members.IDs() {
							s := w.server(id)
							p, _, ok := s.e.Primary()
							if actual, _ := w.primary(); !ok || p != actual {
								t.Errorf("server %d believes in %d (%v), the primary is %d", id, p, ok, actual)
							}
						}
					})
				})
			}
		}
	}
}

// settles demands that after a while one primary stays, and few claims led there.
func (w *world) settles(within time.Duration) {
	w.t.Helper()
	before := w.claims()
	w.advance(within)
	w.staysStable(60 * time.Second)
	if n := w.claims() - before; n > 5 {
		w.t.Errorf("%d claims", n)
	}
}

func TestOneWayIsolationForEver(t *testing.T) {
	for id := cluster.ServerID(1); id <= 3; id++ {
		for _, way := range []string{"deaf", "mute"} {
			t.Run(fmt.Sprintf("%s %d", way, id), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) {
					w.placePrimary(id)
					for _, other := range w.members.IDs() {
						if way == "deaf" && other != id {
							w.cut(other, id)
						} else if other != id {
							w.cut(id, other)
						}
					}
					w.settles(5 * time.Second)
					if p, _ := w.primary(); p == id {
						t.Errorf("the %s server %d still is the primary", way, id)
					}
				})
			})
		}
	}
}

func TestOneWayCutBeforeTheStart(t *testing.T) {
	for from := cluster.ServerID(1); from <= 3; from++ {
		for to := cluster.ServerID(1); to <= 3; to++ {
			if from != to {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 3, 1)
					defer w.stop()
					w.cut(from, to)
					w.startAll()
					w.settles(3 * time.Second)
				})
			}
		}
	}
}

func TestVolumeGoneForOneServer(t *testing.T) {
	for place := cluster.ServerID(1); place <= 3; place++ {
		for gone := cluster.ServerID(1); gone <= 3; gone++ {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.placePrimary(place)
				w.server(gone).change(func(s *server) { s.mu.noVolume = true })
				w.settles(8 * time.Second)
				if p, _ := w.primary(); p == gone || place != gone && p != place {
					t.Errorf("primary %d, volume gone for %d: now %d", place, gone, p)
				}
			})
		}
	}
}

func TestStalledShareMakesEverybodyWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(10 * time.Second)
		setAll := func(gone bool) {
			for _, id := range w.members.IDs() {
				w.server(id).change(func(s *server) { s.mu.noVolume = gone })
			}
		}
		setAll(true)
		w.staysStable(time.Minute)
		for _, id := range []cluster.ServerID{3, 2, 1} { // the primary is the last to notice
			w.server(id).change(func(s *server) { s.mu.noVolume, s.mu.probed = false, time.Now() })
			w.advance(700 * time.Millisecond)
		}
		w.staysStable(time.Minute)
		if id, _ := w.primary(); id != 1 || w.claims() != 1 {
			t.Errorf("primary %d after %d claims, want 1 as ever", id, w.claims())
		}
	})
}

func TestStuckCoreLoopLosesThePrimaryWhileTheShareWorks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		w.server(1).change(func(s *server) { s.mu.progress = time.Now() })
		_, took := w.awaitPrimary(3*time.Second, only(2))
		t.Logf("replaced after %v", took)
	})
}

// Server 2 never hears the primary and knows of it from server 3 alone.
func TestHearsayEndsWithThePrimary(t *testing.T) {
	var worst time.Duration
	for phase := range 40 {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.placePrimary(1)
			w.cut(1, 2)
			w.advance(5*time.Second + 17*time.Duration(phase)*time.Millisecond)
			w.pause(1)
			_, took := w.awaitFencing(2*time.Second, not(1))
			worst = max(worst, took)
		})
	}
	t.Logf("the next claim took up to %v", worst)
	if worst > 400*time.Millisecond {
		t.Error("too long")
	}
}
