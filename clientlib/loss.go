// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// LossReason is how a lock was lost.
type LossReason string

// The reasons of a loss. The first four are how the grant ended at the service.
const (
	// LossExpired: the lease ran out at the service.
	LossExpired LossReason = "expired"
	// LossBroken: an operator ended the grant, see LostError.Actor and Message.
	LossBroken LossReason = "broken"
	// LossCleared: a failover under failover-policy clear dropped all holders.
	LossCleared LossReason = "force_cleared"
	// LossReleased: a client with the token released it; that may be this one, which releases
	// what the service still has after this side gave it up.
	LossReleased LossReason = "released"
	// LossRefused: the service refuses the token, for a reason that is not known.
	LossRefused LossReason = "refused"
	// LossNotRenewed: no renewal was answered in time, by this side's own count. The
	// service may not know yet.
	LossNotRenewed LossReason = "not_renewed"
	// LossHeldTooLong: it was held for as long as its MaxHold allows, by this side's own count.
	LossHeldTooLong LossReason = "held_too_long"
	// LossForgotten: the service does not know this client any more, and so none of its locks.
	LossForgotten LossReason = "forgotten"
	// LossOtherCluster: all servers that are known belong to another cluster by now, see
	// ErrOtherCluster. Nobody there knows the lock.
	LossOtherCluster LossReason = "other_cluster"
	// LossClosed: the Client was closed, and the lease is not renewed by it any more.
	LossClosed LossReason = "closed"
)

// ended reports whether the service has confirmed that the grant has ended.
func (r LossReason) ended() bool {
	switch r {
	case LossExpired, LossBroken, LossCleared, LossReleased, LossRefused:
		return true
	default:
		return false
	}
}

// late reports whether a renewal in time would have kept the lock.
func (r LossReason) late() bool {
	switch r {
	case LossExpired, LossRefused, LossNotRenewed:
		return true
	default:
		return false
	}
}

// lateError is the cause of a loss for which this process is the reason, or a part of it: its
// timers were late.
type lateError struct {
	by    time.Duration
	cause error // nil if nothing else is known
}

// Error names the delay, and what else is known.
func (e *lateError) Error() string {
	s := fmt.Sprintf("the timer of the renewals was %v late: this process did not run, or its machine slept", e.by)
	if e.cause != nil {
		s += "; " + e.cause.Error()
	}
	return s
}

// Unwrap returns what else is known, or nil.
func (e *lateError) Unwrap() error { return e.cause }

// LostError is the cause of the Context of a Lock that is no longer held. It wraps ErrLost and
// Cause.
type LostError struct {
	Lock   LockName
	Token  Token
	Reason LossReason
	// LSN is that of the record that ended the grant, and Epoch that of the term which wrote it;
	// 0 = not known.
	LSN   LSN
	Epoch Epoch
	// Successor is the token of the next grant of the lock; 0 = none yet, or not known.
	Successor Token
	// Actor is the operator who broke the lock, and Message the reason that was given.
	Actor, Message string
	// LastAppend is the last append under the token, in any file; nil = none. With Final, that is
	// certain: what was sent after it is not in any file. Without, it is the last of which this
	// handle got the receipt, and what was sent after it may or may not be in the file: see
	// Lock.Loss, or Client.Outcome for one request.
	LastAppend *Receipt
	Final      bool
	// Cause is the refusal of the service, or why it could not be reached; nil if neither is
	// known.
	Cause error
}

// Error says what happened and what to do now.
func (e *LostError) Error() string {
	s := fmt.Sprintf("lock %q is lost (token %d, %s)", e.Lock, e.Token, e.Reason)
	if call, refused := e.Cause.(*CallError); refused && !call.Unknown { // its advice would be the one below
		s += fmt.Sprintf(": %s: %v", call.Op, call.Err)
	} else if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s + ": stop what it protects, then acquire it again"
}

// Unwrap returns ErrLost and the cause.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.Cause}
}

// lost makes the error of a loss from what this side knows.
func (l *Lock) lost(why LossReason, cause error) *LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &LostError{Lock: l.name, Token: l.token, Reason: why, LastAppend: l.mu.last, Cause: cause}
}

// notRenewed makes the error of a lock whose lease has ended by this side's count. Why renewals
// failed is its text only: it was no answer to a request under this token.
func (l *Lock) notRenewed() *LostError {
	var cause error
	now := fresh(l.client().opt.Clock)
	switch limit := l.counted().limit; {
	case limit > 0 && now >= limit:
		return l.lost(LossHeldTooLong, errors.New("it was held for as long as it may be"))
	case l.from != nil:
		cause = errors.New(l.trouble().Error())
	}
	return l.lost(LossNotRenewed, cause)
}

// applyLosses ends the locks that the service reports as lost. A loss that names no lock is of
// every grant before its LSN: there were too many to name each.
func (k *leaseRenewer) applyLosses(losses []*pb.Loss) {
	for _, loss := range losses {
		if loss.GetLock() == "" {
			for _, l := range k.heldBefore(LSN(loss.GetLsn()), notice{loss: loss}) {
				l.lose(l.reportedLoss(loss))
			}
			continue
		}
		for _, l := range k.concerned(LockName(loss.GetLock()), Token(loss.GetToken()), notice{loss: loss}) {
			l.lose(l.reportedLoss(loss))
		}
	}
}

// notice is what a session reports of a grant: a loss or a release request. One for a grant whose
// answer is being handed out finds no handle yet; it is kept, or only the next keep-alive would
// find out.
type notice struct {
	loss *pb.Loss
	ask  *pb.AskToRelease
}

// maxEarly is how many notices of a lock are kept. Most are of grants that had their handle.
const maxEarly = 16

// keepEarly keeps a notice of a lock for a handle that is about to be added. It is called with mu
// held.
func (k *leaseRenewer) keepEarly(lock LockName, n notice) {
	if k.mu.expecting[lock] == 0 {
		return
	}
	all := append(k.mu.early[lock], n)
	k.mu.early[lock] = all[max(0, len(all)-maxEarly):]
}

// deliverEarly gives a handle that was just added the notices of its grant.
func (k *leaseRenewer) deliverEarly(l *Lock) {
	k.mu.Lock()
	all := slices.Clone(k.mu.early[l.name])
	k.mu.Unlock()
	for _, n := range all {
		ofAll := n.loss.GetLock() == "" && l.token < Token(n.loss.GetLsn())
		if ofAll || Token(n.loss.GetToken()) == l.token {
			l.lose(l.reportedLoss(n.loss))
		}
		if Token(n.ask.GetToken()) == l.token {
			l.recordAsk(n.ask)
		}
	}
}

// subscribeLosses has the service report losses of a registration on the session. It does so for
// the client ID in the hello, that of the main registration, and for those that were kept alive
// there. Without that, only the next keep-alive finds out. It is called during a call.
func (k *leaseRenewer) subscribeLosses(from *registration) {
	c := k.c
	to := c.servers.primary()
	if from == c.main || to == nil || c.opt.Clock.Now() < time.Duration(to.sessionless.Load()) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := to.session.Load(); k.mu.closed || from.subscribing || s != nil && from.known == s {
		return
	}
	from.subscribing = true
	k.loops.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, c.opt.Attempt)
		defer cancel()
		s, err := c.session(ctx, to)
		if who := from.current(); who != nil && s != nil {
			err = k.keepAlive(from, who)
		}
		if err != nil && c.life.Err() == nil {
			c.opt.Log.Warn("losses will be noticed late", "error", err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		from.subscribing = false
	})
}

const (
	// renewSoonAfter is how soon the leases are renewed when a session has ended: most takeovers are
	// over by then. renewSoonSpread is how far the renewals of clients are spread whose sessions
	// ended together.
	renewSoonAfter  = 500 * time.Millisecond
	renewSoonSpread = time.Second
)

// renewSoon has the leases renewed soon after a session has ended, because no loss would be
// reported before: that opens the next session, and names the registrations there.
func (k *leaseRenewer) renewSoon() {
	k.within(renewSoonAfter + time.Duration(k.c.opt.Rand()%uint64(renewSoonSpread)))
}

// lossesAfter returns an LSN before which no held lock of a client was lost, 0 if it holds none:
// a session that begins there misses no loss that matters, as far as the service remembers.
func (k *leaseRenewer) lossesAfter(client ClientID) LSN {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := Token(0)
	for token, l := range k.mu.locks {
		if l.owner == client && (oldest == 0 || token < oldest) {
			oldest = token
		}
	}
	return LSN(oldest)
}

// reportedLoss makes the error of a loss that the service reports.
func (l *Lock) reportedLoss(m *pb.Loss) *LostError {
	e := l.lost(LossRefused, nil)
	e.LSN, e.Epoch, e.Successor = LSN(m.GetLsn()), Epoch(m.GetEpoch()), Token(m.GetSuccessorToken())
	switch m.GetReason() {
	case pb.LossReason_LOSS_REASON_EXPIRED:
		e.Reason = LossExpired
	case pb.LossReason_LOSS_REASON_BROKEN:
		e.Reason, e.Actor, e.Message = LossBroken, m.GetActor(), m.GetMessage()
	case pb.LossReason_LOSS_REASON_FORCE_CLEARED:
		e.Reason = LossCleared
	case pb.LossReason_LOSS_REASON_RELEASED:
		e.Reason = LossReleased
	}
	// The service does not report appends to files that were rotated or unbound since.
	if m.GetLastAppend() != nil {
		switch r := receiptFrom(m.GetLastAppend()); {
		case e.LastAppend == nil || r.LSN > e.LastAppend.LSN:
			e.LastAppend, e.Final = &r, true
		case r.LSN == e.LastAppend.LSN:
			e.Final = true
		}
	}
	e.Cause = e.refusal()
	return e
}

// refusal returns the error with which the service refuses the token, now that the grant has ended
// so.
func (e *LostError) refusal() error {
	w := &ServiceError{Status: cluster.StatusInvalidToken}
	switch e.Reason {
	case LossExpired:
		w.Status, w.Message = cluster.StatusLeaseExpired, "the lease ran out at the service"
	case LossBroken:
		w.Message = fmt.Sprintf("broken by %q: %s", e.Actor, e.Message)
	case LossCleared:
		w.Message = "dropped by a failover under the policy clear"
	case LossReleased:
		w.Message = "released by a client that had the token"
	default:
		w.Message = "the service did not say how the grant ended"
	}
	return w
}

// lossBookmark is how soon a server reports that nothing more happened.
const lossBookmark = 100 * time.Millisecond

// Loss asks the service how the grant of a lock that is lost or released has ended. The cause of
// Context knows only a part of it, say that no renewal was answered.
//
// The servers answer from the latest part of their log. If that reaches back to the grant, the
// result is complete, and Final. If it does not even reach back to the end of the grant, LSN is
// 0, the reason LossRefused, and Successor the token of the present holder.
//
// The service may count a lease for a while that this side has given up: Loss waits for its end,
// and ends with ctx. It returns ErrInvalidArgument while the lock is held.
func (l *Lock) Loss(ctx context.Context) (*LostError, error) {
	if l.ctx.Err() == nil {
		return nil, l.invalid("ask for the loss", wire.Invalid("the lock is held: wait for the end of its Context"))
	}
	s := lossQuery{l: l}
	if err := s.askPrimary(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	alive := l.mu.alive
	l.mu.Unlock()
	for _, after := range []LSN{LSN(l.token), alive} {
		if after == 0 {
			continue
		}
		if e, err := s.read(ctx, after); e != nil || err != nil {
			return e, err
		}
	}
	e := l.lost(LossRefused, nil)
	if s.now > l.token {
		e.Successor = s.now
	}
	e.Cause = e.refusal()
	return e, nil
}

// lossQuery finds out from the log how a grant ended.
type lossQuery struct {
	l *Lock
	// The primary answered at upto that the grant was live, or that now was the token of the
	// holder, of the oldest of several.
	upto LSN
	live bool
	now  Token

	e *LostError
	// found is set when one of the pieces of a reset so far had the grant.
	found bool
}

// askPrimary asks the primary for the present holders.
func (s *lossQuery) askPrimary(ctx context.Context) error {
	l := s.l
	info, err := l.client().Get(ctx, l.name)
	if err == nil && !info.holds(l.token) && !info.listsAll() {
		// So many share the lock that no answer lists them.
		if _, err = l.client().Verify(ctx, l.name, l.token); err == nil {
			s.live = true
		} else if errors.Is(err, ErrInvalidToken) {
			err = nil
		}
		if err == nil { // after that, so that a grant which is not live has ended before upto
			info, err = l.client().Get(ctx, l.name)
		}
	}
	s.upto, s.live = info.LSN, s.live || info.holds(l.token)
	if info.Holder != nil {
		s.now = info.Holder.Token
	}
	return err
}

// read watches what happened after an LSN at which the grant was live. It returns nil if the
// servers do not remember that any more.
func (s *lossQuery) read(ctx context.Context, after LSN) (*LostError, error) {
	s.e = s.l.lost(LossRefused, nil)
	s.e.Final = after == LSN(s.l.token) // from there on every append is seen
	if s.e.Final {
		s.e.LastAppend = nil
	}
	for ev, err := range s.l.client().Watch(ctx, WatchOptions{
		Lock: s.l.name, After: after, Bookmark: lossBookmark,
		Kinds: []EventKind{EventAppend, EventGrant, EventRelease, EventExpire, EventBreak},
	}) {
		if err != nil {
			return nil, err
		}
		if ev.Kind == EventReset && s.reset(ev.Reset) || ev.Kind != EventReset && s.event(ev) {
			break
		}
	}
	if s.e.LSN == 0 {
		return nil, nil
	}
	s.e.Cause = s.e.refusal()
	return s.e, nil
}

// event takes in an event, and reports whether the rest does not matter.
func (s *lossQuery) event(ev Event) bool {
	own := ev.Token == s.l.token
	switch {
	case ev.Kind == EventBookmark:
		return ev.LSN >= s.upto && (s.e.LSN != 0 || !s.live)
	case s.e.LSN != 0:
		if ev.Kind == EventGrant {
			s.e.Successor = ev.Token
			return true
		}
		return false
	case ev.Kind == EventAppend && own:
		s.e.LastAppend, s.e.Final = &Receipt{
			File: ev.File, Offset: ev.Offset, Length: ev.Length, CRC32C: ev.CRC32C, LSN: ev.LSN, Token: ev.Token,
			Epoch: ev.Epoch, Generation: ev.Generation,
		}, true
		return false
	case ev.Kind == EventExpire && own:
		s.e.Reason = LossExpired
	case ev.Kind == EventBreak && own:
		s.e.Reason, s.e.Actor, s.e.Message = LossBroken, ev.Actor, ev.Reason
	case ev.Kind == EventRelease && own:
		s.e.Reason = LossReleased
	case ev.Kind == EventForceClear:
		s.e.Reason = LossCleared
	default:
		return false
	}
	s.e.LSN, s.e.Epoch = ev.LSN, ev.Epoch
	return false
}

// reset takes in a piece of the state, which comes instead of events: it shows only whether the
// grant is live, and not what was appended meanwhile. It reports whether there is nothing to wait
// for.
func (s *lossQuery) reset(r *Reset) bool {
	if s.e.LSN != 0 {
		return true
	}
	if s.e.Final = false; s.e.LastAppend == nil {
		s.e.LastAppend = s.l.lost(LossRefused, nil).LastAppend
	}
	s.found = s.found && r.Part > 0
	for i := range r.Locks {
		x := &r.Locks[i]
		s.found = s.found || x.Name == s.l.name && (x.holds(s.l.token) || s.live && !x.listsAll())
	}
	return r.Last && !s.found
}
