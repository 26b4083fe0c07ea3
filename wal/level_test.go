// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"sync"
	"testing"
)

// TestLevelOnlyRises, in whatever order, and by however many at the same time, it is raised.
func TestLevelOnlyRises(t *testing.T) {
	var l Level
	for _, x := range []struct{ to, want uint32 }{{3, 3}, {5, 5}, {4, 5}, {0, 5}, {5, 5}} {
		if l.Raise(x.to); l.Load() != x.want {
			t.Errorf("raised to %d: %d, want %d", x.to, l.Load(), x.want)
		}
	}
	const most = 8
	for range 2000 {
		var l Level
		var all sync.WaitGroup
		begin := make(chan struct{})
		for n := range most {
			all.Go(func() {
				<-begin
				l.Raise(uint32(most - n))
			})
		}
		close(begin)
		all.Wait()
		if l.Load() != most {
			t.Fatalf("raised to all levels up to %d at the same time, it is %d", most, l.Load())
		}
	}
}
