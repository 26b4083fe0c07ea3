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

// Ring keeps the newest ends of a table's grants, in bounded memory. It belongs to the owner
// of the table.
type Ring struct {
	limit Limiter
	from  cluster.LSN
	batch Batch
	bytes int
}

// NewRing returns a ring for a table at this LSN. rate is as for NewLimiter.
func NewRing(rate int, at cluster.LSN) *Ring {
	return &Ring{limit: NewLimiter(rate), from: at}
}

// RingOf returns a ring that contains what r has. rate is as for NewLimiter.
func RingOf(rate int, r Recent) *Ring {
	ring := &Ring{limit: NewLimiter(rate), from: r.From, batch: Batch{Ends: r.Ends, Skips: r.Skips}}
	for i := range r.Ends {
		ring.bytes += r.Ends[i].Size()
	}
	ring.trim()
	return ring
}

// Observe adds what a record ends. The table is as before the record. A nil Ring ignores it.
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

// trim drops the oldest. It never writes to what it dropped, which may be read meanwhile.
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

// Recent is what a ring or a writer has: everything that ended after From. From is the largest
// LSN if nothing is known.
type Recent struct {
	From  cluster.LSN
	Ends  []End // must not be changed
	Skips []Skip
}

// Recent returns a view that stays as it is while the ring goes on. Call it at the end of a
// frame. It may be called on a nil Ring, which knows nothing.
func (r *Ring) Recent() Recent {
	if r == nil {
		return Recent{From: ^cluster.LSN(0)}
	}
	n := len(r.batch.Ends)
	return Recent{From: r.from, Ends: r.batch.Ends[:n:n], Skips: slices.Clone(r.batch.Skips)}
}
