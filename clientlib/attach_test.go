// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"testing"
	"time"
)

// Who has the token may let go, in whatever process the lock was acquired.
func TestAttachedLockIsReleased(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		l := w.c.Attach("a", tokenOf(token))
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c, _ := w.holder("a"); c != "" {
			t.Errorf("%s still holds the lock", c)
		}
		if s := l.State(); s.Phase != PhaseReleased || len(w.c.renewer.mu.attached)+len(w.c.renewer.mu.expecting) != 0 {
			t.Errorf("it is %s, and %d locks are attached", s.Phase, len(w.c.renewer.mu.attached))
		}
	})
}

// Calls for an attached lock say that its token was passed on, a release that goes on in the
// background, too: without that a server refuses the token to a client that has named itself, and
// the lock would be lost. Calls for the client's own locks do not say so.
func TestAttachedLockSaysThatItWasPassedOn(t *testing.T) {
	bubble(t, Options{ClientID: "me"}, false, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		attached, own := w.c.Attach("a", tokenOf(token)), w.acquire("b", AcquireOptions{TTL: ttl})
		for _, l := range []*Lock{attached, own} {
			if _, err := l.Append(t.Context(), "f", []byte("x")); err != nil {
				t.Fatal(err)
			}
			resume := w.servers[0].pause()
			ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer leave()
			if err := l.Release(ctx); err == nil {
				t.Fatal("released by a server that is stopped")
			}
			resume()
			time.Sleep(time.Second)
		}
		for _, op := range []string{"append", "release"} {
			all := w.attempts(op)
			if len(all) < 2 {
				t.Errorf("%d attempts to %s", len(all), op)
			}
			for _, x := range all {
				if of := x.token == token; x.passed != of {
					t.Errorf("%s under the attached token %v says that it was passed on: %v", op, of, x.passed)
				}
			}
		}
	})
}

// A token has one handle in a client, whoever wants it: each would otherwise hide the
// one before from the renewer, which would neither end it with the client nor in time.
func TestTokenHasOneHandle(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		first, second := w.c.Attach("a", tokenOf(token)), w.c.Attach("a", tokenOf(token))
		own := w.acquire("b", AcquireOptions{TTL: ttl})
		if err := w.c.Attach("b", own.Token()).Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ttl)
		if own.Context().Err() != nil {
			t.Errorf("an attached token is not kept alive any more: %v", own.Context().Err())
		}
		for _, s := range w.servers {
			defer s.pause()()
		}
		time.Sleep(ttl)
		if reason(own) != LossNotRenewed {
			t.Errorf("cut off for %v: %v", ttl, own.Context().Err())
		}
		w.c.Close()
		if reason(first) != LossClosed || reason(second) != LossClosed {
			t.Errorf("closed, and the handles ended with %q and %q", reason(first), reason(second))
		}
	})
}

// Near the end of a max hold renewals are answered with less than the TTL. The lease is
// counted under its TTL all the same, until nothing is left to count.
func TestShortRenewalLeavesNothingToCount(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: 2 * ttl}) // renewals of the fake are of one ttl
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(l.Expires()); left > 2*ttl-driftMargin(2*ttl) {
			t.Errorf("%v left", left)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		k := w.c.renewer
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.mu.ttls) != 0 || k.mu.running {
			t.Errorf("nothing is held, counted are %v, and somebody looks: %v", k.mu.ttls, k.mu.running)
		}
	})
}

// Near the end of a max hold less than half a TTL is left. A renewal that was answered just
// now is none that is missing.
func TestRenewedNearTheEndOfAMaxHoldIsValid(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl, MaxHold: 25 * time.Second})
		time.Sleep(21 * time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range w.servers {
			defer s.pause()()
		}
		time.Sleep(time.Second)
		if s := l.State(); s.Phase != PhaseValid {
			t.Errorf("renewed a second ago: %+v", s)
		}
		time.Sleep(1500 * time.Millisecond)
		if s := l.State(); s.Phase != PhaseJeopardy {
			t.Errorf("more than half of what was left has passed: %+v", s)
		}
		time.Sleep(2 * time.Second)
		if reason(l) != LossHeldTooLong {
			t.Errorf("at the end of the hold: %v", l.Context().Err())
		}
	})
}
