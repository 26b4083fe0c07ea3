// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

// The words of the serving clock.
const (
	Tick     = tick
	Lateness = lateness
)

// ServingClock is the clock that deadlines are counted on.
type ServingClock = servingClock

// Advance moves the clock.
func (c *ServingClock) Advance(now time.Time, stalled bool) time.Duration {
	return c.advance(now, stalled)
}

// Loop is a core loop without a log: what is decided is committed by nobody.
type Loop struct{ c *core }

// NewLoop makes one of a term, with an empty table.
func NewLoop(r *volume.Term) *Loop {
	p := New(r, Options{Timing: cluster.DefaultTiming(), Log: zerolog.Nop()})
	c := newCore(p, locktable.New(), wal.Position{})
	c.adoptSome(adoptStep)
	return &Loop{c}
}

// Do decides a request.
func (l *Loop) Do(q *locktable.Request) locktable.Outcome {
	recs, d := l.c.table.Decide(q, 1, locktable.FileFacts{}, l.c.recs[:0])
	l.c.apply(recs, nil)
	l.c.touch(q.Client)
	l.c.cur.reset(l.c.cur.End())
	return d.Outcome
}

// Wait decides a request that waits, in a call that stays open.
func (l *Loop) Wait(q *locktable.Request) {
	l.Do(q)
	x := &call{req: q, abandoned: new(atomic.Bool), done: func(locktable.Outcome) {}}
	w := l.c.waits[waitKey{q.Client, q.ID}]
	w.calls = append(w.calls, x)
}

// Adopt replaces the loop by one that has adopted its table, and says how long it
// took to begin to count everything. What happens between the steps is between's.
func (l *Loop) Adopt(between ...func()) time.Duration {
	l.c = newCore(l.c.p, l.c.table.Clone(), wal.Position{})
	began := time.Now()
	for l.c.adopting.under {
		before := l.c.leases.n + len(l.c.waits)
		if l.c.adoptSome(adoptStep); l.c.leases.n+len(l.c.waits) > before+adoptStep {
			panic("a step of the adoption has no bound")
		}
		for _, do := range between {
			do()
		}
	}
	return time.Since(began)
}

// AdoptedTo is the request up to which the queue under way is counted.
func (l *Loop) AdoptedTo() cluster.RequestID { return l.c.adopting.place.request }

// Hear is a keep-alive of the client.
func (l *Loop) Hear(id cluster.ClientID) { l.c.touch(id) }

// At moves the serving clock and expires what is overdue, round by round. It
// returns how many rounds that took.
func (l *Loop) At(now time.Duration) (rounds int) {
	for l.c.overdue = true; l.c.overdue; rounds++ {
		l.Round(now)
	}
	l.c.shrinkWaits()
	return rounds
}

// Round moves the serving clock and is one round of expiry.
func (l *Loop) Round(now time.Duration) {
	l.c.now = now
	l.c.expire()
	l.c.cur.reset(l.c.cur.End())
}

// Counted is how many leases, clients and waiters the loop counts.
func (l *Loop) Counted() (leases, clients, waiters int) {
	return l.c.leases.n, l.c.clients.n, l.c.waiters.n
}

// Table is that of the loop.
func (l *Loop) Table() *locktable.Table { return l.c.table }

// RecordLevel returns the level that records may need in a cluster of a level, whose servers that are reached know another.
func RecordLevel(of, reached uint32) uint32 {
	c := &core{p: &Primary{}}
	c.p.clusterLevel.Raise(of)
	c.p.SetLevel(reached)
	return c.recordLevel()
}

// Raised notes the raises of a cluster whose term is this one, in this order, and returns its level.
func (l *Loop) Raised(levels ...uint32) uint32 {
	l.c.p.log = new(wal.Log)
	for _, n := range levels {
		l.c.p.raised(n)
	}
	return l.c.p.Level()
}
