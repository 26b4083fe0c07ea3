// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const ttl = 10 * time.Second

func reason(l *Lock) LossReason {
	if lost, ok := errors.AsType[*LostError](context.Cause(l.Context())); ok {
		return lost.Reason
	}
	return ""
}

func TestKeepAlive(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		m := w.acquire("b", AcquireOptions{TTL: ttl})
		time.Sleep(time.Minute)
		if l.Context().Err() != nil || m.Context().Err() != nil {
			t.Fatalf("lost: %v, %v", context.Cause(l.Context()), context.Cause(m.Context()))
		}
		seen := w.attempts("keepalive")
		if len(seen) < 17 || len(seen) > 21 {
			t.Errorf("%d keep-alives in a minute of two leases of %v", len(seen), ttl)
		}
		for _, s := range seen {
			if s.held != 2 {
				t.Errorf("said that it holds %d", s.held)
			}
		}
		if err := errors.Join(l.Release(t.Context()), m.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(w.attempts("keepalive")); n != len(seen) {
			t.Errorf("%d keep-alives when nothing was held", n-len(seen))
		}
	})
}

func TestCutOffLockEndsBeforeItsLease(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		began := time.Now()
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		for _, s := range w.servers {
			defer s.pause()()
		}
		<-l.Context().Done()
		if d := time.Since(began); d != ttl-driftMargin(ttl) || reason(l) != LossNotRenewed {
			t.Errorf("ended after %v: %v", d, context.Cause(l.Context()))
		}
		if _, err := l.Append(t.Context(), "f", []byte("x")); !errors.Is(err, ErrLost) {
			t.Errorf("append: %v", err)
		}
	})
}

func TestLostAnswersDoNotExtend(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		began := time.Now()
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		// The service hears every keep-alive and we hear no answer.
		w.servers[0].set(func() { w.servers[0].mu.dropKeepAlive = true })
		<-l.Context().Done()
		if d := time.Since(began); d != ttl-driftMargin(ttl) {
			t.Errorf("ended after %v", d)
		}
	})
}

// A renewal counts from when it was sent: the service may have executed it right then.
func TestLateRenewalCountsFromItsSending(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		began := time.Now()
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		time.Sleep(ttl/3 - time.Millisecond)
		resume := w.servers[0].pause()
		time.Sleep(100 * time.Millisecond)
		resume()
		synctest.Wait()
		if n := len(w.attempts("keepalive")); n != 1 {
			t.Fatalf("%d keep-alives", n)
		}
		w.servers[0].set(func() { w.servers[0].mu.dropKeepAlive = true })
		<-l.Context().Done()
		if d := time.Since(began); d != ttl/3+ttl-driftMargin(ttl) {
			t.Errorf("ended after %v, want a lease from %v on", d, ttl/3)
		}
	})
}

func TestSleepOfTheMachineEndsTheLock(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		m := w.acquire("b", AcquireOptions{TTL: ttl})
		for _, s := range w.servers {
			s.set(func() { s.mu.down = true })
		}
		w.clock.sleep(time.Hour)
		if _, err := m.Append(t.Context(), "f", []byte("x")); !errors.Is(err, ErrLost) {
			t.Errorf("append right after waking: %v", err)
		}
		began := time.Now()
		<-l.Context().Done()
		if d := time.Since(began); d > tick(ttl) || reason(l) != LossNotRenewed {
			t.Errorf("ended %v after waking: %v", d, context.Cause(l.Context()))
		}
	})
}

// Who loses a lock because its own process did not run is told so, and not to look at the servers.
func TestALossSaysWhoseTimerWasLate(t *testing.T) {
	for name, test := range map[string]struct {
		fail func(*world)
		want string
	}{
		"this process slept": {func(w *world) { w.clock.sleep(time.Minute) }, "the timer of the renewals was 1m0s late"},
		"its lease ended meanwhile": {func(w *world) {
			w.clock.sleep(ttl - ttl/4)
			w.end("a")
		}, fmt.Sprintf("was %v late", ttl-ttl/4)},
		"it slept long ago": {func(w *world) {
			w.clock.sleep(time.Second)
			time.Sleep(time.Minute)
			w.servers[0].set(func() { w.servers[0].mu.down = true })
		}, ""},
		"the servers do not answer": {func(w *world) { w.servers[0].set(func() { w.servers[0].mu.down = true }) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{TTL: ttl})
				time.Sleep(time.Millisecond)
				test.fail(w)
				<-l.Context().Done()
				cause := context.Cause(l.Context())
				said := strings.Contains(cause.Error(), "late")
				if said != (test.want != "") || !strings.Contains(cause.Error(), test.want) || !errors.Is(cause, ErrLost) {
					t.Errorf("got %v, want %q", cause, test.want)
				}
			})
		})
	}
}

func TestEndedGrantIsNoticedByKeepAlive(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		m := w.acquire("b", AcquireOptions{TTL: ttl})
		w.end("a")
		<-l.Context().Done()
		if reason(l) != LossRefused || m.Context().Err() != nil {
			t.Errorf("a: %v, b: %v", context.Cause(l.Context()), context.Cause(m.Context()))
		}
	})
}

func TestEndedGrantIsNoticedThoughTheNumberIsRight(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		// A grant whose answer is held back takes the place of the one that ended.
		w.others("b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.c.Acquire(ctx, "b", AcquireOptions{TTL: ttl, Wait: Forever})
		synctest.Wait()
		w.servers[0].set(func() { w.servers[0].mu.drop = func(op string) bool { return op == "acquire" } })
		w.end("a")
		w.end("b")
		<-l.Context().Done()
		if reason(l) != LossRefused {
			t.Errorf("got %v", context.Cause(l.Context()))
		}
		cancel()
	})
}

// A grant that nobody here wants takes the place of one that ended. A server compares which
// are held; an older one, which compares how many, is made to list them.
func TestStrayInThePlaceOfAnEndedGrant(t *testing.T) {
	for name, older := range map[string]bool{"servers that compare digests": false, "older servers": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				for _, s := range w.servers {
					s.older.Store(older)
				}
				l, m := w.acquire("a", AcquireOptions{TTL: ttl}), w.acquire("b", AcquireOptions{TTL: ttl})
				time.Sleep(10 * ttl)
				w.mu.Lock()
				w.free("a") // and nobody is told
				w.grant(fakeKey{string(l.owner), 999}, "stray", 10_000)
				w.mu.Unlock()
				time.Sleep(ttl / 2)
				if l.Context().Err() == nil || reason(l) != LossRefused {
					t.Errorf("it is %s, of which nothing is left: %v", l.State().Phase, context.Cause(l.Context()))
				}
				if c, _ := w.holder("stray"); c != "" {
					t.Errorf("%s still holds what it knows nothing of", c)
				}
				if m.Context().Err() != nil {
					t.Errorf("b: %v", context.Cause(m.Context()))
				}
			})
		})
	}
}

// A grant that is looked at once more before it is handed out is listed meanwhile. So is one
// that is on its way back.
func TestGrantIsNoStrayBeforeItIsKept(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.acquire("a", AcquireOptions{TTL: ttl})
		p := w.servers[0]
		p.dropOnce("acquire") // so the answer that comes is a repeat, and is looked at
		p.set(func() {
			p.mu.lag = func(op string) time.Duration {
				if op == "renew" || op == "release" {
					return 900 * time.Millisecond
				}
				return 0
			}
		})
		got := make(chan *Lock, 1)
		go func() { got <- w.acquire("b", AcquireOptions{TTL: ttl}) }()
		for len(w.attempts("renew")) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if err := w.c.renewer.keepAlive(w.c.main, w.c.main.current()); err != nil {
			t.Fatal(err)
		}
		l := <-got
		if _, token := w.holder("b"); token != uint64(l.Token()) || len(w.attempts("release")) != 0 {
			t.Errorf("token %d was handed out, the table has %d", l.Token(), token)
		}
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		time.Sleep(10 * time.Millisecond)
		if err := w.c.renewer.keepAlive(w.c.main, w.c.main.current()); err != nil {
			t.Fatal(err)
		}
		if err := <-released; err != nil || len(w.attempts("release")) != 1 {
			t.Errorf("released %d times: %v", len(w.attempts("release")), err)
		}
	})
}

// The primary role moves from a server that compares digests to an older one: that the number is right
// is not taken for an answer even once.
func TestTermMovesToAnOlderServer(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		time.Sleep(ttl)
		w.servers[1].older.Store(true)
		w.setPrimary(w.servers[1])
		w.mu.Lock()
		w.free("a")
		w.grant(fakeKey{string(l.owner), 999}, "stray", 10_000)
		w.mu.Unlock()
		time.Sleep(ttl / 2)
		if l.Context().Err() == nil {
			t.Errorf("it is %s, of which nothing is left", l.State().Phase)
		}
	})
}

func TestStrayIsReleased(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.mu.Lock()
		w.grant(fakeKey{string(l.owner), 999}, "stray", 10_000)
		attached := w.grant(fakeKey{string(l.owner), 998}, "attached", 10_000).Token
		w.mu.Unlock()
		w.c.Attach("attached", tokenOf(attached))
		time.Sleep(ttl / 2)
		if c, _ := w.holder("stray"); c != "" {
			t.Errorf("%s still holds the stray", c)
		}
		if _, token := w.holder("attached"); token != attached {
			t.Error("an attached lock was taken for a stray")
		}
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
	})
}

// seeded is a source of random numbers for several goroutines.
func seeded(seed uint64) func() uint64 {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 2))
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return rng.Uint64()
	}
}

func TestReleaseDuringAFailoverIsNoLoss(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		inBubble(t, Options{Rand: seeded(seed)}, func(t *testing.T, w *world) {
			w.acquire("kept", AcquireOptions{TTL: 3 * time.Second})
			l := w.acquire("a", AcquireOptions{TTL: 3 * time.Second})
			// Around the time of a keep-alive nobody serves for a while.
			time.Sleep(time.Duration(700+rng.IntN(400)) * time.Millisecond)
			until := time.Now().Add(400 * time.Millisecond)
			for _, s := range w.servers {
				s.set(func() {
					s.mu.refuse = func(op string) error {
						if op == "status" || time.Now().After(until) {
							return nil
						}
						return (&wire.Error{Status: cluster.StatusServerFencing, RetryAfter: 25 * time.Millisecond}).GRPCStatus().Err()
					}
				})
			}
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("seed %d: release of a live lock: %v", seed, err)
			}
			if n := len(w.c.renewer.mu.expecting); n != 0 {
				t.Errorf("seed %d: %d locks are still expected", seed, n)
			}
		})
	}
}

// Very many locks are not listed with every keep-alive because something is under way.
func TestManyLocksAreListedNowAndThen(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		for i := range 3 * maxListed {
			w.acquire(cluster.LockName(fmt.Sprintf("l%d", i)), AcquireOptions{})
		}
		k, who := w.c.renewer, w.c.main.current()
		k.expect("another", w.c.main, 0)
		for i, want := range []uint32{wire.HeldNotReported, wire.HeldNotReported, heldUnknown, wire.HeldNotReported} {
			if locks, q := k.belief(w.c.main, who); len(locks) != 3*maxListed || q.Held != want || (q.Digest == nil) != (want == wire.HeldNotReported) {
				t.Errorf("keep-alive %d of %d locks says %v, want %d", i, len(locks), q, want)
			}
		}
		k.unexpect("another", w.c.main, 0)
		if _, q := k.belief(w.c.main, who); q.Held != 3*maxListed || q.Digest == nil {
			t.Errorf("with nothing under way it says %v", q)
		}
	})
}

// A keep-alive that lists nothing is answered with OK also where the service gave a lock to somebody
// else. What ended while the process did not run is not revived by such an answer.
func TestKeepAliveRevivesNoLeaseThatIsOver(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		k, who := w.c.renewer, w.c.main.current()
		k.mu.Lock()
		w.c.main.unlisted = -2 * maxListed // as if it were very many locks
		k.mu.Unlock()
		defer k.unexpect("another", w.c.main, 0)
		k.expect("another", w.c.main, 0)
		resume := w.servers[0].pause()
		done := make(chan error)
		go func() { done <- k.keepAlive(w.c.main, who) }()
		synctest.Wait()
		w.clock.sleep(2 * ttl)
		resume()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if seen := w.attempts("keepalive"); len(seen) == 0 || seen[len(seen)-1].held != wire.HeldNotReported {
			t.Errorf("keep-alives: %v", seen)
		}
		if l.Context().Err() == nil || reason(l) != LossNotRenewed {
			t.Errorf("revived: lease %v, %v", l.counted(), context.Cause(l.Context()))
		}
	})
}

func TestKeepAliveThatIsTooLongFallsBackToRenewals(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		m := w.acquire("b", AcquireOptions{TTL: ttl})
		w.servers[0].set(func() {
			w.servers[0].mu.refuse = func(op string) error {
				if op == "keepalive" {
					return status.Error(codes.ResourceExhausted, "received message larger than max")
				}
				return nil
			}
		})
		time.Sleep(10 * ttl)
		if l.Context().Err() != nil || m.Context().Err() != nil {
			t.Fatalf("lost: %v, %v", context.Cause(l.Context()), context.Cause(m.Context()))
		}
		w.end("a")
		<-l.Context().Done()
		if reason(l) != LossRefused || m.Context().Err() != nil {
			t.Errorf("a: %v, b: %v", context.Cause(l.Context()), context.Cause(m.Context()))
		}
	})
}

func TestForgottenClientLosesItsLocks(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.mu.Lock()
		clear(w.mu.nonces)
		w.mu.Unlock()
		<-l.Context().Done()
		if reason(l) != LossForgotten || !errors.Is(context.Cause(l.Context()), wire.ErrStaleRequest) {
			t.Errorf("got %v", context.Cause(l.Context()))
		}
	})
}

func TestCloseEndsContextsAndReleasesNothing(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.c.Close()
		if reason(l) != LossClosed {
			t.Errorf("context ended with %v", context.Cause(l.Context()))
		}
		if _, token := w.holder("a"); token != uint64(l.Token()) {
			t.Error("the lock was released")
		}
		if _, err := w.c.Acquire(t.Context(), "b", AcquireOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("acquire after close: %v", err)
		}
	})
}

// What the service remembers of a client only costs it memory once nobody can ask about it.
func TestCloseForgetsAClientThatIsDone(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		for _, wait := range []time.Duration{0, Forever} { // each opens an identity
			l := w.acquire("a", AcquireOptions{TTL: ttl, Wait: wait})
			if _, err := l.Append(t.Context(), "f", []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.c.Close() //nolint:errcheck // it cannot fail
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.mu.opened != 2 || len(w.mu.nonces) != 0 {
			t.Errorf("%d clients were opened, the service remembers %v", w.mu.opened, w.mu.nonces)
		}
	})
}

// Somebody may yet ask what became of a request without a certain answer, or release what is held.
func TestCloseForgetsNothingThatIsInDoubt(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *world){
		"an append without an answer": func(t *testing.T, w *world) {
			l := w.acquire("a", AcquireOptions{TTL: ttl})
			w.servers[0].set(func() { w.servers[0].mu.drop = func(op string) bool { return op == "append" } })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if e, ok := errors.AsType[*CallError](func() error { _, err := l.Append(ctx, "f", []byte("x")); return err }()); !ok || !e.Unknown {
				t.Errorf("it ended with %v", e)
			}
			w.servers[0].set(func() { w.servers[0].mu.drop = nil })
			time.Sleep(settleTime)
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"a lock": func(_ *testing.T, w *world) { w.acquire("a", AcquireOptions{TTL: ttl}) },
		"a name of its own": func(t *testing.T, w *world) {
			w.c.Close() //nolint:errcheck // it cannot fail
			w.c = w.client(Options{ClientID: "script"})
			if err := w.acquire("a", AcquireOptions{TTL: ttl}).Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				leave(t, w)
				w.c.Close() //nolint:errcheck // it cannot fail
				if all := w.attempts("forget"); len(all) > 0 {
					t.Errorf("forgotten: %+v", all)
				}
			})
		})
	}
}

// A grant whose answer comes when the client is closed is watched by nobody: it is not handed out.
func TestNothingIsAddedAfterClose(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.c.Close() //nolint:errcheck // it cannot fail
		l := newLock(w.c, "a", 7, 1)
		if l.grant(ttl, w.clock.Now(), ttl, 0); w.c.renewer.add(l) || len(w.c.renewer.mu.locks) != 0 {
			t.Errorf("a lock is held after Close: %v", w.c.renewer.mu.locks)
		}
	})
}

// Who closes a client that is being closed returns when that is done, not before.
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		resume := w.servers[0].pause() // what was given up is not cancelled within the grace
		defer resume()
		appended := make(chan error, 1)
		go func() {
			_, err := l.Append(t.Context(), "f", []byte("x"))
			appended <- err
		}()
		synctest.Wait()
		go w.c.Close()
		synctest.Wait()
		began := time.Now()
		w.c.Close()
		if d := time.Since(began); d != closeGrace || l.Context().Err() == nil || !w.c.servers.mu.closed {
			t.Errorf("closed after %v, with a lock that ended with %v", d, l.Context().Err())
		}
		if err := <-appended; !errors.Is(err, ErrClosed) {
			t.Errorf("append: %v", err)
		}
	})
}

func TestCloseCancelsAWait(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		got := make(chan error, 1)
		go func() {
			_, err := w.c.Acquire(t.Context(), "a", AcquireOptions{Wait: Forever})
			got <- err
		}()
		synctest.Wait()
		w.c.Close()
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		w.end("a")
		if c, _ := w.holder("a"); c != "" {
			t.Errorf("%s was granted the lock after Close", c)
		}
	})
}

func TestReleaseGoesOnWhenItsContextEnds(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if l.Context().Err() == nil {
			t.Error("the context goes on")
		}
		synctest.Wait()
		if c, _ := w.holder("a"); c != "" {
			t.Errorf("%s still holds the lock", c)
		}
	})
}

func TestAttach(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		l := w.c.Attach("a", tokenOf(token))
		if !l.Expires().IsZero() || l.TTL() != 0 {
			t.Errorf("expires %v, TTL %v", l.Expires(), l.TTL())
		}
		if _, err := l.Append(t.Context(), "f", []byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if l.Context().Err() != nil || len(w.attempts("keepalive")) != 0 {
			t.Error("an attached lock was watched")
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-l.Context().Done()
		if d := time.Since(began); d != ttl-driftMargin(ttl) || len(w.attempts("keepalive")) != 0 {
			t.Errorf("ended after %v", d)
		}
		if m := w.c.Attach("a", 1); !errors.Is(m.Renew(t.Context()), ErrLost) || reason(m) != LossRefused {
			t.Errorf("a wrong token: %v", context.Cause(m.Context()))
		}
	})
}

func TestExpiredGrantIsAskedForAnew(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		if _, err := w.c.ID(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, n := w.servers[0], 0
		p.set(func() {
			p.mu.drop = func(op string) bool {
				if op != "acquire" || n > 0 {
					return false
				}
				n++
				w.end("a") // the lease ends before the answer is asked for again
				return true
			}
		})
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		if _, token := w.holder("a"); token != uint64(l.Token()) {
			t.Errorf("token %d, the table has %d", l.Token(), token)
		}
	})
}

// A grant whose first answers were lost has less than a whole TTL left where renewals do not
// move its end. A service of before tells the repeat a whole TTL all the same.
func TestRepeatedGrantIsCountedAsFarAsItLives(t *testing.T) {
	for name, old := range map[string]bool{"service of today": false, "service of before": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				if _, err := w.c.ID(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.mu.Lock()
				w.mu.old = old
				w.mu.Unlock()
				until := time.Now().Add(2500 * time.Millisecond)
				w.servers[0].set(func() {
					w.servers[0].mu.drop = func(op string) bool { return op == "acquire" && time.Now().Before(until) }
				})
				began := time.Now()
				l := w.acquire("a", AcquireOptions{TTL: ttl, MaxHold: ttl})
				if end := l.Expires(); end.After(began.Add(ttl)) || end.Before(began.Add(ttl-time.Second)) {
					t.Errorf("a grant of %v in all is counted on for %v", ttl, end.Sub(began))
				}
			})
		})
	}
}

// Answers that take as long as the lease leave nothing of it, and the grant lives at
// the service all the same. The client must not meet it when it asks again.
func TestGrantThatComesTooLateIsNotMetAgain(t *testing.T) {
	const ttl = time.Second
	for name, late := range map[string]int{"once": 1, "for a while": 3, "to the end": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Budget: 4 * time.Second}, func(t *testing.T, w *world) {
				if _, err := w.c.ID(t.Context()); err != nil {
					t.Fatal(err)
				}
				renewals := 0
				w.servers[0].set(func() {
					w.servers[0].mu.lag = func(op string) time.Duration {
						switch {
						case op == "acquire":
							return ttl / 2
						case op == "renew" && renewals < late:
							renewals++
							return ttl - time.Millisecond
						}
						return 0
					}
				})
				l, err := w.c.Acquire(t.Context(), "a", AcquireOptions{TTL: ttl})
				client, token := w.holder("a")
				switch {
				case errors.Is(err, wire.ErrHeld):
					t.Errorf("its own grant is in the way: %v", err)
				case late > 100: // nobody can hold such a lock
					if !errors.Is(err, wire.ErrLeaseExpired) || client != "" {
						t.Errorf("got %v, and client %q holds it", err, client)
					}
				case err != nil:
					t.Error(err)
				case token != uint64(l.Token()) || len(w.attempts("acquire")) != 1:
					t.Errorf("token %d after %d tries, the table has %d", l.Token(), len(w.attempts("acquire")), token)
				}
			})
		})
	}
}

// TestExtendedLease: a lease that was extended lasts for its new TTL without an answer from the
// service, and is counted under it.
func TestExtendedLease(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		inBubble(t, Options{}, func(t *testing.T, w *world) {
			w.servers[0].set(func() { w.servers[0].mu.sessions = sessions })
			l := w.acquire("a", AcquireOptions{TTL: ttl})
			w.servers[0].dropOnce("extend")
			if err := l.Extend(t.Context(), 6*ttl); err != nil {
				t.Fatal(err)
			}
			if s := w.attempts("extend"); len(s) != 2 || s[0].id != s[1].id || !s[0].executed || s[1].executed {
				t.Errorf("the service saw %+v", s)
			}
			left := time.Until(l.Expires())
			if l.TTL() != 6*ttl || left > 6*ttl || left < 5*ttl {
				t.Errorf("a TTL of %v, %v left", l.TTL(), left)
			}
			for _, s := range w.servers {
				defer s.pause()()
			}
			time.Sleep(left - time.Second)
			if l.Context().Err() != nil {
				t.Errorf("lost within its new TTL: %v", context.Cause(l.Context()))
			}
			time.Sleep(2 * time.Second)
			if l.Context().Err() == nil {
				t.Error("not lost after its new TTL")
			}
			w.c.renewer.mu.Lock()
			defer w.c.renewer.mu.Unlock()
			if n := len(w.c.renewer.mu.ttls); n != 0 {
				t.Errorf("%d leases are counted", n)
			}
		})
	}
}

// A lock that is lost while a call about its lease waits is not reported as kept.
func TestExtendOfALockThatIsLostMeanwhile(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: 2 * time.Second})
		var resume []func()
		for _, s := range w.servers {
			resume = append(resume, s.pause())
		}
		got := make(chan error, 1)
		go func() { got <- l.Extend(t.Context(), 10*time.Minute) }()
		time.Sleep(3 * time.Second) // the failover takes longer than the TTL
		if l.Context().Err() == nil {
			t.Fatal("not lost")
		}
		for _, f := range resume {
			f()
		}
		err := <-got
		if !errors.Is(err, ErrLost) {
			t.Errorf("Extend of a lock that is lost (%v) returns %v", context.Cause(l.Context()), err)
		}
		time.Sleep(time.Minute)
		if client, _ := w.holder("a"); client != "" {
			t.Errorf("a minute later %s still holds the lock that this side gave up", client)
		}
	})
}

func TestExtendAtAnOlderServer(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		for _, s := range w.servers {
			s.set(func() {
				s.mu.sessions = false
				s.mu.refuse = func(op string) error {
					if op == "extend" {
						return status.Error(codes.Unimplemented, "unknown method Extend")
					}
					return nil
				}
			})
		}
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		if err := l.Extend(t.Context(), 2*ttl); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("an older server: %v", err)
		}
	})
}

func TestRenewOfALockThatIsLostMeanwhile(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: 2 * time.Second})
		var resume []func()
		for _, s := range w.servers {
			resume = append(resume, s.pause())
		}
		got := make(chan error, 1)
		go func() { got <- l.Renew(t.Context()) }()
		time.Sleep(3 * time.Second)
		for _, f := range resume {
			f()
		}
		if err := <-got; !errors.Is(err, ErrLost) {
			t.Errorf("Renew of a lock that is lost (%v) returns %v", context.Cause(l.Context()), err)
		}
	})
}
