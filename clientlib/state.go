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

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Phase is how sure it is that a lock is held.
type Phase string

// The phases of a lock. From jeopardy it goes back to valid, or on to lost.
const (
	// PhaseValid: the lock is held, and its renewals are answered.
	PhaseValid Phase = "valid"
	// PhaseJeopardy: the lock is held, but the last renewal that was answered was sent
	// more than half a TTL ago, or half of what a max hold left then. Without another one it is lost at State.Deadline.
	PhaseJeopardy Phase = "jeopardy"
	// PhaseLost: the lock is not held any more, and its holder had not released it.
	PhaseLost Phase = "lost"
	// PhaseReleased: Release was called.
	PhaseReleased Phase = "released"
)

// over says that no other phase follows.
func (p Phase) over() bool { return p == PhaseLost || p == PhaseReleased }

// State is how a lock stands.
type State struct {
	Phase Phase
	// Deadline is when the lock is lost if no renewal is answered any more, by this
	// side's cautious count. It is zero where nothing is counted: when the lock is lost
	// or released, and for an attached lock that was not renewed.
	Deadline time.Time
	// Final says that the Deadline is, or was, the end of MaxHold, which no renewal moves.
	Final bool
	// Asked is not nil when an operator wants the holder to let go, by Release: when the
	// time is over, the service breaks the grant.
	Asked *Asked
	// Err says more: in jeopardy why no renewal was answered, as far as that is known,
	// then a *LostError or ErrReleased. It is nil for a valid lock.
	Err error
}

// Asked is an operator's word to the holder.
type Asked struct {
	Actor, Reason string
	// Until is when the grant is broken, by this side's count from when it was told; a
	// failover gives the holder more.
	Until time.Time

	lsn cluster.LSN
}

// asked notes what holders are asked.
func (k *keeper) asked(asks []*pb.AskToRelease) {
	for _, a := range asks {
		for _, l := range k.concerned(cluster.LockName(a.GetLock()), cluster.Token(a.GetToken()), notice{ask: a}) {
			l.hear(a)
		}
	}
}

// hear notes an ask, and tells who waits for a change if it is a new one.
func (l *Lock) hear(a *pb.AskToRelease) {
	if a == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lsn := cluster.LSN(a.GetLsn())
	if l.mu.asked != nil && l.mu.asked.lsn >= lsn {
		return
	}
	l.mu.asked = &Asked{Actor: a.GetActor(), Reason: a.GetReason(), Until: time.Now().Add(wire.Millis(a.GetRemainingMs())), lsn: lsn}
	l.tellChange()
}

// errUnanswered stands in where nothing is known but that there was no answer.
var errUnanswered = errors.New("no renewal was answered")

// State is how the lock stands now, by this side's count and what the service has said.
func (l *Lock) State() State {
	l.c.keep.look(l)
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
	now := fresh(l.c.opt.Clock)
	l.judge(now)
	s := State{Phase: PhaseValid, Final: final, Asked: l.mu.asked}
	if l.mu.counted {
		s.Deadline = time.Now().Add(l.mu.deadline - now)
	}
	if l.mu.endangered {
		s.Phase, s.Err = PhaseJeopardy, why
	}
	return s
}

// States yields how the lock stands now, and again each time that its phase
// changes or that its holder is asked to let go; that a renewal moves the Deadline is no change. Who takes long over one
// misses those that have passed meanwhile, never the latest. The sequence ends behind a
// lost or released lock, and with ctx. It costs nothing while nothing changes.
func (l *Lock) States(ctx context.Context) iter.Seq[State] {
	return func(yield func(State) bool) {
		var asked *Asked
		for told := Phase(""); ctx.Err() == nil; {
			changed := l.changes() // before looking, so that no change falls in between
			s := l.State()
			if (s.Phase != told || s.Asked != asked) && !yield(s) || s.Phase.over() {
				return
			}
			told, asked = s.Phase, s.Asked
			select {
			case <-changed:
			case <-l.ctx.Done():
			case <-ctx.Done():
			}
		}
	}
}

// changes is closed when the phase changes next, unless the lock's context ends.
func (l *Lock) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.changed == nil {
		l.mu.changed = make(chan struct{})
	}
	return l.mu.changed
}

// judge brings the phase up to date and tells who waits for that. It is called with
// Lock.mu held, wherever a phase is told or may have changed.
func (l *Lock) judge(now time.Duration) {
	is := l.mu.counted && now > l.mu.danger()
	if is == l.mu.endangered {
		return
	}
	l.mu.endangered = is
	l.tellChange()
}

// tellChange is called with Lock.mu held.
func (l *Lock) tellChange() {
	if l.mu.changed != nil {
		close(l.mu.changed)
		l.mu.changed = nil
	}
}

// judged is the lease as it stands, with the phase brought up to date.
func (l *Lock) judged(now time.Duration) lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge(now)
	return l.mu.lease
}

// errNoHeartbeat is the trouble of a lock that only its holder renews.
var errNoHeartbeat = errors.New("there was no heartbeat")

func (l *Lock) trouble() error {
	if l.heartbeat {
		return errNoHeartbeat
	}
	return l.c.keep.trouble(l.from)
}

// trouble is why the last renewal from a seat failed, for a lock in jeopardy.
func (k *keeper) trouble(from *seat) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from == nil || from.trouble == nil { // nobody keeps an attached lock alive
		return errUnanswered
	}
	return from.trouble
}

// troubled notes why an attempt to renew from a seat failed; nil = none did.
func (k *keeper) troubled(from *seat, err error) {
	if k.c.life.Err() != nil {
		return
	}
	if call, ok := errors.AsType[*CallError](err); ok {
		err = call.Err
	}
	if _, said := errors.AsType[*wire.Error](err); said || err == nil {
		// That is for people as it is.
	} else if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		err = fmt.Errorf("no answer within %v", k.c.opt.Attempt)
	} else if s, ok := status.FromError(err); ok {
		err = errors.New(s.Message()) // without gRPC's words
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	from.trouble = err
}

// answered notes that a seat was kept alive, on a session or without. Unproven says that
// the server, which is older, looked at how many locks it holds only.
func (k *keeper) answered(from *seat, via *session, q *pb.KeepAliveRequest, r *pb.KeepAliveResponse) (unproven bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from.trouble = nil; via != nil {
		from.known = via
	}
	if q.Digest == nil {
		return false
	}
	k.mu.compared = r.GetCompared()
	return !k.mu.compared && q.Held != unsure && len(k.mu.locks) > 0
}
