// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// once is an acquire for a slot.
func once(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, slot cluster.Slot) locktable.Request {
	q := acquire(c, id, lock, forever)
	q.Slot = slot
	return q
}

// TestOnceFollowsTheLog: a grant for what is done is refused, and so is a release that has done something else, and a waiter that is told too early,
// whoever wrote the record.
func TestOnceFollowsTheLog(t *testing.T) {
	h := newHarness(t)
	h.want(ok, once("a", 1, "l", "2"))      // record 1
	h.want(pending, once("b", 1, "l", "3")) // 2
	h.illegal("done by who has it for another slot", record{Kind: locktable.KindRelease, Client: "a", Request: 2, Lock: "l", Token: 1, Slot: "3"})
	h.illegal("to tell a waiter of a slot that is not done", record{Kind: locktable.KindSkip, Client: "b", Request: 1, Lock: "l"})
	done := release("a", 2, "l", 1)
	done.Done = true
	h.want(ok, done)
	h.illegal("to tell a waiter of a slot that is not done", record{Kind: locktable.KindSkip, Client: "b", Request: 1, Lock: "l"})
	h.want(ok, release("b", 2, "l", 4))
	h.illegal("a slot that is done", record{Kind: locktable.KindGrant, Client: "c", Request: 1, Lock: "l", TTL: 1, Slot: "2"})
	h.illegal("a slot in shared mode", record{Kind: locktable.KindGrant, Client: "c", Request: 1, Lock: "l", TTL: 1, Slot: "3", Mode: locktable.ModeShared})
	if m, marked := h.table.Mark("l"); !marked || m != (locktable.Mark{Last: 4, Slot: "2", By: 1}) {
		t.Errorf("it remembers %+v", m)
	}
	h.reload()
	hashes := map[uint64]cluster.Slot{}
	for _, slot := range []cluster.Slot{"1", "2"} {
		other, err := locktable.Restore(7, entities([]locktable.Entity{{Mark: &locktable.MarkState{Lock: "l", Slot: slot, By: 1, LSN: 2}}}))
		if err != nil {
			t.Fatal(err)
		}
		if before, twice := hashes[other.Hash()]; twice {
			t.Errorf("a table with slot %s and one with another slot has the same hash: %s", slot, before)
		}
		hashes[other.Hash()] = slot
	}
}
