// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
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
			f.add(at, end, make([]byte, 1<<20))
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
		end := wal.Position{LSN: at.LSN + 1, Chain: at.Chain + 1}
		f.add(at, end, make([]byte, pushBytes/4))
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
	for _, place := range append(places, at) {
		place.Chain ^= 1 << 40
		if frames, ok := f.after(place); ok {
			t.Errorf("behind %v, of another history: %d bytes", place, len(frames))
		}
	}
}

// How many replicas have to show an LSN: a majority of the servers with the primary, as far as
// replicas are waited for at all.
func TestHowManyReplicasAreEnough(t *testing.T) {
	const have, lack, out = 0, 1, 2
	for _, test := range []struct {
		mode     cluster.PushAck
		replicas []int
		want     bool
	}{
		{cluster.PushAckAll, []int{have, have}, true},
		{cluster.PushAckAll, []int{have, lack}, false},
		{cluster.PushAckAll, []int{have, out}, true},
		{cluster.PushAckMajority, []int{have, lack}, true},
		{cluster.PushAckMajority, []int{lack, lack}, false},
		{cluster.PushAckMajority, []int{have, lack, lack}, false}, // two of four servers
		{cluster.PushAckMajority, []int{have, have, lack}, true},
		{cluster.PushAckMajority, []int{have, lack, lack, lack}, false}, // two of five
		{cluster.PushAckMajority, []int{have, have, lack, lack}, true},
		{cluster.PushAckMajority, []int{have, out, out, out}, true},
		{cluster.PushAckMajority, []int{out, out}, true},
	} {
		a := &replicationBarrier{mode: test.mode}
		a.mu.replicas = map[cluster.ServerID]*replicaProgress{}
		for i, x := range test.replicas {
			s := &replicaProgress{out: x == out}
			if x == have {
				s.lsn = 5
			}
			a.mu.replicas[cluster.ServerID(i+2)] = s
		}
		if got := a.enough(5); got != test.want {
			t.Errorf("%v, %v: enough %v", test.mode, test.replicas, got)
		}
	}
}

// An append is answered when it is written, which may be behind later ones. What is held back for
// replicas goes in the order of the log.
func TestHeldBackInTheOrderOfTheLog(t *testing.T) {
	a := &replicationBarrier{mode: cluster.PushAckAll, bound: time.Hour}
	a.mu.replicas = map[cluster.ServerID]*replicaProgress{2: {}}
	var told []cluster.LSN
	for _, lsn := range []cluster.LSN{7, 5, 9, 6} {
		a.hold(lsn, func(bool) { told = append(told, lsn) })
	}
	a.stands(2, 6, false)
	if want := []cluster.LSN{5, 6}; !slices.Equal(told, want) {
		t.Errorf("told are %v, shown is up to LSN 6", told)
	}
	a.stands(2, 9, true)
	if want := []cluster.LSN{5, 6, 7, 9}; !slices.Equal(told, want) {
		t.Errorf("told are %v", told)
	}
}
