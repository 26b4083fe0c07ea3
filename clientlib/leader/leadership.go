// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

const (
	// minTick bounds how often the lease is checked.
	minTick = 50 * time.Millisecond
	// releaseWait bounds how long a release is waited for. It goes on in the background, and the
	// lease ends anyway.
	releaseWait = 5 * time.Second
)

// Leadership is the time in which a candidate leads. It is over when its Context has
// ended, whatever becomes of the lease, and never comes back.
type Leadership struct {
	e    *Election
	lock *clientlib.Lock

	ctx context.Context
	end context.CancelCauseFunc

	resigned chan struct{} // closed by the first Resign
	resign   func()        // closes it

	mu struct {
		sync.Mutex
		lost     error     // why it ended, if not by resigning
		deadline time.Time // once lost
		running  bool      // a function of Run has not returned
	}
}

func newLeadership(e *Election, lock *clientlib.Lock, parent context.Context) *Leadership {
	l := &Leadership{e: e, lock: lock, resigned: make(chan struct{})}
	l.resign = sync.OnceFunc(func() { close(l.resigned) })
	l.ctx, l.end = context.WithCancelCause(parent)
	// A lease that is too short already is noticed before the caller relies on it.
	if l.left() <= 0 {
		l.lose(ErrNotRenewed)
	}
	return l
}

// Name returns the name of the election.
func (l *Leadership) Name() clientlib.LockName { return l.e.name }

// Token returns the number of this term: it is higher than that of each leader before. Pass it to
// everything that this leader changes; a resource that remembers the highest token it has seen
// and refuses lower ones is safe from a leader that was paused.
func (l *Leadership) Token() clientlib.Token { return l.lock.Token() }

// Lock returns the lock that a leader holds, for appends to protected files. They are executed as
// long as the token is live, also when Context has ended. Use Resign, not Release.
func (l *Leadership) Lock() *clientlib.Lock { return l.lock }

// Context ends when this candidate does not lead any more, or is about to lose the lease:
// Options.Grace before it could end. It does so by the local clock, also when no server can be
// reached. Its context.Cause is ErrNotRenewed, a *clientlib.LostError, ErrAsked, ErrResigned, or
// that of the context that Run was given. The Context itself has no deadline, see Deadline.
func (l *Leadership) Context() context.Context { return l.ctx }

// Deadline returns when everything that this leader does must have stopped, by this side's
// cautious count. It moves on with each renewal until leadership is lost, and then stands still.
// It is not the Deadline of Context: contexts derived from that would keep an early one.
func (l *Leadership) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.lost != nil {
		return l.mu.deadline
	}
	return l.lock.Expires()
}

// Proclaim replaces the value that this leader publishes.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if err := checkValue(value); err != nil {
		return fmt.Errorf("proclaim for %q: %w", l.Name(), err)
	}
	return l.lock.SetMetadata(ctx, value)
}

// Resign ends the Context and lets the next candidate lead. Call it when the work has stopped. It
// is no error that leadership was lost before, nor to resign twice. When ctx ends first,
// resigning goes on in the background.
func (l *Leadership) Resign(ctx context.Context) error {
	l.end(ErrResigned)
	l.resign()
	if err := l.lock.Release(ctx); err != nil && !errors.Is(err, clientlib.ErrLost) {
		return err
	}
	return nil
}

// left is how long the Context lasts without a renewal.
func (l *Leadership) left() time.Duration { return time.Until(l.lock.Expires()) - l.e.o.Grace }

// start begins to watch the lease and the lock.
func (l *Leadership) start() {
	go l.watch()
	go l.listen()
}

// listen ends the Context when an operator asks the leader to release the lock. The lock stays
// until the work has stopped, or the grant is ended.
func (l *Leadership) listen() {
	for s := range l.lock.States(l.ctx) {
		if a := s.Asked; a != nil {
			l.end(fmt.Errorf("%w: by %s: %q: the lock is taken at %s", ErrAsked, a.Actor, a.Reason, a.Until.Format(time.TimeOnly)))
		}
	}
}

// watch ends the Context in time, and makes sure that the lock does not outlast the leadership.
// It makes no calls before that.
func (l *Leadership) watch() {
	t := time.NewTimer(0)
	defer t.Stop()
	for l.loss() == nil {
		left := l.left()
		if left <= 0 {
			l.lose(ErrNotRenewed)
			break
		}
		t.Reset(min(left, l.tick()))
		select {
		case <-t.C:
		case <-l.lock.Context().Done():
			why := context.Cause(l.lock.Context())
			if errors.Is(why, clientlib.ErrReleased) {
				l.end(ErrResigned)
				return
			}
			l.lose(why)
		}
	}
	if l.wait(t) {
		l.overrun()
	}
}

// lose ends the leadership. Its deadline is the end of the lease, also where that is known to be
// lost already.
func (l *Leadership) lose(why error) {
	l.mu.Lock()
	now := time.Now()
	l.mu.lost = why
	l.mu.deadline = now.Add(max(0, min(l.e.o.Grace, l.lock.Expires().Sub(now))))
	l.mu.Unlock()
	l.end(why)
}

// loss returns why leadership was lost, nil if it was not.
func (l *Leadership) loss() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lost
}

// wait waits for the deadline of a leadership that was lost. It returns false if nothing is left
// to do then.
func (l *Leadership) wait(t *time.Timer) bool {
	lock := l.lock.Context().Done()
	for deadline := l.Deadline(); ; {
		// After a sleep of the machine its timers are late.
		left := time.Until(deadline)
		if left <= 0 || l.lock.Expires().Before(time.Now()) {
			return true
		}
		if !l.isRunning() && l.lock.Context().Err() != nil {
			return false
		}
		t.Reset(min(left, l.tick()))
		select {
		case <-t.C:
		case <-l.resigned:
			return false
		case <-lock:
			lock = nil // the deadline stays
		}
	}
}

// overrun is what happens at the deadline.
func (l *Leadership) overrun() {
	if l.isRunning() {
		// The lock stays, should it live on: its user does.
		l.e.o.OnOverrun(l)
		return
	}
	// Renewed in the last moment, it would be kept alive without a user.
	l.letGo(context.Background())
}

func (l *Leadership) isRunning() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.running
}

// tick is how often the clock is checked, for timers stand still while the machine sleeps.
func (l *Leadership) tick() time.Duration { return max(minTick, l.e.o.TTL/20) }

// letGo resigns where no caller could get the error.
func (l *Leadership) letGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	if err := l.Resign(ctx); err != nil {
		l.e.o.Log.Warn("the lock could not be released and ends with its lease", "election", l.e.name, "token", l.Token(), "error", err)
	}
}
