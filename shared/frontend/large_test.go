// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A client that takes messages of at most 4 MiB, as gRPC's do by default, can watch what
// says much of itself: 1,100 locks, of which one is shared by 1,000.
func TestAWatchFitsIntoMessages(t *testing.T) {
	r := newFedReplica(t).run()
	const locks, sharers = 1100, 1000
	hold := func(lock string, mode locktable.Mode) {
		r.mu.Lock()
		defer r.mu.Unlock()
		out := r.ask(locktable.Request{
			Op: locktable.OpAcquire, Client: cluster.ClientID(fmt.Sprint("c", r.ids)), Lock: cluster.LockName(lock), TTL: time.Minute, Mode: mode,
			Metadata: strings.Repeat("m", cluster.MaxMetadata),
		})
		if out.Status != cluster.StatusOK {
			t.Fatalf("grant %s: %v", lock, out)
		}
	}
	c := dialGRPC(t, r)
	for i := range locks - 1 {
		hold(fmt.Sprint(strings.Repeat("l/", 100), i), locktable.ModeExclusive)
	}
	s, next := watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(0)}), uint64(1)
	for next < locks {
		m := recv(t, s)
		for _, e := range m.Events {
			if e.Lsn != next {
				t.Fatalf("LSN %d behind %d", e.Lsn, next-1)
			}
			next++
		}
		if m.Lsn != next-1 {
			t.Fatalf("it told up to LSN %d, and says %d", next-1, m.Lsn)
		}
	}
	for range sharers {
		hold("shared", locktable.ModeShared)
	}
	s = watchFor(t, c, &pb.WatchRequest{})
	names := map[string]bool{}
	for part, last := uint32(0), false; !last; part++ {
		m := recv(t, s)
		if last = m.Reset_.GetLast(); m.Reset_.GetPart() != part {
			t.Fatalf("part %d is %d", part, m.Reset_.GetPart())
		}
		for _, l := range m.Reset_.Locks {
			names[l.Name] = true
			if n := len(l.SharedHolders); l.Name == "shared" && (l.Holders != sharers || n < 100 || l.SharedHolders[0].Token != l.Grant.Token+1) {
				t.Errorf("of %d who share a lock %d are told", l.Holders, n)
			}
		}
	}
	if len(names) != locks {
		t.Errorf("the reset has %d locks, want %d", len(names), locks)
	}
}
