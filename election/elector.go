// SPDX-License-Identifier: Apache-2.0

package election

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Elector decides which server should serve, from the view of one server. Its methods
// may be called from any goroutine at any time.
type Elector struct {
	opt     Options
	slow    time.Duration // between pings to servers that matter less
	elected chan struct{} // unbuffered: an offer is accepted or it is not
	wake    chan struct{} // capacity 1: a message came

	mu struct {
		sync.Mutex
		peers   []*peer         // the other listed servers, in order of their IDs
		voters  cluster.Members // the servers that count, this one included if it does
		changed time.Time       // when voters did; zero: never
		self    *peer           // other processes that use this ID
		highest cluster.Epoch   // that a message named lately, at highestAt
		rand    *rand.Rand

		highestAt time.Time

		late       lateness  // of the loop's ticks
		claiming   bool      // a term is on offer or was accepted and is not done
		began      time.Time // when the pre-vote began that the term rests on
		notBefore  time.Time // no poll before this
		unableTill time.Time // the back-off
		failures   int       // terms in a row that failed
		nominated  time.Time // when, or zero
		asked      bool      // another server asked for a vote

		still     stillness     // what the volume shows of other primaries
		permit    time.Time     // until then the next claim has an operator's permission
		permitted bool          // the claim or term has one
		rests     bool          // the claim or term rests on the vote of the volume
		named     bool          // it rests on nobody's vote: the primary before resigned, and named this server
		lost      bool          // the last term that did was ended, and who ended it was not seen yet
		deposed   int           // how many terms in a row that did were ended by others
		extra     time.Duration // by how much longer the volume has to be still for that
	}

	loop loop // owned by Run
	wg   sync.WaitGroup
}

// New returns an Elector. Nothing happens before Run.
func New(opt Options) *Elector {
	e := &Elector{
		opt:     opt,
		slow:    min(10*opt.Timing.Heartbeat, max(opt.Timing.MajorityWindow/3, opt.Timing.Heartbeat)),
		elected: make(chan struct{}),
		wake:    make(chan struct{}, 1),
	}
	e.mu.rand = opt.Rand
	if e.mu.rand == nil {
		e.mu.rand = rand.New(rand.NewPCG(opt.Nonce, uint64(opt.Self)))
	}
	e.mu.self = &peer{id: opt.Self}
	e.mu.self.current, _ = e.mu.self.process(opt.Nonce)
	e.mu.self.current.since, e.mu.self.current.about = time.Now(), opt.About
	e.listLocked(opt.Members) // nobody else has e yet
	return e
}

// Elected returns the channel on which terms are offered: its receiver claims at once and calls
// Done when the claim or the term has ended. An offer that is not received is withdrawn.
func (e *Elector) Elected() <-chan struct{} { return e.elected }

// notify wakes the loop.
func (e *Elector) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// status returns what this server reports of itself.
func (e *Elector) status(now time.Time) Status {
	st := e.opt.Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.Role == RoleReplica && e.mu.claiming {
		st.Role = RoleCandidate
	}
	st.Able = st.Able && !st.Role.hasTerm() && st.Storage <= e.opt.Timing.StorageTimeout &&
		!now.Before(e.mu.unableTill) && !e.mu.self.conflicted(now) && e.couldWinLocked(now, st.Storage)
	return st
}

// couldWinLocked reports whether enough servers answer for this one to be elected; for one that only joins, if it were a
// member.
func (e *Elector) couldWinLocked(now time.Time, storage time.Duration) bool {
	if !e.votesLocked() {
		return e.reachesLocked(now)+1 > (len(e.mu.voters)+1)/2
	}
	return e.reachesLocked(now)+e.volumeLocked(now, storage) >= e.mu.voters.Majority()
}

// reachesLocked counts the voters that answer, this one included.
func (e *Elector) reachesLocked(now time.Time) int {
	n, window := 0, e.timingLocked(now).MajorityWindow
	if e.votesLocked() {
		n++
	}
	return n + e.othersLocked(func(p *peer) bool { return p.reached(now, window) && !p.conflicted(now) })
}

// othersLocked counts the other voters of which is holds.
func (e *Elector) othersLocked(is func(*peer) bool) (n int) {
	for _, p := range e.mu.peers {
		if p.votes && is(p) {
			n++
		}
	}
	return n
}

// peerLocked returns another server, or the processes that share this server's ID; nil for one that
// is not listed, or not any more.
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
	about, from string // its description, and where a ping or ask came from
	answers     bool   // it is an answer
}

// identifyLocked records which process sent a message under an ID, and reports whether the
// message counts. One of another process that uses this server's own ID does not.
func (e *Elector) identifyLocked(p *peer, m sender, now time.Time) (counts bool) {
	switch {
	case p != e.mu.self:
		counts = p.identify(m, now)
	case m.nonce != e.opt.Nonce:
		p.namesake(m, now)
	}
	if p.conflicted(now) && !p.conflictTold || p.untold(now) != nil {
		e.notify()
	}
	return counts
}

// learnLocked records an epoch that a message named. The primary of that epoch names it again and
// again.
func (e *Elector) learnLocked(epoch cluster.Epoch, now time.Time) {
	if epoch >= e.mu.highest {
		e.mu.highestAt = now
	}
	if epoch > e.mu.highest {
		e.mu.highest = epoch
		e.notify()
	}
}

// jitterLocked returns a random duration below d.
func (e *Elector) jitterLocked(d time.Duration) time.Duration {
	return time.Duration(e.mu.rand.Float64() * float64(d))
}

func (e *Elector) jitter(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.jitterLocked(d)
}
