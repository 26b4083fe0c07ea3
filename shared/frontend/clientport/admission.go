// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostTurns is how many connections are set up at a time, and fewTurns how many while this server is late.
	mostTurns = 32
	fewTurns  = 4
	// turnWait is how long a connection waits for its turn, and maxWaiting how many do. The client library waits
	// longer, so no turn is wasted on a client that has given up.
	turnWait   = 2 * time.Second
	maxWaiting = 4096
	// turnTime is how long a front end may take to set up a connection before the next one gets the turn.
	turnTime = time.Second
)

// turns are the turns of connections to be set up. They have no clock and no lock.
type turns struct {
	waiting []*turn // in the order in which they came
	taken   []*turn // in the order in which they were given
}

// turn is that of one connection.
type turn struct {
	of    *admission
	since time.Time // when the connection came; behind that, when it got its turn
	told  chan bool // whether it gets one; has room for that
	over  atomic.Bool
}

// add has a connection wait. It returns false where too many do.
func (q *turns) add(t *turn) bool {
	if len(q.waiting) >= maxWaiting {
		return false
	}
	q.waiting = append(q.waiting, t)
	return true
}

// pass gives turns to the connections that came first, up to most at a time, and none to those that waited for too
// long. A turn that lasts too long is no turn any more. Where connections still wait, it has to be called again at
// next, if none of them leaves before.
func (q *turns) pass(now time.Time, most int) (next time.Time) {
	for len(q.taken) > 0 && now.Sub(q.taken[0].since) >= turnTime {
		q.taken = slices.Delete(q.taken, 0, 1)
	}
	for len(q.waiting) > 0 {
		t := q.waiting[0]
		tooLong := now.Sub(t.since) >= turnWait
		if !tooLong && len(q.taken) >= most {
			next = t.since.Add(turnWait)
			if over := q.taken[0].since.Add(turnTime); over.Before(next) {
				next = over
			}
			return next
		}
		q.waiting = slices.Delete(q.waiting, 0, 1)
		if !tooLong {
			t.since = now
			q.taken = append(q.taken, t)
		}
		t.told <- !tooLong
	}
	return time.Time{}
}

// leave ends a turn, or the waiting for it.
func (q *turns) leave(t *turn) {
	for _, all := range []*[]*turn{&q.taken, &q.waiting} {
		if i := slices.Index(*all, t); i >= 0 {
			*all = slices.Delete(*all, i, i+1)
			return
		}
	}
}

// admission bounds how many connections are set up at a time. The others wait in the order in which they came.
type admission struct {
	late func() bool // whether this server is late; nil = never
	mu   struct {
		sync.Mutex
		turns
		again *time.Timer // the next pass; nil before the first
	}
}

// wait returns the turn of a connection when it comes, or nil: too many wait, it waited for too long, or the port is
// closed.
func (a *admission) wait(closed <-chan struct{}) *turn {
	t := &turn{of: a, since: time.Now(), told: make(chan bool, 1)}
	a.mu.Lock()
	if !a.mu.add(t) {
		a.mu.Unlock()
		return nil
	}
	a.passLocked()
	a.mu.Unlock()
	select {
	case granted := <-t.told:
		t.told = nil // its memory is not needed for as long as the connection
		if granted {
			return t
		}
	case <-closed:
		t.end()
	}
	return nil
}

// passLocked passes turns on, and again when one of them has lasted too long.
func (a *admission) passLocked() {
	now, most := time.Now(), mostTurns
	if a.late != nil && len(a.mu.taken)+len(a.mu.waiting) > fewTurns && a.late() {
		most = fewTurns
	}
	next := a.mu.pass(now, most)
	switch {
	case next.IsZero():
	case a.mu.again == nil:
		a.mu.again = time.AfterFunc(next.Sub(now), a.pass)
	default:
		a.mu.again.Reset(next.Sub(now))
	}
}

func (a *admission) pass() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passLocked()
}

// end ends a turn. Further calls, and those of a nil turn, do nothing.
func (t *turn) end() {
	if t == nil || t.over.Load() || t.over.Swap(true) {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.mu.leave(t)
	t.of.passLocked()
}
