// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// holders lists the clients that hold a lock, the oldest grant first.
func holders(t *locktable.Table, name cluster.LockName) (all []cluster.ClientID) {
	for g := range t.Grants(name) {
		all = append(all, g.Client)
	}
	return all
}

// waiting lists the clients that wait for a lock.
func waiting(t *locktable.Table, name cluster.LockName) (all []cluster.ClientID) {
	for w := range t.Waiters(name) {
		all = append(all, w.Client)
	}
	return all
}

func (h *harness) wantLock(name cluster.LockName, held, queued []cluster.ClientID) {
	h.tb.Helper()
	if got := holders(h.table, name); !slices.Equal(got, held) {
		h.tb.Errorf("lock %q is held by %v, want %v", name, got, held)
	}
	if got := waiting(h.table, name); !slices.Equal(got, queued) {
		h.tb.Errorf("%v wait for lock %q, want %v", got, name, queued)
	}
}

type ids = []cluster.ClientID

// mixed is a lock with readers and writers in its queue: w1 r1 w2 r2 r3.
func mixed(h *harness) {
	h.want(pending, acquire("w1", 1, "db", forever))
	for _, c := range []cluster.ClientID{"r1", "w2", "r2", "r3"} {
		q := acquire(c, 1, "db", forever)
		if c[0] == 'r' {
			q.Mode = locktable.ModeShared
		}
		h.want(pending, q)
	}
}

// ends are the ways in which readers get their turn, each prepared on a fresh table:
// what remains is the decision, and who holds and waits behind it.
func ends() map[string]struct {
	prepare func(*harness)
	decide  func(*locktable.Table) []record
	held    ids
	queued  ids
} {
	decide := func(q locktable.Request) func(*locktable.Table) []record {
		return func(t *locktable.Table) []record {
			recs, _ := t.Decide(&q, 1, locktable.FileFacts{}, nil)
			return recs
		}
	}
	held := func(h *harness) { h.want(ok, acquire("a", 1, "db", 0)); mixed(h) }
	leaving := func(h *harness) {
		h.want(ok, share("a", 1, "db", 0))
		h.want(pending, acquire("w1", 1, "db", forever))
		for _, c := range []cluster.ClientID{"r1", "r2", "r3"} {
			h.want(pending, share(c, 1, "db", forever))
		}
	}
	readers, writers := ids{"r1", "r2", "r3"}, ids{"w1", "w2"}
	return map[string]struct {
		prepare func(*harness)
		decide  func(*locktable.Table) []record
		held    ids
		queued  ids
	}{
		"release":   {held, decide(release("a", 2, "db", 1)), readers, writers},
		"break":     {held, decide(locktable.Request{Op: locktable.OpBreak, Client: "x", ID: 1, Lock: "db"}), readers, writers},
		"expire":    {held, func(t *locktable.Table) []record { return t.DecideExpire("db", 1, "", 1, nil) }, readers, writers},
		"downgrade": {held, decide(downgrade("a", 2, "db", 1)), slices.Insert(slices.Clone(readers), 0, "a"), writers},
		"cancel":    {leaving, decide(cancel("w1", 1)), slices.Insert(slices.Clone(readers), 0, "a"), nil},
		"timeout":   {leaving, func(t *locktable.Table) []record { return t.DecideWaitTimeout("w1", 1, 1, nil) }, slices.Insert(slices.Clone(readers), 0, "a"), nil},
	}
}

// The log may end behind any record of a batch. The next term completes a phase that was
// cut, from the log or from a checkpoint: no reader is lost, and none gets in who was not there.
func TestACutPhaseIsCompleted(t *testing.T) {
	for name, tc := range ends() {
		whole := newHarness(t)
		tc.prepare(whole)
		recs := tc.decide(whole.table)
		if len(recs) != 4 {
			t.Fatalf("%s: %d records, want the end and three grants", name, len(recs))
		}
		for cut := 1; cut <= len(recs); cut++ {
			h := newHarness(t)
			tc.prepare(h)
			h.apply(recs[:cut])
			if h.table.HasPendingGrants() != (cut < len(recs)) {
				t.Errorf("%s cut behind %d records: owes a grant: %t", name, cut, h.table.HasPendingGrants())
			}
			h.reload()
			restored, err := overJSON(h.table)
			if err != nil {
				t.Fatal(err)
			}
			h.table = restored
			h.epoch = 2
			h.apply(h.table.DecideTerm(2, 2, nil))
			h.wantLock("db", tc.held, tc.queued)
			if h.table.HasPendingGrants() {
				t.Errorf("%s cut behind %d records: a grant is still owed", name, cut)
			}
		}
	}
}

// A cut between the end of a phase and the writer's grant must not begin another phase.
func TestACutTurnOfAWriterIsCompleted(t *testing.T) {
	h := newHarness(t)
	h.want(ok, share("a", 1, "db", 0))
	mixed(h)
	q := release("a", 2, "db", 1)
	recs, _ := h.table.Decide(&q, 1, locktable.FileFacts{}, nil)
	h.apply(recs[:1])
	h.want(cluster.StatusHeld, share("late", 1, "db", 0))
	restored, err := overJSON(h.table)
	if err != nil {
		t.Fatal(err)
	}
	h.table, h.epoch = restored, 2
	h.apply(h.table.DecideTerm(2, 2, nil))
	h.wantLock("db", ids{"w1"}, ids{"r1", "w2", "r2", "r3"})
}

// A phase of very many is granted in bounded steps. Who comes meanwhile is not of it, and who
// leaves or ends meanwhile takes nobody along.
func TestALongPhase(t *testing.T) {
	const n = 300
	h := newHarness(t)
	h.want(ok, acquire("a", 1, "db", 0))
	for i := range n {
		h.want(pending, share(cluster.ClientID(fmt.Sprintf("r%03d", i)), 1, "db", forever))
	}
	h.want(pending, acquire("w", 1, "db", forever))
	export := begin(h.table)
	_, recs := h.do(release("a", 2, "db", 1), locktable.FileFacts{})
	if len(recs) != 129 || !h.table.HasPendingGrants() {
		t.Fatalf("%d records at once; owes a grant: %t", len(recs), h.table.HasPendingGrants())
	}
	h.want(pending, share("late", 1, "db", forever))
	h.want(cluster.StatusCancelled, cancel("r200", 1))
	h.want(ok, release("r000", 2, "db", recs[1].LSN.Token()))
	export.next(t, 7)
	h.reload()
	for steps := 1; h.table.HasPendingGrants(); steps++ {
		more := h.table.DecideOwed(1, nil)
		if len(more) == 0 || len(more) > 128 || steps > 3 {
			t.Fatalf("step %d has %d records", steps, len(more))
		}
		h.apply(more)
	}
	if v, _ := h.table.Lock("db"); v.Holders != n-2 || v.QueueLength != 2 {
		t.Errorf("got %+v, want %d holders", v, n-2)
	}
	for i := 0; i < n; i++ {
		c := cluster.ClientID(fmt.Sprintf("r%03d", i))
		for _, g := range slices.Collect(h.table.Held(c)) {
			h.want(ok, release(c, 3, "db", g.Token))
		}
		export.next(t, 7)
	}
	h.wantLock("db", ids{"w"}, ids{"late"})
	for export.next(t, 50) {
		continue
	}
}

// Who comes while a phase is granted, and nobody waits to have the lock alone, is of it.
func TestALateReaderJoinsAPhase(t *testing.T) {
	h := newHarness(t)
	h.want(ok, acquire("a", 1, "db", 0))
	for _, c := range []cluster.ClientID{"r1", "r2"} {
		h.want(pending, share(c, 1, "db", forever))
	}
	q := release("a", 2, "db", 1)
	recs, _ := h.table.Decide(&q, 1, locktable.FileFacts{}, nil)
	h.apply(recs[:2])
	h.want(pending, share("r3", 1, "db", forever))
	h.want(pending, acquire("w", 1, "db", forever))
	h.want(pending, share("r4", 1, "db", forever))
	h.reload()
	for h.table.HasPendingGrants() {
		h.apply(h.table.DecideOwed(1, nil))
	}
	h.wantLock("db", ids{"r1", "r2", "r3"}, ids{"w", "r4"})
}

// Not even the last free slot is one too many.
func TestTheMostHolders(t *testing.T) {
	l := &loop{tb: t, table: locktable.New()}
	for i := range locktable.MaxHolders {
		q := share(cluster.ClientID(fmt.Sprintf("~%d", i)), 1, "db", 0)
		if out := l.do(&q, locktable.FileFacts{}); out.Status != ok {
			t.Fatal(out)
		}
	}
	q := share("x", 1, "db", forever)
	if out := l.do(&q, locktable.FileFacts{}); out.Status != cluster.StatusStorageUnavailable {
		t.Errorf("got %+v", out)
	}
	q = release("x", 2, "db", 1)
	l.do(&q, locktable.FileFacts{})
	q = share("x", 1, "db", forever)
	if out := l.do(&q, locktable.FileFacts{}); out.Status != ok {
		t.Errorf("got %+v", out)
	}
}

// Asks and metadata are those of one holder.
func TestAskOneOfTheHolders(t *testing.T) {
	h := newHarness(t)
	for i, c := range []cluster.ClientID{"a", "b", "c"} {
		h.want(ok, share(c, 1, "db", 0))
		h.want(ok, locktable.Request{Op: locktable.OpMetadata, Client: c, ID: 2, Lock: "db", Token: cluster.Token(2*i + 1), Metadata: string(c) + "!"})
	}
	h.want(ok, locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "db", Token: 3, Grace: 1e9, Actor: "op"})
	h.want(ok, locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 2, Lock: "db", Token: 5, Grace: 1e9, Actor: "op"})
	h.reload()
	for g := range h.table.Grants("db") {
		if (g.Ask != nil) != (g.Token != 1) || g.Metadata != string(g.Client)+"!" {
			t.Errorf("got %+v", g)
		}
	}
	h.apply(h.table.DecideGrace("db", 3, 1, nil))
	h.wantLock("db", ids{"a", "c"}, nil)
	if _, asked := h.table.AskOf("db", 5); !asked {
		t.Error("the ask of another holder is gone")
	}
	h.apply(h.table.DecideForceClear(1, nil))
	h.wantLock("db", nil, nil)
	if h.table.LockCount() != 0 {
		t.Error("the lock is still there")
	}
}

// Writers that come and give up make a phase of all who wait behind them. However often
// they do, the holders stay within what the table may hold, and what a checkpoint restores.
func TestPhasesDoNotAddUp(t *testing.T) {
	l := &loop{tb: t, table: locktable.New()}
	readers, refused := 0, 0
	enter := func(wait time.Duration) {
		readers++
		q := share(cluster.ClientID(fmt.Sprintf("~%d", readers)), 1, "db", wait)
		if out := l.do(&q, locktable.FileFacts{}); out.Status == cluster.StatusStorageUnavailable {
			if refused++; refused > 1 {
				return
			}
			over := record{LSN: l.table.LSN() + 1, Epoch: 1, Kind: locktable.KindEnqueue, Client: q.Client, Request: 1, Lock: "db", TTL: q.TTL, Wait: wait, Mode: q.Mode}
			if err := l.table.Apply(&over); !errors.Is(err, locktable.ErrIllegal) {
				t.Errorf("one too many is legal: %v", err)
			}
		}
	}
	for range locktable.MaxHolders {
		enter(0)
	}
	for round := range 3 {
		q := acquire("w", cluster.RequestID(round+1), "db", forever)
		l.do(&q, locktable.FileFacts{})
		for range locktable.MaxQueue - 1 {
			enter(forever)
		}
		q = cancel("w", cluster.RequestID(round+1))
		if out := l.do(&q, locktable.FileFacts{}); out.Status != cluster.StatusCancelled {
			t.Fatal(out)
		}
		for l.table.HasPendingGrants() {
			for _, r := range l.table.DecideOwed(1, nil) {
				if err := l.table.Apply(&r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if v, _ := l.table.Lock("db"); v.Holders > locktable.MaxHolders+locktable.MaxQueue {
			t.Fatalf("round %d: %d holders", round, v.Holders)
		}
	}
	if err := l.table.Check(); err != nil || refused == 0 {
		t.Errorf("%d were refused, %v", refused, err)
	}
}
