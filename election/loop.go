// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// operatorBackoff is the longest where an operator has to repair something first.
	operatorBackoff = 2 * time.Minute
	// healthyTerm is how long a term serves to be no failure.
	healthyTerm = 5 * time.Second
)

// loop is what the goroutine in Run keeps between its rounds.
type loop struct {
	silent   time.Time        // when the primary will have been silent for too long
	awake    time.Time        // when this server last found that it had slept; zero: never
	deaf     time.Time        // until then a primary that was not heard since awake is no evidence
	fresh    time.Time        // since when this server's own storage has been fresh; zero: it is not
	primary  cluster.ServerID // the healthy primary of the last round
	patience time.Time        // from here on the order of the servers is dropped; zero: not yet yielded to it
	tried    bool             // all servers were pinged once
	polling  bool
	nextPoll time.Time
	lastWhy  reason
	offer    time.Time // the term on offer is withdrawn then; zero: none is
	told     cluster.Epoch
	toldAt   time.Time
	calls    []call // callbacks to be called
	results  chan result
}

// result is the end of a poll.
type result struct {
	began   time.Time
	good    time.Duration // for how long since then it counts
	verdict Verdict
	why     reason
	rests   bool // a claim would rest on the vote of the volume
}

// call is a callback to be called. Of epochs only the newest matters.
type call struct {
	epoch    cluster.Epoch    // 0: it is about something else
	conflict cluster.ServerID // 0: it is about something else
	stranger Stranger
}

// Run sends heartbeats and holds elections, in all roles, until ctx ends. Every
// goroutine it started has ended when it returns; callbacks must return for that.
func (e *Elector) Run(ctx context.Context) error {
	calls := make(chan call)
	e.wg.Go(func() {
		for c := range calls {
			e.callBack(c)
		}
	})
	defer e.wg.Wait()
	defer close(calls)

	l := &e.loop
	l.results = make(chan result, 1) // one poll at a time
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		var offered chan struct{}
		if !l.offer.IsZero() {
			offered = e.elected
		}
		var callC chan call
		var nextCall call
		if len(l.calls) > 0 {
			callC, nextCall = calls, l.calls[0]
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-e.wake:
		case r := <-l.results:
			e.judge(time.Now(), r)
		case offered <- struct{}{}:
			l.offer = time.Time{}
		case callC <- nextCall:
			l.calls = l.calls[1:]
		}
		next := e.round(ctx, time.Now())
		if l.primary != 0 && l.silent.Before(next) {
			next = l.silent
		}
		tick.Reset(time.Until(next))
	}
}

func (e *Elector) callBack(c call) {
	switch {
	case c.conflict != 0 && e.opt.OnConflict != nil:
		e.opt.OnConflict(c.conflict)
	case c.epoch != 0 && e.opt.OnHigherEpoch != nil:
		e.opt.OnHigherEpoch(c.epoch)
	case c.stranger.ID != 0 && e.opt.OnStranger != nil:
		e.opt.OnStranger(c.stranger)
	}
}

// round does what is due: callbacks, pings, polls. It returns when the next tick is due.
func (e *Elector) round(ctx context.Context, now time.Time) time.Time {
	l := &e.loop
	due := e.tick(now)
	if !l.offer.IsZero() && (!now.Before(l.offer) || e.offerOutdated()) {
		e.withdraw()
		l.nextPoll = now.Add(e.opt.Timing.Suspicion + e.jitter(e.opt.Timing.Suspicion)) // the node is busy: let others
	}
	e.tell(now)
	st := e.status(now)
	e.mu.Lock()
	e.heedLocked(now, st.Storage)
	e.mu.Unlock()
	l.fresh = since(l.fresh, st.Storage < e.opt.Timing.StorageTimeout/2, now)
	healthy := e.observe(now, st)
	e.beat(ctx, now, st, healthy)

	switch {
	case st.Role == RoleReplica && e.named(now):
	case st.Role != RoleReplica || healthy != 0:
		l.patience, l.nextPoll = time.Time{}, time.Time{}
	case e.ready(now, st):
		e.startPoll(ctx, now, st)
	}
	return due
}

// tick measures how late this round is, and returns when the next one is due.
func (e *Elector) tick(now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := slices.Max(e.mu.late.slots[:])
	late := e.mu.late.tick(now, e.opt.Timing.Heartbeat, e.sleep())
	switch {
	case late > e.sleep():
		e.opt.Log.Warn().Dur("late", late).Msg("this server slept: the silence of others counts from now on")
		e.handleSleepLocked(now)
	case late > 2*e.opt.Timing.Heartbeat && late > known:
		e.opt.Log.Warn().Dur("late", late).Dur("allowance", e.allowanceLocked(now)).Msg("own timer was late: the silence of others counts later")
	}
	return e.mu.late.due
}

// handleSleepLocked forgets what this server believed before it was suspended: the silence since
// then was its own. A primary gets time to show until it is heard again, once for each silence, so
// that a server that runs in short spells only still notices one that has ended.
func (e *Elector) handleSleepLocked(now time.Time) {
	l := &e.loop
	e.withdrawLocked()
	e.mu.still.restart(now)
	if p := e.suspectLocked(); p != nil && p.answeredAt.After(l.awake) {
		l.deaf = now.Add((1 + mostAllowance) * e.opt.Timing.Suspicion)
	}
	l.awake = now
}

// suspectLocked returns the server that was the primary when it answered last, or nil.
func (e *Elector) suspectLocked() *peer {
	return newest(e.mu.peers, func(p *peer) bool { return p.answer.status.Role.hasTerm() })
}

// offerOutdated reports whether other voters decided on the term on offer.
func (e *Elector) offerOutdated() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outdatedLocked(e.mu.began)
}

// withdraw withdraws an offered term that was not accepted.
func (e *Elector) withdraw() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawLocked()
}

func (e *Elector) withdrawLocked() {
	if !e.loop.offer.IsZero() {
		e.loop.offer, e.mu.claiming, e.mu.rests, e.mu.permitted = time.Time{}, false, false, false
	}
}

// tell queues the callbacks that are due.
func (e *Elector) tell(now time.Time) {
	l := &e.loop
	own := e.opt.Status().Epoch
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.mu.highestAt) > e.opt.Timing.MajorityWindow {
		e.mu.highest, l.told = 0, 0 // named once, and not confirmed since
	}
	again := e.mu.highest > l.told || now.Sub(l.toldAt) >= 10*e.opt.Timing.Heartbeat
	if e.mu.highest > own && again {
		l.told, l.toldAt = e.mu.highest, now
		l.calls = slices.DeleteFunc(l.calls, func(c call) bool { return c.epoch != 0 })
		l.calls = append(l.calls, call{epoch: l.told})
	}
	for _, p := range append(slices.Clip(e.mu.peers), e.mu.self) {
		if p.conflicted(now) && !p.conflictTold {
			p.conflictTold = true
			e.opt.Log.Error().Uint32("id", uint32(p.id)).Strs("processes", p.speakers(now)).Msg("two processes use one server ID: both are ignored in elections. Stop one of them")
			l.calls = append(l.calls, call{conflict: p.id})
		}
		if x := p.untold(now); x != nil {
			x.reported, p.strangerTold = true, now
			l.calls = append(l.calls, call{stranger: p.describe(x, now)})
		}
	}
}

// observe finds the healthy primary, or 0, and records how the last one was lost.
func (e *Elector) observe(now time.Time, st Status) cluster.ServerID {
	l := &e.loop
	e.mu.Lock()
	var id cluster.ServerID
	if p := e.healthyLocked(now, st.Storage); p != nil {
		id = p.id
		l.silent = p.answeredAt.Add(e.timingLocked(now).Suspicion + 1)
	}
	was, why := l.primary, "found"
	if was != id && id == 0 {
		why = e.lostLocked(now, e.peerLocked(was))
	}
	e.mu.Unlock()
	if was == id {
		return id
	}
	l.primary = id
	e.opt.Log.Info().Uint32("primary", uint32(id)).Uint32("was", uint32(was)).Str("why", why).Msg("primary changed")
	if id != 0 { // another server was first
		e.mu.Lock()
		e.withdrawLocked()
		e.mu.nominated = time.Time{}
		e.mu.Unlock()
	}
	return id
}

// lostLocked classifies how a primary was lost and waits for as long as the cause needs.
func (e *Elector) lostLocked(now time.Time, p *peer) string {
	wait := func(d time.Duration) {
		if at := now.Add(d); at.After(e.mu.notBefore) {
			e.mu.notBefore = at
		}
	}
	switch {
	case p == nil:
		return "it is not in the list of servers any more"
	case p.gone:
		return "connection refused"
	case !p.answer.status.Role.hasTerm():
		wait(e.opt.Timing.Heartbeat) // a handover shows by then
		return "it is no longer primary"
	case !p.reached(now, e.timingLocked(now).Suspicion):
		return "silent"
	}
	// After a stall of the whole share not all servers recover at once.
	wait(max(e.opt.Timing.Suspicion, e.opt.Timing.StorageTimeout/2-now.Sub(e.loop.fresh)))
	return "stalled"
}

// nominated is how the term came that a primary resigned and named this server for.
const nominated = "nominated"

// named offers the term if the primary named this server a moment ago.
func (e *Elector) named(now time.Time) bool {
	able := e.opt.Status().Able
	e.mu.Lock()
	at, votes := e.mu.nominated, e.votesLocked()
	until := at.Add(e.opt.Timing.Suspicion)
	late := now.After(until)
	if votes || late {
		e.mu.nominated = time.Time{} // one that became a member a moment ago learns it soon
	}
	if e.outdatedLocked(at) {
		at = e.mu.changed.Add(1) // the list that makes it a member came later: a nomination rests on nobody's vote
	}
	e.mu.Unlock()
	if late || !able || !votes {
		return false
	}
	e.offerTerm(at, until.Sub(at), nominated, false)
	return true
}

// ready reports whether to ask for votes now.
func (e *Elector) ready(now time.Time, st Status) bool {
	l := &e.loop
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := e.mu.asked
	e.mu.asked = false
	if l.polling || !st.Able || !e.votesLocked() || now.Before(e.mu.notBefore) {
		return false
	}
	if p := e.suspectLocked(); now.Before(l.deaf) && p != nil && !p.gone && !p.answeredAt.After(l.awake) {
		return false // a broken connection is no silence
	}
	if untried := slices.ContainsFunc(e.mu.peers, func(p *peer) bool { return !p.tried }); untried {
		return false // just started: a primary may be about to answer
	}
	if !l.tried && len(e.mu.peers) > 0 {
		l.tried = true
		e.mu.notBefore = now.Add(e.courtesyLocked())
		return false
	}
	if asked && l.lastWhy == reasonPrimary {
		l.nextPoll = time.Time{} // the servers that heard that primary hear it no more
	}
	return !now.Before(l.nextPoll)
}

// courtesyLocked returns how long a server that has just started waits for others: those that
// started with it may not be able yet, and those that come before it in turn may not even run.
func (e *Elector) courtesyLocked() time.Duration {
	own := e.turnLocked(e.opt.Self)
	late := func(p *peer) bool { return p.votes && e.turnLocked(p.id) < own && !p.latest().status.Able }
	if slices.ContainsFunc(e.mu.peers, late) {
		return e.opt.Timing.Suspicion
	}
	return e.opt.Timing.Heartbeat
}

func (e *Elector) startPoll(ctx context.Context, now time.Time, st Status) {
	l := &e.loop
	order := InTurn
	if !l.patience.IsZero() && !now.Before(l.patience) {
		order = AnyOrder
	}
	l.polling = true
	p := e.newPoll(now, st, order)
	e.wg.Go(func() {
		v, why := e.take(ctx, p, &e.wg)
		l.results <- result{p.began, p.Timing.Suspicion, v, why, p.rests()}
	})
}

// judge acts on the end of a poll.
func (e *Elector) judge(now time.Time, r result) {
	l, t := &e.loop, e.opt.Timing
	l.polling, l.lastWhy = false, r.why
	e.opt.Log.Debug().Stringer("verdict", r.verdict).Stringer("why", r.why).Msg("pre-vote")
	switch r.why {
	case reasonPrimary:
		l.patience = time.Time{}
		l.nextPoll = now.Add(t.Suspicion + e.jitter(t.Suspicion/2))
	case reasonOrder:
		l.nextPoll = now.Add(2*t.Heartbeat + e.jitter(t.Heartbeat))
		if l.patience.IsZero() {
			e.mu.Lock()
			behind := e.turnLocked(e.opt.Self)
			e.mu.Unlock()
			l.patience = now.Add(time.Duration(max(behind, 1))*t.Suspicion + e.jitter(t.Suspicion/2))
		}
	default:
		l.nextPoll = now.Add(t.Suspicion/2 + e.jitter(t.Suspicion/2))
	}
	e.mu.Lock()
	stale := !r.began.After(l.awake) || e.outdatedLocked(r.began) || now.Sub(r.began) > r.good || now.Before(e.mu.notBefore) || e.mu.claiming
	e.mu.Unlock()
	if r.verdict == Claim && !stale && e.opt.Status().Role == RoleReplica {
		e.offerTerm(r.began, r.good, "elected", r.rests)
	}
}

// offerTerm puts a term on offer for as long as its grounds are good, and records whether they rest
// on the vote of the volume.
func (e *Elector) offerTerm(began time.Time, good time.Duration, how string, rests bool) {
	e.opt.Log.Info().Str("how", how).Bool("by_the_volume", rests).Msg("this server should be primary")
	e.loop.offer = began.Add(good)
	e.mu.Lock()
	e.mu.claiming = true
	e.mu.began = began
	e.mu.rests, e.mu.permitted = rests, rests && began.Before(e.mu.permit)
	e.mu.named = how == nominated
	e.mu.Unlock()
}
