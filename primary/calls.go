// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/primary/protected"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// callKind is what the core loop is to do for a call.
type callKind uint8

const (
	callRequest callKind = iota
	callRenew
	callKeepAlive
	callRead
	callFile       // where a protected file ends
	callInternal   // a read by the primary itself, where a frame ends
	callExport     // a read of a state that was committed already
	callResign     // end the term on purpose
	callRaise      // raise the feature level of the cluster
	callAdmit      // make a server that joined a member
	callVerified   // a file's writer has verified its file
	callQuarantine // a file's writer found a foreign file
)

// keepAlive is what a KeepAlive tells and is told.
type keepAlive struct {
	belief serving.Belief
	// grants and asks are the answer; written before the call is done.
	grants []locktable.Grant
	asks   []locktable.Ask
}

// call is one thing for the core loop to do. Until it is queued it belongs to
// the caller, then to the core loop.
type call struct {
	kind  callKind
	req   *locktable.Request
	read  func(serving.View)
	alive *keepAlive // of callKeepAlive
	// verified is the result of a file's writer: of a callVerified, and of a request that was
	// parked for it.
	verified *protected.Verification
	// done is called exactly once, from a goroutine of the primary, and must not block.
	done func(locktable.Outcome)
	// order is the request that the call was made of, or nil: a batch delivers the outcomes
	// of one sink together.
	order *serving.AsyncRequest
	// abandoned is set when the caller waits no more: the call no longer keeps its waiter
	// alive. Not nil for a request; calls of one connection may share it.
	abandoned *atomic.Bool
	// at is when it was put, since the term began, or when its wait in a lock's queue ended. times are
	// those of the commit that it waited for.
	at    time.Duration
	times commitTimes
	// trace is nil for a call that is not traced.
	trace *callTrace
}

func (c *call) answerUnknown() {
	if c.done != nil {
		c.done(serving.Unknown())
	}
}

// queue is how calls reach the core loop: any goroutine puts, the core loop takes all there are.
type queue struct {
	wake wake.Signal
	mu   struct {
		sync.Mutex
		calls  []*call
		closed bool
	}
}

// put queues calls. After close they are answered UNKNOWN at once.
func (q *queue) put(calls ...*call) {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		for _, c := range calls {
			c.answerUnknown()
		}
		return
	}
	first := len(q.mu.calls) == 0
	q.mu.calls = append(q.mu.calls, calls...)
	q.mu.Unlock()
	if first {
		q.wake.Notify()
	}
}

// take returns what is queued and puts the empty slice in its place.
func (q *queue) take(empty []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls := q.mu.calls
	q.mu.calls = empty
	return calls
}

// empty reports whether nothing is queued now.
func (q *queue) empty() bool { return q.length() == 0 }

// length returns how many calls are queued.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.calls)
}

// close answers UNKNOWN to what is queued and to everything put from now on.
func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	calls := q.mu.calls
	q.mu.calls = nil
	q.mu.Unlock()
	for _, c := range calls {
		c.answerUnknown()
	}
}

// Do executes a request and returns its outcome, whatever its status. It takes ownership of
// the request, data included: the caller must not change it any more. A repeat of a request,
// also of one that is still waiting, gets the same answer. It returns the cause of ctx if that
// ends first; the request goes on then, and OpCancel ends it.
func (p *Primary) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if status, msg := q.Validate(p.opt.Timing); status != cluster.StatusOK {
		p.opt.Meter.Answer(meter.Op(q.Op), status, 0)
		return locktable.Outcome{Status: status, Message: msg, Client: q.Client, Request: q.ID}, nil
	}
	return p.await(ctx, &call{kind: callRequest, req: q})
}

// Renew extends the lease of the grant with this token, whichever client of the grant's identity
// presents it: the caller is that of ctx. The outcome has what is left of the lease as its TTL; it
// is INVALID_TOKEN if the token is not live, PERMISSION_DENIED for another identity.
func (p *Primary) Renew(ctx context.Context, lock cluster.LockName, token cluster.Token) (locktable.Outcome, error) {
	return p.await(ctx, &call{kind: callRenew, req: &locktable.Request{Lock: lock, Token: token, Identity: serving.CallerOf(ctx).Name()}})
}

// KeepAlive renews everything the client holds or waits for. If the client does not hold what
// it believes, grants lists what it holds, and is not nil even if that is nothing; otherwise
// it is nil. asks are to the holders among its grants. The outcome is STALE_REQUEST for an
// opened client that was forgotten, PERMISSION_DENIED for one that belongs to another identity than
// the caller of ctx.
func (p *Primary) KeepAlive(ctx context.Context, client cluster.ClientID, b serving.Belief) (
	grants []locktable.Grant, asks []locktable.Ask, out locktable.Outcome, err error,
) {
	c := &call{kind: callKeepAlive, req: &locktable.Request{Client: client, Identity: serving.CallerOf(ctx).Name()}, alive: &keepAlive{belief: b}}
	out, err = p.await(ctx, c)
	if err != nil || out.Status != cluster.StatusOK {
		return nil, nil, out, err // the core loop may still be writing c
	}
	return c.alive.grants, c.alive.asks, out, nil
}

// Read calls f with the table, in the core loop: f must be quick and must not change it. What f
// saw may be answered to a client only if Read returns StatusOK.
func (p *Primary) Read(ctx context.Context, f func(serving.View)) (locktable.Outcome, error) {
	return p.await(ctx, &call{kind: callRead, read: f})
}

// File returns the state of a protected file when every append that it counts is in the file:
// a reader of the bound inode up to state.End then reads nothing but appends that are committed
// and were checked. bound is false for a file that is not bound. The outcome is FILE_QUARANTINED
// or STORAGE_UNAVAILABLE for a file that cannot be trusted or written.
func (p *Primary) File(ctx context.Context, name cluster.FileName) (state locktable.FileState, bound bool, out locktable.Outcome, err error) {
	var seen struct {
		state locktable.FileState
		bound bool
	}
	out, err = p.await(ctx, &call{kind: callFile, req: &locktable.Request{File: name}, read: func(v serving.View) {
		seen.state, seen.bound = v.Table.File(name)
	}})
	if err != nil || out.Status != cluster.StatusOK {
		return locktable.FileState{}, false, out, err // the core loop may still be writing seen
	}
	return seen.state, seen.bound, out, nil
}

// Resign ends the term on purpose: it admits nothing more, commits what is decided, logs
// HandedOver and stops. It returns nil when the record is committed.
func (p *Primary) Resign(ctx context.Context, reason string) error {
	p.awaitShown(ctx)
	out, err := p.await(ctx, &call{kind: callResign, req: &locktable.Request{Reason: reason}})
	if err == nil && out.Status != cluster.StatusOK {
		err = fmt.Errorf("resign: %v", out.Status)
	}
	return err
}

// Raise raises the feature level of the cluster. The caller has found that every server knows this level. A level that
// is not above the present one is OK, too: nothing is logged.
func (p *Primary) Raise(ctx context.Context, level uint32) (locktable.Outcome, error) {
	return p.await(ctx, &call{kind: callRaise, req: &locktable.Request{Level: level}})
}

// Admit makes a server that joined a member. The caller has found that it is able to be primary. It is OK, too, if no such
// server joins any more: nothing is logged.
func (p *Primary) Admit(ctx context.Context, id cluster.ServerID) (locktable.Outcome, error) {
	return p.await(ctx, &call{kind: callAdmit, req: &locktable.Request{Members: &locktable.MembersRequest{Change: cluster.MemberChange{Server: cluster.Member{ID: id}}}}})
}

// Level returns the feature level of the cluster, as far as this term has decided; 0 before the term has adopted a log.
func (p *Primary) Level() uint32 { return p.clusterLevel.Load() }

// Submit queues requests in this order and takes ownership of them, as Do does. After Ended
// is closed, requests without an answer are UNKNOWN.
func (p *Primary) Submit(orders []*serving.AsyncRequest) {
	at := p.age() // once for all
	made := make([]call, len(orders))
	calls := make([]*call, 0, len(orders))
	for i, o := range orders {
		if status, msg := o.Request.Validate(p.opt.Timing); status != cluster.StatusOK {
			p.opt.Meter.Answer(meter.Op(o.Request.Op), status, 0)
			deliver(o, locktable.Outcome{Status: status, Message: msg, Client: o.Request.Client, Request: o.Request.ID})
			continue
		}
		x := &made[i]
		*x = call{
			kind: callRequest, req: &o.Request, abandoned: o.Abandoned, order: o, at: at,
			done: func(out locktable.Outcome) {
				p.countAnswer(x, out.Status)
				deliver(x.order, out)
			},
		}
		if o.Trace != nil {
			x.trace = &callTrace{Trace: o.Trace, put: at}
		}
		calls = append(calls, x)
	}
	if len(calls) > 0 {
		p.submit(calls...)
	}
}

// deliver gives one request its outcome, which is not to wait for others.
func deliver(o *serving.AsyncRequest, out locktable.Outcome) {
	o.To.Answer(o, out)
	o.To.Flush()
}

// await queues a call and waits for its answer.
func (p *Primary) await(ctx context.Context, c *call) (locktable.Outcome, error) {
	answer := make(chan locktable.Outcome, 1)
	c.at = p.age()
	if p.opt.Traces.Tracer() != nil && c.op() != 0 { // else there is no need to search the context
		if t := serving.TraceOf(ctx); t != nil {
			c.trace = &callTrace{Trace: t, put: c.at}
		}
	}
	c.done = func(out locktable.Outcome) {
		p.countAnswer(c, out.Status)
		answer <- out
	}
	c.abandoned = new(atomic.Bool)
	p.submit(c)
	select {
	case out := <-answer:
		return out, nil
	case <-ctx.Done():
		c.abandoned.Store(true)
		return locktable.Outcome{}, context.Cause(ctx)
	case <-p.term.Done():
	}
	// The core loop may be stuck in the filesystem: do not wait for it.
	select {
	case out := <-answer:
		return out, nil
	default:
		return serving.Unknown(), nil
	}
}

// submit queues calls; the done of each is called once.
func (p *Primary) submit(calls ...*call) {
	status := cluster.StatusSecondaryMode
	switch p.State() {
	case StateServing:
		p.queue.put(calls...)
		return
	case StateFencing:
		status = cluster.StatusServerFencing
	}
	for _, c := range calls {
		c.done(locktable.Outcome{Status: status})
	}
}
