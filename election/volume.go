// SPDX-License-Identifier: Apache-2.0

package election

import (
	"errors"
	"maps"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// beatEvery is how often a primary raises its canary, and stillBeats how many beats it has to miss.
	beatEvery  = time.Second
	stillBeats = 3
	// mostExtra bounds by how much longer than needed the volume has to be still after terms that others ended.
	mostExtra = 5 * time.Minute
	// calmTerm is how long a term serves that was not one of several that ended each other.
	calmTerm = 10 * time.Minute
)

// Sign is what a server writes to the volume while it is primary, or is about to be. A number that
// rises shows that the server goes on.
type Sign struct {
	// Beat is the value of its canary.
	Beat uint64
	// Takeover is the count of its process's sign of life while that takes over, else 0.
	Takeover uint64
}

// Look is one reading of all servers' signs from the volume, past the caches. What the process that looks has written itself is left
// out. The Elector that gets it owns its map.
type Look struct {
	Began, Ended time.Time
	Signs        map[cluster.ServerID]Sign
}

// stillness is for how long no server was seen to go on as primary. Elector.mu guards it.
type stillness struct {
	signs map[cluster.ServerID]Sign // nil before the first look
	since time.Time                 // when the first look that showed these signs ended, or this server could not look since
	began time.Time                 // when the newest look began

	risen   cluster.ServerID // the last one that was seen to go on, 0: none was
	risenAt time.Time
}

// look records a look, and returns a server that went on since the one before; 0 if none did.
func (s *stillness) look(l Look) (risen cluster.ServerID) {
	for id, x := range l.Signs {
		if was, known := s.signs[id]; known && was != x {
			risen = id
		}
	}
	if risen != 0 {
		s.risen, s.risenAt = risen, l.Ended
	}
	if s.signs == nil || !maps.Equal(s.signs, l.Signs) {
		s.signs = l.Signs
		s.restart(l.Ended)
	}
	s.began = l.Began
	return risen
}

// restart leaves out the time up to now.
func (s *stillness) restart(now time.Time) {
	if now.After(s.since) {
		s.since = now
	}
}

// lasted returns for how long no sign has changed, as far as looks show.
func (s *stillness) lasted() time.Duration { return max(0, s.began.Sub(s.since)) }

// stillFor returns for how long no server may have gone on before the volume votes for another one: three
// beats, or longer on a slow share, and what a read may be old by at both ends.
func stillFor(t cluster.Timing) time.Duration {
	return max(stillBeats*beatEvery, t.StorageTimeout/2) + 2*t.Staleness
}

// freshFor returns how old this server's last write to the volume may be for what it sees there to count: one
// is begun each second, and on a short StorageTimeout none could ever be fresh.
func freshFor(t cluster.Timing) time.Duration { return max(t.StorageTimeout/2, 2*beatEvery) }

// stillLocked is stillFor with what this server adds for its own lateness and for terms that others ended.
func (e *Elector) stillLocked(now time.Time) time.Duration {
	return stillFor(e.opt.Timing) + e.allowanceLocked(now) + e.mu.extra
}

// lonelyLocked reports whether the servers whose votes would count are no majority. One that answers and cannot write to
// the volume does not.
func (e *Elector) lonelyLocked(now time.Time) bool {
	n, t := 0, e.timingLocked(now)
	if e.votesLocked() {
		n++
	}
	n += e.othersLocked(func(p *peer) bool { return p.live(now, t) })
	return n < e.mu.voters.Majority()
}

// AsksVolume reports whether what the volume shows of other servers may decide if this server
// claims: then the node calls Saw again and again.
func (e *Elector) AsksVolume() bool {
	now, st := time.Now(), e.opt.Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	return st.Role != RolePrimary && (e.mu.voters.VolumeVotes() || e.lonelyLocked(now))
}

// Saw reports a look at the volume that succeeded. A server that goes on ends an operator's permission.
func (e *Elector) Saw(l Look) {
	e.mu.Lock()
	defer e.mu.Unlock()
	risen := e.mu.still.look(l)
	if risen == 0 {
		return
	}
	if l.Ended.Before(e.mu.permit) {
		e.mu.permit = time.Time{}
		e.opt.Log.Warn().Uint32("primary", uint32(risen)).Msg("takeover refused: a server still writes to the volume as primary")
	}
	if e.mu.lost && risen != e.opt.Self {
		e.mu.lost = false
		e.mu.deposed++
		need := stillFor(e.opt.Timing)
		e.mu.extra = min(need<<min(e.mu.deposed, 10)-need, mostExtra) + e.jitterLocked(need/2)
		e.opt.Log.Warn().Uint32("by", uint32(risen)).Dur("waits_longer_by", e.mu.extra).Msg("another server ended a term of this one that rested on the volume's vote: the next one waits longer")
	}
}

// Permit is an operator's permission: until then, for one claim and the term that it becomes, the
// volume votes in place of all servers that do not answer.
func (e *Elector) Permit(until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.permit = until
}

// replacedLocked returns in place of how many servers the volume may vote for this one.
func (e *Elector) replacedLocked(now time.Time) int {
	switch {
	case e.mu.permitted || now.Before(e.mu.permit):
		return e.mu.voters.Majority()
	case e.mu.voters.VolumeVotes():
		return 1
	}
	return 0
}

// volumeLocked returns how many votes the volume has for a claim of this server, whose own last write
// to the volume is so old.
func (e *Elector) volumeLocked(now time.Time, storage time.Duration) int {
	// A look on a slow share takes long, and the one before has to count until its end.
	recent := now.Sub(e.mu.still.began) <= max(e.opt.Timing.StorageTimeout, e.timingLocked(now).MajorityWindow)
	if !recent || storage >= freshFor(e.opt.Timing) || e.mu.still.lasted() < e.stillLocked(now) {
		return 0
	}
	return e.replacedLocked(now)
}

// heedLocked restarts the wait for the volume's vote while this server's own writes are not fresh: what
// others write may stall with them. Servers that answer do not depose each other.
func (e *Elector) heedLocked(now time.Time, storage time.Duration) {
	if storage >= freshFor(e.opt.Timing) {
		e.mu.still.restart(now)
	}
	if e.reachesLocked(now) >= e.mu.voters.Majority() {
		e.mu.deposed, e.mu.extra = 0, 0
	}
}

// usedLocked records that a claim or a term has ended: its permission is used up, and the next vote
// of the volume does not rest on what was seen before.
func (e *Elector) usedLocked(now time.Time, err error, served time.Duration) {
	e.mu.still.restart(now)
	e.mu.lost = e.mu.rests && err != nil && !errors.Is(err, ErrYield)
	e.mu.rests, e.mu.permitted, e.mu.permit = false, false, time.Time{}
	if served >= calmTerm {
		e.mu.deposed, e.mu.extra = 0, 0
	}
}

// VolumeVote is how the volume votes on a claim of this server.
type VolumeVote struct {
	// Asked reports whether the vote matters: fewer than a majority of the servers answer and write to the volume.
	Asked bool
	// Yes reports whether it makes up for those that do not.
	Yes bool
	// Still is for how long no server was seen to go on as primary, and Needed for how long that has to be so.
	Still, Needed time.Duration
	// Risen is the server that was seen to go on last, within Needed, and Ago how long ago; 0 if none was.
	Risen cluster.ServerID
	Ago   time.Duration
}

// VolumeVote returns how the volume votes now.
func (e *Elector) VolumeVote() VolumeVote {
	now, st := time.Now(), e.opt.Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	v := VolumeVote{
		Asked: e.votesLocked() && e.lonelyLocked(now), Yes: e.volumeLocked(now, st.Storage) > 0,
		Still: e.mu.still.lasted(), Needed: e.stillLocked(now),
	}
	if ago := now.Sub(e.mu.still.risenAt); e.mu.still.risen != 0 && ago < v.Needed {
		v.Risen, v.Ago = e.mu.still.risen, ago
	}
	return v
}
