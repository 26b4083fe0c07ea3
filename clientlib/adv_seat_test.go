// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestReleaseThatIsGivenUpLeavesASeatFreeOnce: each wait has a seat of its own, so that a
// standing wait holds no low-water mark but its own. A lock that was waited for is released from
// its seat, which nobody has by then; a release that goes on in the background must not put that
// seat into the pool a second time.
func TestReleaseThatIsGivenUpLeavesASeatFreeOnce(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		got := w.waitFor(t.Context(), "a")
		w.end("a")
		l := <-got
		synctest.Wait()
		resume := w.servers[0].pause()
		ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()
		if err := l.Release(ctx); err == nil {
			t.Fatal("released by a server that is stopped")
		}
		resume()
		time.Sleep(10 * time.Second) // until nothing follows it any more
		w.c.mu.Lock()
		free := map[*seat]int{}
		for _, s := range w.c.mu.free {
			if free[s]++; free[s] > 1 {
				t.Errorf("a seat is free %d times", free[s])
			}
		}
		w.c.mu.Unlock()
		var waits []<-chan *Lock
		for _, lock := range []string{"x", "y"} {
			w.others(lock)
			waits = append(waits, w.waitFor(t.Context(), cluster.LockName(lock)))
		}
		w.end("x")
		w.end("y")
		x, y := <-waits[0], <-waits[1]
		if x.owner == y.owner {
			t.Errorf("two waits stood at once on the seat of %s", x.owner)
		}
	})
}
