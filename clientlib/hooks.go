// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Hooks are functions that a Client calls when something happens, for metrics and traces. Any of them may be nil. They are
// called by several goroutines, some of which keep leases alive: a hook must return at once, and must not call the Client.
// Durations are counted on Options.Clock.
type Hooks struct {
	// Acquired: Acquire has got the lock, after this time.
	Acquired func(lock LockName, waited time.Duration)
	// NotAcquired: Acquire has returned an error, after this time. errors.Is(err, ErrNotAcquired) tells a lock that
	// others have from an outage.
	NotAcquired func(lock LockName, waited time.Duration, err error)
	// Released: a lock that Acquire had got was released through its handle, after this time.
	Released func(lock LockName, held time.Duration)
	// Lost: a lock that Acquire had got was lost, after this time. It is called once for each lock; also by Close, for
	// those that are held then (LossClosed).
	Lost func(why *LostError, held time.Duration)
	// Renewed: a keep-alive, which renews many locks at once, was answered after this time; or it failed, with all its
	// tries, and err is not nil.
	Renewed func(took time.Duration, err error)
	// Retried: a try of a call failed, and the call will be tried again. Op is "acquire", "append", and so on.
	Retried func(op string, err error)
	// Call: a call to the service begins, for the caller whose context this is; keep-alives are no calls. It returns what follows
	// the call, nil for nothing, as for most calls: see package oteltrace.
	Call func(ctx context.Context, op string, lock LockName) *CallTrace
	// Failover: answers come from a new term of the service, whose primary is at this address. Without is how long
	// this client knew of no primary before; 0 if the new one was found at once.
	Failover func(primary string, epoch Epoch, without time.Duration)
}

// keepAliveOp is the operation of keep-alives, which the client makes for itself.
const keepAliveOp = "keep alive"

// CallTrace has functions that follow one call to the service. Neither may be nil. They are called one after the other, and must
// return at once.
type CallTrace struct {
	// Try: a try of the call begins at the server of this address. It returns the traceparent that the server gets, as W3C
	// Trace Context has it, "" for none, and a function that is called with the error of the try, nil where the service
	// has answered.
	Try func(server string) (traceparent string, ended func(error))
	// Ended: the call has ended, with this error. A refusal is a *ServiceError, a call without an answer a *CallError.
	Ended func(error)
}

// tracedContext is the context of a try that is traced.
type tracedContext struct {
	context.Context
	// begin has the try begin, and returns the traceparent that the server gets.
	begin func() (traceparent string)
}

// untraced returns the context that a traced one was made of, and the traceparent; ctx itself, and "", where it is not traced. A try over a
// session begins with it.
func untraced(ctx context.Context) (context.Context, string) {
	if t, ok := ctx.(*tracedContext); ok {
		return t.Context, t.begin()
	}
	return ctx, ""
}

// try sends the request of a call once, with its trace if it has one. What a session does not carry was not tried there, and so is not
// reported as a try.
func try[R retry.Response](
	ctx context.Context, k *call, to *server, stub pb.LockServiceClient, send func(context.Context, pb.LockServiceClient) (R, error),
) (R, error) {
	if k.trace == nil {
		return send(ctx, stub)
	}
	var ended func(error)
	begin := func() (traceparent string) {
		traceparent, ended = k.trace.Try(to.addr)
		return traceparent
	}
	if _, ok := stub.(*session); ok {
		ctx = &tracedContext{ctx, begin}
	} else if traceparent := begin(); traceparent != "" {
		ctx = &tracedContext{ctx, func() string { return traceparent }}
	}
	r, err := send(ctx, stub)
	if ended != nil {
		ended(judge(r, err).Err)
	}
	return r, err
}

// handOut notes that a caller of Acquire has the lock.
func (l *Lock) handOut(now time.Duration) {
	l.since = now
	l.handed.Store(true)
	if l.ctx.Err() != nil { // already
		l.reportEnd()
	}
}

// reportEnd calls the hook for the end of the lock, once, if a caller of Acquire had it. It is called without locks, when
// the Context has ended.
func (l *Lock) reportEnd() {
	if !l.handed.Load() || !l.reported.CompareAndSwap(false, true) {
		return
	}
	h, held := &l.client().opt.Hooks, l.client().opt.Clock.Now()-l.since
	cause := context.Cause(l.ctx)
	if lost, ok := errors.AsType[*LostError](cause); ok {
		if h.Lost != nil {
			h.Lost(lost, held)
		}
	} else if h.Released != nil {
		h.Released(l.name, held)
	}
}

// keepAliveReported is keepAlive with a report of it.
func (k *leaseRenewer) keepAliveReported(from *registration, who *identity) error {
	report := k.c.opt.Hooks.Renewed
	if report == nil {
		return k.keepAlive(from, who)
	}
	began := k.c.opt.Clock.Now()
	err := k.keepAlive(from, who)
	report(k.c.opt.Clock.Now()-began, err)
	return err
}

// reportRetry reports that a call is tried again because of err, and returns err.
func (c *Client) reportRetry(op string, err error) error {
	if report := c.opt.Hooks.Retried; report != nil {
		report(op, err)
	}
	return err
}

// reportTerm reports a new term, if the belief has changed to one.
func (s *servers) reportTerm(before, now belief) {
	report := s.failover
	if report == nil || before.epoch == 0 || now.epoch <= before.epoch || now.primary == nil {
		return
	}
	without := time.Duration(0)
	if before.primary == nil {
		without = s.clock.Now() - before.doubted
	}
	report(now.primary.addr, now.epoch, without)
}
