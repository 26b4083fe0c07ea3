// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapRoom is the least that may be allocated between two collections, in bytes. A
	// small table would otherwise be collected hundreds of times a second.
	heapRoom = 64 << 20
	// minPercent and maxPercent bound how far the heap may grow over what is live: a
	// large table must not cost twice its size.
	minPercent, maxPercent = 50, 1000
)

// gcPercent returns the value of GOGC that leaves heapRoom above what is live.
func gcPercent(live uint64) int {
	return int(min(max(heapRoom*100/max(live, 1), minPercent), maxPercent))
}

// tuneGC adapts the collector's target to the live heap until ctx ends, unless GOGC is set.
func tuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for now := 0; ; {
		metrics.Read(sample)
		// Setting it stops the world for a moment: not for a trifle.
		if p := gcPercent(sample[0].Value.Uint64()); p > now*5/4 || p < now*4/5 {
			now = p
			debug.SetGCPercent(p)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
