// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// acks holds answers back until replicas show what they say, see cluster.PushAck. A
// replica that says nothing for the bound is dropped from the set that is waited
// for, and counts again when it is less than the bound behind. It is about what local reads
// show and not about safety: what is held back is durable and checked.
type acks struct {
	p     *Primary
	mode  cluster.PushAck
	bound time.Duration
	mu    struct {
		sync.Mutex
		replicas map[cluster.ServerID]*standing
		held     []heldBack // by LSN
		ended    bool
	}
}

// standing is where a replica is.
type standing struct {
	lsn cluster.LSN
	out bool // of the set that is waited for
	// goal is what was committed at since: one that is out and gets there in time is back.
	goal  cluster.LSN
	since time.Time
}

// aim sets the next goal of a replica that is out.
func (s *standing) aim(goal cluster.LSN, now time.Time) { s.goal, s.since = goal, now }

// heldBack is something that waits until replicas have an LSN.
type heldBack struct {
	lsn   cluster.LSN
	since time.Time
	tell  func(ok bool) // false: the reign has ended
}

// newAcks is nil where nothing is held back. Every replica is waited for at first:
// whether it lives shows soon.
func newAcks(p *Primary) *acks {
	mode := p.opt.Timing.PushAck
	if mode != cluster.PushAckAll && mode != cluster.PushAckMajority || len(p.opt.Replicas) == 0 {
		return nil
	}
	a := &acks{p: p, mode: mode, bound: p.opt.Timing.PushAckTimeout}
	a.mu.replicas = map[cluster.ServerID]*standing{}
	for id := range p.opt.Replicas {
		a.mu.replicas[id] = &standing{}
	}
	return a
}

// run drops silent replicas until the reign ends, and then answers what is held back.
func (a *acks) run() {
	t := time.NewTicker(max(a.bound/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-a.p.reign.Done():
			a.end()
			return
		case now := <-t.C:
			a.dropSilent(now)
		}
	}
}

// enough is called with mu held.
func (a *acks) enough(lsn cluster.LSN) bool {
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

// shown says that nobody has to wait for an LSN.
func (a *acks) shown(lsn cluster.LSN) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.enough(lsn) || a.mu.ended
}

// hold calls tell when the replicas have an LSN, or the reign has ended.
func (a *acks) hold(lsn cluster.LSN, tell func(ok bool)) {
	a.mu.Lock()
	if a.mu.ended || a.enough(lsn) {
		ok := !a.mu.ended
		a.mu.Unlock()
		tell(ok)
		return
	}
	i := len(a.mu.held)
	for i > 0 && a.mu.held[i-1].lsn > lsn { // appends come when they are written
		i--
	}
	a.mu.held = slices.Insert(a.mu.held, i, heldBack{lsn: lsn, since: time.Now(), tell: tell})
	a.mu.Unlock()
}

// stands notes what a replica has said. Everything says that it lacks nothing.
func (a *acks) stands(id cluster.ServerID, lsn cluster.LSN, everything bool) {
	now := time.Now()
	a.mu.Lock()
	s := a.mu.replicas[id]
	s.lsn = lsn
	back := s.out && (everything || lsn >= s.goal && now.Sub(s.since) < a.bound)
	switch {
	case back:
		s.out = false
	case s.out && lsn >= s.goal:
		s.aim(a.p.LSN(), now)
	}
	ready := a.ready()
	a.mu.Unlock()
	if back {
		a.p.opt.Log.Info().Uint32("replica", uint32(id)).Msg("answers wait for this replica again")
	}
	tellAll(ready, true)
}

// ready takes out what waits no more. Called with mu held.
func (a *acks) ready() (out []heldBack) {
	n := 0
	for n < len(a.mu.held) && a.enough(a.mu.held[n].lsn) {
		n++
	}
	out = slices.Clone(a.mu.held[:n])
	a.mu.held = slices.Delete(a.mu.held, 0, n)
	return out
}

func tellAll(all []heldBack, ok bool) {
	for _, h := range all {
		h.tell(ok)
	}
}

// dropSilent drops the replicas that answers have waited for too long.
func (a *acks) dropSilent(now time.Time) {
	a.mu.Lock()
	var dropped []cluster.ServerID
	if len(a.mu.held) > 0 {
		late := cluster.LSN(0)
		for _, h := range a.mu.held {
			if now.Sub(h.since) >= a.bound {
				late = max(late, h.lsn)
			}
		}
		for id, s := range a.mu.replicas {
			if !s.out && s.lsn < late {
				s.out, dropped = true, append(dropped, id)
				s.aim(a.p.LSN(), now)
			}
		}
	}
	ready := a.ready()
	a.mu.Unlock()
	for _, id := range dropped {
		a.p.opt.Log.Warn().Uint32("replica", uint32(id)).Dur("silent", a.bound).Msg("answers do not wait for this replica any more: its local reads may be old")
	}
	tellAll(ready, true)
}

func (a *acks) end() {
	a.mu.Lock()
	held := a.mu.held
	a.mu.held, a.mu.ended = nil, true
	a.mu.Unlock()
	tellAll(held, false)
}

// tell gives the answers of a batch when the replicas show what they say.
func (a *acks) tell(b *batch) {
	lsn := b.End().LSN
	if len(b.answers) == 0 || a.shown(lsn) {
		b.tell()
		return
	}
	later := &batch{answers: slices.Clone(b.answers)} // b is used again
	a.hold(lsn, func(ok bool) {
		if !ok {
			later.fail()
			return
		}
		later.tell()
	})
}

// delay has appends answered when the replicas show them, too.
func (a *acks) delay(jobs []appendJob) {
	for i := range jobs {
		done, lsn := jobs[i].done, jobs[i].rec.LSN
		if done == nil {
			continue
		}
		jobs[i].done = func(out locktable.Outcome) {
			a.hold(lsn, func(ok bool) {
				if !ok {
					out = unknown()
				}
				done(out)
			})
		}
	}
}

// Waited says for which replicas answers wait; nil where they wait for none.
func (p *Primary) Waited() map[cluster.ServerID]bool {
	if p.acks == nil {
		return nil
	}
	p.acks.mu.Lock()
	defer p.acks.mu.Unlock()
	waited := map[cluster.ServerID]bool{}
	for id, s := range p.acks.mu.replicas {
		waited[id] = !s.out
	}
	return waited
}
