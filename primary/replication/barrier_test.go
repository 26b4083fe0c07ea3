// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

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
		a := &barrier{mode: test.mode}
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
	a := &barrier{mode: cluster.PushAckAll, bound: time.Hour}
	a.mu.replicas = map[cluster.ServerID]*replicaProgress{2: {}}
	var told []cluster.LSN
	for _, lsn := range []cluster.LSN{7, 5, 9, 6} {
		a.Hold(lsn, func(bool) { told = append(told, lsn) })
	}
	a.acknowledge(2, 6, false)
	if want := []cluster.LSN{5, 6}; !slices.Equal(told, want) {
		t.Errorf("told are %v, shown is up to LSN 6", told)
	}
	a.acknowledge(2, 9, true)
	if want := []cluster.LSN{5, 6, 7, 9}; !slices.Equal(told, want) {
		t.Errorf("told are %v", told)
	}
}
