// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// exporting is an export under way and what it has handed out.
type exporting struct {
	x    *locktable.Exporter
	hash uint64
	lsn  cluster.LSN
	got  []locktable.Entity

	owners map[cluster.ClientID]string
}

func begin(t *locktable.Table) *exporting {
	return &exporting{x: t.BeginExport(), hash: t.Hash(), lsn: t.LSN(), owners: owners(t)}
}

// next asks for n more entities and, behind the last one, compares.
func (e *exporting) next(tb testing.TB, n int) (more bool) {
	tb.Helper()
	before := len(e.got)
	if e.got, more = e.x.Next(n, e.got); len(e.got)-before > n {
		tb.Fatalf("%d entities at once, %d were asked for", len(e.got)-before, n)
	}
	if more {
		return true
	}
	restored, err := locktable.Restore(e.lsn, entities(e.got))
	if err != nil {
		tb.Fatalf("restore an export of LSN %d: %v", e.lsn, err)
	}
	if restored.Hash() != e.hash || e.x.Hash() != e.hash {
		tb.Fatalf("the export of LSN %d has another hash than the table had", e.lsn)
	}
	if got := owners(restored); !maps.Equal(got, e.owners) {
		tb.Fatalf("the export of LSN %d has clients of %v, the table had %v", e.lsn, got, e.owners)
	}
	if got, more := e.x.Next(n, nil); more || len(got) > 0 {
		tb.Fatalf("an export that has ended goes on with %d entities", len(got))
	}
	return false
}

// TestExportIsTheStateAtItsBeginning begins exports at random moments of random
// runs, two of them at a time, and takes a few entities after each record.
func TestExportIsTheStateAtItsBeginning(t *testing.T) {
	seeds, steps := 24, 1500
	if testing.Short() {
		seeds, steps = 4, 1200
	}
	ended := 0
	for seed := range seeds {
		w := newWorld(t, uint64(seed), seed%4 == 1, map[string]int{})
		under := [3]*exporting{}
		w.applied = func() {
			for i, e := range under {
				switch {
				case e == nil && w.rng.IntN(20) == 0:
					under[i] = begin(w.table)
				case e == nil:
				case w.rng.IntN(400) == 0:
					e.x.Close()
					under[i] = nil
				case w.rng.IntN(3) == 0 && !e.next(t, 1+w.rng.IntN(20)):
					under[i] = nil
					ended++
				}
			}
		}
		for step := range steps {
			w.step(step)
		}
	}
	if ended < seeds*10 {
		t.Errorf("only %d exports ended", ended)
	}
}

// TestExportOfLongRows takes pieces of long queues and of many receipts while
// they get shorter at both ends and longer again.
func TestExportOfLongRows(t *testing.T) {
	for _, step := range []int{1, 7, 300} {
		l := &loop{tb: t, table: locktable.New()}
		c := l.do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 1}, locktable.FileFacts{}).Client
		id := cluster.RequestID(0)
		do := func(q locktable.Request) {
			id++
			q.ID = id
			l.do(&q, locktable.FileFacts{})
		}
		for i := range 400 {
			do(acquire(c, 0, "a", forever))
			do(acquire(c, 0, cluster.LockName(fmt.Sprintf("b%03d", i)), forever))
			do(acquire(c, 0, "z", forever))
		}
		e := begin(l.table)
		for i := 0; e.next(t, step); i++ {
			for _, lock := range []cluster.LockName{"a", "z"} {
				if v, _ := l.table.Lock(lock); i%5 == 0 { // the first waiter gets the lock
					do(release(c, 0, lock, v.Grant.Token))
				}
				last := cluster.RequestID(0)
				for w := range l.table.Waiters(lock) {
					last = w.Request
				}
				if i%3 == 0 && last > 0 {
					q := cancel(c, last)
					l.do(&q, locktable.FileFacts{})
				}
				if i%4 == 0 {
					do(acquire(c, 0, lock, forever))
				}
			}
		}
		if err := l.table.Check(); err != nil {
			t.Error(err)
		}
	}
}

// The place in a queue at which an export stands may be left, and so may its neighbours.
func TestExportStandsAtAPlaceThatIsLeft(t *testing.T) {
	const waiters = 6
	for reached := range waiters + 4 { // it hands out a receipt, the client and the grant first
		for leaving := range waiters {
			l := &loop{tb: t, table: locktable.New()}
			c := l.do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 1}, locktable.FileFacts{}).Client
			for id := range cluster.RequestID(waiters + 1) {
				q := acquire(c, id+1, "l", forever)
				l.do(&q, locktable.FileFacts{})
			}
			e := begin(l.table)
			for range reached {
				if !e.next(t, 1) {
					t.Fatal("the export has ended")
				}
			}
			for _, id := range []int{leaving, (leaving + 1) % waiters} {
				q := cancel(c, cluster.RequestID(id+2))
				l.do(&q, locktable.FileFacts{})
			}
			for e.next(t, 1) {
			}
		}
	}
}

// TestNothingIsSavedWithoutAnExport also holds for one that was given up.
func TestNothingIsSavedWithoutAnExport(t *testing.T) {
	h := busy(t)
	x := h.table.BeginExport()
	x.Close()
	x.Close()
	if got, more := x.Next(10, nil); more || len(got) > 0 {
		t.Errorf("a closed export hands out %d entities", len(got))
	}
}
