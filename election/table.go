// SPDX-License-Identifier: Apache-2.0

package election

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// conflictMemory is how long an ID stays in conflict after the last evidence.
	conflictMemory = 10 * time.Second
	// maxInFlight bounds the unanswered pings to one server.
	maxInFlight = 8
	// maxProcesses bounds how many processes of one ID are remembered.
	maxProcesses = 9
	// risingPings with numbers below one that was heard make that one count no more.
	risingPings = 4
	// sendMemory is how many send times are kept per server.
	sendMemory = 64
)

// report is the status of a server, and when it was received.
type report struct {
	status Status
	at     time.Time
}

// aged returns the status with its ages as they have grown since.
func (w report) aged(now time.Time) Status {
	st, age := w.status, now.Sub(w.at)
	st.Progress += age
	st.Storage += age
	return st
}

// peer is what this server knows of another one (or of other processes with this
// server's own ID). All of it is guarded by Elector.mu.
type peer struct {
	id    cluster.ServerID
	votes bool // it does not only join

	// Our pings.
	sent     uint64                // number of the newest
	inFlight int                   // how many have not ended
	sends    [sendMemory]time.Time // when ping n was sent, at n % sendMemory
	tried    bool                  // one has ended, with an answer or without
	nudged   bool                  // there is reason to ping at once
	broke    time.Time             // when a connection to it broke last

	// Its answers. An answer is as old as its ping.
	answered   uint64    // number of the newest ping that was answered
	answeredAt time.Time // when that one was sent
	answer     report
	believes   cluster.ServerID

	// freshSince is since when it has reported fresh storage, by ping or answer; zero: it does not.
	freshSince time.Time

	told toldLevel // by ping or answer

	// Refusals. One could be a connection that died of old age, two are a dead server.
	refused uint64 // number of the newest ping when one was refused; 0 none since the last answer
	gone    bool   // and one sent after that was refused too

	// Its pings.
	heard  uint64 // number of the newest
	ping   report
	behind uint64 // of those with lower numbers that came when no newer one did: the highest,
	rising int    // and how many rose up to it

	// The processes that use its ID.
	processes     []*process
	current       *process // whose messages count; nil before the first
	conflictUntil time.Time
	conflictTold  bool
	strangerTold  time.Time // when OnStranger was called last
}

// clash records evidence that two processes use the ID.
func (p *peer) clash(now time.Time) {
	if !p.conflicted(now) {
		p.conflictTold = false
	}
	p.conflictUntil = now.Add(conflictMemory)
}

func (p *peer) conflicted(now time.Time) bool { return now.Before(p.conflictUntil) }

// send numbers the next ping.
func (p *peer) send(now time.Time) uint64 {
	p.sent++
	p.inFlight++
	p.nudged = false
	p.sends[p.sent%sendMemory] = now
	return p.sent
}

// hear records the answer to ping seq, and whether storage is younger than fresh. A silence of more than window
// interrupts what it tells of its level. It returns false
// if a later ping was answered before.
func (p *peer) hear(seq uint64, sent time.Time, pong Pong, now time.Time, fresh, window time.Duration) bool {
	if seq <= p.answered {
		return false
	}
	p.answered, p.answeredAt = seq, sent
	p.answer = report{pong.Status, now}
	p.told.hear(pong.Status.FeatureLevel, now, window)
	p.believes = pong.Primary
	p.freshen(pong.Status.Storage, now, fresh)
	if seq > p.refused {
		p.refused, p.gone = 0, false
	}
	return true
}

// toldLevel is the feature level that a server told last, and since when it has told that one without a silence.
type toldLevel struct {
	level       uint32
	since, last time.Time
}

func (t *toldLevel) hear(level uint32, now time.Time, window time.Duration) {
	if level != t.level || now.Sub(t.last) > window {
		t.level, t.since = level, now
	}
	t.last = now
}

// freshen records the age of its storage, which is fresh if it is below fresh.
func (p *peer) freshen(storage time.Duration, now time.Time, fresh time.Duration) {
	p.freshSince = since(p.freshSince, storage < fresh, now)
}

// since returns since when a condition holds: was, or now if it did not hold before (was is
// zero), or zero if it does not hold.
func since(was time.Time, is bool, now time.Time) time.Time {
	switch {
	case !is:
		return time.Time{}
	case was.IsZero():
		return now
	}
	return was
}

// refuse records that ping seq was refused. It returns true if a second ping is to be sent at once.
func (p *peer) refuse(seq uint64) bool {
	switch {
	case seq <= p.answered:
		return false
	case p.refused == 0:
		p.refused = p.sent
		return true
	case seq > p.refused:
		p.gone = true
	}
	return false
}

// reached reports whether it answered a ping sent within the window.
func (p *peer) reached(now time.Time, window time.Duration) bool {
	return p.answered > 0 && !p.gone && now.Sub(p.answeredAt) <= window
}

// unanswered returns how long ago the oldest ping was sent that no later answer covers.
func (p *peer) unanswered(now time.Time) time.Duration {
	if p.sent == p.answered {
		return 0
	}
	return now.Sub(p.sends[max(p.answered+1, p.sent-min(p.sent, sendMemory)+1)%sendMemory])
}

// inOrder reports whether a ping is newer than those before it. One with a number far ahead, which
// any process can send, hides the others only until no newer one has come for that long, and some
// of them have come in their order.
func (p *peer) inOrder(seq uint64, now time.Time, silence time.Duration) bool {
	if seq <= p.heard {
		if now.Sub(p.ping.at) <= silence || seq <= p.behind {
			return false
		}
		p.behind = seq
		if p.rising++; p.rising < risingPings {
			return false
		}
	}
	p.heard, p.behind, p.rising = seq, 0, 0
	return true
}

// latest returns its newest report, by ping or by answer.
func (p *peer) latest() report {
	if p.ping.at.After(p.answer.at) {
		return p.ping
	}
	return p.answer
}

// live reports whether it answers, is one process and has a volume.
func (p *peer) live(now time.Time, t cluster.Timing) bool {
	return p.reached(now, t.MajorityWindow) && !p.conflicted(now) && p.answer.aged(now).Storage <= t.StorageTimeout
}

// serves reports whether it answers, freshly, in the role of a primary.
func (p *peer) serves(now time.Time, t cluster.Timing) bool {
	return p.answer.status.Role.hasTerm() && p.reached(now, t.Suspicion)
}

// newest returns, of the peers that pass, the one with the highest epoch: the later term.
func newest(peers []*peer, pass func(*peer) bool) *peer {
	var best *peer
	for _, p := range peers {
		if pass(p) && (best == nil || p.answer.status.Epoch > best.answer.status.Epoch) {
			best = p
		}
	}
	return best
}
