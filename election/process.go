// SPDX-License-Identifier: Apache-2.0

package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// aliveWithin is how often a process that lives sends a message at least.
	aliveWithin = time.Second
	// showsWithin is how soon a process that writes to the volume has been seen to do so.
	showsWithin = 3 * time.Second
)

// process is what this server knows of one process that uses a server ID.
//
// Two processes that send messages under one ID are a conflict, unless exactly one of them is
// seen to write to this server's volume: then the other has a copy of the volume, or what was
// mounted in its place. It is a stranger, and what it sends does not count. If neither was
// seen, they are a conflict only once both had the time to be seen.
type process struct {
	nonce    uint64
	proven   bool      // it was seen to write to the volume under this ID
	stranger bool      // another one was proven while this one was not
	reported bool      // OnStranger was called
	since    time.Time // when it sent its first message
	heard    time.Time // when it sent its last message; zero: it sent none
	answered time.Time // when it answered at this server's own address
	// Its description, and where its last ping or ask came from.
	about, from string
}

// real reports whether the process is on the volume, or has the address of this server, so
// that this server must not count on its ID.
func (x *process) real(now time.Time) bool {
	return x.proven || !x.answered.IsZero() && now.Sub(x.answered) <= conflictMemory
}

// recent reports whether it sent a message lately.
func (x *process) recent(now time.Time) bool {
	return !x.heard.IsZero() && now.Sub(x.heard) <= conflictMemory
}

// speaks records that it sent a message.
func (x *process) speaks(m sender, now time.Time) {
	if x.heard.IsZero() {
		x.since = now
	}
	x.heard, x.about, x.from = now, cmp.Or(m.about, x.about), cmp.Or(m.from, x.from)
}

// elsewhere reports whether it had the time to be seen on the volume, and was not.
func (x *process) elsewhere(now time.Time) bool {
	return !x.real(now) && now.Sub(x.since) >= showsWithin
}

// process finds the process with this nonce, or adds it, and reports whether it was known.
func (p *peer) process(nonce uint64) (x *process, known bool) {
	i := slices.IndexFunc(p.processes, func(x *process) bool { return x.nonce == nonce })
	if i >= 0 {
		return p.processes[i], true
	}
	if len(p.processes) == maxProcesses {
		p.forget()
	}
	x = &process{nonce: nonce}
	p.processes = append(p.processes, x)
	return x, false
}

// forget drops the process that was silent for longest, of those that were not proven if there
// are such, and never the current one.
func (p *peer) forget() {
	oldest := slices.MinFunc(p.processes, func(a, b *process) int {
		return cmp.Or(p.keeps(a)-p.keeps(b), a.heard.Compare(b.heard))
	})
	p.processes = slices.DeleteFunc(p.processes, func(x *process) bool { return x == oldest })
}

// keeps ranks how much a process is worth remembering.
func (p *peer) keeps(x *process) int {
	switch {
	case x == p.current:
		return 2
	case x.proven:
		return 1
	}
	return 0
}

// identify records that a process sent a message, and reports whether the message counts. A new
// nonce is a restart; a return to an earlier one means that both live.
func (p *peer) identify(m sender, now time.Time) bool {
	x, known := p.process(m.nonce)
	x.speaks(m, now)
	cur := p.current
	switch {
	case x == cur:
		return true
	case x.stranger:
		return false
	case cur == nil:
	case cur.proven && !x.proven && cur.heard.After(x.since):
		x.stranger = true
		return false
	case cur.proven && !x.proven && p.refused == 0 && now.Sub(cur.heard) <= aliveWithin:
		return false // a restart, if the one before is silent from now on
	case !known:
	case x.proven && !cur.proven:
		cur.stranger = true
	case x.proven && now.Sub(cur.heard) > aliveWithin:
		// The one before has ended meanwhile.
	case !x.proven && !(x.elsewhere(now) && cur.elsewhere(now)):
		// The volume may soon show which of the two is the server.
	default:
		p.clash(now)
	}
	p.become(x)
	return true
}

// become makes x the process whose messages count.
func (p *peer) become(x *process) {
	p.current = x
	p.heard = 0 // another process numbers from 1
}

// namesake records that another process sent a message under this server's own ID. It is a
// stranger if this server is seen to write to the volume and the other is not; one that answers
// at this server's own address is none: this server cannot be reached there.
func (p *peer) namesake(m sender, now time.Time) {
	x, _ := p.process(m.nonce)
	x.speaks(m, now)
	if m.answers {
		x.answered = now
	}
	x.stranger = p.current.proven && !x.real(now)
	if x.real(now) || x.elsewhere(now) && p.current.elsewhere(now) {
		p.clash(now)
	}
}

// prove records that the process with this nonce was seen to write to the volume. A conflict ends
// with it if the other processes that sent messages under this ID had the time to be seen, too.
func (p *peer) prove(nonce uint64, now time.Time) {
	x, _ := p.process(nonce)
	x.proven, x.stranger = true, false
	rival := func(y *process) bool { return y != x && y.recent(now) && !y.elsewhere(now) }
	if !p.conflicted(now) || !x.recent(now) || slices.ContainsFunc(p.processes, rival) {
		return
	}
	p.conflictUntil = time.Time{}
	for _, y := range p.processes {
		y.stranger = y.stranger || y != x && y.recent(now)
	}
	if p.current != x {
		p.become(x)
	}
}

// unproven reports whether a process sent messages lately that was not seen to write to the volume.
func (p *peer) unproven(now time.Time) bool {
	return slices.ContainsFunc(p.processes, func(x *process) bool { return x.recent(now) && !x.proven })
}

// Stranger is a process that uses a server's ID and is not the one that writes to this server's
// volume under that ID.
type Stranger struct {
	ID    cluster.ServerID
	Nonce uint64
	// About is its description, and From where its last ping or ask came from; "" if that is
	// not known.
	About, From string
	// Heard is how long ago it sent its last message.
	Heard time.Duration
}

// untold returns a stranger for which OnStranger was not called yet, or nil. Calls are spaced,
// because each message may bring another nonce.
func (p *peer) untold(now time.Time) *process {
	if !p.strangerTold.IsZero() && now.Sub(p.strangerTold) < conflictMemory {
		return nil
	}
	for _, x := range p.processes {
		if x.stranger && !x.reported && x.recent(now) && x.elsewhere(now) {
			return x
		}
	}
	return nil
}

// describe returns what is reported of a stranger.
func (p *peer) describe(x *process, now time.Time) Stranger {
	return Stranger{ID: p.id, Nonce: x.nonce, About: x.about, From: x.from, Heard: now.Sub(x.heard)}
}

// speakers describes the processes that sent a message lately, for people.
func (p *peer) speakers(now time.Time) (all []string) {
	for _, x := range p.processes {
		if x.recent(now) {
			text := cmp.Or(x.about, "a process that does not say which it is")
			if x.from != "" {
				text += ", at " + x.from
			}
			all = append(all, text)
		}
	}
	return all
}

// strangers returns the strangers that sent a message lately.
func (p *peer) strangers(now time.Time) (all []Stranger) {
	for _, x := range p.processes {
		if x.stranger && x.recent(now) && x.elsewhere(now) {
			all = append(all, p.describe(x, now))
		}
	}
	return all
}

// Strangers returns the strangers that sent a message within the last ten seconds, in order of
// the IDs that they use. Their messages do not count.
func (e *Elector) Strangers() (all []Stranger) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range append(slices.Clip(e.mu.peers), e.mu.self) {
		all = append(all, p.strangers(now)...)
	}
	slices.SortStableFunc(all, func(a, b Stranger) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Conflict describes the processes that use this server's own ID, if they are in conflict; nil
// if they are not.
func (e *Elector) Conflict() []string {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.mu.self.conflicted(now) {
		return nil
	}
	return e.mu.self.speakers(now)
}

// Unproven returns the other servers' IDs under which a process sent messages lately that was
// not seen to write to the volume: for these the node reads the volume and calls Prove.
func (e *Elector) Unproven() (ids []cluster.ServerID) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.mu.peers {
		if p.unproven(now) {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// Prove records that the process with this boot nonce was just seen to write to this server's
// volume under an ID, which may be this server's own.
func (e *Elector) Prove(id cluster.ServerID, nonce uint64) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch p := e.peerLocked(id); {
	case p == nil:
		return
	case p == e.mu.self && nonce != e.opt.Nonce:
		x, _ := p.process(nonce)
		x.proven, x.stranger = true, false
		p.clash(now) // without any message: it writes what only this process should
	case p == e.mu.self:
		p.current.heard = now
		p.prove(nonce, now)
	default:
		p.prove(nonce, now)
	}
	e.notify()
}
