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

// poll is one pre-vote in progress. It belongs to the goroutine that runs it.
type poll struct {
	Poll
	ask   Ask
	began time.Time
}

// answer is the result of one Ask.
type answer struct {
	from cluster.ServerID
	vote Vote
	err  error
}

// newPoll prepares a pre-vote.
func (e *Elector) newPoll(now time.Time, st Status, order Order) *poll {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.timingLocked(now)
	p := &poll{
		Poll: Poll{
			Self: e.opt.Self, Members: e.mu.voters, First: e.opt.First, Timing: t,
			Able: st.Able, Storage: st.Storage, Order: order, Volume: e.volumeLocked(now, st.Storage),
		},
		ask:   Ask{From: e.opt.Self, Nonce: e.opt.Nonce, Epoch: st.Epoch},
		began: now,
	}
	for _, x := range e.mu.peers {
		if !x.votes {
			continue
		}
		v := Voter{ID: x.id}
		// The primary whose silence led here would only cost the time-out.
		if x.gone || x.unanswered(now) >= t.Suspicion/2 {
			v.Answer = Silent
		}
		if x.conflicted(now) {
			v.Answer = Conflicted
		}
		p.Voters = append(p.Voters, v)
	}
	return p
}

// take asks all servers and returns as soon as the verdict is final. The goroutines that
// ask belong to wg; they end soon after take has returned.
func (e *Elector) take(ctx context.Context, p *poll, wg *sync.WaitGroup) (Verdict, reason) {
	ctx, cancel := context.WithTimeout(ctx, p.Timing.Suspicion/2)
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
	if peer == nil || !e.identifyLocked(peer, sender{nonce: a.vote.Nonce, answers: true}, now) {
		v.Answer = Silent // another server answers there
		return
	}
	e.learnLocked(a.vote.Status.Epoch, now)
	v.Answer, v.Vote = Voted, a.vote
	if peer.conflicted(now) {
		v.Answer = Conflicted
	}
}

// HandlePreVote returns the answer to an Ask. It pings the primary it believes in first, so
// that the answer does not rest on what was true some heartbeats ago.
func (e *Elector) HandlePreVote(ctx context.Context, a Ask) Vote {
	now := time.Now()
	st := e.status(now)
	e.mu.Lock()
	if peer := e.peerLocked(a.From); peer != nil && !e.identifyLocked(peer, sender{nonce: a.Nonce, from: a.Address}, now) {
		e.mu.Unlock()
		return Vote{} // a vote of no server
	}
	e.learnLocked(a.Epoch, now)
	e.mu.asked = true
	suspect := e.suspectLocked()
	e.mu.Unlock()
	e.notify() // if this server hears no primary either, it should poll now

	vote := Vote{From: e.opt.Self, Nonce: e.opt.Nonce}
	switch {
	case st.Role.hasTerm():
		vote.HearsPrimary, vote.Primary = true, e.opt.Self
	case suspect != nil && suspect.id != a.From:
		e.probe(ctx, suspect.id, st)
	}
	now = time.Now()
	vote.Status = e.status(now)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !vote.Status.Role.hasTerm() {
		vote.Primary = e.testifyLocked(now, vote.Status.Storage)
		vote.HearsPrimary = vote.Primary != 0
	}
	t := e.timingLocked(now)
	for _, p := range e.mu.peers {
		if p.votes && p.id != a.From && p.live(now, t) && p.latest().status.Able {
			vote.Live = append(vote.Live, p.id)
		}
	}
	return vote
}

// probe pings outside the beat. It waits briefly: the sender of the Ask waits meanwhile, and where
// this server is late the other may be on time.
func (e *Elector) probe(ctx context.Context, to cluster.ServerID, st Status) {
	now := time.Now()
	e.mu.Lock()
	p := e.peerLocked(to)
	if p == nil || p.inFlight >= 2*maxInFlight {
		e.mu.Unlock()
		return // removed meanwhile, or asked often enough
	}
	seq, wait, longer := p.send(now), e.opt.Timing.Suspicion/6, e.timingLocked(now).Suspicion/6
	e.mu.Unlock()
	if end, ok := ctx.Deadline(); ok {
		wait = max(wait, min(longer, end.Sub(now)/3))
	}
	e.ping(ctx, to, Ping{From: e.opt.Self, Nonce: e.opt.Nonce, Seq: seq, Status: st}, now, wait)
}

// Resigned pings a server at its own address until it answers that it is not primary, for as long
// as a primary of an older binary takes to resign. It returns false if the server is primary or
// does not answer in time.
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
		resigned := p.answered > 0 && !p.answeredAt.Before(began) && !p.answer.status.Role.hasTerm()
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

// testifyLocked returns the live primary that this server may name to others, or
// 0. Half of Suspicion without an answer, or one refusal, the probe included,
// is enough here, because the asker itself has heard nothing for a whole one.
func (e *Elector) testifyLocked(now time.Time, own time.Duration) cluster.ServerID {
	if p := e.healthyLocked(now, own); p != nil && p.refused == 0 && p.reached(now, e.timingLocked(now).Suspicion/2) {
		return p.id
	}
	return 0
}

// Voted reports whether voters decided that this server takes over. Else the primary before resigned, and named it.
func (e *Elector) Voted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.mu.named
}

// Confirm returns nil if this server should still take over. It is called before the first
// fence is set. When the pre-vote is older than Suspicion, or was one of other voters, it holds another, without regard to
// the order of IDs, because the claim is made. It returns an error that wraps ErrYield if
// another server goes first, or that of ctx.
func (e *Elector) Confirm(ctx context.Context) error {
	now := time.Now()
	e.mu.Lock()
	began, outdated := e.mu.began, e.outdatedLocked(e.mu.began)
	e.mu.Unlock()
	if now.Sub(began) <= e.opt.Timing.Suspicion && !outdated {
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
	if v != Claim {
		return fmt.Errorf("confirm the claim: %v: %w", why, ErrYield)
	}
	e.mu.Lock()
	e.mu.began = now
	e.mu.rests = e.mu.rests || p.rests()
	e.mu.Unlock()
	return nil
}

// Done reports that the claim or the term has ended, why, and how long it served. A term
// that failed makes this server unable for a growing time.
func (e *Elector) Done(err error, served time.Duration) {
	now := time.Now()
	e.mu.Lock()
	e.mu.claiming = false
	e.usedLocked(now, err, served)
	// The server that ended it, or was named to follow, shows within this time.
	e.mu.notBefore = now.Add(e.opt.Timing.Suspicion)
	switch {
	case err == nil || served >= healthyTerm:
		e.mu.failures = 0
	case errors.Is(err, ErrYield):
		// Another server was first: this one is not at fault, and no fence was set.
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
	e.notify()
}

// Nominate has this server claim without a pre-vote, once, if it can: the primary has resigned
// and named it to follow. The caller has found on the volume that no later term has begun. It
// returns false if this server is primary itself by now.
func (e *Elector) Nominate() bool {
	now := time.Now()
	st := e.status(now)
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.Role.hasTerm() {
		return false
	}
	e.mu.nominated = now
	e.notify()
	return true
}
