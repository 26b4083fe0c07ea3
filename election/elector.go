// SPDX-License-Identifier: Apache-2.0

package election

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Elector finds out who should serve, from the view of one server. Its methods
// may be called from any goroutine at any time.
type Elector struct {
	opt   Options
	slow  time.Duration // between pings to servers that matter less
	reign chan struct{} // unbuffered: a reign is taken or it is not
	wake  chan struct{} // one place: something was heard

	mu struct {
		sync.Mutex
		peers   []*peer       // the other members, in order of their IDs
		self    *peer         // other processes that use this ID
		highest cluster.Epoch // that anybody spoke of lately, when highestAt
		rand    *rand.Rand

		highestAt time.Time

		claiming   bool      // a reign is on offer or was taken and is not done
		began      time.Time // when the pre-vote began that the reign rests on
		notBefore  time.Time // no poll before this
		unableTill time.Time // the back-off
		failures   int       // reigns in a row that came to nothing
		nominated  time.Time // when, or zero
		asked      bool      // somebody asked for a vote
	}

	loop loop // owned by Run
	wg   sync.WaitGroup
}

// New makes an Elector. Run does the rest.
func New(opt Options) *Elector {
	e := &Elector{
		opt:   opt,
		slow:  min(10*opt.Timing.Heartbeat, max(opt.Timing.MajorityWindow/3, opt.Timing.Heartbeat)),
		reign: make(chan struct{}),
		wake:  make(chan struct{}, 1),
	}
	e.mu.rand = opt.Rand
	if e.mu.rand == nil {
		e.mu.rand = rand.New(rand.NewPCG(opt.Nonce, uint64(opt.Self)))
	}
	e.mu.self = &peer{id: opt.Self}
	e.mu.self.current, _ = e.mu.self.process(opt.Nonce)
	e.mu.self.current.since, e.mu.self.current.about = time.Now(), opt.About
	for _, id := range opt.Members.IDs() {
		if id != opt.Self {
			e.mu.peers = append(e.mu.peers, &peer{id: id})
		}
	}
	return e
}

// Reign offers a reign: who receives claims now and answers with Done. An offer
// that nobody takes is withdrawn.
func (e *Elector) Reign() <-chan struct{} { return e.reign }

// poke wakes the loop.
func (e *Elector) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// status is what this server says of itself.
func (e *Elector) status(now time.Time) Status {
	st := e.opt.Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.Role == RoleReplica && e.mu.claiming {
		st.Role = RoleCandidate
	}
	st.Able = st.Able && !st.Role.reigns() && st.Storage <= e.opt.Timing.StorageTimeout &&
		!now.Before(e.mu.unableTill) && !e.mu.self.conflicted(now) && e.reachesLocked(now) >= e.opt.Members.Majority()
	return st
}

// reachesLocked counts the servers that answer, this one included.
func (e *Elector) reachesLocked(now time.Time) int {
	n := 1
	for _, p := range e.mu.peers {
		if p.reached(now, e.opt.Timing.MajorityWindow) && !p.conflicted(now) {
			n++
		}
	}
	return n
}

// peerLocked finds another server, or the processes that share this server's ID.
func (e *Elector) peerLocked(id cluster.ServerID) *peer {
	if id == e.opt.Self {
		return e.mu.self
	}
	for _, p := range e.mu.peers {
		if p.id == id {
			return p
		}
	}
	return nil
}

// sender is which process sent a message.
type sender struct {
	nonce       uint64
	about, from string // what it said of itself, and where a question came from
	answers     bool   // it is an answer
}

// identifyLocked notes which process sent a message under an ID, and reports whether the
// message counts. Of another process that uses this server's own ID none does.
func (e *Elector) identifyLocked(p *peer, m sender, now time.Time) (counts bool) {
	switch {
	case p != e.mu.self:
		counts = p.identify(m, now)
	case m.nonce != e.opt.Nonce:
		p.namesake(m, now)
	}
	if p.conflicted(now) && !p.conflictTold || p.untold(now) != nil {
		e.poke()
	}
	return counts
}

// learnLocked notes an epoch that somebody spoke of. Who reigns in it says so again and again.
func (e *Elector) learnLocked(epoch cluster.Epoch, now time.Time) {
	if epoch >= e.mu.highest {
		e.mu.highestAt = now
	}
	if epoch > e.mu.highest {
		e.mu.highest = epoch
		e.poke()
	}
}

// jitterLocked is a random duration below d.
func (e *Elector) jitterLocked(d time.Duration) time.Duration {
	return time.Duration(e.mu.rand.Float64() * float64(d))
}

func (e *Elector) jitter(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.jitterLocked(d)
}
