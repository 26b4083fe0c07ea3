// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Order is a request that is handed in without waiting for its outcome.
type Order struct {
	Request locktable.Request
	// To is told the outcome: exactly once while the reign lives, at most once when it ends.
	To Outlet
	// Correlation and Bytes are the caller's.
	Correlation uint64
	Bytes       int64
	// Abandoned says that nobody waits for the outcome any more. Orders may share it; it
	// is not nil.
	Abandoned *atomic.Bool

	c call
}

// Outlet is where outcomes go. Both methods are called by goroutines of the reign
// and must not block.
type Outlet interface {
	Answer(*Order, locktable.Outcome)
	// Flush says that no more of what was told just now is to be waited for.
	Flush()
}

// Submit hands in orders, in this order, and takes them over: see Do. After Ended
// is closed, what was not answered is UNKNOWN.
func (p *Primary) Submit(orders []*Order) {
	calls := make([]*call, 0, len(orders))
	for _, o := range orders {
		if status, msg := o.Request.Validate(p.opt.Timing); status != cluster.StatusOK {
			o.answer(locktable.Outcome{Status: status, Message: msg, Client: o.Request.Client, Request: o.Request.ID})
			continue
		}
		o.c.kind, o.c.req, o.c.abandoned, o.c.order, o.c.done = callRequest, &o.Request, o.Abandoned, o, o.answer
		calls = append(calls, &o.c)
	}
	if len(calls) > 0 {
		p.submit(calls...)
	}
}

func (o *Order) answer(out locktable.Outcome) {
	o.To.Answer(o, out)
	o.To.Flush()
}

// Ended is closed when the reign has ended.
func (p *Primary) Ended() <-chan struct{} { return p.reign.Done() }
