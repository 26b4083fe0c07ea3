// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Lock is the handle of a grant: of a lock that is held, or was. It is safe for use by several
// goroutines.
type Lock struct {
	c     atomic.Pointer[Client] // of the lock's cell; an attached one may be moved there once
	name  LockName
	token Token
	epoch Epoch
	// from is the registration whose request the grant answered, and owner its client ID;
	// nil and "" for an attached lock.
	from  *registration
	owner ClientID
	// heartbeat is set where keep-alives do not renew the lock.
	heartbeat bool
	// once is set where the lock was acquired for a slot.
	once bool

	ctx context.Context
	end context.CancelCauseFunc
	// handed is set when a caller of Acquire has the lock, since is when that was, and reported when a hook knows the end.
	handed, reported atomic.Bool
	since            time.Duration

	mu struct {
		sync.Mutex
		lease
		alive LSN // the latest at which the service confirmed the grant; 0 = it never did
		// endangered is set while the lock is in jeopardy.
		endangered bool
		changed    chan struct{} // closed when endangered or asked changes; nil if no caller waits
		asked      *Asked        // never changed; nil if no operator asked

		last      *Receipt
		releasing chan struct{} // closed when the Release under way has ended
		released  bool          // the service has confirmed it
		marked    bool          // and that the slot is done
		unsure    error         // of a Done that may have been executed
	}
}

func newLock(c *Client, name LockName, token Token, epoch Epoch) *Lock {
	l := &Lock{name: name, token: token, epoch: epoch}
	l.c.Store(c)
	var cancel context.CancelCauseFunc
	l.ctx, cancel = context.WithCancelCause(context.Background())
	l.end = func(cause error) {
		cancel(cause)
		l.reportEnd()
	}
	return l
}

// Attach makes a handle for a token that another process got, say the shell script that started
// this program. It is not kept alive: that is left to the process that acquired the lock, or to
// Renew. Once Renew has succeeded, the handle counts the lease and ends its Context like any
// other.
//
// A Client has one handle of a token. Attach returns the one that is there, attached or acquired;
// it is kept until the lock is lost or released or the Client is closed. Only a token that is
// attached before the Acquire of this very Client has returned has two handles.
func (c *Client) Attach(lock LockName, token Token) *Lock {
	if _, at := c.cells.known(string(lock)); at != nil && len(c.renewer.held(lock, token)) == 0 {
		c = at
	}
	return c.renewer.attach(newLock(c, lock, token, 0))
}

// client is the Client whose connections and renewals the lock has.
func (l *Lock) client() *Client { return l.c.Load() }

// move moves the handle of an attached lock to the Client of the lock's cell. Attach itself asks nobody where that is.
func (l *Lock) move(ctx context.Context, op string) error {
	c := l.client()
	if l.from != nil || c.single {
		return nil
	}
	to, err := c.where(ctx, &call{op: op, lock: l.name}, l.name, "")
	if err != nil || to == c {
		return err
	}
	there := to.renewer.attach(l) == l // before any goroutine renews it there: from then on its lease is counted
	if there {
		l.c.CompareAndSwap(c, to)
	}
	c.renewer.remove(l)
	if !there {
		return l.invalid(op, wire.Invalid(fmt.Sprintf("token %d has a handle already: use that one", l.token)))
	}
	if l.ctx.Err() != nil { // it was lost meanwhile, and may have been removed before
		to.renewer.remove(l)
	}
	return nil
}

// Name returns the name of the lock.
func (l *Lock) Name() LockName { return l.name }

// Token returns the fencing token of the grant. Pass it to the resources that the lock protects;
// they refuse any token lower than the highest they have seen.
func (l *Lock) Token() Token { return l.token }

// Epoch returns the epoch of the term that granted the lock; 0 if attached.
func (l *Lock) Epoch() Epoch { return l.epoch }

// TTL returns how long the lease lasts after a renewal; 0 if attached and not renewed.
func (l *Lock) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.ttl
}

// Context returns a context that ends when the lock is lost or released. Its context.Cause is a
// *LostError or ErrReleased.
func (l *Lock) Context() context.Context { return l.ctx }

// Expires returns when the lock is lost if no renewal is answered any more, by this side's
// cautious count. It is the zero time for an attached lock that was not renewed.
func (l *Lock) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.counted {
		return time.Time{}
	}
	return time.Now().Add(l.mu.deadline - fresh(l.client().opt.Clock))
}

// Renew extends the lease now. Locks that were acquired without Heartbeat are renewed by the
// Client. It returns a *LostError if the lock is lost.
func (l *Lock) Renew(ctx context.Context) error {
	ctx, end, err := l.begin(ctx, "renew")
	if err != nil {
		return err
	}
	defer end()
	if err := l.renew(ctx); err != nil {
		return l.check(err)
	}
	l.client().renewer.watch(l)
	return l.stillHeld()
}

// Append appends data, at most MaxAppend bytes, to a protected file. It is executed at most once,
// and only while the token is live; the first append binds the file to the lock. It returns a
// *LostError if the lock is lost, an *OffsetError if the file does not end where At wants,
// ErrTooLarge, ErrFileSealed or ErrFileQuarantined. With the latter there may be a receipt: then
// the append is in the log.
func (l *Lock) Append(ctx context.Context, file FileName, data []byte, opts ...AppendOption) (Receipt, error) {
	switch {
	case len(data) == 0:
		return Receipt{}, l.invalid("append", wire.Invalid("no data to append"))
	case len(data) > MaxAppend:
		return Receipt{}, l.invalid("append", &ServiceError{Status: cluster.StatusTooLarge, Message: fmt.Sprintf("%d bytes", len(data))})
	}
	o := appendOptionsOf(opts)
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	r, err := l.changeFile(ctx, "append", file, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.FileAppend(ctx, &pb.FileAppendRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token),
			File: string(file), Data: data, Crc32C: &sum, AdoptExisting: o.adoptExisting, ExpectedOffset: o.at,
		})
	})
	if e := offsetError(file, o.at, err); e != nil {
		return Receipt{}, e
	}
	if err == nil && (r.Length != int64(len(data)) || r.CRC32C != sum) {
		return r, fmt.Errorf("append %q: the receipt is of %d bytes with CRC-32C %08x, not of %d with %08x: check the file with fsck",
			l.name, r.Length, r.CRC32C, len(data), sum)
	}
	if err == nil {
		l.mu.Lock()
		l.mu.last = &r
		l.mu.Unlock()
	}
	return r, err
}

// Bind binds a file to the lock before its first append. A file that is there already and not
// empty needs AdoptExisting.
func (l *Lock) Bind(ctx context.Context, file FileName, opts ...AppendOption) (Receipt, error) {
	o := appendOptionsOf(opts)
	return l.changeFile(ctx, "bind", file, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.BindFile(ctx, &pb.BindFileRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token),
			File: string(file), AdoptExisting: o.adoptExisting,
		})
	})
}

// Unbind ends the binding of a file to the lock: the file stays, and is no longer protected.
func (l *Lock) Unbind(ctx context.Context, file FileName) (Receipt, error) {
	return l.changeFile(ctx, "unbind", file, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.UnbindFile(ctx, &pb.UnbindFileRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token), File: string(file),
		})
	})
}

// Rotate begins a new generation of the file, with a new and empty inode. A quarantined or sealed
// file can be appended to again.
func (l *Lock) Rotate(ctx context.Context, file FileName) (Receipt, error) {
	return l.changeFile(ctx, "rotate", file, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.RotateFile(ctx, &pb.RotateFileRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token), File: string(file),
		})
	})
}

// Seal ends the present generation of the file: nothing is appended to it any more, by any
// holder, and every byte of it is durable when Seal returns. Appends return ErrFileSealed from
// then on; after a Rotate the file goes on. The receipt's Offset is where the generation ends. To
// seal it again is no error.
func (l *Lock) Seal(ctx context.Context, file FileName) (Receipt, error) {
	return l.changeFile(ctx, "seal", file, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.SealFile(ctx, &pb.SealFileRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token), File: string(file),
		})
	})
}

// SetMetadata replaces the text that this holder publishes with its grant: UTF-8, at most
// MaxMetadata bytes. It is executed only while the token is live.
func (l *Lock) SetMetadata(ctx context.Context, metadata string) error {
	if err := checkText(metadata); err != nil {
		return l.invalid("set metadata", err)
	}
	ctx, end, err := l.begin(ctx, "set metadata")
	if err != nil {
		return err
	}
	defer end()
	_, err = l.client().change(ctx, order{op: "set metadata", lock: l.name, from: l.client().main},
		func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
			return s.SetMetadata(ctx, &pb.SetMetadataRequest{
				ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token), Metadata: metadata,
			})
		})
	return l.check(err)
}

// Downgrade lets others share the lock that this holder has alone: all requests that wait for
// that are granted at once. The token stays, and can append nothing more. There is no way back:
// Release, and Acquire again. To downgrade again is not an error.
func (l *Lock) Downgrade(ctx context.Context) error {
	ctx, end, err := l.begin(ctx, "downgrade")
	if err != nil {
		return err
	}
	defer end()
	_, err = l.client().change(ctx, order{op: "downgrade", lock: l.name, from: l.client().main},
		func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
			return s.Downgrade(ctx, &pb.DowngradeRequest{
				ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token),
			})
		})
	return l.check(err)
}

// Extend gives the lock a longer TTL and renews its lease, for work that takes longer than was
// thought: the Client then has to reach the service less often to keep the lock, and whoever waits
// for it waits longer if this process dies. The new TTL stays until the lock is released. A ttl that
// is shorter than TTL, or longer than the MaxHold of the lock, is refused with ErrInvalidArgument,
// and so is any while the primary reaches a server of a version without Extend. It returns a
// *LostError if the lock is lost.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	ctx, end, err := l.begin(ctx, "extend")
	if err != nil {
		return err
	}
	defer end()
	var sent time.Duration
	a, err := l.client().change(ctx, order{op: "extend", lock: l.name, from: l.client().main},
		func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
			sent = l.client().opt.Clock.Now()
			return s.Extend(ctx, &pb.ExtendRequest{
				ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(l.name), Token: uint64(l.token), TtlMs: wire.CeilMillis(ttl),
			})
		})
	if status.Code(err) == codes.Unimplemented {
		return l.invalid("extend", wire.Invalid("this server has no Extend: it is of an older version"))
	}
	if err != nil {
		return l.check(err)
	}
	l.client().renewer.extend(l, ttl, sent, min(wire.Millis(a.GetTtlMs()), ttl), LSN(a.GetLsn()))
	return l.stillHeld()
}

// stillHeld returns why the lock was lost, nil if it was not: while a call waited for a service that was
// away, the lease may have ended on this side, and then it counts for nothing that the service still has it.
func (l *Lock) stillHeld() error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return nil
}

// changeFile does what the operations on files have in common.
func (l *Lock) changeFile(ctx context.Context, op string, file FileName, send sender) (Receipt, error) {
	if err := file.Validate(); err != nil {
		return Receipt{}, l.invalid(op, wire.Invalid(err.Error()))
	}
	ctx, end, err := l.begin(ctx, op)
	if err != nil {
		return Receipt{}, err
	}
	defer end()
	a, err := l.client().change(ctx, order{op: op, lock: l.name, from: l.client().main}, send)
	var r Receipt
	if a.GetReceipt() != nil {
		r = receiptOf(a)
	}
	return r, l.check(err)
}

// Release gives the lock back. Its Context ends at once. When the context of the call ends first,
// the release goes on in the background. Releasing again is not an error; releasing a lock that
// was lost returns the *LostError unless the service still had the grant.
func (l *Lock) Release(ctx context.Context) error { return l.release(ctx, false) }

// Done releases the lock, and marks the slot of AcquireOptions.Once as done, both or neither: from then on nobody gets the lock for that
// slot, nor for an earlier one. It is like Release otherwise. After a *LostError, nothing was marked; after any other error, Done may be called again.
// After a Release it returns ErrReleased, because nothing was marked. A lock that was acquired without Once, or attached, is refused, with
// ErrInvalidArgument.
func (l *Lock) Done(ctx context.Context) error {
	if !l.once {
		return l.invalid("done", wire.Invalid(fmt.Sprintf("lock %q was acquired without Once: release it", l.name)))
	}
	return l.release(ctx, true)
}

func (l *Lock) release(ctx context.Context, marks bool) error {
	// Where nobody says in time which cell has it, that of the Client is asked: any other would refuse what is not its own.
	if err := l.move(ctx, "release"); errors.Is(err, ErrInvalidArgument) {
		return err
	}
	ctx, end, err := l.client().begin(ctx)
	if err != nil {
		return l.invalid("release", err)
	}
	defer end()
	done, err := l.startRelease(ctx)
	if done && err == nil && marks && !l.marked() {
		return l.invalid("done", ErrReleased)
	}
	if done || err != nil {
		return err
	}
	l.end(ErrReleased)
	// Until the service has answered, a keep-alive still lists the grant. It is no
	// stray: released under another ID, it would turn this request into a loss.
	defer l.client().renewer.leave(l.token)()
	l.client().renewer.remove(l)
	l.client().renewer.released(l)
	_, err = l.client().change(l.passed(ctx), order{op: "release", lock: l.name, from: l.releaser(), after: finishRequest, token: l.token}, releaseOf(l.name, l.token, marks))
	unsure := l.endRelease(marks, err)
	if !refused(err) {
		return err
	}
	if marks && unsure != nil {
		return unsure // it may be the very reason of the refusal
	}
	if lost, ok := errors.AsType[*LostError](context.Cause(l.ctx)); ok {
		return lost
	}
	return l.lost(LossRefused, err)
}

// endRelease notes how a release has ended. It returns the error of an earlier Done that may have been executed, nil if there is none.
func (l *Lock) endRelease(marks bool, err error) (unsure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.released, l.mu.marked = err == nil, err == nil && marks
	close(l.mu.releasing)
	l.mu.releasing = nil
	unsure = l.mu.unsure
	if _, answered := errors.AsType[*ServiceError](err); marks && err != nil && unsure == nil && (!answered || errors.Is(err, ErrUnknown)) {
		l.mu.unsure = err
	}
	return unsure
}

func (l *Lock) marked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.marked
}

// startRelease waits for another Release that is under way. It returns done if nothing is left to
// do.
func (l *Lock) startRelease(ctx context.Context) (done bool, err error) {
	for {
		l.mu.Lock()
		other := l.mu.releasing
		if l.mu.released {
			l.mu.Unlock()
			return true, nil
		}
		if lost, ok := errors.AsType[*LostError](context.Cause(l.ctx)); ok && lost.Reason.ended() {
			l.mu.Unlock()
			return true, lost
		}
		if other == nil {
			l.mu.releasing = make(chan struct{})
			l.mu.Unlock()
			return false, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return false, l.invalid("release", ended(ctx))
		}
	}
}

// begin admits a call that uses the token. A lost token is not used again.
func (l *Lock) begin(ctx context.Context, op string) (context.Context, func(), error) {
	l.client().renewer.endIfOver(l)
	if l.ctx.Err() != nil {
		return nil, nil, context.Cause(l.ctx)
	}
	if err := l.move(ctx, op); err != nil {
		return nil, nil, err
	}
	ctx, end, err := l.client().begin(ctx)
	if err != nil {
		return nil, nil, l.invalid(op, err)
	}
	return l.passed(ctx), end, nil
}

// passed marks calls for an attached lock: they bring the token of another client on purpose.
func (l *Lock) passed(ctx context.Context) context.Context {
	if l.from != nil {
		return ctx
	}
	return wire.PassedOn(ctx)
}

// releaser is the registration that releases the lock: the one that acquired it, so that the
// history names it.
func (l *Lock) releaser() *registration {
	if l.from != nil {
		return l.from
	}
	return l.client().main
}

// invalid makes the error of a call that was not sent.
func (l *Lock) invalid(op string, err error) error { return (&call{op: op, lock: l.name}).fail(err) }

// refused reports whether the service no longer takes the token.
func refused(err error) bool {
	return errors.Is(err, ErrInvalidToken) || errors.Is(err, ErrLeaseExpired)
}

// check ends the lock if the service refused its token, and returns the error of the call: a
// *LostError then.
func (l *Lock) check(err error) error {
	if !refused(err) {
		return err
	}
	l.lose(l.lost(LossRefused, err))
	return context.Cause(l.ctx)
}

// lose ends the Context, if it has not ended, and removes the handle. A token that is refused is
// refused from any handle.
func (l *Lock) lose(e *LostError) {
	if l.ctx.Err() == nil {
		if by := l.client().renewer.oversleptBy(l.TTL()); by > 0 && e.Reason.late() {
			e.Cause = &lateError{by.Round(time.Millisecond), e.Cause}
		}
		l.client().opt.Log.Warn("lock lost", "lock", l.name, "token", l.token, "reason", e.Reason, "cause", e.Cause)
	}
	l.end(e)
	l.client().renewer.remove(l)
	if e.Reason == LossRefused {
		for _, other := range l.client().renewer.held(l.name, l.token) {
			other.lose(other.lost(LossRefused, e.Cause))
		}
	}
}

// renew asks for the lease's full time and counts it from when the answered
// attempt was sent.
func (l *Lock) renew(ctx context.Context) error {
	var sent time.Duration
	k := &call{op: "renew", lock: l.name}
	a, err := do(ctx, l.client(), k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		sent = l.client().opt.Clock.Now()
		return s.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: string(l.name), Token: uint64(l.token)})
	})
	if err != nil {
		return err
	}
	if err := wire.AnswerError(a); err != nil {
		return k.fail(err)
	}
	// Near the end of a max hold less than the TTL is left. The renewer counts the lock under
	// its TTL, so that stays.
	ttl, left := l.TTL(), wire.Millis(a.GetTtlMs())
	if l.owner == "" {
		ttl = max(ttl, left) // it is not known otherwise
	}
	if left <= 0 || left > ttl {
		left = ttl
	}
	if hold := wire.Millis(a.GetHoldLeftMs()); hold > 0 {
		l.mu.Lock()
		l.mu.bound(sent, hold)
		l.mu.Unlock()
	}
	l.grant(ttl, sent, left, LSN(a.GetLsn()))
	l.recordAsk(a.GetAsk())
	return nil
}

// grant counts left of a lease of ttl from sent. The answer was of a state at an LSN.
func (l *Lock) grant(ttl, sent, left time.Duration, at LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ttl, l.mu.alive = max(l.mu.ttl, ttl), max(l.mu.alive, at) // no TTL gets shorter
	l.mu.extend(sent, left)
	if l.mu.endangered {
		l.updatePhase(l.client().opt.Clock.Now())
	}
}

// counted returns the lease as it is now.
func (l *Lock) counted() lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lease
}
