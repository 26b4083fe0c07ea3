// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Phase is how sure it is that a lock is held.
type Phase string

// The phases of a lock. From jeopardy it goes back to valid, or on to lost.
const (
	// PhaseValid: the lock is held, and its renewals are answered.
	PhaseValid Phase = "valid"
	// PhaseJeopardy: the lock is held, but the last renewal that was answered was sent more than
	// half a TTL ago, or half of what a max hold left then. Without another one the lock is lost
	// at State.Deadline. (The word is that of Chubby.)
	PhaseJeopardy Phase = "jeopardy"
	// PhaseLost: the lock is not held any more, and was not released through this handle.
	PhaseLost Phase = "lost"
	// PhaseReleased: Release was called.
	PhaseReleased Phase = "released"
)

// over reports whether no other phase follows.
func (p Phase) over() bool { return p == PhaseLost || p == PhaseReleased }

// State is the state of a lock at a moment.
type State struct {
	Phase Phase
	// Deadline is when the lock is lost if no renewal is answered any more, by this
	// side's cautious count. It is zero where nothing is counted: when the lock is lost
	// or released, and for an attached lock that was not renewed.
	Deadline time.Time
	// Final reports whether the Deadline is, or was, the end of MaxHold, which no renewal moves.
	Final bool
	// Asked is not nil when an operator asks the holder to release the lock. When its time is
	// over, the service ends the grant.
	Asked *Asked
	// Err is, in jeopardy, why no renewal was answered, as far as that is known; of a lock that
	// has ended, a *LostError or ErrReleased; and nil for a valid lock.
	Err error
}

// Asked is an operator's request to the holder that it release the lock.
type Asked struct {
	// Actor is the operator, and Reason what was given as the reason.
	Actor, Reason string
	// Until is when the service ends the grant, counted from when the request came; a failover
	// gives the holder more.
	Until time.Time

	lsn LSN
}

// asked records release requests sent to holders.
func (k *leaseRenewer) asked(asks []*pb.AskToRelease) {
	for _, a := range asks {
		for _, l := range k.concerned(LockName(a.GetLock()), Token(a.GetToken()), notice{ask: a}) {
			l.recordAsk(a)
		}
	}
}

// recordAsk records a release request, nil for none, and wakes States if it is a new one.
func (l *Lock) recordAsk(a *pb.AskToRelease) {
	if a == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lsn := LSN(a.GetLsn())
	if l.mu.asked != nil && l.mu.asked.lsn >= lsn {
		return
	}
	l.mu.asked = &Asked{Actor: a.GetActor(), Reason: a.GetReason(), Until: time.Now().Add(wire.Millis(a.GetRemainingMs())), lsn: lsn}
	l.notifyChange()
}

// errUnanswered is the trouble where only the lack of an answer is known.
var errUnanswered = errors.New("no renewal was answered")

// State returns the state of the lock now, by this side's count and what the service has
// reported.
func (l *Lock) State() State {
	l.client().renewer.endIfOver(l)
	count := l.counted()
	final := count.counted && count.limit > 0 && count.deadline >= count.limit
	if l.ctx.Err() != nil {
		s := State{Phase: PhaseReleased, Final: final, Err: context.Cause(l.ctx)}
		if errors.Is(s.Err, ErrLost) {
			s.Phase = PhaseLost
		}
		return s
	}
	why := l.trouble()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := fresh(l.client().opt.Clock)
	l.updatePhase(now)
	s := State{Phase: PhaseValid, Final: final, Asked: l.mu.asked}
	if l.mu.counted {
		s.Deadline = time.Now().Add(l.mu.deadline - now)
	}
	if l.mu.endangered {
		s.Phase, s.Err = PhaseJeopardy, why
	}
	return s
}

// States yields the present state of the lock, and again each time that its phase changes or that
// its holder is asked to release it; that a renewal moves the Deadline is no change. A loop that
// takes long over one misses states in between, never the latest. The sequence ends after the
// state of a lost or released lock, and with ctx. It costs nothing while nothing changes.
func (l *Lock) States(ctx context.Context) iter.Seq[State] {
	return func(yield func(State) bool) {
		var asked *Asked
		for last := Phase(""); ctx.Err() == nil; {
			changed := l.changes() // before State, so that no change is missed in between
			s := l.State()
			if (s.Phase != last || s.Asked != asked) && !yield(s) || s.Phase.over() {
				return
			}
			last, asked = s.Phase, s.Asked
			select {
			case <-changed:
			case <-l.ctx.Done():
			case <-ctx.Done():
			}
		}
	}
}

// changes returns a channel that is closed when the phase changes next, unless the context of the
// lock ends.
func (l *Lock) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.changed == nil {
		l.mu.changed = make(chan struct{})
	}
	return l.mu.changed
}

// updatePhase brings the phase up to date and wakes States if it changes. It is called with Lock.mu
// held, wherever a phase is read or may have changed.
func (l *Lock) updatePhase(now time.Duration) {
	is := l.mu.counted && now > l.mu.danger()
	if is == l.mu.endangered {
		return
	}
	l.mu.endangered = is
	l.notifyChange()
}

// notifyChange wakes States. It is called with Lock.mu held.
func (l *Lock) notifyChange() {
	if l.mu.changed != nil {
		close(l.mu.changed)
		l.mu.changed = nil
	}
}

// leaseAt returns the lease, at a time that is now, with the phase brought up to date.
func (l *Lock) leaseAt(now time.Duration) lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updatePhase(now)
	return l.mu.lease
}

// errNoHeartbeat is the trouble of a lock that only its holder renews.
var errNoHeartbeat = errors.New("there was no heartbeat")

// trouble returns why the lease was not renewed last.
func (l *Lock) trouble() error {
	if l.heartbeat {
		return errNoHeartbeat
	}
	return l.client().renewer.trouble(l.from)
}

// trouble returns why the last renewal from a registration failed, for a lock in jeopardy.
func (k *leaseRenewer) trouble(from *registration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from == nil || from.trouble == nil { // an attached lock is not kept alive here
		return errUnanswered
	}
	return from.trouble
}

// troubled notes why an attempt to renew from a registration failed; nil = it did not.
func (k *leaseRenewer) troubled(from *registration, err error) {
	if k.c.life.Err() != nil {
		return
	}
	if call, ok := errors.AsType[*CallError](err); ok {
		err = call.Err
	}
	if _, said := errors.AsType[*ServiceError](err); said || err == nil {
		// It can be shown as it is.
	} else if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		err = fmt.Errorf("no answer within %v", k.c.opt.Attempt)
	} else if s, ok := status.FromError(err); ok {
		err = errors.New(s.Message()) // without what gRPC puts before it
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	from.trouble = err
}

// answered notes that a registration was kept alive, on a session or without. It returns unproven
// if the server, which is older, compared only how many locks are held.
func (k *leaseRenewer) answered(from *registration, via *session, q *pb.KeepAliveRequest, r *pb.KeepAliveResponse) (unproven bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from.trouble = nil; via != nil {
		from.known = via
	}
	if q.Digest == nil {
		return false
	}
	k.mu.compared = r.GetCompared()
	return !k.mu.compared && q.Held != heldUnknown && len(k.mu.locks) > 0
}
