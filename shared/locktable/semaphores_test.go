// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// permits asks for some of the permits of a lock.
func permits(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, weight, limit uint32) locktable.Request {
	q := acquire(c, id, lock, forever)
	q.Permit = locktable.Permit{Limit: limit, Weight: weight}
	return q
}

// TestPermitsFollowTheLog: every server checks what a record takes of a limit, and whose turn it is, whoever wrote it.
func TestPermitsFollowTheLog(t *testing.T) {
	h := newHarness(t)
	takes := func(kind locktable.Kind, client cluster.ClientID, weight, limit uint32) record {
		r := record{Kind: kind, Client: client, Request: 1, Lock: "l", TTL: 1, Mode: locktable.ModeShared, Permit: locktable.Permit{Limit: limit, Weight: weight}}
		if kind == locktable.KindEnqueue {
			r.Wait = 1
		}
		return r
	}
	h.illegal("more than the limit", takes(locktable.KindGrant, "x", 4, 3))
	h.illegal("nothing of a limit", takes(locktable.KindGrant, "x", 0, 3))
	h.illegal("some of no limit", takes(locktable.KindGrant, "x", 1, 0))
	alone := takes(locktable.KindGrant, "x", 1, 3)
	alone.Mode = locktable.ModeExclusive
	h.illegal("a permit in exclusive mode", alone)
	h.want(ok, permits("a", 1, "l", 2, 3))
	h.illegal("more than is free", takes(locktable.KindGrant, "x", 2, 3))
	h.illegal("another limit", takes(locktable.KindGrant, "x", 1, 4))
	h.illegal("no limit", takes(locktable.KindGrant, "x", 0, 0))
	h.illegal("a wait for what is free", takes(locktable.KindEnqueue, "x", 1, 3))
	h.illegal("a wait with another limit", takes(locktable.KindEnqueue, "x", 3, 4))
	h.illegal("a wait without a limit", takes(locktable.KindEnqueue, "x", 0, 0))
	h.illegal("a downgrade of a permit", record{Kind: locktable.KindDowngrade, Client: "a", Request: 9, Lock: "l", Token: 1})
	h.illegal("a release with a permit", record{Kind: locktable.KindRelease, Client: "a", Request: 9, Lock: "l", Token: 1, Permit: locktable.Permit{Limit: 3, Weight: 2}})
	h.want(pending, permits("b", 1, "l", 2, 3))
	h.want(pending, permits("c", 1, "l", 1, 3))
	h.illegal("a light one overtakes", takes(locktable.KindGrant, "x", 1, 3))
	h.illegal("a light one in the queue overtakes", takes(locktable.KindGrant, "c", 1, 3))
	q := release("a", 2, "l", 1)
	recs, _ := h.table.Decide(&q, 1, locktable.FileFacts{}, nil)
	if len(recs) != 3 {
		t.Fatalf("%d records, want the release and two grants", len(recs))
	}
	h.apply(recs[:1])
	other := recs[1]
	other.Permit.Weight = 1
	h.illegal("another weight than the waiter asked for", other)
	h.illegal("the second before the first", recs[2])
	h.apply(recs[1:])
	h.reload()
}

// TestPermitsOfAState: a state in which holders and waiters do not fit together is refused, and one that differs in a permit has
// another hash.
func TestPermitsOfAState(t *testing.T) {
	h := newHarness(t)
	h.want(ok, permits("a", 1, "l", 1, 4))
	h.want(ok, permits("b", 1, "l", 2, 4))
	h.want(pending, permits("c", 1, "l", 3, 4))
	h.want(pending, permits("d", 1, "l", 1, 4))
	load := func(change func(*locktable.LockState)) (*locktable.Table, error) {
		var all []locktable.Entity
		for e := range h.table.Export() {
			if e.Lock != nil {
				change(e.Lock)
			}
			all = append(all, e)
		}
		return locktable.Restore(h.table.LSN(), entities(all))
	}
	of := func(client cluster.ClientID, change func(**locktable.Permit)) func(*locktable.LockState) {
		return func(s *locktable.LockState) {
			if s.Grant != nil && s.Grant.ClientID == client {
				change(&s.Grant.Permit)
			}
			for i := range s.Waiters {
				if s.Waiters[i].ClientID == client {
					change(&s.Waiters[i].Permit)
				}
			}
		}
	}
	set := func(limit, weight uint32) func(**locktable.Permit) {
		return func(p **locktable.Permit) { *p = &locktable.Permit{Limit: limit, Weight: weight} }
	}
	for why, change := range map[string]func(*locktable.LockState){
		"a holder with another limit": of("a", set(5, 1)), "a holder without a limit": of("b", func(p **locktable.Permit) { *p = nil }),
		"a waiter with another limit": of("d", set(5, 1)), "a waiter without a limit": of("c", func(p **locktable.Permit) { *p = nil }),
		"too many taken": of("b", set(4, 4)), "more than the limit": of("d", set(4, 5)), "nothing": of("a", set(4, 0)), "of nothing": of("a", set(0, 1)),
	} {
		if _, err := load(change); !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("%s: got %v, want ErrBadState", why, err)
		}
	}
	for why, change := range map[string]func(*locktable.LockState){"a holder": of("b", set(4, 3)), "a waiter": of("d", set(4, 2))} {
		if other, err := load(change); err != nil || other.Hash() == h.table.Hash() {
			t.Errorf("%s with another weight: %v, or the same hash", why, err)
		}
	}
	if due, err := load(of("c", set(4, 1))); err != nil || !due.HasPendingGrants() {
		t.Errorf("a state in which the first in line is to be granted: %v, or nothing is owed", err)
	}
	h.reload()
}

// TestManyPermitsComeFree: the grants behind one record are bounded, and the others follow by DecideOwed.
func TestManyPermitsComeFree(t *testing.T) {
	const many = 300
	h := newHarness(t)
	h.want(ok, permits("a", 1, "l", many, many))
	for i := range cluster.RequestID(many) {
		h.want(pending, permits("b", i+1, "l", 1, many))
	}
	h.want(pending, permits("c", 1, "l", 1, many))
	_, recs := h.do(release("a", 2, "l", 1), locktable.FileFacts{})
	for rounds := 1; len(recs) > 0; rounds++ {
		if len(recs) > 129 || rounds > 3 {
			t.Fatalf("%d records at a time, after %d rounds", len(recs), rounds)
		}
		recs = h.table.DecideOwed(1, nil)
		h.apply(recs)
	}
	if v, _ := h.table.Lock("l"); v.Holders != many || v.Taken != many || v.Limit != many || v.QueueLength != 1 {
		t.Errorf("%+v", v)
	}
	h.reload()
}

// TestPermitHoldersAreBounded: however large the limit, a lock has no more holders and waiters than others have.
func TestPermitHoldersAreBounded(t *testing.T) {
	const huge = 1<<32 - 1
	l := &loop{tb: t, table: locktable.New()}
	ask := func(id int, weight uint32) locktable.Outcome {
		q := permits(cluster.ClientID(fmt.Sprint("~", id)), 1, "l", weight, huge)
		return l.do(&q, locktable.FileFacts{})
	}
	for i := range locktable.MaxHolders {
		ask(i, 1)
	}
	if out := ask(-1, 1); out.Status != cluster.StatusStorageUnavailable {
		t.Errorf("one holder too many: %+v", out)
	}
	heavy := ask(-2, huge)
	for i := range locktable.MaxQueue - 1 {
		ask(locktable.MaxHolders+i, 1)
	}
	if out := ask(-3, 1); out.Status != cluster.StatusStorageUnavailable {
		t.Errorf("one waiter too many: %+v", out)
	}
	l.do(&locktable.Request{Op: locktable.OpCancel, Client: heavy.Client, Target: 1}, locktable.FileFacts{})
	for l.table.HasPendingGrants() {
		for _, r := range l.table.DecideOwed(1, nil) {
			if err := l.table.Apply(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(-4, huge)
	if out := ask(-5, 1); out.Status != cluster.StatusStorageUnavailable {
		t.Errorf("one more that could hold the lock beside all these: %+v", out)
	}
	if v, _ := l.table.Lock("l"); v.Holders >= locktable.MaxHolders+locktable.MaxQueue {
		t.Errorf("%+v", v)
	}
	if err := l.table.Check(); err != nil {
		t.Error(err)
	}
}

// TestRingsOfPermits: who waits for a permit waits for a holder only if the others could not make room for it.
func TestRingsOfPermits(t *testing.T) {
	h := newHarness(t)
	h.want(ok, permits("a", 1, "l", 2, 4))         // 1
	h.want(ok, permits("c", 1, "l", 1, 4))         // 2
	h.want(ok, acquire("b", 1, "m", 0))            // 3
	h.want(pending, acquire("a", 2, "m", forever)) // a waits for b
	h.want(pending, acquire("c", 2, "m", forever)) // and so does c
	h.want(pending, permits("b", 2, "l", 2, 4))    // which a could leave where it is
	rings, all := h.table.Rings(8, 1000)
	if len(rings) != 0 || !all || h.table.RingOf("l", 1000) != nil || h.table.RingOf("m", 1000) != nil {
		t.Errorf("%v, all %t", rings, all)
	}
	h.want(pending, permits("b", 3, "l", 3, 4))
	for _, lock := range []cluster.LockName{"l", "m"} {
		if got := ringText(h.table.RingOf(lock, 1000)); got != map[cluster.LockName]string{"l": " a>m:3 b>l:1", "m": " b>l:1 a>m:3"}[lock] {
			t.Errorf("the ring of %s is %q", lock, got)
		}
	}
	// From the oldest holder the search comes to all clients, but to no ring; from the next one it does.
	h = newHarness(t)
	h.want(ok, permits("x", 1, "l", 1, 4))         // 1
	h.want(ok, permits("y", 1, "l", 3, 4))         // 2
	h.want(ok, acquire("y", 2, "m", 0))            // 3
	h.want(ok, acquire("z", 1, "n", 0))            // 4
	h.want(pending, acquire("x", 2, "m", forever)) // x waits for y
	h.want(pending, acquire("y", 3, "n", forever)) // y for z
	h.want(pending, permits("z", 2, "l", 2, 4))    // and z for y, whatever x does
	if got := ringText(h.table.RingOf("l", 1000)); got != " y>n:4 z>l:2" {
		t.Errorf("the ring of l is %q", got)
	}
}
