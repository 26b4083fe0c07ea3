// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// beat sends the pings that are due. A replica pings its primary at every
// heartbeat, or all servers while it has none. A primary so pings those whose own
// pings it misses: they may have news of a later term. All other pings are slow.
func (e *Elector) beat(ctx context.Context, now time.Time, st Status, primary cluster.ServerID) {
	type ping struct {
		to   cluster.ServerID
		seq  uint64
		sent time.Time
	}
	var due []ping
	e.mu.Lock()
	wait := e.timingLocked(now).Suspicion // an answer after that would not count
	for _, p := range e.mu.peers {
		every := e.slow
		missed := now.Sub(p.ping.at) > e.opt.Timing.Suspicion
		if !st.Role.hasTerm() && (primary == 0 || primary == p.id) || st.Role.hasTerm() && missed && p.votes {
			every = e.opt.Timing.Heartbeat
		}
		if e.dueLocked(p, now, every) {
			due = append(due, ping{p.id, p.send(now), now})
		}
	}
	// The process that answers at this server's own address should be this one.
	if len(e.mu.peers) > 0 && e.dueLocked(e.mu.self, now, e.slow) {
		due = append(due, ping{e.opt.Self, e.mu.self.send(now), now})
	}
	e.mu.Unlock()

	for _, d := range due {
		p := Ping{From: e.opt.Self, Nonce: e.opt.Nonce, Seq: d.seq, Status: st, About: e.opt.About}
		e.wg.Go(func() { e.ping(ctx, d.to, p, d.sent, wait) })
	}
}

// Ask pings at once all servers that were not pinged a moment ago.
func (e *Elector) Ask() {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.mu.peers {
		e.nudgeLocked(p, now)
	}
}

// Broke has a server pinged at once, because a connection to it broke: it may have ended. Where one connection breaks after the other, that is at most
// four times in a heartbeat.
func (e *Elector) Broke(to cluster.ServerID) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.peerLocked(to); p != nil && now.Sub(p.broke) >= e.opt.Timing.Heartbeat/4 {
		p.broke, p.nudged = now, true
		e.notify()
	}
}

// nudgeLocked has p pinged at once, unless that was done a moment ago.
func (e *Elector) nudgeLocked(p *peer, now time.Time) {
	if now.Sub(p.sends[p.sent%sendMemory]) >= e.opt.Timing.Heartbeat/4 {
		p.nudged = true
		e.notify()
	}
}

// dueLocked reports whether to ping p now. A ping may be a little early: ticks are
// not exact, and waiting for the next one would double the interval.
func (e *Elector) dueLocked(p *peer, now time.Time, every time.Duration) bool {
	if p.inFlight >= maxInFlight {
		return false
	}
	since := now.Sub(p.sends[p.sent%sendMemory])
	confirm := p.refused == p.sent && p.refused > 0
	return p.sent == 0 || p.nudged || confirm || since >= every-e.opt.Timing.Heartbeat/4
}

// ping sends one ping and records its answer or failure.
func (e *Elector) ping(ctx context.Context, to cluster.ServerID, p Ping, sent time.Time, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pong, err := e.opt.Transport.Ping(ctx, to, p)
	refused := err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
	now := time.Now()

	e.mu.Lock()
	defer e.mu.Unlock()
	peer := e.peerLocked(to)
	if peer == nil {
		return // it was removed meanwhile
	}
	peer.inFlight--
	if !peer.tried {
		peer.tried = true
		e.notify()
	}
	switch {
	case refused:
		if peer.refuse(p.Seq) || peer.gone {
			e.notify()
		}
	case err != nil || pong.From != to || pong.Seq != p.Seq || !e.identifyLocked(peer, sender{nonce: pong.Nonce, answers: true}, now):
		// Silence, or another server at that address: no answer.
	default:
		was := peer.answer.status
		if peer.hear(p.Seq, sent, pong, now, e.opt.Timing.StorageTimeout/2, e.opt.Timing.MajorityWindow) {
			e.learnLocked(pong.Status.Epoch, now)
			if pong.Status.Role != was.Role || pong.Status.Epoch != was.Epoch {
				e.notify()
			}
		}
	}
}

// HandlePing returns the answer to a heartbeat. It never blocks. A server that is not listed here gets that of no
// server: who answers counts for it as one that would hear it as primary.
func (e *Elector) HandlePing(p Ping) Pong {
	now := time.Now()
	st := e.status(now)
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.Role == RolePrimary { // pings come first where all of a process wakes at once: what it has not done in its sleep is no stall
		slept := e.mu.late.overslept(now, e.opt.Timing.Suspicion)
		st.Progress, st.Storage = max(0, st.Progress-slept), max(0, st.Storage-slept)
	}
	pong := Pong{Nonce: e.opt.Nonce, Seq: p.Seq, Status: st}
	if peer := e.peerLocked(p.From); peer != nil {
		if !p.Stranger {
			e.heardLocked(peer, p, now)
		}
		pong.From, pong.Primary = e.opt.Self, e.believedLocked(now, st)
	}
	return pong
}

// heardLocked records a ping. It proves that the link works in this direction only, so it
// does not make its sender a primary; but it may be a reason to ping at once.
func (e *Elector) heardLocked(p *peer, in Ping, now time.Time) {
	counts := e.identifyLocked(p, sender{nonce: in.Nonce, about: in.About, from: in.Address}, now)
	if !counts || !p.inOrder(in.Seq, now, e.opt.Timing.Suspicion) {
		return
	}
	p.ping = report{in.Status, now}
	p.told.hear(in.Status.FeatureLevel, now, e.opt.Timing.MajorityWindow)
	p.freshen(in.Status.Storage, now, e.opt.Timing.StorageTimeout/2)
	e.learnLocked(in.Status.Epoch, now)
	news := in.Status.Role.hasTerm() != p.answer.status.Role.hasTerm() || in.Status.Role.hasTerm() && in.Status.Epoch > p.answer.status.Epoch
	if news {
		e.nudgeLocked(p, now)
	}
}

// believedLocked returns the server that this one believes to be the primary by its own evidence.
func (e *Elector) believedLocked(now time.Time, self Status) cluster.ServerID {
	if self.Role.hasTerm() {
		return e.opt.Self
	}
	t := e.timingLocked(now)
	if p := newest(e.mu.peers, func(p *peer) bool { return p.serves(now, t) }); p != nil {
		return p.id
	}
	return 0
}

// healthyLocked returns the primary that an election would harm: it serves and is not stalled.
func (e *Elector) healthyLocked(now time.Time, own time.Duration) *peer {
	t := e.timingLocked(now)
	return newest(e.mu.peers, func(p *peer) bool {
		return p.serves(now, t) && !stalled(t, p.answer.aged(now), own)
	})
}
