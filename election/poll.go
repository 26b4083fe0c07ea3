// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// poll is one pre-vote in progress. It belongs to the goroutine that takes it.
type poll struct {
	Poll
	ask   Ask
	began time.Time
}

// answer is what came of one question.
type answer struct {
	from cluster.ServerID
	vote Vote
	err  error
}

// newPoll prepares a pre-vote.
func (e *Elector) newPoll(now time.Time, st Status, order Order) *poll {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &poll{
		Poll: Poll{
			Self: e.opt.Self, Members: e.opt.Members, Timing: e.opt.Timing,
			Able: st.Able, Storage: st.Storage, Order: order,
		},
		ask:   Ask{From: e.opt.Self, Nonce: e.opt.Nonce, Epoch: st.Epoch},
		began: now,
	}
	for _, x := range e.mu.peers {
		v := Voter{ID: x.id}
		// The one whose silence led here would only cost the time-out.
		if x.gone || x.unanswered(now) >= e.opt.Timing.Suspicion/2 {
			v.Answer = Silent
		}
		if x.conflicted(now) {
			v.Answer = Conflicted
		}
		p.Voters = append(p.Voters, v)
	}
	return p
}

// take asks everybody and returns as soon as the verdict is final. The askers
// belong to wg; they end soon after take has returned.
func (e *Elector) take(ctx context.Context, p *poll, wg *sync.WaitGroup) (Verdict, reason) {
	ctx, cancel := context.WithTimeout(ctx, e.opt.Timing.Suspicion/2)
	defer cancel()
	answers := make(chan answer, len(p.Voters))
	for _, v := range p.Voters {
		wg.Go(func() {
			vote, err := e.opt.Transport.PreVote(ctx, v.ID, p.ask)
			answers <- answer{v.ID, vote, err}
		})
	}
	for pending := len(p.Voters); ; pending-- {
		v, why := p.decide()
		if v != Undecided || pending == 0 {
			return v, why
		}
		select {
		case a := <-answers:
			e.record(p, a)
		case <-ctx.Done():
			for i := range p.Voters {
				if p.Voters[i].Answer == Waiting {
					p.Voters[i].Answer = Silent
				}
			}
			return p.decide()
		}
	}
}

// record enters an answer into the poll and into the table.
func (e *Elector) record(p *poll, a answer) {
	i := slices.IndexFunc(p.Voters, func(v Voter) bool { return v.ID == a.from })
	v := &p.Voters[i]
	if a.err != nil || a.vote.From != a.from {
		if v.Answer == Waiting {
			v.Answer = Silent
		}
		return
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	peer := e.peerLocked(a.from)
	if !e.identifyLocked(peer, sender{nonce: a.vote.Nonce, answers: true}, now) {
		v.Answer = Silent // it is not that server that answers there
		return
	}
	e.learnLocked(a.vote.Status.Epoch, now)
	v.Answer, v.Vote = Voted, a.vote
	if peer.conflicted(now) {
		v.Answer = Conflicted
	}
}

// HandlePreVote answers an Ask. It asks the primary it believes in at once, so
// that the answer does not rest on what was true some heartbeats ago.
func (e *Elector) HandlePreVote(ctx context.Context, a Ask) Vote {
	now := time.Now()
	st := e.status(now)
	e.mu.Lock()
	if peer := e.peerLocked(a.From); peer != nil && !e.identifyLocked(peer, sender{nonce: a.Nonce, from: a.Address}, now) {
		e.mu.Unlock()
		return Vote{} // no server's
	}
	e.learnLocked(a.Epoch, now)
	e.mu.asked = true
	suspect := newest(e.mu.peers, func(p *peer) bool { return p.answer.status.Role.reigns() })
	e.mu.Unlock()
	e.poke() // who hears no primary either should poll now

	vote := Vote{From: e.opt.Self, Nonce: e.opt.Nonce}
	switch {
	case st.Role.reigns():
		vote.HearsPrimary, vote.Primary = true, e.opt.Self
	case suspect != nil && suspect.id != a.From:
		e.probe(ctx, suspect.id, st)
	}
	now = time.Now()
	vote.Status = e.status(now)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !vote.Status.Role.reigns() {
		vote.Primary = e.testifyLocked(now, vote.Status.Storage)
		vote.HearsPrimary = vote.Primary != 0
	}
	for _, p := range e.mu.peers {
		if p.id != a.From && p.live(now, e.opt.Timing) && p.latest().status.Able {
			vote.Live = append(vote.Live, p.id)
		}
	}
	return vote
}

// probe pings outside the beat. It waits briefly: the asker waits for us.
func (e *Elector) probe(ctx context.Context, to cluster.ServerID, st Status) {
	now := time.Now()
	e.mu.Lock()
	p := e.peerLocked(to)
	if p.inFlight >= 2*maxInFlight {
		e.mu.Unlock()
		return // asked often enough
	}
	seq := p.send(now)
	e.mu.Unlock()
	e.ping(ctx, to, Ping{From: e.opt.Self, Nonce: e.opt.Nonce, Seq: seq, Status: st}, now, e.opt.Timing.Suspicion/6)
}

// Resigned asks a server at its own address whether it reigns no more, for as long as a primary of
// an older binary takes to say so. False says that it reigns, or does not answer in time.
func (e *Elector) Resigned(ctx context.Context, id cluster.ServerID) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*e.opt.Timing.Heartbeat)
	defer cancel()
	e.mu.Lock()
	p := e.peerLocked(id)
	e.mu.Unlock()
	if p == nil || id == e.opt.Self {
		return false
	}
	for began := time.Now(); ; {
		e.probe(ctx, id, e.status(time.Now()))
		e.mu.Lock()
		resigned := p.answered > 0 && !p.answeredAt.Before(began) && !p.answer.status.Role.reigns()
		e.mu.Unlock()
		if resigned {
			return true
		}
		t := time.NewTimer(e.opt.Timing.Heartbeat / 10)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
		}
	}
}

// testifyLocked is the live primary that this server may speak of to others, or
// 0. Half of Suspicion without an answer, or one refusal, the probe included,
// is enough here: the asker has the other half of the proof.
func (e *Elector) testifyLocked(now time.Time, own time.Duration) cluster.ServerID {
	if p := e.healthyLocked(now, own); p != nil && p.refused == 0 && p.reached(now, e.opt.Timing.Suspicion/2) {
		return p.id
	}
	return 0
}

// Confirm is asked before the first fence is set. When the pre-vote is older
// than Suspicion it asks again, without regard to the order of IDs: the claim is
// made. An error wraps ErrYield or is that of ctx.
func (e *Elector) Confirm(ctx context.Context) error {
	now := time.Now()
	e.mu.Lock()
	began := e.mu.began
	e.mu.Unlock()
	if now.Sub(began) <= e.opt.Timing.Suspicion {
		return nil
	}
	st := e.status(now)
	p := e.newPoll(now, st, AnyOrder)
	p.Able = st.Storage <= e.opt.Timing.StorageTimeout
	p.Claimed = e.opt.Status().Epoch
	var askers sync.WaitGroup
	v, why := e.take(ctx, p, &askers)
	askers.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("confirm the claim: %w", err)
	}
	if v != Reign {
		return fmt.Errorf("confirm the claim: %v: %w", why, ErrYield)
	}
	e.mu.Lock()
	e.mu.began = now
	e.mu.Unlock()
	return nil
}

// Done says that the claim or the reign has ended, why, and how long it served.
// A reign that came to nothing makes this server unable for a growing time.
func (e *Elector) Done(err error, served time.Duration) {
	now := time.Now()
	e.mu.Lock()
	e.mu.claiming = false
	// Whoever ended it, or was named to follow, shows within this time.
	e.mu.notBefore = now.Add(e.opt.Timing.Suspicion)
	switch {
	case err == nil || served >= healthyReign:
		e.mu.failures = 0
	case errors.Is(err, ErrYield):
		// Somebody else was first: no fault of this server, no fence was set.
	default:
		most := lastBackoff
		if errors.Is(err, ErrNeedsOperator) {
			most = operatorBackoff
		}
		pause := min(firstBackoff<<min(e.mu.failures, 16), most)
		pause = pause*3/4 + e.jitterLocked(pause/2)
		e.mu.failures++
		e.mu.unableTill = now.Add(pause)
	}
	e.mu.Unlock()
	e.poke()
}

// Nominate says that the primary, which has resigned, named this server to follow it: it claims
// without a pre-vote, once, if it can. The caller has found on the volume that no later reign has
// begun. False says that this server reigns itself by now.
func (e *Elector) Nominate() bool {
	now := time.Now()
	st := e.status(now)
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.Role.reigns() {
		return false
	}
	e.mu.nominated = now
	e.poke()
	return true
}
