// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Bounds of a Ring.
const (
	ringEnds  = 1 << 15
	ringSkips = 1 << 12
	ringBytes = 16 << 20
)

// Ring keeps the newest ends that a table went through, in bounded memory. It belongs
// to whoever owns the table.
type Ring struct {
	limit Limiter
	from  cluster.LSN
	batch Batch
	bytes int
}

// NewRing makes a ring for a table at this LSN. Rate is as of NewLimiter.
func NewRing(rate int, at cluster.LSN) *Ring {
	return &Ring{limit: NewLimiter(rate), from: at}
}

// RingOf makes a ring that knows what r has. Rate is as of NewLimiter.
func RingOf(rate int, r Recent) *Ring {
	ring := &Ring{limit: NewLimiter(rate), from: r.From, batch: Batch{Ends: r.Ends, Skips: r.Skips}}
	for i := range r.Ends {
		ring.bytes += r.Ends[i].Size()
	}
	ring.trim()
	return ring
}

// Observe notes what a record ends. The table is as before the record. A nil Ring
// notes nothing.
func (r *Ring) Observe(t *locktable.Table, rec *locktable.Record) {
	if r == nil {
		return
	}
	before := len(r.batch.Ends)
	r.limit.Observe(t, rec, &r.batch)
	for i := before; i < len(r.batch.Ends); i++ {
		r.bytes += r.batch.Ends[i].Size()
	}
	r.trim()
}

// trim drops the oldest. It never writes to what it dropped: somebody may be reading it.
func (r *Ring) trim() {
	for len(r.batch.Ends) > ringEnds || r.bytes > ringBytes && len(r.batch.Ends) > 0 {
		e := &r.batch.Ends[0]
		r.from = max(r.from, e.LSN)
		r.bytes -= e.Size()
		r.batch.Ends = r.batch.Ends[1:]
	}
	for n := len(r.batch.Skips); n > ringSkips || n > 0 && r.batch.Skips[0].To <= r.from; n-- {
		r.from = max(r.from, r.batch.Skips[0].To)
		r.batch.Skips = r.batch.Skips[1:]
	}
}

// Recent is what a ring or a writer has: everything that ended behind From. The largest
// LSN there is says that nothing is known.
type Recent struct {
	From  cluster.LSN
	Ends  []End // not to be changed
	Skips []Skip
}

// Recent is a view that stays as it is while the ring goes on. It is taken where a
// frame ends.
func (r *Ring) Recent() Recent {
	if r == nil {
		return Recent{From: ^cluster.LSN(0)}
	}
	n := len(r.batch.Ends)
	return Recent{From: r.from, Ends: r.batch.Ends[:n:n], Skips: slices.Clone(r.batch.Skips)}
}
