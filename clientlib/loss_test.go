// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// cutOff lets a lock run out at the client, whose last append was executed and not
// answered: nobody hears anybody.
func (w *world) cutOff(t *testing.T, l *Lock) {
	t.Helper()
	if _, err := l.Append(t.Context(), "f", []byte("one")); err != nil {
		t.Fatal(err)
	}
	w.servers[0].dropOnce("append")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	paused := make(chan []func(), 1)
	go func() { // before the repeat
		synctest.Wait()
		var resumes []func()
		for _, s := range w.servers {
			resumes = append(resumes, s.pause())
		}
		paused <- resumes
	}()
	if _, err := l.Append(ctx, "f", []byte("second")); !errors.Is(err, wire.ErrUnknown) {
		t.Fatalf("append: %v", err)
	}
	<-l.Context().Done()
	if e := lossOf(t, l); e.Reason != LossNotRenewed || e.LSN != 0 || e.Final || e.LastAppend.Length != 3 {
		t.Errorf("cut off: %+v", e)
	}
	// The first keep-alive that gets through would have what is left of the grant released.
	w.servers[0].set(func() {
		w.servers[0].mu.refuse = func(op string) error {
			if op != "keepalive" {
				return nil
			}
			return (&wire.Error{Status: cluster.StatusStorageUnavailable}).GRPCStatus().Err()
		}
	})
	for _, resume := range <-paused {
		resume()
	}
}

func TestWhatIsLeftOfALostGrantIsReleased(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.cutOff(t, l)
		w.servers[0].set(func() { w.servers[0].mu.refuse = nil })
		e, err := l.Loss(t.Context())
		if err != nil || e.Reason != LossReleased || e.LSN == 0 || !e.Final || e.LastAppend.Length != 6 {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

// After a cut the service tells what this side could not know: how the grant ended,
// who came next, and that the append landed whose answer was lost.
func TestLossIsToldInFullAfterACut(t *testing.T) {
	for _, c := range []struct {
		end    *pb.Event
		reason LossReason
		actor  string
	}{
		{&pb.Event{Kind: pb.EventKind_EVENT_KIND_EXPIRE}, LossExpired, ""},
		{&pb.Event{Kind: pb.EventKind_EVENT_KIND_BREAK, Actor: "ann", Reason: "it hangs"}, LossBroken, "ann"},
		{&pb.Event{Kind: pb.EventKind_EVENT_KIND_RELEASE}, LossReleased, ""},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{TTL: ttl})
				w.cutOff(t, l)
				end := &pb.Event{Kind: c.end.Kind, Actor: c.end.Actor, Reason: c.end.Reason}
				w.finish("a", end)
				w.others("a")
				_, next := w.holder("a")
				w.others("b")
				e, err := l.Loss(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if e.Reason != c.reason || e.LSN != cluster.LSN(end.Lsn) || e.Epoch == 0 || e.Successor != tokenOf(next) || e.Actor != c.actor || e.Message != end.Reason {
					t.Errorf("got %+v, the end was %v and the next %d", e, end, next)
				}
				if !e.Final || e.LastAppend == nil || e.LastAppend.Length != 6 || e.LastAppend.LSN == 0 || e.LastAppend.File != "f" || e.LastAppend.Token != l.Token() {
					t.Errorf("final %v, last append %+v", e.Final, e.LastAppend)
				}
			})
		})
	}
}

// The service may still count the lease when this side has given it up.
func TestLossWaitsForTheEndOfTheGrant(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.cutOff(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if e, err := l.Loss(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a live grant: %+v, %v", e, err)
		}
		go func() {
			time.Sleep(time.Second)
			w.end("a")
		}()
		began := time.Now()
		e, err := l.Loss(t.Context())
		if err != nil || e.Reason != LossExpired || e.LSN == 0 || e.Successor != 0 || !e.Final || time.Since(began) > 2*time.Second {
			t.Errorf("got %+v, %v after %v", e, err, time.Since(began))
		}
	})
}

// Where the log of late does not reach back to the grant, the last keep-alive will do;
// where it does not reach back to the end, who holds the lock now is all there is.
func TestLossThatIsHalfForgotten(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		if _, err := l.Append(t.Context(), "f", []byte("one")); err != nil {
			t.Fatal(err)
		}
		w.forget()
		w.others("b")
		time.Sleep(ttl) // a keep-alive
		w.end("a")
		e := lossOf(t, l)
		if e.Reason != LossRefused || !e.Reason.ended() {
			t.Errorf("got %+v", e)
		}
		e, err := l.Loss(t.Context())
		if err != nil || e.Reason != LossExpired || e.LSN == 0 || e.Final || e.LastAppend == nil || e.LastAppend.Length != 3 {
			t.Errorf("got %+v, %v", e, err)
		}
		w.others("a")
		_, next := w.holder("a")
		w.forget()
		e, err = l.Loss(t.Context())
		if err != nil || e.Reason != LossRefused || e.LSN != 0 || e.Final || e.Successor != tokenOf(next) {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

// The grant lives, and what happened under it is forgotten: the end is still told, and
// that something may have been appended which is not.
func TestLossThatIsForgottenBeforeItEnds(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.cutOff(t, l)
		w.others("b")
		w.forget()
		go func() {
			time.Sleep(time.Second)
			w.end("a")
		}()
		e, err := l.Loss(t.Context())
		if err != nil || e.Reason != LossExpired || e.LSN == 0 || e.Final || e.LastAppend == nil || e.LastAppend.Length != 3 {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

func TestLossOfForceClear(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.setPrimary(w.servers[1])
		w.mu.Lock()
		w.mu.lsn++
		w.record(&pb.Event{Kind: pb.EventKind_EVENT_KIND_FORCE_CLEAR})
		w.mu.locks["a"].token = 0
		w.mu.Unlock()
		if e := lossOf(t, l); e.Reason != LossRefused {
			t.Errorf("got %+v", e)
		}
		e, err := l.Loss(t.Context())
		if err != nil || e.Reason != LossCleared || e.LSN == 0 || e.Epoch != 2 || !e.Final || e.LastAppend != nil {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

func TestLossOfWhatIsNotLost(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		if e, err := l.Loss(t.Context()); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("of a lock that is held: %+v, %v", e, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, err := l.Loss(t.Context()); err != nil || e.Reason != LossReleased || !e.Final {
			t.Errorf("of a lock that was released: %+v, %v", e, err)
		}
		m := w.c.Attach("a", 1<<40)
		if err := m.Renew(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("renewed a token that never was: %v", err)
		}
		if e, err := m.Loss(t.Context()); err != nil || e.Reason != LossRefused || e.LSN != 0 {
			t.Errorf("of a token that never was: %+v, %v", e, err)
		}
	})
}
