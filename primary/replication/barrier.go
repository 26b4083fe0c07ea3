// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// barrier holds answers back until replicas have applied what they depend on, see
// cluster.PushAck. A replica that is silent for the bound is removed from the set that answers
// wait for, and returns to it when it lags by less than the bound. This is about what local
// reads show and not about safety: what is held back is durable and checked. What is not under mu
// is not changed.
type barrier struct {
	mode  cluster.PushAck
	bound time.Duration
	log   zerolog.Logger
	feed  *feed
	mu    struct {
		sync.Mutex
		replicas map[cluster.ServerID]*replicaProgress // that count; empty where no answer waits
		held     []pendingAck                          // by LSN
		ended    bool
	}
}

// replicaProgress is how far a replica has applied the log.
type replicaProgress struct {
	lsn cluster.LSN
	out bool // of the set that answers wait for
	// goal is what was committed at since: a replica that is out and reaches it in time is back.
	goal  cluster.LSN
	since time.Time
}

// pendingAck is an answer or answers that wait until replicas have an LSN.
type pendingAck struct {
	lsn   cluster.LSN
	since time.Time
	tell  func(ok bool) // called once; false: the term has ended
}

// newBarrier returns the barrier of a term. At first answers wait for every replica, if they
// wait at all; one that is down is removed after the bound.
func newBarrier(opt Options, f *feed) *barrier {
	a := &barrier{mode: opt.Timing.PushAck, bound: opt.Timing.PushAckTimeout, log: opt.Log, feed: f}
	a.mu.replicas = map[cluster.ServerID]*replicaProgress{}
	if a.Waits() {
		for id := range opt.Replicas {
			a.mu.replicas[id] = &replicaProgress{}
		}
	}
	return a
}

// Waits reports whether answers wait for replicas in this configuration.
func (a *barrier) Waits() bool {
	return a.mode == cluster.PushAckAll || a.mode == cluster.PushAckMajority
}

// follow has answers wait for these replicas only. A new one is out until it has caught up, so that none waits for its snapshot.
func (a *barrier) follow(counted map[cluster.ServerID]bool) {
	if !a.Waits() {
		return
	}
	goal := a.feed.position().LSN
	a.mu.Lock()
	for id := range a.mu.replicas {
		if !counted[id] {
			delete(a.mu.replicas, id)
		}
	}
	for id := range counted {
		if a.mu.replicas[id] == nil {
			a.mu.replicas[id] = &replicaProgress{out: true, goal: goal, since: time.Now()}
		}
	}
	a.unlock()
}

// run drops silent replicas until the term ends, and then answers what is held back.
func (a *barrier) run(ctx context.Context) {
	t := time.NewTicker(max(a.bound/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			a.mu.Lock()
			a.mu.ended = true
			a.unlock()
			return
		case now := <-t.C:
			a.dropSilent(now)
		}
	}
}

// enough reports whether answers of this LSN need not wait. It is called with mu held.
func (a *barrier) enough(lsn cluster.LSN) bool {
	in, have := 0, 0
	for _, s := range a.mu.replicas {
		if s.out {
			continue
		}
		if in++; s.lsn >= lsn {
			have++
		}
	}
	need := in
	if a.mode == cluster.PushAckMajority {
		need = min(in, (len(a.mu.replicas)+1)/2) // with the primary more than half
	}
	return have >= need
}

// Acknowledged reports whether answers that depend on this LSN need not wait, also because the
// term has ended.
func (a *barrier) Acknowledged(lsn cluster.LSN) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.enough(lsn) || a.mu.ended
}

// Hold calls tell once: with true when enough replicas have applied an LSN, which may be at once,
// with false if the term ends before.
func (a *barrier) Hold(lsn cluster.LSN, tell func(ok bool)) {
	a.mu.Lock()
	i := len(a.mu.held)
	for i > 0 && a.mu.held[i-1].lsn > lsn { // appends come when they are written
		i--
	}
	a.mu.held = slices.Insert(a.mu.held, i, pendingAck{lsn: lsn, since: time.Now(), tell: tell})
	a.unlock()
}

// unlock releases mu and answers what need not wait any more.
func (a *barrier) unlock() {
	n := 0
	for n < len(a.mu.held) && (a.mu.ended || a.enough(a.mu.held[n].lsn)) {
		n++
	}
	ready, ok := slices.Clone(a.mu.held[:n]), !a.mu.ended
	a.mu.held = slices.Delete(a.mu.held, 0, n)
	a.mu.Unlock()
	for _, h := range ready {
		h.tell(ok)
	}
}

// acknowledge records how far a replica is. everything is set if it lacks nothing.
func (a *barrier) acknowledge(id cluster.ServerID, lsn cluster.LSN, everything bool) {
	if !a.Waits() {
		return
	}
	now := time.Now()
	a.mu.Lock()
	s := a.mu.replicas[id]
	if s == nil { // it does not count
		a.unlock()
		return
	}
	s.lsn = lsn
	back := s.out && (everything || lsn >= s.goal && now.Sub(s.since) < a.bound)
	switch {
	case back:
		s.out = false
	case s.out && lsn >= s.goal:
		s.goal, s.since = a.feed.position().LSN, now
	}
	a.unlock()
	if back {
		a.log.Info().Uint32("replica", uint32(id)).Msg("answers wait for this replica again")
	}
}

// dropSilent removes the replicas that answers have waited for too long.
func (a *barrier) dropSilent(now time.Time) {
	a.mu.Lock()
	late, dropped := cluster.LSN(0), []cluster.ServerID(nil)
	for _, h := range a.mu.held {
		if now.Sub(h.since) >= a.bound {
			late = max(late, h.lsn)
		}
	}
	for id, s := range a.mu.replicas {
		if !s.out && s.lsn < late {
			s.out, s.goal, s.since = true, a.feed.position().LSN, now
			dropped = append(dropped, id)
		}
	}
	a.unlock()
	for _, id := range dropped {
		a.log.Warn().Uint32("replica", uint32(id)).Dur("silent", a.bound).Msg("answers do not wait for this replica any more: its local reads may be old")
	}
}

// Waited returns for each replica whether answers wait for it; nothing if they wait for none by
// configuration.
func (a *barrier) Waited() map[cluster.ServerID]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	waited := map[cluster.ServerID]bool{}
	for id, s := range a.mu.replicas {
		waited[id] = !s.out
	}
	return waited
}
