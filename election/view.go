// SPDX-License-Identifier: Apache-2.0

package election

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Primary returns the live primary, fencing or serving, to which callers should be
// directed: this server itself, the one that answers its pings, or else the one that
// another server names. It returns false if none is known.
func (e *Elector) Primary() (id cluster.ServerID, epoch cluster.Epoch, ok bool) {
	now := time.Now()
	st := e.status(now)
	if st.Role.hasTerm() {
		return e.opt.Self, st.Epoch, true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.timingLocked(now)
	if p := newest(e.mu.peers, func(p *peer) bool { return p.serves(now, t) }); p != nil {
		return p.id, p.answer.status.Epoch, true
	}
	witness := newest(e.mu.peers, func(p *peer) bool {
		named := p.believes != 0 && p.believes != p.id && p.believes != e.opt.Self
		return named && p.live(now, t)
	})
	if witness == nil {
		return 0, 0, false
	}
	return witness.believes, witness.answer.status.Epoch, true
}

// Majority reports whether this server, a primary, received pings within MajorityWindow
// from so many servers that they are a majority together with it. Where the volume votes, it
// votes for the primary until another server has claimed: then a check ends the term.
func (e *Elector) Majority() bool {
	now, st := time.Now(), e.opt.Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 1
	if st.Role.hasTerm() {
		n += e.replacedLocked(now)
	}
	return n+e.othersLocked(func(p *peer) bool { return e.pingedLocked(p, now) }) >= e.mu.voters.Majority()
}

// pingedLocked reports whether one process of that ID sent a ping within MajorityWindow.
func (e *Elector) pingedLocked(p *peer, now time.Time) bool {
	return p.heard > 0 && !p.conflicted(now) && now.Sub(p.ping.at) <= e.opt.Timing.MajorityWindow
}

// FreshStorageElsewhere reports whether another live server writes to the volume, and
// has done so for half of StorageTimeout. Then a primary whose own storage
// stalls should step down. When all stall, all wait; when the share comes
// back, that time lets the primary notice too.
func (e *Elector) FreshStorageElsewhere() bool {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.mu.peers {
		w := p.latest()
		known := p.votes && !w.at.IsZero() && !p.conflicted(now) && now.Sub(w.at) <= e.opt.Timing.MajorityWindow
		fresh := !p.freshSince.IsZero() && now.Sub(p.freshSince) >= e.opt.Timing.StorageTimeout/2
		if known && fresh && w.aged(now).Storage < e.opt.Timing.StorageTimeout/2 {
			return true
		}
	}
	return false
}

// LowestLevel returns the lowest feature level of this server and of those that sent a message
// within MajorityWindow.
func (e *Elector) LowestLevel() uint32 {
	now := time.Now()
	lowest := e.status(now).FeatureLevel
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.mu.peers {
		if w := p.latest(); !w.at.IsZero() && now.Sub(w.at) <= e.opt.Timing.MajorityWindow {
			lowest = min(lowest, max(1, w.status.FeatureLevel))
		}
	}
	return lowest
}

// Peers returns what is known of the other servers, in order of their IDs.
func (e *Elector) Peers() []PeerStatus {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]PeerStatus, 0, len(e.mu.peers))
	for _, p := range e.mu.peers {
		s := PeerStatus{ID: p.id, Heard: -1, Joining: !p.votes, Proven: p.current != nil && p.current.proven, Reachable: p.reached(now, e.opt.Timing.MajorityWindow), Conflict: p.conflicted(now), Answered: p.answer.status}
		if w := p.latest(); !w.at.IsZero() {
			s.Heard, s.Status = now.Sub(w.at), w.status
			if now.Sub(p.told.last) <= e.opt.Timing.MajorityWindow {
				s.LevelFor = now.Sub(p.told.since)
			}
		}
		if s.Conflict {
			s.Processes = p.speakers(now)
		}
		all = append(all, s)
	}
	return all
}
