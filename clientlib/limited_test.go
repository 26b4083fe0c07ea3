// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// limits has the first server refuse an operation so often, with LIMITED and this pause. It returns how many refusals are left, and how
// often the server was asked whether it is primary.
func (w *world) limits(op string, times int, after time.Duration) (left, searches func() int) {
	s, searched := w.servers[0], 0
	s.set(func() {
		s.mu.refuse = func(o string) error {
			if o == "status" {
				searched++
			}
			if o != op || times == 0 {
				return nil
			}
			times--
			return (&wire.Error{Status: cluster.StatusLimited, Message: "too much", RetryAfter: after}).GRPCStatus().Err()
		}
	})
	look := func(n *int) func() int {
		return func() (now int) {
			s.set(func() { now = *n })
			return now
		}
	}
	return look(&times), look(&searched)
}

// TestCallThatIsTooFastWaits: it asks the same server again when that says, for longer than its budget, and ends with its
// context.
func TestCallThatIsTooFastWaits(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.acquire("first", AcquireOptions{})
		began := time.Now()
		left, searches := w.limits("acquire", 50, time.Second)
		w.acquire("l", AcquireOptions{})
		if took := time.Since(began); left() != 0 || took < 50*time.Second || took > 52*time.Second {
			t.Errorf("%v, and %d refusals are left", took, left())
		}
		for _, x := range w.attempts("acquire") {
			if x.server != w.servers[0].addr {
				t.Errorf("server %s was asked", x.server)
			}
		}
		if n := searches(); n > int(52*time.Second/learnEvery) { // the primary is asked where the others are
			t.Errorf("servers were asked for a primary %d times", n)
		}
		w.limits("acquire", -1, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		_, err := w.c.Acquire(ctx, "m", AcquireOptions{})
		e, ok := errors.AsType[*CallError](err)
		if !ok || e.Unknown || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLimited) {
			t.Errorf("%+v", err)
		}
		w.limits("", 0, 0)
	})
}

// TestWatchThatIsTooFastWaits when a server says so, for longer than its budget; a count that is full ends it.
func TestWatchThatIsTooFastWaits(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		began, left := time.Now(), 50
		after := time.Second
		for _, s := range w.servers {
			s.set(func() {
				s.mu.refuse = func(op string) error {
					if op != "watch" || left == 0 {
						return nil
					}
					left--
					return (&wire.Error{Status: cluster.StatusLimited, Message: "too fast", RetryAfter: after}).GRPCStatus().Err()
				}
			})
		}
		for e, err := range w.c.Watch(t.Context(), WatchOptions{Lock: "l", Bookmark: time.Second}) {
			if took := time.Since(began); err != nil || left != 0 || took < 50*time.Second || took > 52*time.Second {
				t.Errorf("%+v, %v after %v, and %d refusals are left", e, err, took, left)
			}
			break
		}
		left, after = 5, 0
		for _, err := range w.c.Watch(t.Context(), WatchOptions{Lock: "l", Bookmark: time.Second}) {
			if !errors.Is(err, ErrLimited) || left != 4 {
				t.Errorf("%v, and %d refusals are left", err, left)
			}
			break
		}
	})
}

// TestCountThatIsFullIsAnError: nothing is repeated, and callers can tell.
func TestCountThatIsFullIsAnError(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.acquire("first", AcquireOptions{})
		began := time.Now()
		left, _ := w.limits("acquire", 5, 0)
		_, err := w.c.Acquire(t.Context(), "l", AcquireOptions{})
		e, ok := errors.AsType[*CallError](err)
		if !ok || !errors.Is(err, ErrLimited) || e.Unknown || e.Tries != 1 || left() != 4 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%+v, and %d refusals are left", err, left())
		}
		if s, _ := StatusOf(err); s != StatusLimited {
			t.Errorf("the status is %v", s)
		}
	})
}
