// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A share on which some calls never come back keeps no server from believing a later term.
func TestALookThatNeverEndsHidesNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r terms
		hung := make(chan struct{})
		hangs := func(cluster.Epoch) bool { <-hung; return false }
		shows := func(cluster.Epoch) bool { return true }
		if r.began(4, hangs) {
			t.Error("a look that hangs shows a term")
		}
		began := time.Now()
		for !r.began(5, shows) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("the term after it is not seen")
			}
		}

		var looks atomic.Int32
		many := func(e cluster.Epoch) bool { looks.Add(1); return hangs(e) }
		for range 100 {
			r.began(6, many)
		}
		if looks := looks.Load(); looks != lookMany-1 {
			t.Errorf("%d looks are under way beside the first one, want %d", looks, lookMany-1)
		}
		close(hung)
		synctest.Wait()
		if !r.began(6, shows) || r.mu.looks != 0 || r.mu.look != nil {
			t.Errorf("%d looks are under way when the share is back", r.mu.looks)
		}
	})
}
