// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wal"
)

func TestPaceRestsForItsOwnWorkOnly(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name             string
		took, idle, want time.Duration
		hurry            bool
	}{
		{"work", 2 * ms, 0, 6 * ms, false},
		{"work for long", 100 * ms, 0, restMost, false},
		{"work and waiting", 10 * ms, 8 * ms, 6 * ms, false},
		{"waiting", 10 * ms, 10 * ms, 0, false},
		{"work in a hurry", 10 * ms, 0, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rested time.Duration
				x := throttle{since: time.Now(), hurry: func() bool { return test.hurry }}
				x.sleep = func(d time.Duration) bool { rested = d; return true }
				time.Sleep(test.took)
				x.idle = test.idle
				if x.rest(); rested != test.want || x.idle != 0 {
					t.Errorf("rested %v, want %v", rested, test.want)
				}
			})
		})
	}
}

func TestSnapshotHurriesBeforeTheFeedIsFull(t *testing.T) {
	var f feed
	f.hold(1)
	at := wal.Position{}
	for n := 1; ; n++ {
		end := wal.Position{LSN: at.LSN + 1}
		f.add(at, end, make([]byte, 1<<20))
		at = end
		if f.crowded() {
			if _, kept := f.after(wal.Position{}); n != 17 || !kept {
				t.Errorf("crowded with %d MiB", n)
			}
			return
		}
	}
}
