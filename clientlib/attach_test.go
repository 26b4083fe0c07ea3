// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
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
		if s := l.State(); s.Phase != PhaseReleased || len(w.c.keep.mu.attached)+len(w.c.keep.mu.expecting) != 0 {
			t.Errorf("it is %s, and %d locks are attached", s.Phase, len(w.c.keep.mu.attached))
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
		k := w.c.keep
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.mu.ttls) != 0 || k.mu.running {
			t.Errorf("nothing is held, counted are %v, and somebody looks: %v", k.mu.ttls, k.mu.running)
		}
	})
}
