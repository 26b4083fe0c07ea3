// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/primary/protected"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// core is the core loop. All its fields are owned by the goroutine of run.
type core struct {
	p     *Primary
	table *locktable.Table
	mark  cluster.Mark // of the cluster

	clock     servingClock
	now       time.Duration // on the serving clock, when calls were taken last
	wall      int64         // then, in milliseconds since 1970; for people
	leases    wheel[locktable.Lease]
	clients   wheel[locktable.Presence]       // but for anonymous ones
	limits    map[cluster.Token]time.Duration // of grants of this term with a MaxHold
	appended  map[cluster.Token]*pb.Receipt   // the last append of this term under a live token
	asks      wheel[releaseRequest]
	asked     map[cluster.Token]*releaseRequest
	waits     map[waitKey]*waiter
	mostWaits int // there ever were in waits
	waiters   wheel[waiter]
	overdue   bool // there may be more to expire
	adopting  adoption
	limiter   history.Limiter                    // of the history: which ends get a line of their own
	silent    *silence                           // of the lease that is being ended
	expired   map[cluster.ClientID]time.Duration // when a lease of these last ended for want of a renewal
	slots     map[cluster.FileName]*fileSlot
	rules     *access.Rules // those in force at the beginning of the round
	looks     []markLook    // at the ends of the log, for the ages of marks, the oldest first
	quotas    *quotaCounts  // nil where the rules limit nothing that the table has
	// parkedBytes is how much data the calls have that wait for the verification of a file.
	parkedBytes int

	calls     []*call // taken and not yet handled
	resumed   []*call // were parked; handled before calls
	internal  []*call // wait for a batch without records
	free      []*call // the slice that the queue gets next
	cur       *batch  // being decided
	spare     *batch  // nil while a batch is in flight
	since     time.Time
	woke      time.Time     // when the round began
	taken     time.Duration // since the term began, when calls were taken last
	elsewhere time.Duration // of the round: in the volume
	rest      *time.Timer   // fires when an unawaited batch has to go
	restEnd   time.Time     // then; zero while no batch rests
	toCommit  chan *batch   // capacity 1
	committed chan *batch   // capacity 1
	recs      []locktable.Record
	head      []byte
	resigning bool
	broken    bool          // a record could not be applied: nothing in the table is to be trusted
	always    chan struct{} // closed
}

func newCore(p *Primary, table *locktable.Table, at wal.Position) *core {
	c := &core{
		p: p, table: table, mark: cluster.MarkOf(p.term.Cluster()),
		leases: newWheel(leaseGrain, leasePlace), waits: map[waitKey]*waiter{}, waiters: newWheel(leaseGrain, waiterPlace), slots: map[cluster.FileName]*fileSlot{},
		cur: &batch{}, spare: &batch{},
		toCommit: make(chan *batch, 1), committed: make(chan *batch, 1), always: make(chan struct{}),
		rest:     time.NewTimer(placeRest),
		adopting: adoption{under: true}, limiter: history.NewLimiter(p.opt.History.Rate),
	}
	c.clients = newWheel(clientGrain(p.opt.Timing.ClientRetention), clientPlace)
	c.limits, c.appended = map[cluster.Token]time.Duration{}, map[cluster.Token]*pb.Receipt{}
	c.expired = map[cluster.ClientID]time.Duration{}
	c.asks, c.asked = newWheel(leaseGrain, askPlace), map[cluster.Token]*releaseRequest{}
	for a := range table.Asks() { // few, by hand
		c.countAsk(a.Lock, a.Token, a.Grace)
	}
	close(c.always)
	c.cur.reset(at)
	c.p.clusterLevel.Raise(p.term.Level(table))
	return c
}

// run decides and commits until the term ends.
func (c *core) run() {
	defer c.stop()
	t := wake.Every(tick)
	defer t.Stop()
	c.clock.last = time.Now()
	for {
		c.round()
		c.dispatch()
		c.countWork()
		if c.left() && !c.full() || len(c.internal) > 0 && c.cur.Len() == 0 {
			continue // what had to wait for the batch to go
		}
		select {
		case <-c.p.term.Done():
			return
		case b := <-c.committed:
			c.spare = b
		case <-c.wake():
		case <-c.again():
		case <-c.rest.C:
		case <-t.C:
			t.Again()
			c.onTick()
		case x := <-c.p.opt.Jumps:
			c.jump(x)
		}
	}
}

// wake is the queue's signal, or nothing while the batch is full and has to wait
// for the one in flight.
func (c *core) wake() <-chan struct{} {
	if c.left() {
		return nil
	}
	return c.p.queue.wake
}

// again returns a closed channel while there is more to adopt, to count, to grant or to expire, else nil.
func (c *core) again() <-chan struct{} {
	if c.adopting.under || c.counting() || (c.overdue || c.hasPendingGrants()) && !c.full() {
		return c.always
	}
	return nil
}

// left reports whether calls were taken that are not handled yet.
func (c *core) left() bool { return len(c.calls)+len(c.resumed) > 0 }

// stalled reports whether the serving clock stands still: without a quorum, or with a
// batch in flight for longer than storage should take.
func (c *core) stalled(now time.Time) bool {
	return !c.p.quorum.Load() || c.spare == nil && now.Sub(c.since) > lateness
}

// round handles what is queued until the batch is full. When all that was taken
// is handled, it ends what was overdue when it was taken: renewals come before expiries.
func (c *core) round() {
	now := time.Now()
	c.woke = now
	c.p.rounds.Store(int64(now.Sub(c.p.began)))
	if c.spare != nil {
		// With a batch in flight there is progress when that has come through. Rounds that
		// only decide more would hide a log that hangs.
		c.p.progress.Store(int64(now.Sub(c.p.began)))
	}
	if !c.left() {
		c.calls = c.p.queue.take(c.free[:0])
		c.free = nil
		// After taking: a lease granted now begins after its client asked for it.
		now = time.Now()
		c.taken = now.Sub(c.p.began)
		c.now, c.wall = c.clock.advance(now, c.stalled(now)), c.p.opt.TimeOfDay(now).UnixMilli()
	}
	c.grantOwed()
	if c.adopting.under {
		c.adoptSome(adoptStep)
	}
	c.followRules()
	for _, x := range c.internal {
		if c.cur.Len() > 0 {
			break
		}
		c.handle(x)
		c.internal = c.internal[1:]
	}
	for len(c.resumed) > 0 && !c.full() {
		x := c.resumed[0]
		c.resumed = c.resumed[1:]
		c.handle(x)
	}
	n := 0
	for n < len(c.calls) && len(c.resumed) == 0 && !c.full() {
		c.handle(c.calls[n])
		c.calls[n] = nil
		n++
	}
	if n < len(c.calls) {
		c.calls = c.calls[n:]
		return
	}
	if c.calls != nil {
		c.free, c.calls = c.calls[:0], nil
	}
	c.overdue = false
	if !c.left() && c.p.quorum.Load() && !c.resigning {
		c.expire()
	}
}

// full reports whether the batch takes no more.
func (c *core) full() bool { return c.cur.Size() >= c.p.opt.MaxBatch }

// dispatch commits the batch: inline if no other call waits to be decided, else in the
// committer's goroutine, so that the next batch is decided meanwhile.
func (c *core) dispatch() {
	if c.spare == nil || c.cur.empty() || c.rests() {
		return
	}
	b, next := c.cur, c.spare
	next.reset(b.End())
	c.cur = next
	if !c.left() && c.p.queue.empty() {
		c.p.away.Store(true)
		c.p.commit(b)
		c.p.away.Store(false)
		c.elsewhere += max(0, b.times.checked-b.times.began)
		c.spare = b
		return
	}
	c.spare, c.since = nil, time.Now()
	c.toCommit <- b
}

// placeRest is how long a batch rests that nobody waits for.
const placeRest = 2 * time.Millisecond

// rests reports whether the batch rests a while for other calls to join it, because nobody waits for it.
// Where many wait for one lock, the request that a client makes after its release would else be
// synced first, and the release of the next holder afterwards: two syncs for each hand-over.
func (c *core) rests() bool {
	if c.cur.unawaited() && len(c.internal) == 0 && !c.left() && !c.resigning {
		now := time.Now()
		if c.restEnd.IsZero() {
			c.restEnd = now.Add(placeRest)
			c.rest.Reset(placeRest)
		}
		if now.Before(c.restEnd) {
			return true
		}
	}
	c.restEnd = time.Time{}
	return false
}

// commits is the committer: it commits the batches it receives, in order.
func (c *core) commits() {
	for b := range c.toCommit {
		c.p.commit(b)
		c.committed <- b
	}
}

// stop answers UNKNOWN to everything that waits in memory: the term is over.
func (c *core) stop() {
	close(c.toCommit)
	c.cur.fail()
	for _, x := range slices.Concat(c.internal, c.resumed, c.calls) {
		x.answerUnknown()
	}
	for _, w := range c.waits {
		for _, x := range w.calls {
			x.answerUnknown()
		}
	}
	for _, s := range c.slots {
		for _, x := range s.parked.calls {
			x.answerUnknown()
		}
	}
}

// leave returns the table for the server's next role, when every goroutine of the term has
// ended. It returns nil if a record may be in the table and in no log: what was decided and
// not committed cannot be taken back.
func (c *core) leave() *volume.WarmState {
	at := c.cur.Start()
	if c.broken || at.LSN != c.p.LSN() || at.LSN != c.table.LSN() {
		return nil
	}
	c.table.ResetCounts()
	return &volume.WarmState{
		At: at, Table: c.table, Of: c.p.term.Cluster(), Ends: history.RingOf(c.p.opt.History.Rate, c.p.history.Recent()),
	}
}

// onTick does the periodic work of the core loop.
func (c *core) onTick() {
	c.shrinkWaits()
	c.watchFiles()
	c.restSlots()
	if c.spare != nil && c.cur.empty() && c.p.queue.empty() {
		// Proof on disk that the last frame was durable: a bit that flips in it
		// later is then known to be damage and not a torn write.
		c.p.away.Store(true)
		if err := c.p.log.Mark(); err != nil {
			c.p.End(fmt.Errorf("mark the log: %w", err))
		}
		c.p.away.Store(false)
	}
	c.publishSizes()
}

// handle decides one call.
func (c *core) handle(x *call) {
	switch {
	case x.kind == callInternal && c.cur.Len() > 0:
		// A snapshot ends where a frame does, so that pushes can go on from there.
		c.internal = append(c.internal, x)
	case x.kind == callInternal:
		x.read(c.view())
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK})
	case x.kind == callExport: // of a basis that was committed and checked
		x.read(c.view())
		x.done(locktable.Outcome{Status: cluster.StatusOK})
	case x.kind == callVerified:
		c.onVerified(x.verified)
	case x.kind == callQuarantine:
		c.quarantine(x.req.File, x.req.Reason)
	case c.resigning:
		c.answer(x, locktable.Outcome{Status: cluster.StatusSecondaryMode})
	case !c.p.quorum.Load():
		c.answer(x, locktable.Outcome{Status: cluster.StatusNoQuorum})
	default:
		c.serve(x)
	}
}

// serve decides a call of a client.
func (c *core) serve(x *call) {
	switch x.kind {
	case callRead:
		x.read(c.view())
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK, LSN: c.table.LSN()})
	case callFile:
		c.tellFile(x)
	case callRenew:
		c.renew(x)
	case callKeepAlive:
		c.keepAlive(x)
	case callResign:
		if x.abandoned.Load() { // the caller would not notify the successor
			c.answer(x, serving.Unknown())
			return
		}
		c.resigning = true
		c.apply(c.table.DecideHandover(x.req.Reason, c.p.Epoch(), c.recs[:0]), nil)
		c.cur.resigns = true
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK})
	case callRaise:
		c.raise(x)
	case callAdmit:
		c.admitMember(x)
	case callRequest:
		c.request(x)
	}
}

// request decides a request, now or when its file has been verified.
func (c *core) request(x *call) {
	q := x.req
	out, full := c.refuseFull(q)
	denied := x.verified != nil && x.verified.Err != nil
	// A request that was seen before gets its answer, whatever the state is now.
	if (full || denied || c.needsFile(x)) && c.unseen(q) {
		switch {
		case full:
			c.answer(x, out)
		case denied:
			c.refuseFile(x)
		default:
			c.park(x)
		}
		return
	}
	var facts locktable.FileFacts
	if x.verified != nil {
		facts = x.verified.Facts
	}
	c.decide(x, facts)
}

// unseen reports whether a request was neither executed nor waits, is not cancelled and not stale.
func (c *core) unseen(q *locktable.Request) bool {
	state, _ := c.table.Lookup(q.Client, q.ID)
	return state == locktable.RequestNotSeen
}

// decide turns a request into records and an answer.
func (c *core) decide(x *call, facts locktable.FileFacts) {
	q := x.req
	q.Mark, q.Level = c.mark, c.recordLevel()
	if q.Members != nil {
		q.Members.First = c.p.term.FirstServers()
	}
	recs, d := c.table.Decide(q, c.p.Epoch(), facts, c.recs[:0])
	if c.quotas != nil && len(recs) > 0 { // a repeat has none, and gets its answer
		if why := c.quotas.refuses(q, recs); why != "" {
			recs, d = recs[:0], locktable.Decision{Outcome: locktable.Outcome{
				Status: cluster.StatusLimited, Message: why, Client: q.Client, Request: q.ID, Lock: q.Lock, Token: q.Token, File: q.File,
			}}
		}
	}
	if len(recs) == 0 && c.table.DeniesClient(q.Client, q.Identity) != "" {
		c.answer(x, d.Outcome) // the request of another identity is no sign of the client's life
		return
	}
	if len(recs) > 0 && q.Token != 0 {
		c.hearHolder(q.Lock, q.Token) // an accepted use of the token
	}
	var appended *call
	if q.Op == locktable.OpAppend && len(recs) > 0 {
		appended = x
	}
	if !c.apply(recs, appended) {
		c.answer(x, serving.Unknown())
		return
	}
	if !c.behindItself(q, &d) {
		c.touch(q.Client)
	}
	if d.Pending {
		c.joinPlace(x) // first: it may be granted after what is given up
	}
	if q.LowWater > 0 {
		c.dropGivenUp(q.Client)
	}
	c.tellLeft(&d.Outcome)
	switch {
	case appended != nil, d.Pending: // the file's writer answers, or the record that ends the wait
	case q.Op == locktable.OpAppend && d.Outcome.Repeat:
		c.answerAfter(x, d.Outcome, c.writing(d.Outcome.File), true)
	case q.Op == locktable.OpAcquire && d.Outcome.Status == cluster.StatusOK:
		c.answerAfter(x, d.Outcome, c.writingUnder(d.Outcome.Lock), false)
	default:
		if h := d.Outcome.Holder; h != nil && d.Outcome.Message == "" {
			d.Outcome.Message = c.heldUntil(q.Lock, h.Token)
		}
		c.answer(x, c.estranged(q.Client, d.Outcome))
	}
}

// estranged adds a message to the refusal of a client that was opened in another cluster.
func (c *core) estranged(client cluster.ClientID, out locktable.Outcome) locktable.Outcome {
	if _, of := client.OpenedBy(); out.Status == cluster.StatusStaleRequest && of != 0 && of != c.mark {
		out.Message = fmt.Sprintf("client %s belongs to another cluster than the one that is served here, %s: look at the addresses, or open a new client",
			client, c.p.term.Cluster())
	}
	return out
}

// maxJoined is how many calls may wait for one request. A caller that repeats a request mostly
// does not wait for the first answer any more.
const maxJoined = 16

// joinPlace has a call wait for the place of its request.
func (c *core) joinPlace(x *call) {
	w := c.waiter(waitKey{x.req.Client, x.req.ID})
	if w == nil {
		c.answer(x, locktable.Outcome{Status: cluster.StatusError, Message: "no place in the queue for a waiting request"})
		return
	}
	w.since = c.now
	c.join(w, x)
}

// join adds a call to those that wait for a place, in place of the oldest if there are too many.
func (c *core) join(w *waiter, x *call) {
	w.calls = slices.DeleteFunc(w.calls, func(x *call) bool { return x.abandoned.Load() })
	if len(w.calls) >= maxJoined {
		c.answer(w.calls[0], locktable.Outcome{Status: cluster.StatusUnknown, Message: "this call is not answered: too many repeats of the request wait. Ask again with the same request ID"})
		w.calls = slices.Delete(w.calls, 0, 1)
	}
	w.calls = append(w.calls, x)
}

// answer adds an answer to the batch; it is delivered with it.
func (c *core) answer(x *call, out locktable.Outcome) {
	if x.done != nil {
		c.cur.answers = append(c.cur.answers, answer{call: x, out: out})
	}
}

// answerAfter is answer for one that also waits for the writes under way to these files, with
// inFile because it promises that bytes are there.
func (c *core) answerAfter(x *call, out locktable.Outcome, after []*protected.Writer, inFile bool) {
	c.cur.answers = append(c.cur.answers, answer{call: x, out: out, after: after, inFile: inFile})
}

// apply applies decided records, and the grants that are owed after them, as far as the batch
// has room. The Append among them, if any, answers appended. False means that the term is over.
func (c *core) apply(recs []locktable.Record, appended *call) bool {
	return c.applyAll(recs, appended) && c.grantOwed()
}

// applyAll applies records, in order, and puts them into the batch.
func (c *core) applyAll(recs []locktable.Record, appended *call) bool {
	for i := range recs {
		r := &recs[i]
		r.Time = c.wall
		c.endCounting(r)
		c.noteEnds(r)
		var changes change
		if c.quotas != nil {
			changes = c.quotas.before(c.table, r)
		}
		if err := c.table.Apply(r); err != nil {
			// A record that was decided against this very table cannot fail; if
			// it does, nothing in memory is to be trusted.
			c.broken = true
			c.p.End(fmt.Errorf("apply %v at LSN %d: %w", r.Kind, r.LSN, err))
			return false
		}
		if c.quotas != nil {
			c.quotas.after(c.table, r, changes)
		}
		c.head = r.AppendHeader(c.head[:0])
		c.cur.Add(c.head, r.Data)
		c.follow(r, appended)
	}
	c.recs = recs[:0]
	return true
}

// follow updates what the core loop counts after a record was applied.
func (c *core) follow(r *locktable.Record, appended *call) {
	c.p.logRecord(r, c.silent)
	c.tallyRecord(r)
	c.hearOf(r.Client)
	switch r.Kind {
	case locktable.KindBind:
		c.p.term.Bound(r.Inode)
	case locktable.KindGrant:
		c.addLease(r.Lock, r.LSN.Token())
		c.endWait(waitKey{r.Client, r.Request}, r)
	case locktable.KindEnqueue:
		c.cur.places++
		c.countWaiter(waitKey{r.Client, r.Request}, r.TTL, r.Wait, c.now)
	case locktable.KindWaitTimeout, locktable.KindCancel, locktable.KindSkip:
		c.endWait(waitKey{r.Client, r.Request}, r)
	case locktable.KindAsk:
		c.countAsk(r.Lock, r.Token, c.now+r.Wait)
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		delete(c.appended, r.Token)
	case locktable.KindAppend:
		c.note(r)
		c.followAppend(r, appended)
	case locktable.KindOpenClient:
		c.hearOf(cluster.OpenedClientID(r.LSN, r.Mark))
	case locktable.KindUnbind:
		c.dropSlot(r.File)
	case locktable.KindRotate:
		c.p.term.Bound(r.Inode)
		c.dropSlot(r.File)
	case locktable.KindMembers:
		list, _ := c.table.Members()
		c.cur.members = &list
	case locktable.KindForceClear:
		clear(c.appended)
		for key := range c.waits {
			c.endWait(key, r)
		}
	}
}

// endWait removes a waiter and answers the calls that wait for it.
func (c *core) endWait(key waitKey, r *locktable.Record) {
	w, ok := c.waits[key]
	if !ok {
		return
	}
	delete(c.waits, key)
	c.waiters.remove(w)
	c.tallyWait(w, r)
	if len(w.calls) == 0 {
		return
	}
	if r.Kind == locktable.KindForceClear {
		for _, x := range w.calls {
			c.answer(x, locktable.Outcome{Status: cluster.StatusUnknown, Message: "the queue was cleared: ask again"})
		}
		return
	}
	out := locktable.OutcomeOf(r)
	var after []*protected.Writer
	if r.Kind == locktable.KindGrant {
		after = c.writingUnder(r.Lock)
	}
	for _, x := range w.calls {
		if !x.abandoned.Load() && (r.Kind == locktable.KindGrant || !c.table.Holds(key.client, r.Lock)) {
			c.touch(key.client) // it has waited up to now, and not for its own grant
		}
		c.answerAfter(x, out, after, false)
	}
}

// view returns what a read sees.
func (c *core) view() serving.View {
	return serving.View{
		Table:     c.table,
		At:        c.cur.End(),
		Quotas:    c.checkQuotas,
		Remaining: c.leftOf,
		Grace:     c.grace,
		Heard: func(id cluster.ClientID) bool {
			_, heard := heardAt(c.table.Presence(id))
			return heard
		},
	}
}

// hasPendingGrants reports whether grants of a phase are owed which were too many for one decision.
func (c *core) hasPendingGrants() bool { return !c.resigning && c.table.HasPendingGrants() }

// grantOwed decides grants that are owed, before anything else is decided. False means that the
// term is over.
func (c *core) grantOwed() bool {
	for c.hasPendingGrants() && !c.full() {
		if !c.applyAll(c.table.DecideOwed(c.p.Epoch(), c.recs[:0]), nil) {
			return false
		}
	}
	return true
}
