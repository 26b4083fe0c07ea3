// SPDX-License-Identifier: Apache-2.0

package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// SetMembers replaces the list of servers. Those that only join are pinged and reported, and count for nothing: neither
// their votes nor their silence does. What was decided by other voters counts no more.
func (e *Elector) SetMembers(all cluster.Members) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listLocked(all)
	e.notify()
}

func (e *Elector) listLocked(all cluster.Members) {
	was := e.mu.voters
	e.mu.voters = all.Voters()
	if was != nil && !slices.Equal(was.IDs(), e.mu.voters.IDs()) {
		e.mu.changed = time.Now()
		e.mu.still.restart(e.mu.changed) // the looks were at other servers
	}
	var peers []*peer
	for _, m := range all {
		if m.ID == e.opt.Self {
			continue
		}
		p := e.peerLocked(m.ID)
		if p == nil {
			p = &peer{id: m.ID}
		}
		p.votes = !m.Joining
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b *peer) int { return cmp.Compare(a.id, b.id) })
	e.mu.peers = peers
}

// votesLocked reports whether this server counts. One that does not never asks for votes.
func (e *Elector) votesLocked() bool {
	_, votes := e.mu.voters.Find(e.opt.Self)
	return votes
}

// Before reports whether one voter comes before another one in the order in which they should be primary.
func (e *Elector) Before(a, b cluster.ServerID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.turnLocked(a) < e.turnLocked(b)
}

// turnLocked returns where a server stands in the order in which the voters should be primary, -1 if it is none.
func (e *Elector) turnLocked(id cluster.ServerID) int { return turn(e.mu.voters, e.opt.First, id) }

// outdatedLocked reports whether what began at that moment was decided by other voters than those of now.
func (e *Elector) outdatedLocked(began time.Time) bool {
	return !e.mu.changed.IsZero() && !began.After(e.mu.changed)
}

// MajorityOf reports whether this server, a primary, would have the majority of another list of servers: by the pings that
// it gets, and the vote of the volume.
func (e *Elector) MajorityOf(all cluster.Members) bool {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	voters, n := all.Voters(), 1
	if voters.VolumeVotes() {
		n++
	}
	for _, p := range e.mu.peers {
		if _, votes := voters.Find(p.id); votes && e.pingedLocked(p, now) {
			n++
		}
	}
	return n >= voters.Majority()
}
