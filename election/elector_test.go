// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// bubble runs a story about n servers that have just been started.
func bubble(t *testing.T, n int, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, n, 1)
		defer w.stop()
		w.startAll()
		story(t, w)
	})
}

func TestStartGivesOneTermToTheLowest(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		bubble(t, n, func(t *testing.T, w *world) {
			id, took := w.awaitPrimary(time.Second, anybody)
			w.staysStable(20 * time.Second)
			if id != 1 || w.claims() != 1 {
				t.Errorf("%d servers: primary %d after %d claims, want 1 after 1", n, id, w.claims())
			}
			t.Logf("%d servers: a primary %v after the start", n, took)
		})
	}
}

// The time until the next server claims, over many phases of the heartbeats.
func TestTimeFromAFaultToTheNextClaim(t *testing.T) {
	faults := []struct {
		name  string
		fault func(*world, cluster.ServerID)
		limit time.Duration
	}{
		{"killed", (*world).kill, 100 * time.Millisecond},
		{"paused", (*world).pause, 375 * time.Millisecond},
		{"isolated", (*world).isolate, 375 * time.Millisecond},
	}
	for _, f := range faults {
		var worst, sum time.Duration
		const rounds = 60
		for i := range rounds {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3, uint64(i))
				defer w.stop()
				for _, id := range w.members.IDs() {
					w.start(id)
					w.advance(w.random(30 * time.Millisecond)) // so that heartbeats do not march in step
				}
				first, _ := w.awaitPrimary(time.Second, anybody)
				w.advance(3*time.Second + w.random(time.Second))
				before := w.claims()
				f.fault(w, first)
				next, took := w.awaitFencing(time.Second, not(first))
				worst, sum = max(worst, took), sum+took
				w.advance(2 * time.Second)
				if w.claims() != before+1 || first == 1 && next != 2 {
					t.Errorf("%s, seed %d: server %d claimed, %d claims", f.name, i, next, w.claims()-before)
				}
			})
		}
		t.Logf("%s: worst %v, mean %v", f.name, worst, sum/rounds)
		if worst > f.limit {
			t.Errorf("%s: the next claim took up to %v, want at most %v", f.name, worst, f.limit)
		}
	}
}

func TestRefusedByALivePrimary(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(3 * time.Second)
		w.mu.Lock()
		w.mu.refuse[1] = true
		w.mu.Unlock()
		_, took := w.awaitFencing(time.Second, not(1))
		if took > 2*w.timing.Heartbeat {
			t.Errorf("the next claim took %v after a refusal", took)
		}
	})
}

func TestReturningLowestLeavesThePrimaryAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.kill(1)
		w.awaitPrimary(time.Second, only(2))
		w.advance(time.Second)
		w.mu.Lock()
		w.mu.delay = 60 * time.Millisecond
		w.mu.Unlock()
		for range 10 {
			s := w.start(1)
			w.staysStable(30 * time.Second)
			if s.mu.asks > 0 {
				t.Errorf("it asked for %d votes although everybody answers", s.mu.asks)
			}
			w.kill(1)
		}
	})
}

func TestQuickRestartIsNoConflict(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		for range 5 {
			w.kill(3)
			w.start(3)
			w.advance(200 * time.Millisecond)
		}
		w.kill(1)
		w.start(1)
		w.awaitPrimary(3*time.Second, anybody)
		w.staysStable(10 * time.Second)
		for _, id := range w.members.IDs() {
			if c := w.server(id).mu.conflicts; len(c) > 0 {
				t.Errorf("server %d saw conflicts of %v", id, c)
			}
		}
	})
}

func TestPausedPrimaryWakesAsReplica(t *testing.T) {
	for _, pause := range []time.Duration{time.Second, time.Hour} {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.awaitPrimary(time.Second, only(1))
			w.advance(time.Second)
			w.pause(1)
			w.awaitPrimary(time.Second, only(2))
			w.advance(pause)
			w.resume(1)
			w.advance(200 * time.Millisecond)
			if role, _ := w.server(1).role(); role != election.RoleReplica {
				t.Errorf("server 1 is %v, 200ms after it was told of a higher epoch", role)
			}
			w.staysStable(20 * time.Second)
		})
	}
}

func TestPausedReplicaSuspectsNobody(t *testing.T) {
	for _, pause := range []time.Duration{150 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, time.Hour} {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.awaitPrimary(time.Second, only(1))
			w.advance(time.Second)
			before := w.server(2).mu.asks
			w.pause(2)
			w.advance(pause)
			w.resume(2)
			w.staysStable(5 * time.Second)
			if n := w.server(2).mu.asks; n > before {
				t.Errorf("it asked for %d votes after a pause of %v", n-before, pause)
			}
			w.pause(2)
			w.pause(3)
			w.advance(200 * time.Millisecond)
			w.resume(2)
			w.resume(3)
			w.staysStable(5 * time.Second)
		})
	}
}

func TestNonceConflict(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		twin := w.boot(3) // has an ID in use, and no address
		w.advance(5 * time.Second)
		for _, id := range []cluster.ServerID{1, 2} {
			if c := w.server(id).mu.conflicts; !slices.Equal(c, []cluster.ServerID{3}) {
				t.Errorf("server %d was told of conflicts %v, want one of 3", id, c)
			}
			if p := w.server(id).e.Peers()[1]; id == 1 && (p.ID != 3 || !p.Conflict) {
				t.Errorf("server 1 shows no conflict of 3: %+v", p)
			}
		}
		if c := w.server(3).mu.conflicts; !slices.Equal(c, []cluster.ServerID{3}) {
			t.Errorf("server 3 was told of conflicts %v, want one of its own", c)
		}
		w.staysStable(20 * time.Second)

		// Neither twin has a vote: without the primary there is no majority.
		w.kill(1)
		w.advance(20 * time.Second)
		if _, ok := w.primary(); ok {
			t.Error("the word of a doubled ID made a majority")
		}
		twin.end()
		_, took := w.awaitPrimary(15*time.Second, anybody)
		t.Logf("a primary %v after the twin ended", took)
	})
}

func TestDoubledPrimaryKeepsItsTerm(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		twin := w.boot(1)
		w.staysStable(30 * time.Second)
		twin.end()
		w.staysStable(30 * time.Second)
	})
}

func TestFailedTakeoversBackOff(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		for _, id := range w.members.IDs() {
			w.server(id).change(func(s *server) { s.mu.cannot = true })
		}
		before := w.claims()
		w.kill(1)
		w.advance(60 * time.Second)
		if n := w.claims() - before; n < 6 || n > 30 {
			t.Errorf("%d claims in a minute of failing takeovers", n)
		} else {
			t.Logf("%d claims in a minute of failing takeovers by two servers", n)
		}
		w.server(3).change(func(s *server) { s.mu.cannot = false })
		_, took := w.awaitPrimary(20*time.Second, only(3))
		t.Logf("a primary %v after one server could take over again", took)
		w.staysStable(20 * time.Second)
	})
}

func TestOneServerThatCannotTakeOver(t *testing.T) {
	for bad := cluster.ServerID(1); bad <= 3; bad++ {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.server(bad).change(func(s *server) { s.mu.cannot = true })
			w.settles(3 * time.Second)
		})
	}
}

func TestSlowClaimIsConfirmed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		// Everybody believes the primary dead, it returns while server 2 claims.
		w.server(2).change(func(s *server) { s.mu.slowClaim = 2 * time.Second })
		w.isolate(1)
		_, took := w.awaitFencing(time.Second, only(2))
		t.Logf("server 2 claims after %v", took)
		w.healLinks()
		w.advance(2500 * time.Millisecond)
		s := w.server(2)
		if len(s.mu.ends) != 1 || !errors.Is(s.mu.ends[0], election.ErrYield) {
			t.Errorf("server 2's terms ended with %v, want ErrYield", s.mu.ends)
		}
		w.staysStable(10 * time.Second)
		if p, _ := w.primary(); p != 1 {
			t.Errorf("primary is %d", p)
		}
	})
}

// Servers are started one after the other, the lowest last: it is primary all the same.
func TestLowestIsPrimaryThoughItStartsLast(t *testing.T) {
	for pause := time.Duration(0); pause <= 100*time.Millisecond; pause += 20 * time.Millisecond {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3, uint64(pause))
				defer w.stop()
				for _, id := range []cluster.ServerID{3, 2, 1} {
					w.start(id)
					w.advance(pause)
				}
				if id, took := w.awaitPrimary(time.Second, anybody); id != 1 {
					t.Errorf("server %d is primary, %v after the last start", id, took)
				}
				w.staysStable(5 * time.Second)
			})
		})
	}
}

// Lower IDs that are down are waited for once, and briefly.
func TestHigherServersServeWithoutTheLowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 1)
		defer w.stop()
		w.start(3)
		w.start(2)
		if id, took := w.awaitPrimary(time.Second, only(2)); took < w.timing.Suspicion || took > 2*w.timing.Suspicion {
			t.Errorf("server %d is primary after %v", id, took)
		}
	})
}

func TestHandoverByNominate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		w.server(1).change(func(s *server) { s.mu.resign <- struct{}{} })
		w.nominate(3)
		_, took := w.awaitFencing(time.Second, only(3))
		if took > 10*time.Millisecond {
			t.Errorf("the nominee claimed after %v", took)
		}
		w.awaitPrimary(time.Second, only(3))
		w.staysStable(20 * time.Second)
		if w.claims() != 2 {
			t.Errorf("%d claims, want 2", w.claims())
		}
	})
}

// The others see that the primary is no longer primary before its nominee shows.
func TestOthersWaitForTheNominee(t *testing.T) {
	for phase := range 25 {
		bubble(t, 3, func(t *testing.T, w *world) {
			w.awaitPrimary(time.Second, only(1))
			w.advance(time.Second + 2*time.Duration(phase)*time.Millisecond)
			w.server(1).change(func(s *server) { s.mu.resign <- struct{}{}; s.mu.unable = true })
			w.advance(30 * time.Millisecond)
			w.nominate(3)
			w.awaitPrimary(time.Second, only(3))
			if w.claims() != 2 {
				t.Errorf("%d claims, want 2", w.claims())
			}
		})
	}
}

func TestNomineeThatDiesIsReplaced(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(time.Second)
		w.server(1).change(func(s *server) { s.mu.resign <- struct{}{} })
		synctest.Wait() // it has resigned
		w.kill(2)
		_, took := w.awaitPrimary(2*time.Second, anybody)
		t.Logf("a primary after %v", took)
		w.staysStable(10 * time.Second)
	})
}

func TestTwoOfThreeWithOneDeadForEver(t *testing.T) {
	for dead := cluster.ServerID(1); dead <= 3; dead++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3, 1)
			defer w.stop()
			for _, id := range w.members.IDs() {
				if id != dead {
					w.start(id)
				}
			}
			first, took := w.awaitPrimary(2*time.Second, anybody)
			w.staysStable(20 * time.Second)
			t.Logf("server %d dead: primary %d after %v", dead, first, took)
			w.kill(first)
			w.advance(10 * time.Second)
			if _, ok := w.primary(); ok {
				t.Error("one of three servers is primary")
			}
			w.start(first)
			w.awaitPrimary(2*time.Second, anybody)
			w.staysStable(20 * time.Second)
		})
	}
}

func TestWhoGoesFirstAndNeverComesIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 1)
		defer w.stop()
		w.startAll()
		w.server(1).change(func(s *server) { s.mu.slowClaim = time.Hour })
		_, took := w.awaitPrimary(time.Second, only(2))
		t.Logf("passed after %v", took)
		w.staysStable(time.Minute)
	})
}

func TestHigherEpochIsToldAtOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(1100 * time.Millisecond)
		w.isolate(1)
		w.awaitPrimary(time.Second, only(2))
		w.healLinks()
		began := time.Now()
		for role := election.RolePrimary; role == election.RolePrimary; role, _ = w.server(1).role() {
			w.advance(time.Millisecond)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the old primary stepped down after %v", took)
		}
	})
}

// alone is the only server of a cluster, without a node that takes a term.
func alone(ctx context.Context, t *testing.T) *election.Elector {
	e := election.New(election.Options{
		Self: 1, Nonce: 1, Members: cluster.Members{{ID: 1}}, Timing: cluster.DefaultTiming(),
		Status: func() election.Status { return election.Status{Able: true} },
	})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	wg.Go(func() { e.Run(ctx) }) //nolint:errcheck // the cause of cancel
	t.Cleanup(func() { cancel(); wg.Wait() })
	return e
}

func TestOfferThatNobodyTakesIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(context.Background(), t)
		seen := map[election.Role]bool{}
		for range 2000 {
			<-time.After(time.Millisecond)
			seen[e.HandlePing(election.Ping{From: 9}).Status.Role] = true
		}
		if !seen[election.RoleCandidate] || !seen[election.RoleReplica] {
			t.Errorf("roles seen are %v: an offer lasts as long as its grounds", seen)
		}
		<-e.Elected()
		if err := e.Confirm(t.Context()); err != nil {
			t.Errorf("a fresh offer is not confirmed: %v", err)
		}
	})
}

func TestBackOffGrowsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(context.Background(), t)
		next := func() time.Duration {
			began := time.Now()
			<-e.Elected()
			return time.Since(began)
		}
		next()
		var last time.Duration
		for i := range 10 {
			e.Done(errCannot, 0)
			last = next()
			want := max(min(200*time.Millisecond<<i, 10*time.Second), 300*time.Millisecond)
			if last < want*3/4 || last > want*5/4+100*time.Millisecond {
				t.Errorf("failure %d: unable for %v, want about %v", i+1, last, want)
			}
		}
		e.Done(errFenced, 5*time.Second) // a healthy term
		if took := next(); took > 400*time.Millisecond {
			t.Errorf("after a healthy term: unable for %v", took)
		}
		e.Done(errFenced, time.Second)
		if took := next(); took > 400*time.Millisecond {
			t.Errorf("after the first failure since: unable for %v", took)
		}
	})
}
