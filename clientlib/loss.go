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

// The reasons of a loss. The first four are the service's word on how the grant ended.
const (
	// LossExpired: the lease ran out at the service.
	LossExpired LossReason = "expired"
	// LossBroken: an operator ended the grant, see LostError.Actor and Message.
	LossBroken LossReason = "broken"
	// LossCleared: a failover under failover-policy clear dropped all holders.
	LossCleared LossReason = "force_cleared"
	// LossReleased: somebody who had the token released it; that may be this client,
	// which lets go of what the service still has after this side gave it up.
	LossReleased LossReason = "released"
	// LossRefused: the service no longer takes the token, and did not say why.
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
	// LossClosed: the Client was closed and nobody watches the lease.
	LossClosed LossReason = "closed"
)

// ended says that the service has said that the grant is no more.
func (r LossReason) ended() bool {
	switch r {
	case LossExpired, LossBroken, LossCleared, LossReleased, LossRefused:
		return true
	default:
		return false
	}
}

// late says that a renewal in time would have kept the lock.
func (r LossReason) late() bool {
	switch r {
	case LossExpired, LossRefused, LossNotRenewed:
		return true
	default:
		return false
	}
}

// lateError says that this side is why a lock was lost, or a part of it.
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

// Unwrap is what else is known.
func (e *lateError) Unwrap() error { return e.cause }

// LostError says that a lock is no longer held. It is ErrLost, and what caused it.
type LostError struct {
	Lock   cluster.LockName
	Token  cluster.Token
	Reason LossReason
	// LSN is of the record that ended the grant, and Epoch the reign that wrote it; 0 =
	// not known.
	LSN   cluster.LSN
	Epoch cluster.Epoch
	// Successor is the token of the grant of the lock that came next; 0 = none yet, or
	// not known.
	Successor cluster.Token
	// Actor broke the lock, and Message says why.
	Actor, Message string
	// LastAppend is the last append under the token, in any file; nil = none. With
	// Final it is the service's word on the whole grant: what was sent after it is not
	// in any file. Without, it is the last that this handle was told of, and what was
	// sent after it may or may not be in the file: see Lock.Loss, or Client.Outcome for
	// one request.
	LastAppend *Receipt
	Final      bool
	// Cause is what the service said, or why it could not be reached; nil if neither is known.
	Cause error
}

// Error tells what to do.
func (e *LostError) Error() string {
	s := fmt.Sprintf("lock %q is lost (token %d, %s)", e.Lock, e.Token, e.Reason)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s + ": stop what it protects, then acquire it again"
}

// Unwrap is ErrLost and the cause.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.Cause}
}

// lost is a loss with what this side knows.
func (l *Lock) lost(why LossReason, cause error) *LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &LostError{Lock: l.name, Token: l.token, Reason: why, LastAppend: l.mu.last, Cause: cause}
}

// notRenewed is the loss of a lock whose time is over. Why renewals failed is told as
// text: it was no answer to anything that was asked under this token.
func (l *Lock) notRenewed() *LostError {
	var cause error
	now := fresh(l.c.opt.Clock)
	switch limit := l.counted().limit; {
	case limit > 0 && now >= limit:
		return l.lost(LossHeldTooLong, errors.New("it was held for as long as it may be"))
	case l.from != nil:
		cause = errors.New(l.trouble().Error())
	}
	return l.lost(LossNotRenewed, cause)
}

// told ends the locks that the service says are lost. A loss that names none is of every
// grant there was: there were too many to name each.
func (k *keeper) told(losses []*pb.Loss) {
	for _, loss := range losses {
		if loss.GetLock() == "" {
			for _, l := range k.heldBefore(cluster.LSN(loss.GetLsn()), notice{loss: loss}) {
				l.lose(l.toldLoss(loss))
			}
			continue
		}
		for _, l := range k.concerned(cluster.LockName(loss.GetLock()), cluster.Token(loss.GetToken()), notice{loss: loss}) {
			l.lose(l.toldLoss(loss))
		}
	}
}

// notice is what a session tells of grants. One of a grant whose answer is being handed out
// finds no handle; without being kept, the next keep-alive would find out.
type notice struct {
	loss *pb.Loss
	ask  *pb.AskToRelease
}

// maxEarly is how many notices of a lock are kept. Most are of grants that had their handle.
const maxEarly = 16

// keepEarly keeps a notice of a lock for a handle that is about to come. It is called with mu
// held.
func (k *keeper) keepEarly(lock cluster.LockName, n notice) {
	if k.mu.expecting[lock] == 0 {
		return
	}
	all := append(k.mu.early[lock], n)
	k.mu.early[lock] = all[max(0, len(all)-maxEarly):]
}

// tellEarly gives a handle that has just come the notices of its grant.
func (k *keeper) tellEarly(l *Lock) {
	k.mu.Lock()
	all := slices.Clone(k.mu.early[l.name])
	k.mu.Unlock()
	for _, n := range all {
		ofAll := n.loss.GetLock() == "" && l.token < cluster.Token(n.loss.GetLsn())
		if ofAll || cluster.Token(n.loss.GetToken()) == l.token {
			l.lose(l.toldLoss(n.loss))
		}
		if cluster.Token(n.ask.GetToken()) == l.token {
			l.hear(n.ask)
		}
	}
}

// introduce sees to it that the service tells a session of the losses of a seat: it does
// so for the name in the hello, which is the main seat's, and for those that were kept
// alive there. Without that, the next keep-alive finds out. It is called during a call.
func (k *keeper) introduce(from *seat) {
	c := k.c
	to := c.servers.primary()
	if from == c.main || to == nil || c.opt.Clock.Now() < time.Duration(to.sessionless.Load()) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := to.session.Load(); k.mu.closed || from.introducing || s != nil && from.known == s {
		return
	}
	from.introducing = true
	k.loops.Go(func() {
		// The main seat is needed for the release in any case.
		_, err := c.main.identify(c.life)
		if who := from.current(); err == nil && who != nil && c.sessionWithin(c.life, to, c.opt.Attempt) != nil {
			err = k.keepAlive(from, who)
		}
		if err != nil && c.life.Err() == nil {
			c.opt.Log.Warn("losses will be noticed late", "error", err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		from.introducing = false
	})
}

const (
	// hurryAfter is how soon the leases are renewed when a session has ended: most takeovers
	// are over by then. hurrySpread is how far clients spread whose sessions ended together.
	hurryAfter  = 500 * time.Millisecond
	hurrySpread = time.Second
)

// hurry has the leases renewed soon, because nobody would be told of a loss before: that
// opens the next session, and names the seats there.
func (k *keeper) hurry() {
	k.within(hurryAfter + time.Duration(k.c.opt.Rand()%uint64(hurrySpread)))
}

// lossesAfter is an LSN that no loss of a client's held locks lies before, 0 if it
// holds none: a session that begins there misses nothing that matters, as far as the
// service remembers.
func (k *keeper) lossesAfter(client cluster.ClientID) cluster.LSN {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := cluster.Token(0)
	for token, l := range k.mu.locks {
		if l.owner == client && (oldest == 0 || token < oldest) {
			oldest = token
		}
	}
	return cluster.LSN(oldest)
}

// toldLoss is a loss as the service tells it.
func (l *Lock) toldLoss(m *pb.Loss) *LostError {
	e := l.lost(LossRefused, nil)
	e.LSN, e.Epoch, e.Successor = cluster.LSN(m.GetLsn()), cluster.Epoch(m.GetEpoch()), cluster.Token(m.GetSuccessorToken())
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
	// Appends to files that were rotated or unbound since are not in the service's word.
	if m.GetLastAppend() != nil {
		switch r := receiptFrom(m.GetLastAppend()); {
		case e.LastAppend == nil || r.LSN > e.LastAppend.LSN:
			e.LastAppend, e.Final = &r, true
		case r.LSN == e.LastAppend.LSN:
			e.Final = true
		}
	}
	e.Cause = e.said()
	return e
}

// said is what a refusal of the token would have said, for how the grant ended.
func (e *LostError) said() error {
	w := &wire.Error{Status: cluster.StatusInvalidToken}
	switch e.Reason {
	case LossExpired:
		w.Status, w.Message = cluster.StatusLeaseExpired, "the lease ran out at the service"
	case LossBroken:
		w.Message = fmt.Sprintf("broken by %q: %s", e.Actor, e.Message)
	case LossCleared:
		w.Message = "dropped by a failover under the policy clear"
	case LossReleased:
		w.Message = "released by somebody who had the token"
	default:
		w.Message = "the service did not say how the grant ended"
	}
	return w
}

// lossBookmark is how soon a server says that nothing more happened.
const lossBookmark = 100 * time.Millisecond

// Loss asks the service how the grant of a lock that is lost or released has ended. The
// cause of Context knows but a part of it, say that no renewal was answered.
//
// The servers tell it from their log of late. If that reaches back to the grant, it is the
// whole story, Final. If it does not even reach back to the end, LSN is 0, the reason
// LossRefused, and Successor whoever holds the lock now.
//
// The service may count a lease for a while that this side has given up: Loss waits for
// its end, and ends with ctx.
func (l *Lock) Loss(ctx context.Context) (*LostError, error) {
	if l.ctx.Err() == nil {
		return nil, l.invalid("ask for the loss", wire.Invalid("the lock is held: wait for the end of its Context"))
	}
	s := story{l: l}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	alive := l.mu.alive
	l.mu.Unlock()
	for _, after := range []cluster.LSN{cluster.LSN(l.token), alive} {
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
	e.Cause = e.said()
	return e, nil
}

// story reads from the log how a grant ended.
type story struct {
	l *Lock
	// The primary said at upto that the grant was live, or that now was the holder's token,
	// the oldest of several.
	upto cluster.LSN
	live bool
	now  cluster.Token

	e *LostError
	// found says that the pieces of a reset so far had the grant.
	found bool
}

// look asks the primary.
func (s *story) look(ctx context.Context) error {
	l := s.l
	info, err := l.c.Get(ctx, l.name)
	if err == nil && !info.holds(l.token) && !info.listsAll() {
		// So many share the lock that no answer lists them.
		if _, err = l.c.Verify(ctx, l.name, l.token); err == nil {
			s.live = true
		} else if errors.Is(err, wire.ErrInvalidToken) {
			err = nil
		}
		if err == nil { // behind that, so that what is not live now has ended before upto
			info, err = l.c.Get(ctx, l.name)
		}
	}
	s.upto, s.live = info.LSN, s.live || info.holds(l.token)
	if info.Holder != nil {
		s.now = info.Holder.Token
	}
	return err
}

// read looks at what happened after an LSN at which the grant was live. It returns
// nil where that is not known any more.
func (s *story) read(ctx context.Context, after cluster.LSN) (*LostError, error) {
	s.e = s.l.lost(LossRefused, nil)
	s.e.Final = after == cluster.LSN(s.l.token) // from there on every append is seen
	if s.e.Final {
		s.e.LastAppend = nil
	}
	for ev, err := range s.l.c.Watch(ctx, WatchOptions{
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
	s.e.Cause = s.e.said()
	return s.e, nil
}

// event takes what happened. True means that the rest does not matter.
func (s *story) event(ev Event) bool {
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

// reset takes the state instead of events: it says only whether the grant lives. What
// was appended meanwhile is not told. True means that there is nothing to wait for.
func (s *story) reset(r *Reset) bool {
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
