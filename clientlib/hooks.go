// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"time"
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
	// Failover: answers come from a new term of the service, whose primary is at this address. Without is how long
	// this client knew of no primary before; 0 if the new one was found at once.
	Failover func(primary string, epoch Epoch, without time.Duration)
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
	h, held := &l.c.opt.Hooks, l.c.opt.Clock.Now()-l.since
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
