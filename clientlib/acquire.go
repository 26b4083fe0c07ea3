// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// lateRenewals is how often a grant is renewed that came, or was renewed, too late.
const lateRenewals = 5

// Acquire gets a lock. If others hold it or wait for it and Wait is 0, the error is a *HeldError;
// a wait that ends without a grant is ErrWaitTimeout. When the context ends first, the request is
// cancelled. Of these three, errors.Is finds ErrNotAcquired. The error is ErrLeaseExpired if the lock was
// granted and its lease ended before the answer came.
func (c *Client) Acquire(ctx context.Context, lock LockName, o AcquireOptions) (*Lock, error) {
	h := &c.opt.Hooks
	if h.Acquired == nil && h.NotAcquired == nil && h.Lost == nil && h.Released == nil {
		return c.acquireInTime(ctx, lock, o)
	}
	began := c.opt.Clock.Now()
	l, err := c.acquireInTime(ctx, lock, o)
	waited := c.opt.Clock.Now() - began
	if err != nil {
		if h.NotAcquired != nil {
			h.NotAcquired(lock, waited, err)
		}
		return nil, err
	}
	if h.Acquired != nil {
		h.Acquired(lock, waited)
	}
	l.handOut(c.opt.Clock.Now())
	return l, nil
}

// TryAcquire is Acquire without a wait, whatever the options say: if others hold the lock or wait for it, it returns a
// *HeldError at once. errors.Is(err, ErrNotAcquired) tells that from an outage.
func (c *Client) TryAcquire(ctx context.Context, lock LockName, o AcquireOptions) (*Lock, error) {
	o.Wait = 0
	return c.Acquire(ctx, lock, o)
}

// With acquires the lock, calls f, and releases the lock when f has returned or panicked. Where the lock is not acquired, the
// error is that of Acquire, and f is not called. The context of f is a child of ctx and ends when the lock is lost, with a
// *LostError as its cause: then f must stop what the lock protects, and return.
//
// With returns the error of f. If the lock was lost before f returned, the error wraps the *LostError, too, also where
// f returned nil: what it did last may not have been protected. A release that the service cannot be asked for is no
// error, because the lease ends by itself.
func (c *Client) With(ctx context.Context, lock LockName, o AcquireOptions, f func(ctx context.Context, l *Lock) error) error {
	l, err := c.Acquire(ctx, lock, o)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	returned := false
	defer func() {
		if !returned { // f has panicked
			c.giveBack(ctx, l) //nolint:errcheck // the panic goes on
		}
	}()
	err = f(inner, l)
	returned = true
	if lost := c.giveBack(ctx, l); lost != nil && !errors.Is(err, lost) {
		return errors.Join(err, lost)
	}
	return err
}

// giveBack releases a lock, and returns how it was lost if it was: before the call, or as the service knows.
func (c *Client) giveBack(ctx context.Context, l *Lock) error {
	c.renewer.endIfOver(l)
	cause := context.Cause(l.ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := l.Release(ctx)
	if errors.Is(cause, ErrLost) {
		return cause
	}
	if errors.Is(err, ErrLost) {
		return err
	}
	if err != nil {
		c.opt.Log.Warn("a lock could not be released and ends with its lease", "lock", l.name, "token", l.token, "error", err)
	}
	return nil
}

// acquireInTime is Acquire without hooks.
func (c *Client) acquireInTime(ctx context.Context, lock LockName, o AcquireOptions) (*Lock, error) {
	return inCell(ctx, c, &call{op: "acquire", lock: lock}, string(lock), func(c *Client) (*Lock, error) { return c.acquireHere(ctx, lock, o) })
}

// acquireHere acquires a lock of the Client's own cell.
func (c *Client) acquireHere(ctx context.Context, lock LockName, o AcquireOptions) (*Lock, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if err := checkAcquire(lock, o); err != nil {
		return nil, (&call{op: "acquire", lock: lock}).fail(err)
	}
	outside := ctx
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return nil, (&call{op: "acquire", lock: lock}).fail(err)
	}
	defer end()
	place := time.Duration(0)
	if o.Wait != 0 {
		place = o.TTL // a place in the queue lives by keep-alives
	}
	from := c.registrationFor(o)
	defer from.leave()
	c.renewer.expect(lock, from, place)
	defer c.renewer.unexpect(lock, from, place)
	var began time.Time // of what is left of the wait, or of the second try
	if o.Wait > 0 {
		began = time.Now()
	}
	for {
		l, err := c.acquire(ctx, from, lock, o)
		if err == nil || !errors.Is(err, ErrLeaseExpired) {
			c.noteVain(err, o.Wait != 0 && outside.Err() != nil)
			return l, err
		}
		if began.IsZero() {
			began = time.Now()
		}
		// It was granted while no answer reached us, and has ended: no caller has had
		// it. Wait again, for what is left of the wait.
		if o.Wait > 0 {
			if o.Wait -= time.Since(began).Truncate(time.Millisecond); o.Wait <= 0 {
				return nil, err
			}
			began = time.Now()
		} else if o.Wait == 0 && time.Since(began) > c.opt.Budget {
			return nil, err
		}
	}
}

// noteVain has errors.Is find ErrNotAcquired in the error of an Acquire that has waited in vain: until its wait was over, or
// until the context of its caller ended, while the service was there and had not granted the lock.
func (c *Client) noteVain(err error, ended bool) {
	e, ok := errors.AsType[*CallError](err)
	if !ok {
		return
	}
	to := c.servers.primary()
	waited := ended && e.Unknown && to != nil && c.lately(to, true)
	e.notAcquired = waited || errors.Is(e.Err, ErrWaitTimeout)
}

func modeOf(shared bool) pb.Mode {
	if shared {
		return pb.Mode_MODE_SHARED
	}
	return pb.Mode_MODE_EXCLUSIVE
}

func checkAcquire(lock LockName, o AcquireOptions) error {
	if err := lock.Validate(); err != nil {
		return wire.Invalid(err.Error())
	}
	if o.TTL < time.Millisecond || o.TTL%time.Millisecond != 0 {
		return wire.Invalid(fmt.Sprintf("TTL %v: use whole milliseconds", o.TTL))
	}
	if o.Wait < 0 && o.Wait != Forever || o.Wait > 0 && o.Wait%time.Millisecond != 0 {
		return wire.Invalid(fmt.Sprintf("wait %v: use whole milliseconds, 0 or Forever", o.Wait))
	}
	if o.MaxHold < 0 || o.MaxHold > 0 && o.MaxHold < o.TTL || o.MaxHold%time.Millisecond != 0 {
		return wire.Invalid(fmt.Sprintf("max hold %v: use whole milliseconds from the TTL %v on, or 0 for no end", o.MaxHold, o.TTL))
	}
	if o.AfterToken != 0 && o.Wait != 0 {
		return wire.Invalid(fmt.Sprintf("after token %d and a wait: use a Wait of 0, because whoever is waited for changes the last token", o.AfterToken))
	}
	if o.Once != "" {
		if err := cluster.Slot(o.Once).Validate(); err != nil {
			return wire.Invalid(err.Error())
		}
		if o.Shared {
			return wire.Invalid(fmt.Sprintf("slot %s in shared mode: what is done once is done by one holder", o.Once))
		}
	}
	if err := checkPermit(o); err != nil {
		return err
	}
	return checkText(o.Metadata)
}

// checkPermit refuses what no lock with a limit grants.
func checkPermit(o AcquireOptions) error {
	switch {
	case o.Weight > o.Limit:
		return wire.Invalid(fmt.Sprintf("weight %d of %d permits: use a Weight up to the Limit", o.Weight, o.Limit))
	case o.Limit != 0 && o.Shared:
		return wire.Invalid("a limit and shared mode: leave one of them out")
	case o.Limit != 0 && o.Once != "":
		return wire.Invalid(fmt.Sprintf("slot %s and a limit: what is done once is done by one holder", o.Once))
	}
	return nil
}

// checkText refuses texts that are not UTF-8: no message could carry them, and they would be
// tried until the budget is used up.
func checkText(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return wire.Invalid(fmt.Sprintf("%q is not UTF-8", s))
		}
	}
	return nil
}

// acquire sends one request for the lock, under one ID.
func (c *Client) acquire(ctx context.Context, from *registration, lock LockName, o AcquireOptions) (*Lock, error) {
	// The wait is the same in every retry: it is part of what the request is.
	wait := int64(-1)
	if o.Wait != Forever {
		wait = o.Wait.Milliseconds()
	}
	var sent time.Duration // of the latest attempt, which is the answered one
	var who string
	ask := order{op: "acquire", lock: lock, from: from}
	if o.Wait != 0 {
		ask.wait = waiting
	}
	a, finish, err := c.begun(ctx, ask,
		func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
			sent, who = c.opt.Clock.Now(), r.client
			return s.Acquire(ctx, &pb.AcquireRequest{
				ClientId: r.client, RequestId: r.id, LowWater: r.lowWater,
				Lock: string(lock), TtlMs: o.TTL.Milliseconds(), WaitMs: &wait, Holder: c.holder, Metadata: o.Metadata,
				MaxHoldMs: o.MaxHold.Milliseconds(), Heartbeat: o.Heartbeat, Mode: modeOf(o.Shared),
				AfterToken: uint64(o.AfterToken), Remember: o.Remember, Once: o.Once, Limit: o.Limit, Weight: o.Weight,
			})
		})
	defer finish()
	if err != nil {
		err = heldError(lock, err)
		c.releaseUnknown(ctx, from, err)
		return nil, err
	}
	l := newLock(c, lock, Token(a.GetToken()), Epoch(a.GetEpoch()))
	l.from, l.owner, l.heartbeat = from, ClientID(who), o.Heartbeat
	l.once = o.Once != ""
	if why := cmp.Or(wire.Unmarked(a, o.AfterToken != 0 || o.Remember || l.once), wire.Unlimited(a, o.Limit, o.Weight)); why != nil {
		return nil, c.drop(ctx, l, (&call{op: "acquire", lock: lock}).fail(why))
	}
	l.grant(o.TTL, sent, min(o.TTL, wire.Millis(a.GetTtlMs())), 0)
	if err := c.takeOver(ctx, l, a.GetRepeat() || o.MaxHold > 0 || c.opt.Clock.Now()-sent > o.TTL/4); err != nil {
		return nil, c.drop(ctx, l, err)
	}
	return l, nil
}

// takeOver hands a grant to the renewer. A grant that may be old is renewed first: that shows
// whether it lives, counts its lease from now and not from the beginning of a long wait, and
// tells what is left of a max hold. If the renewal takes as long as the lease, the grant lives on
// at the service, and is renewed once more.
func (c *Client) takeOver(ctx context.Context, l *Lock, old bool) error {
	for range lateRenewals {
		if old {
			if err := l.renew(ctx); err != nil {
				return err
			}
		}
		if c.renewer.add(l) {
			c.renewer.deliverEarly(l)
			c.renewer.subscribeLosses(l.from)
			return nil
		}
		old = true
	}
	return l.notRenewed()
}

// drop releases a grant that cannot be returned to the caller, and returns why.
func (c *Client) drop(ctx context.Context, l *Lock, why error) error {
	l.end(ErrReleased)
	gone := make(chan struct{})
	if who := l.from.current(); who != nil && who.id == l.owner && !refused(why) {
		c.renewer.released(l)
		l.from.stay()
		left := c.renewer.leave(l.token)
		c.detach(ctx, func(ctx context.Context) {
			defer close(gone)
			defer l.from.leave()
			defer left()
			c.letGo(ctx, who, l.name, l.token)
		})
	} else {
		close(gone)
	}
	if !refused(why) && !errors.Is(why, ErrLost) {
		return why
	}
	// The next request for the lock must not meet this very grant.
	select {
	case <-gone:
	case <-ctx.Done():
	}
	return fmt.Errorf("lock %q was granted and the lease ended before it could be used: %w", l.name, errors.Join(ErrLeaseExpired, why))
}

// releaseUnknown handles a refusal because this very client holds the lock, without a handle: the grant
// may be left over from a process of the same name, or from a release that failed. A keep-alive
// finds such strays and releases them.
func (c *Client) releaseUnknown(ctx context.Context, from *registration, err error) {
	held, ok := errors.AsType[*HeldError](err)
	who := from.current()
	if !ok || held.Holder == nil || who == nil || held.Holder.Client != who.id || len(c.renewer.held(held.Lock, held.Holder.Token)) > 0 {
		return
	}
	c.detach(ctx, func(context.Context) {
		if err := c.renewer.keepAlive(from, who); err != nil {
			c.opt.Log.Warn("a lock that this client holds without knowing it ends with its lease", "lock", held.Lock, "token", held.Holder.Token, "error", err)
		}
	})
}

// heldError makes a *HeldError of a refusal with StatusHeld, and returns any other error as it
// is.
func heldError(lock LockName, err error) error {
	if e, ok := errors.AsType[*ServiceError](err); ok && e.Status == cluster.StatusHeld {
		return &HeldError{Lock: lock, Holder: e.Holder, QueueLength: e.QueueLength}
	}
	return err
}
