// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"testing"

	"github.com/holdfast-lock/holdfast/wal"
)

// What is kept for replicas that lag is bounded: to more while a snapshot is on its way, and to
// the old bound when that is over.
func TestFeedIsBounded(t *testing.T) {
	var f feed
	at := wal.Position{}
	add := func(mib int) {
		for range mib {
			end := wal.Position{LSN: at.LSN + 1}
			f.Add(at, end, make([]byte, 1<<20))
			at = end
		}
	}
	holds := func(when string, most int) {
		t.Helper()
		if got := f.mu.bytes; got > most || got < most-1<<20 {
			t.Errorf("%s: %d bytes are kept, want %d", when, got, most)
		}
	}
	add(9)
	holds("at first", feedBytes)
	f.hold(1)
	add(70)
	holds("during a snapshot", feedBytesMost)
	f.hold(-1)
	add(1)
	holds("behind it", feedBytes)
}

// A replica gets the frames behind where it stands, by LSN and chain value: one that stands at the
// same LSN of another history gets none. No push is much larger than its bound.
func TestFeedFollowsAPosition(t *testing.T) {
	var f feed
	at := wal.Position{Chain: 1}
	var places []wal.Position
	for range 9 {
		places = append(places, at)
		end := wal.Position{LSN: at.LSN + 2, Chain: at.Chain + 1}
		f.Add(at, end, make([]byte, pushBytes/4))
		at = end
	}
	for i, place := range places {
		if frames, ok := f.after(place); !ok || len(frames) != pushBytes/4*min(len(places)-i, 4) {
			t.Errorf("behind %v: %d bytes, %v", place, len(frames), ok)
		}
	}
	if frames, ok := f.after(at); !ok || len(frames) != 0 {
		t.Errorf("at the end: %d bytes, %v", len(frames), ok)
	}
	for _, place := range places {
		place.LSN++
		if frames, ok := f.after(place); ok {
			t.Errorf("behind %v, within a frame: %d bytes", place, len(frames))
		}
	}
	for _, place := range append(places, at) {
		place.Chain ^= 1 << 40
		if frames, ok := f.after(place); ok {
			t.Errorf("behind %v, of another history: %d bytes", place, len(frames))
		}
	}
}

func TestSnapshotHurriesBeforeTheFeedIsFull(t *testing.T) {
	var f feed
	f.hold(1)
	at := wal.Position{}
	for n := 1; ; n++ {
		end := wal.Position{LSN: at.LSN + 1}
		f.Add(at, end, make([]byte, 1<<20))
		at = end
		if f.crowded() {
			if _, kept := f.after(wal.Position{}); n != 17 || !kept {
				t.Errorf("crowded with %d MiB", n)
			}
			return
		}
	}
}
