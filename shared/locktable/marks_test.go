// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// remembered is an acquire of a lock that remembers its last token.
func remembered(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName) locktable.Request {
	q := acquire(c, id, lock, 0)
	q.Remember = true
	return q
}

// TestMarksAreBounded: of too many locks that remember something, the one forgets that was granted longest ago.
func TestMarksAreBounded(t *testing.T) {
	table := locktable.New()
	do := func(q locktable.Request) {
		recs, dec := table.Decide(&q, 1, locktable.FileFacts{}, nil)
		if dec.Outcome.Status != ok {
			t.Fatalf("%+v: %+v", q, dec.Outcome)
		}
		for i := range recs {
			if err := table.Apply(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	id := cluster.RequestID(0)
	use := func(lock cluster.LockName) {
		id++
		do(remembered("~c", id, lock))
		id++
		do(release("~c", id, lock, cluster.Token(table.LSN())))
	}
	for i := range locktable.MaxMarks {
		use(cluster.LockName(fmt.Sprint("l", i)))
	}
	use("l0") // now l1 was granted longest ago
	use("one more")
	if n := table.MarkCount(); n != locktable.MaxMarks {
		t.Errorf("%d locks remember something", n)
	}
	for lock, want := range map[cluster.LockName]bool{"l0": true, "l1": false, "l2": true, "one more": true} {
		if _, marked := table.Mark(lock); marked != want {
			t.Errorf("lock %s remembers something: %t", lock, marked)
		}
	}
	if err := table.Check(); err != nil {
		t.Error(err)
	}
	restored, err := overJSON(table)
	if err != nil || restored.Hash() != table.Hash() {
		t.Errorf("restored: %v", err)
	}
}

// TestMarksFollowTheLog: a record whose condition does not hold is refused, and so is one that forgets nothing, whoever wrote it.
func TestMarksFollowTheLog(t *testing.T) {
	h := newHarness(t)
	h.want(ok, remembered("a", 1, "l"))
	h.want(ok, release("a", 2, "l", 1))
	h.want(ok, acquire("a", 3, "plain", 0))
	h.want(ok, release("a", 4, "plain", 3))
	grant := func(lock cluster.LockName, after cluster.Token) record {
		return record{Kind: locktable.KindGrant, Client: "b", Request: 1, Lock: lock, TTL: 1, After: after}
	}
	h.illegal("after another token", grant("l", 2))
	h.illegal("after a token of a lock that remembers nothing", grant("plain", 3))
	h.illegal("to forget nothing", record{Kind: locktable.KindForgetMark, Lock: "plain"})
	h.want(ok, acquire("a", 5, "l", 0))
	h.want(pending, acquire("b", 2, "l", forever))
	h.want(ok, release("a", 6, "l", 5))
	h.illegal("a waiter's grant with a condition", record{Kind: locktable.KindGrant, Client: "b", Request: 2, Lock: "l", TTL: 1, After: 5})
	h.reload()
	var hashes []uint64
	for last := range cluster.Token(2) {
		other, err := locktable.Restore(7, entities([]locktable.Entity{{Mark: &locktable.MarkState{Lock: "l", Last: last, LSN: 1}}}))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, other.Hash())
	}
	if hashes[0] == hashes[1] {
		t.Error("a table with another last token has the hash of another one")
	}
	for why, states := range map[string][]locktable.MarkState{
		"twice": {{Lock: "l", Last: 1, LSN: 1}, {Lock: "l", Last: 2, LSN: 2}}, "in one record": {{Lock: "l", LSN: 1}, {Lock: "m", LSN: 1}},
		"no record": {{Lock: "l"}}, "later than the state": {{Lock: "l", LSN: 8}}, "a later token": {{Lock: "l", Last: 3, LSN: 2}}, "no name": {{LSN: 1}},
	} {
		_, err := locktable.Restore(7, func(yield func(locktable.Entity, error) bool) {
			for i := range states {
				if !yield(locktable.Entity{Mark: &states[i]}, nil) {
					return
				}
			}
		})
		if !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("a state with a mark %s: %v", why, err)
		}
	}
}
