// SPDX-License-Identifier: Apache-2.0

package clientlib

import "testing"

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
