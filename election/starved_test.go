// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// doze freezes servers for so long, and wakes them.
func (w *world) doze(d time.Duration, ids ...cluster.ServerID) {
	for _, id := range ids {
		w.pause(id)
	}
	w.advance(d)
	for _, id := range ids {
		w.resume(id)
	}
}

// starve lets servers run in short spells only, until its result is called: they are frozen for
// longest at most, each in its own time, and then run for a twentieth of that at most.
func (w *world) starve(longest time.Duration, ids ...cluster.ServerID) (feed func()) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, id := range ids {
		wg.Go(func() {
			for {
				w.pause(id)
				w.advance(w.random(longest))
				w.resume(id)
				select {
				case <-stop:
					return
				case <-time.After(w.random(longest / 20)):
				}
			}
		})
	}
	return func() {
		close(stop)
		wg.Wait()
	}
}

// TestLateServerSuspectsLater isolates the primary when the others were late by so much a moment
// ago. They wait the longer for it, and claim all the same.
func TestLateServerSuspectsLater(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct{ late, least, most time.Duration }{
		{0, 250 * ms, 375 * ms},
		{60 * ms, 270 * ms, 800 * ms}, // the tick itself may have been due later
		{200 * ms, 750 * ms, 1300 * ms},
		{450 * ms, 1750 * ms, 2400 * ms},
		{800 * ms, 2800 * ms, 3600 * ms},
		{1500 * ms, 250 * ms, 375 * ms}, // a sleep, which has ended
	} {
		t.Run(test.late.String(), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.awaitPrimary(time.Second, only(1))
				w.advance(time.Second)
				w.doze(test.late, 2, 3)
				w.advance(100 * ms) // the primary is heard again
				w.isolate(1)
				if _, took := w.awaitFencing(5*time.Second, not(1)); took < test.least || took > test.most {
					t.Errorf("the next claim came after %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}

// TestLateServerHeedsABrokenConnection kills the primary when the others were late by so much, or
// still are: a refused connection is no silence, and they claim at once.
func TestLateServerHeedsABrokenConnection(t *testing.T) {
	for _, late := range []time.Duration{0, 200 * time.Millisecond, time.Second, 5 * time.Second, time.Minute} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.awaitPrimary(time.Second, only(1))
				w.advance(time.Second)
				w.pause(2)
				w.pause(3)
				w.advance(late)
				w.kill(1)
				w.resume(2)
				w.resume(3)
				if _, took := w.awaitFencing(time.Second, not(1)); took > 150*time.Millisecond {
					t.Errorf("the next claim came %v after the servers ran again", took)
				}
			})
		})
	}
}

// TestLateVoterHoldsUpNoElection isolates the primary when one of the others was late a moment ago and
// the other was not. The late one says for a while that it heard the primary, and no longer.
func TestLateVoterHoldsUpNoElection(t *testing.T) {
	for _, late := range []cluster.ServerID{2, 3} {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.awaitPrimary(time.Second, only(1))
			w.advance(time.Second)
			w.doze(800*time.Millisecond, late)
			w.advance(100 * time.Millisecond)
			w.isolate(1)
			_, took := w.awaitFencing(5*time.Second, not(1))
			if took > 2800*time.Millisecond {
				t.Errorf("server %d was late: the next claim came after %v", late, took)
			}
		})
	}
}

// TestMachineThatWakesUpKeepsItsPrimary has all servers sleep, and the primary wake up last.
func TestMachineThatWakesUpKeepsItsPrimary(t *testing.T) {
	for _, late := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second} {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.awaitPrimary(time.Second, only(1))
			w.advance(time.Second)
			w.pause(1)
			w.doze(time.Minute, 2, 3)
			w.advance(late)
			w.resume(1)
			w.advance(10 * time.Second)
			if id, ok := w.primary(); !ok || id != 1 || w.claims() != 1 {
				t.Errorf("the primary wakes up %v after the others: the primary is %d (%v) after %d claims", late, id, ok, w.claims())
			}
		})
	}
}

// TestSilenceIsForgivenOnce has servers sleep again and again while the primary is dead and no
// connection breaks. They do not wait for ever.
func TestSilenceIsForgivenOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		w.isolate(1)
		claims := w.claims()
		for range 5 {
			w.doze(time.Minute, 2, 3)
			w.advance(time.Second)
		}
		if w.claims() == claims {
			t.Error("no server claims although the primary has been silent for minutes")
		}
	})
}

// TestStarvedServersKeepTheirPrimary has servers run in short spells for ten minutes. The primary
// stays; when it is killed another one takes over, and when they are late no more, all is as
// quick as ever.
func TestStarvedServersKeepTheirPrimary(t *testing.T) {
	const ms = time.Millisecond
	for _, longest := range []time.Duration{100 * ms, 250 * ms, 400 * ms} {
		for name, ids := range map[string][]cluster.ServerID{"all": {1, 2, 3}, "the replicas": {2, 3}, "one replica": {3}} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("%s by %v, seed %d", name, longest, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, 3, seed)
						defer w.stop()
						w.startAll()
						w.awaitPrimary(time.Second, only(1))
						w.advance(time.Second)
						feed := w.starve(longest, ids...)
						w.advance(10 * time.Minute)
						if n := w.claims(); n != 1 {
							t.Errorf("%d claims in ten minutes, want only the first one", n)
						}
						feed()
						w.advance(5 * time.Second)
						if id, ok := w.primary(); !ok || id != 1 {
							t.Fatalf("the primary is %d (%v)", id, ok)
						}
						for _, id := range w.members.IDs() {
							if p := w.server(id).e.Allowance(); p > 0 {
								t.Errorf("server %d allows for %v five seconds later", id, p)
							}
						}
						w.isolate(1)
						if _, took := w.awaitFencing(time.Second, not(1)); took > 375*ms {
							t.Errorf("five seconds later the next claim took %v", took)
						}
					})
				})
			}
		}
	}
}

// TestStarvedServersReplaceADeadPrimary ends the primary while the others run in short spells: one
// takes over, soon if a connection breaks, and within a bound if it falls silent.
func TestStarvedServersReplaceADeadPrimary(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*world, cluster.ServerID)
		most time.Duration
	}{
		"killed":   {(*world).kill, 3 * time.Second},
		"isolated": {(*world).isolate, 6 * time.Second},
	} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 3, seed)
					defer w.stop()
					w.startAll()
					w.awaitPrimary(time.Second, only(1))
					w.advance(time.Second)
					feed := w.starve(400*time.Millisecond, 2, 3)
					w.advance(5 * time.Second)
					test.end(w, 1)
					_, took := w.awaitFencing(test.most, not(1))
					t.Logf("claimed after %v", took)
					feed()
				})
			})
		}
	}
}
