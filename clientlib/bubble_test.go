// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestAcquireAppendRelease(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		r, err := l.Append(t.Context(), "f", []byte("data"))
		if err != nil || r.Length != 4 || r.Token != l.Token() || r.Repeat {
			t.Fatalf("append: %+v, %v", r, err)
		}
		if left := time.Until(l.Expires()); left > DefaultTTL-driftMargin(DefaultTTL) || left < DefaultTTL-time.Second {
			t.Errorf("expires in %v", left)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("second release: %v", err)
		}
		if !errors.Is(context.Cause(l.Context()), ErrReleased) {
			t.Errorf("context ended with %v", context.Cause(l.Context()))
		}
		if _, err := l.Append(t.Context(), "f", []byte("x")); !errors.Is(err, ErrReleased) {
			t.Errorf("append after release: %v", err)
		}
		if n := len(w.attempts("release")); n != 1 {
			t.Errorf("%d releases", n)
		}
	})
}

func TestHeld(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, err := w.c.Acquire(t.Context(), "a", AcquireOptions{})
		held, ok := errors.AsType[*HeldError](err)
		if !ok || !errors.Is(err, wire.ErrHeld) || held.Holder.Host != "elsewhere" {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if n := len(w.attempts("cancel")); n != 0 {
			t.Errorf("%d cancels of a request that was answered", n)
		}
	})
}

func TestLostAnswerIsAskedForAgainUnderTheSameID(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		p := w.servers[0]
		p.dropOnce("open")
		if _, err := w.c.ID(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.mu.opened != 1 {
			t.Errorf("%d clients were opened", w.mu.opened)
		}
		p.dropOnce("acquire")
		l := w.acquire("a", AcquireOptions{})
		if _, token := w.holder("a"); token != uint64(l.Token()) {
			t.Errorf("token %d, the table has %d", l.Token(), token)
		}
		if n := len(w.attempts("renew")); n != 1 {
			t.Errorf("a repeated grant was renewed %d times before it was handed out", n)
		}
		p.dropOnce("append")
		r, err := l.Append(t.Context(), "f", []byte("data"))
		if err != nil || !r.Repeat {
			t.Fatalf("append: %+v, %v", r, err)
		}
		p.dropOnce("release")
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, op := range []string{"acquire", "append", "release"} {
			a := w.attempts(op)
			if len(a) != 2 || a[0].id != a[1].id || a[0].client != a[1].client {
				t.Errorf("%s: %+v", op, a)
			}
		}
	})
}

// A Done whose answer was lost may be the reason why the next one is refused: that is no loss after which nothing was marked.
func TestDoneAgainIsNoLoss(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{Once: "1"})
		w.servers[0].set(func() { w.servers[0].mu.drop = func(op string) bool { return op == "release" } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := l.Done(ctx)
		if !errors.Is(first, ErrUnknown) {
			t.Fatalf("without an answer: %v", first)
		}
		w.servers[0].set(func() { w.servers[0].mu.drop = nil })
		if err := l.Done(t.Context()); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
			t.Errorf("again: %v", err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("a release then: %v", err)
		}
	})
}

// A server that does not know what a lock remembers grants it on no condition: that is no grant for who set one.
func TestGrantWithoutItsConditionIsGivenBack(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.mu.unmarked = true
		for _, o := range []AcquireOptions{{Once: "1"}, {AfterToken: 7}, {Remember: true}, {Once: "1", Wait: Forever}, {Limit: 2}, {Limit: 2, Weight: 2, Wait: Forever}} {
			if l, err := w.c.Acquire(t.Context(), "a", o); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), "older version") {
				t.Errorf("%+v: %v, %v", o, l, err)
			}
			synctest.Wait()
			if client, token := w.holder("a"); token != 0 {
				t.Fatalf("%+v: client %s holds it under token %d", o, client, token)
			}
		}
		w.acquire("a", AcquireOptions{})
		w.mu.unmarked = false
		w.acquire("b", AcquireOptions{Limit: 2})
		for _, o := range []AcquireOptions{{Weight: 1}, {Limit: 2, Weight: 3}, {Limit: 2, Shared: true}, {Limit: 2, Once: "1"}} {
			if _, err := w.c.Acquire(t.Context(), "a", o); !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

func TestFailoverKeepsTheRequest(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		w.servers[0].set(func() { w.servers[0].mu.down = true })
		w.setPrimary(nil)
		go func() {
			time.Sleep(200 * time.Millisecond)
			w.setPrimary(w.servers[2])
		}()
		began := time.Now()
		if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("the append took %v", d)
		}
	})
}

func TestFollowsTheHint(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		w.setPrimary(w.servers[1])
		began := time.Now()
		if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("following the hint took %v", d)
		}
	})
}

// A full disk is told, and not waited for as a primary is that nobody has found yet.
func TestStorageThatRefusesIsToldSoon(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		full := (&wire.Error{Status: cluster.StatusStorageUnavailable, Message: "no space left on the volume", RetryAfter: time.Second}).GRPCStatus().Err()
		w.servers[0].set(func() {
			w.servers[0].mu.refuse = func(op string) error {
				if op == "append" {
					return full
				}
				return nil
			}
		})
		began := time.Now()
		_, err := l.Append(t.Context(), "f", []byte("data"))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		e, ok := errors.AsType[*CallError](err)
		if !ok || e.Unknown || !errors.Is(err, wire.ErrStorageUnavailable) || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("told %v", err)
		}
	})
}

// What is committed and not in its file yet is told at once, with where it will be: it is
// no doubt, and asking again brings nothing.
func TestCommittedAppendThatIsNotWrittenIsTold(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		w.fakeCluster.mu.Lock()
		w.fakeCluster.mu.unwritten = true
		w.fakeCluster.mu.Unlock()
		began := time.Now()
		r, err := l.Append(t.Context(), "f", []byte("data"))
		if took := time.Since(began); took > time.Second {
			t.Errorf("told after %v", took)
		}
		call, _ := errors.AsType[*CallError](err)
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || call == nil || call.Unknown || e.Status != cluster.StatusUnknown || !e.Committed || r.Length != 4 {
			t.Errorf("told %v, receipt %+v", err, r)
		}
	})
}

func TestRetriesWhatIsWorthIt(t *testing.T) {
	for _, s := range []cluster.Status{
		cluster.StatusServerFencing, cluster.StatusNoQuorum, cluster.StatusStorageUnavailable, cluster.StatusUnknown,
	} {
		t.Run(s.String(), func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{})
				n := 0
				w.servers[0].set(func() {
					w.servers[0].mu.refuse = func(op string) error {
						if op != "append" {
							return nil
						}
						if n++; n > 3 {
							return nil
						}
						return (&wire.Error{Status: s, RetryAfter: 100 * time.Millisecond}).GRPCStatus().Err()
					}
				})
				began := time.Now()
				if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d < 300*time.Millisecond || d > 400*time.Millisecond {
					t.Errorf("three pauses of 100 ms took %v", d)
				}
			})
		})
	}
}

func TestPausedPrimaryDoesNotHoldACall(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		resume := w.servers[0].pause()
		go func() {
			time.Sleep(450 * time.Millisecond)
			w.setPrimary(w.servers[1])
		}()
		began := time.Now()
		if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 700*time.Millisecond {
			t.Errorf("the append took %v", d)
		}
		resume()
		synctest.Wait()
		if n := len(w.attempts("append")); n != 1 {
			t.Errorf("%d appends reached a table", n)
		}
	})
}

// A question without a deadline does not wait for a paused primary either: it goes to the next one, and where there is none its
// budget ends it.
func TestPausedPrimaryDoesNotHoldAQuestion(t *testing.T) {
	inBubble(t, Options{Budget: 5 * time.Second}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		resume := w.servers[0].pause()
		defer resume()
		go func() {
			time.Sleep(450 * time.Millisecond)
			w.setPrimary(w.servers[1])
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a test that fails
		defer cancel()
		began := time.Now()
		if _, err := w.c.Get(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 700*time.Millisecond {
			t.Errorf("the answer took %v", d)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := w.servers[1].pause()
		defer again()
		began = time.Now()
		_, err := w.c.Get(ctx, "a")
		if _, ok := errors.AsType[*CallError](err); !ok || !strings.Contains(err.Error(), "no primary answered within 5s") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 6500*time.Millisecond {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestBudgetEndsACall(t *testing.T) {
	inBubble(t, Options{Budget: 2 * time.Second}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		for _, s := range w.servers {
			s.set(func() { s.mu.down = true })
		}
		began := time.Now()
		_, err := l.Append(t.Context(), "f", []byte("data"))
		if e, ok := errors.AsType[*CallError](err); !ok || !e.Unknown || !errors.Is(err, wire.ErrUnknown) || e.Request == 0 {
			t.Fatalf("got %v", err)
		}
		if d := time.Since(began); d < 2*time.Second || d > 2500*time.Millisecond {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestWaitingKeepsItsPlaceOverAFailover(t *testing.T) {
	inBubble(t, Options{Budget: 2 * time.Second}, func(t *testing.T, w *world) {
		w.others("a")
		go func() {
			time.Sleep(12 * time.Second) // far beyond the budget
			w.servers[0].set(func() { w.servers[0].mu.down = true })
			w.setPrimary(w.servers[1])
			time.Sleep(20 * time.Second)
			w.end("a")
		}()
		l := w.acquire("a", AcquireOptions{TTL: 10 * time.Second, Wait: time.Minute})
		first := seen{}
		for i, a := range w.attempts("acquire") {
			if i == 0 {
				first = a
			}
			if a.id != first.id || a.wait != time.Minute.Milliseconds() {
				t.Errorf("attempt %d is %+v, the first was %+v", i, a, first)
			}
		}
		if left := time.Until(l.Expires()); left < 9*time.Second {
			t.Errorf("the lease has %v left", left)
		}
	})
}

func TestGrantAfterALongWaitIsRenewedFirst(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		go func() {
			time.Sleep(4 * time.Second)
			w.end("a")
		}()
		l := w.acquire("a", AcquireOptions{TTL: 10 * time.Second, Wait: Forever})
		if n := len(w.attempts("renew")); n != 1 {
			t.Errorf("%d renewals", n)
		}
		if left := time.Until(l.Expires()); left != 10*time.Second-driftMargin(10*time.Second) {
			t.Errorf("the lease has %v left", left)
		}
	})
}

func TestEndedCallIsCancelled(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := w.c.Acquire(ctx, "a", AcquireOptions{Wait: Forever})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		w.end("a")
		if client, _ := w.holder("a"); client != "" {
			t.Errorf("%s got the lock", client)
		}
		if n := len(w.c.renewer.mu.expecting); n != 0 {
			t.Errorf("%d locks are still expected", n)
		}
	})
}

func TestGrantThatNobodyHeardIsReleased(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		if _, err := w.c.ID(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := w.servers[0]
		p.set(func() { p.mu.drop = func(op string) bool { return op == "acquire" } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.c.Acquire(ctx, "a", AcquireOptions{}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, wire.ErrUnknown) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if client, _ := w.holder("a"); client != "" {
			t.Errorf("%s holds the lock that nobody was told of", client)
		}
	})
}

func TestRefusedTryWithALostAttemptIsCancelled(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		w.servers[0].dropOnce("acquire")
		if _, err := w.c.Acquire(t.Context(), "a", AcquireOptions{}); !errors.Is(err, wire.ErrHeld) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if n := len(w.attempts("cancel")); n != 1 {
			t.Errorf("%d cancels of an attempt that may arrive later", n)
		}
	})
}

func TestLostTokenEndsTheContext(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		if _, err := l.Append(t.Context(), "f", []byte("one")); err != nil {
			t.Fatal(err)
		}
		w.end("a")
		_, err := l.Append(t.Context(), "f", []byte("two"))
		lost, ok := errors.AsType[*LostError](err)
		if !ok || lost.Reason != LossRefused || !errors.Is(err, wire.ErrInvalidToken) || lost.LastAppend == nil || lost.LastAppend.Length != 3 {
			t.Fatalf("got %v", err)
		}
		if context.Cause(l.Context()) != err {
			t.Errorf("context ended with %v", context.Cause(l.Context()))
		}
		before := len(w.attempts("append"))
		if _, err := l.Append(t.Context(), "f", []byte("three")); !errors.Is(err, ErrLost) {
			t.Errorf("append under a lost token: %v", err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("release of a lost lock: %v", err)
		}
		if len(w.attempts("append")) != before || len(w.attempts("release")) != 0 {
			t.Error("a lost token was used again")
		}
	})
}

func TestIdleClientThatWasForgottenOpensAnother(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		first, err := w.c.ID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		clear(w.mu.nonces)
		w.mu.Unlock()
		w.acquire("a", AcquireOptions{})
		if second, err := w.c.ID(t.Context()); err != nil || second == first {
			t.Errorf("still client %s, %v", second, err)
		}
	})
}

// A request that may have been executed is not made anew under another name when the service
// has forgotten the one that it had.
func TestWhatMayBeExecutedIsNotMadeAnew(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		done := false
		w.servers[0].set(func() {
			w.servers[0].mu.drop = func(op string) bool {
				if op != "append" || done {
					return false
				}
				done = true
				w.mu.Lock()
				defer w.mu.Unlock()
				clear(w.mu.nonces)
				clear(w.mu.receipts)
				return true
			}
		})
		if _, err := l.Append(t.Context(), "f", []byte("data")); !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("told %v, want that it may have been executed", err)
		}
		if n := w.executed("append"); n != 1 {
			t.Errorf("appended %d times: %+v", n, w.attempts("append"))
		}
	})
}

// An attempt whose answer is lost may have been executed, whatever a server says to those
// that follow: it would do nothing for them, it says, and it did nothing for none of them.
func TestDoubtOutlivesLaterRefusals(t *testing.T) {
	for range 8 { // where the budget ends before the last answer, the doubt is of that attempt
		testDoubtOutlivesLaterRefusals(t)
	}
}

func testDoubtOutlivesLaterRefusals(t *testing.T) {
	inBubble(t, Options{Budget: 2 * time.Second}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		lost := false
		w.servers[0].set(func() {
			w.servers[0].mu.drop = func(op string) bool {
				hit := op == "append" && !lost
				lost = lost || hit
				return hit
			}
			w.servers[0].mu.refuse = func(op string) error {
				if op == "append" && lost {
					return (&wire.Error{Status: cluster.StatusNoQuorum}).GRPCStatus().Err()
				}
				return nil
			}
		})
		_, err := l.Append(t.Context(), "f", []byte("data"))
		if n := w.executed("append"); n != 1 || !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("appended %d times, and told %v", n, err)
		}
		synctest.Wait()
		if n := len(w.attempts("cancel")); n != 1 {
			t.Errorf("%d cancels of a request that may be executed yet", n)
		}
	})
}

// A break that names no token finds the lock free once it is executed. So that refusal does
// not say that none of its attempts was, or will be: there may be a next holder by then.
func TestRefusedBreakMayHaveBeenExecuted(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				if _, err := w.c.ID(t.Context()); err != nil {
					t.Fatal(err)
				}
				if late {
					w.servers[0].dropOnce("break")
				}
				err := w.c.Break(t.Context(), "a", BreakOptions{Actor: "ann"})
				if !errors.Is(err, wire.ErrInvalidToken) && !late || errors.Is(err, wire.ErrUnknown) != late {
					t.Errorf("told %v", err)
				}
				synctest.Wait()
				if n := len(w.attempts("cancel")); (n == 1) != late {
					t.Errorf("%d cancels", n)
				}
			})
		})
	}
}

// Who asks what became of a request will act on it: what a replica has not seen says nothing.
func TestOutcomeIsNotBelievedOfAReplica(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		r, err := l.Append(t.Context(), "f", []byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		request := cluster.RequestID(w.attempts("append")[0].id)
		w.setPrimary(w.servers[1]) // and the client takes servers[0] for the primary
		info, err := w.c.Outcome(t.Context(), l.owner, request)
		if err != nil || info.State != "executed" || info.LSN != r.LSN {
			t.Errorf("told %+v, %v of an append that is done", info, err)
		}
	})
}

// A caller that leaves says nothing about the primary: the cancel of its request, and the calls
// of everybody else, go there without looking for it. Silence for long does say something.
func TestCallerThatLeavesDoubtsNoPrimary(t *testing.T) {
	for name, test := range map[string]struct {
		wait, leaves time.Duration
		silent       bool // all servers
		want         bool
	}{
		"of a wait":                     {Forever, 3500 * time.Millisecond, false, true},
		"of a call":                     {0, suspicion / 2, true, true},
		"of a call, after long silence": {0, 2 * suspicion, true, false},
		"of a wait, after long silence": {Forever, 4 * time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				w.others("a")
				w.acquire("b", AcquireOptions{})
				p := w.c.servers.primary()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				if test.silent {
					for _, s := range w.servers {
						defer s.pause()()
					}
				}
				go func() {
					_, err := w.c.Acquire(ctx, "a", AcquireOptions{Wait: test.wait})
					ended <- err
				}()
				synctest.Wait()
				time.Sleep(test.leaves)
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				if is := w.c.servers.primary() == p; is != test.want {
					t.Errorf("the primary is believed: %v, want %v", is, test.want)
				}
			})
		})
	}
}

// A receipt of other data than were sent is no success: somebody else's request had the number.
func TestReceiptOfOtherData(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		w.mu.Lock()
		key := fakeKey{string(l.owner), uint64(w.c.main.current().seq.mu.next)}
		w.keep(key, &pb.Answer{Status: pb.Status_STATUS_OK, Receipt: &pb.Receipt{File: "f", Length: 4, Crc32C: 7}})
		w.mu.Unlock()
		r, err := l.Append(t.Context(), "f", []byte("data"))
		if err == nil || r.CRC32C != 7 || !strings.Contains(err.Error(), "the receipt is of 4 bytes with CRC-32C 00000007") {
			t.Errorf("told %+v, %v", r, err)
		}
		if e := l.lost(LossRefused, nil); e.LastAppend != nil {
			t.Errorf("it counts as an append of this holder: %+v", e.LastAppend)
		}
	})
}

// Whoever works under the lock has to stop when Release is called, however long that takes.
func TestContextEndsBeforeTheReleaseIsSent(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		resume := w.servers[0].pause()
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		synctest.Wait()
		if !errors.Is(context.Cause(l.Context()), ErrReleased) {
			t.Errorf("while the release is under way the context says %v", context.Cause(l.Context()))
		}
		resume()
		if err := <-released; err != nil {
			t.Error(err)
		}
	})
}

// A grant that ended unheard uses up the wait: the next request asks for the rest of it.
func TestWaitGoesOnWithWhatIsLeft(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		lost := false
		w.servers[0].set(func() {
			w.servers[0].mu.drop = func(op string) bool {
				if op != "acquire" || lost {
					return false
				}
				lost = true
				w.end("a") // the grant
				w.others("a")
				return true
			}
		})
		time.AfterFunc(4*time.Second, func() { w.end("a") })
		began := time.Now()
		time.AfterFunc(8*time.Second, func() { w.end("a") })
		l := w.acquire("a", AcquireOptions{TTL: ttl, Wait: 10 * time.Second})
		all := w.attempts("acquire")
		last := time.Duration(all[len(all)-1].wait) * time.Millisecond
		if took := time.Since(began); all[0].wait != 10_000 || last > 6*time.Second || last < 5*time.Second || took > 9*time.Second || l.Context().Err() != nil {
			t.Errorf("asked for a wait of 10 s, and after 4 s for one of %v; it took %v", last, took)
		}
	})
}

// A server that is about to be primary is not asked as the primary before it says that it is.
func TestFencingServerIsNoPrimary(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.setPrimary(nil)
		w.servers[1].set(func() { w.servers[1].mu.role = pb.Role_ROLE_FENCING })
		if f := w.c.servers.locate(t.Context()); !f.takeover || f.to == nil || w.c.servers.primary() != nil {
			t.Errorf("found %+v, and believes %+v", f, w.c.servers.primary())
		}
	})
}

func TestManyCallsAtOnce(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		n := 0
		w.servers[0].set(func() {
			w.servers[0].mu.drop = func(string) bool { n++; return n%7 == 0 }
		})
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 20 {
					l, err := w.c.Acquire(t.Context(), cluster.LockName(fmt.Sprintf("l/%d", g%5)), AcquireOptions{Wait: Forever})
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := l.Append(t.Context(), "f", []byte{byte(i), 1}); err != nil {
						t.Error(err)
					}
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		executed := map[uint64]bool{}
		for _, a := range w.attempts("append") {
			if a.executed && executed[a.id] {
				t.Errorf("request %d was executed twice", a.id)
			}
			executed[a.id] = executed[a.id] || a.executed
			if a.low > a.id {
				t.Errorf("request %d came with low-water mark %d", a.id, a.low)
			}
		}
		if len(executed) != 320 {
			t.Errorf("%d appends, want 320", len(executed))
		}
		if s := &w.c.main.current().seq; s.lowWater() != 16*20+1 { // the releases go from the registrations that waited
			t.Errorf("low water is %d when all is answered", s.lowWater())
		}
	})
}

func TestTransportRefusalIsFinal(t *testing.T) {
	bubble(t, Options{}, false, func(t *testing.T, w *world) {
		w.servers[0].set(func() {
			w.servers[0].mu.refuse = func(op string) error {
				if op == "append" {
					return status.Error(codes.Unauthenticated, "no certificate")
				}
				return nil
			}
		})
		l := w.acquire("a", AcquireOptions{})
		if _, err := l.Append(t.Context(), "f", []byte("x")); err == nil || errors.Is(err, wire.ErrUnknown) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFencingServerIsFoundSoon(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		w.servers[0].set(func() { w.servers[0].mu.down = true })
		w.servers[1].set(func() { w.servers[1].mu.role = pb.Role_ROLE_FENCING })
		w.setPrimary(nil)
		began := time.Now()
		go func() {
			time.Sleep(800 * time.Millisecond)
			w.setPrimary(w.servers[1])
		}()
		if _, err := l.Append(t.Context(), "f", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 900*time.Millisecond {
			t.Errorf("the append took %v, the takeover 800 ms", d)
		}
	})
}
