// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
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
// a wait that ends without a grant is ErrWaitTimeout. It is ErrLeaseExpired if the lock was
// granted and its lease ended before the answer came. When the context ends first, the request is
// cancelled.
func (c *Client) Acquire(ctx context.Context, lock LockName, o AcquireOptions) (*Lock, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if err := checkAcquire(lock, o); err != nil {
		return nil, (&call{op: "acquire", lock: lock}).fail(err)
	}
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
	return checkText(o.Metadata)
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
