// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// core is the core loop. All its fields are owned by the goroutine of run.
type core struct {
	p     *Primary
	table *locktable.Table

	clock  servingClock
	now    time.Duration // on the serving clock, when calls were taken last
	timers timers
	ended  int // timers of leases and waiters that have ended
	leases map[cluster.Token]*lease
	waits  map[waitKey]*waiter
	heard  map[cluster.ClientID]time.Duration // unheard, or when, for the table's clients
	slots  map[cluster.FileName]*slot

	calls     []*call // taken and not yet handled
	resumed   []*call // were parked; handled before calls
	internal  []*call // wait for a batch without records
	free      []*call // the slice that is given to the queue next
	cur       *batch  // being decided
	spare     *batch  // nil while a batch is in flight
	since     time.Time
	toCommit  chan *batch // capacity 1
	committed chan *batch // capacity 1
	recs      []locktable.Record
	head      []byte
	resigning bool
}

func newCore(p *Primary, table *locktable.Table, at wal.Position) *core {
	c := &core{
		p: p, table: table,
		leases: map[cluster.Token]*lease{}, waits: map[waitKey]*waiter{},
		heard: map[cluster.ClientID]time.Duration{}, slots: map[cluster.FileName]*slot{},
		cur: &batch{}, spare: &batch{},
		toCommit: make(chan *batch, 1), committed: make(chan *batch, 1),
	}
	c.cur.reset(at)
	return c
}

// adopt counts every lease, place and client of the adopted table afresh: each
// with its full time, from the zero of this reign's serving clock.
func (c *core) adopt() {
	for l := range c.table.Locks("", "") {
		if l.Grant.Token != 0 {
			c.addLease(l.Name, l.Grant.Token, l.Grant.Client, l.Grant.TTL)
		}
		for w := range c.table.Waiters(l.Name) {
			c.addWaiter(l.Name, w.Client, w.Request, w.TTL, w.Wait)
		}
	}
	for id := range c.table.Clients() {
		c.hearOf(id)
	}
}

// run decides and commits until the reign ends.
func (c *core) run() {
	defer c.stop()
	t := time.NewTicker(tick)
	defer t.Stop()
	c.clock.last = time.Now()
	for {
		c.round()
		c.dispatch()
		if c.left() && !c.full() || len(c.internal) > 0 && c.cur.Len() == 0 {
			continue // what had to wait for the batch to go
		}
		select {
		case <-c.p.reign.Done():
			return
		case b := <-c.committed:
			c.spare = b
		case <-c.wake():
		case <-t.C:
			c.onTick()
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

// left says that calls were taken that are not handled yet.
func (c *core) left() bool { return len(c.calls)+len(c.resumed) > 0 }

// stalled says that the serving clock stands still: without a quorum, or with a
// batch in flight for longer than storage should take.
func (c *core) stalled(now time.Time) bool {
	return !c.p.quorum.Load() || c.spare == nil && now.Sub(c.since) > lateness
}

// round handles what is queued until the batch is full. When all that was taken
// is handled, it ends what was overdue when it was taken: renewals come before expiries.
func (c *core) round() {
	now := time.Now()
	if c.spare != nil {
		// With a batch in flight there is progress when that has come through. Rounds that
		// only decide more would hide a log that hangs.
		c.p.progress.Store(now.UnixNano())
	}
	if !c.left() {
		c.calls = c.p.queue.take(c.free[:0])
		c.free = nil
		// After taking: a lease granted now begins after its client asked for it.
		now = time.Now()
		c.now = c.clock.advance(now, c.stalled(now))
	}
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
	if !c.left() && c.p.quorum.Load() && !c.resigning {
		c.expire()
	}
}

// full says that the batch takes no more.
func (c *core) full() bool { return c.cur.Size() >= c.p.opt.MaxBatch }

// dispatch commits the batch: inline when nobody else is waiting to be decided,
// else in the committer's goroutine, so that the next batch is decided meanwhile.
func (c *core) dispatch() {
	if c.spare == nil || c.cur.empty() {
		return
	}
	b, next := c.cur, c.spare
	next.reset(b.End())
	c.cur = next
	if !c.left() && c.p.queue.empty() {
		c.p.commit(b)
		c.spare = b
		return
	}
	c.spare, c.since = nil, time.Now()
	c.toCommit <- b
}

// commits is the committer: it commits the batches it is handed, in order.
func (c *core) commits() {
	for b := range c.toCommit {
		c.p.commit(b)
		c.committed <- b
	}
}

// stop answers everything that waits in memory: the reign is over.
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
		for _, x := range s.parked {
			x.answerUnknown()
		}
	}
}

// onTick does what idle time is for.
func (c *core) onTick() {
	c.sweep()
	c.restSlots()
	if c.spare != nil && c.cur.empty() && c.p.queue.empty() {
		// Proof on disk that the last frame was durable: a bit that flips in it
		// later is then known to be damage and not a torn write.
		if err := c.p.log.Mark(); err != nil {
			c.p.Depose(fmt.Errorf("mark the log: %w", err))
		}
	}
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
	case x.kind == callVerified:
		c.onVerified(x.word)
	case x.kind == callQuarantine:
		c.apply(c.table.DecideQuarantine(x.req.File, x.req.Reason, c.p.Epoch(), c.recs[:0]), nil)
	case c.resigning:
		c.answer(x, locktable.Outcome{Status: cluster.StatusSecondaryMode})
	case !c.p.quorum.Load():
		c.answer(x, locktable.Outcome{Status: cluster.StatusNoQuorum})
	default:
		c.serve(x)
	}
}

// serve decides a call of a client's.
func (c *core) serve(x *call) {
	switch x.kind {
	case callRead:
		x.read(c.view())
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK, LSN: c.table.LSN()})
	case callRenew:
		c.renew(x)
	case callKeepAlive:
		c.keepAlive(x)
	case callResign:
		c.resigning = true
		c.apply(c.table.DecideResign(x.req.Reason, c.p.Epoch(), c.recs[:0]), nil)
		c.cur.resigns = true
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK})
	case callRequest:
		c.request(x)
	}
}

// request decides a request, now or when its file has been verified.
func (c *core) request(x *call) {
	q := x.req
	out, full := c.refuseFull(q)
	denied := x.word != nil && x.word.err != nil
	// A request that was seen before gets its answer, whatever holds now.
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
	if x.word != nil {
		facts = x.word.facts
	}
	c.decide(x, facts)
}

// unseen says that a request was neither executed nor waits, is not cancelled and not stale.
func (c *core) unseen(q *locktable.Request) bool {
	state, _ := c.table.Lookup(q.Client, q.ID)
	return state == locktable.RequestNotSeen
}

// decide turns a request into records and an answer.
func (c *core) decide(x *call, facts locktable.FileFacts) {
	q := x.req
	recs, d := c.table.Decide(q, c.p.Epoch(), facts, c.recs[:0])
	if len(recs) > 0 && q.Token != 0 {
		c.hearHolder(q.Lock, q.Token) // an accepted use of the token
	}
	var appended *call
	if q.Op == locktable.OpAppend && len(recs) > 0 {
		appended = x
	}
	if !c.apply(recs, appended) {
		c.answer(x, unknown())
		return
	}
	c.hear(q.Client)
	switch {
	case appended != nil: // the file's writer answers
	case d.Pending:
		key := waitKey{q.Client, q.ID}
		if w, ok := c.waits[key]; ok {
			gone := func(x *call) bool { return x.abandoned.Load() }
			w.calls = append(slices.DeleteFunc(w.calls, gone), x)
		} else {
			c.answer(x, locktable.Outcome{Status: cluster.StatusError, Message: "no place in the queue for a waiting request"})
		}
	case q.Op == locktable.OpAppend && d.Outcome.Repeat:
		c.answerRepeat(x, d.Outcome)
	case q.Op == locktable.OpAcquire && d.Outcome.Status == cluster.StatusOK:
		c.answerAfter(x, d.Outcome, c.writingUnder(d.Outcome.Lock))
	default:
		c.answer(x, d.Outcome)
	}
}

// answer puts an answer into the batch; it leaves with it.
func (c *core) answer(x *call, out locktable.Outcome) {
	if x.done != nil {
		c.cur.answers = append(c.cur.answers, answer{done: x.done, out: out})
	}
}

// answerAfter is answer, and then waits for writes of files that are under way.
func (c *core) answerAfter(x *call, out locktable.Outcome, after []*fileWriter) {
	c.cur.answers = append(c.cur.answers, answer{done: x.done, out: out, after: after})
}

// answerRepeat answers a repeat of an append from the present: its bytes may be
// on their way to the file, or the file quarantined before they reached it.
func (c *core) answerRepeat(x *call, out locktable.Outcome) {
	if f, ok := c.table.File(out.File); ok && f.Quarantined && f.Generation == out.Generation {
		out = quarantined(out, f.Reason)
	}
	c.cur.answers = append(c.cur.answers, answer{done: x.done, out: out, after: c.writing(out.File), inFile: true})
}

// quarantined is the outcome of an append that is committed to the log while its file cannot be trusted.
func quarantined(out locktable.Outcome, reason string) locktable.Outcome {
	out.Status, out.Committed, out.Message = cluster.StatusFileQuarantined, true, reason
	return out
}

// apply applies decided records, in order, and puts them into the batch. The
// Append among them, if any, answers appended. False means that the reign is over.
func (c *core) apply(recs []locktable.Record, appended *call) bool {
	for i := range recs {
		r := &recs[i]
		if err := c.table.Apply(r); err != nil {
			// A record that was decided against this very table cannot fail; if
			// it does, nothing in memory is to be trusted.
			c.p.Depose(fmt.Errorf("apply %v at LSN %d: %w", r.Kind, r.LSN, err))
			return false
		}
		c.head = r.AppendHeader(c.head[:0])
		c.cur.Add(c.head, r.Data)
		c.follow(r, appended)
	}
	c.recs = recs[:0]
	return true
}

// follow keeps what the core loop counts in step with the table.
func (c *core) follow(r *locktable.Record, appended *call) {
	c.p.logRecord(r)
	c.hearOf(r.Client)
	switch r.Kind {
	case locktable.KindGrant:
		c.addLease(r.Lock, r.LSN.Token(), r.Client, r.TTL)
		c.endWait(waitKey{r.Client, r.Request}, r)
	case locktable.KindEnqueue:
		c.addWaiter(r.Lock, r.Client, r.Request, r.TTL, r.Wait)
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		delete(c.leases, r.Token)
		c.ended++
	case locktable.KindWaitTimeout, locktable.KindCancel:
		c.endWait(waitKey{r.Client, r.Request}, r)
	case locktable.KindAppend:
		c.followAppend(r, appended)
	case locktable.KindOpenClient:
		c.hearOf(cluster.OpenedClientID(r.LSN))
	case locktable.KindForgetClient:
		delete(c.heard, r.Client)
	case locktable.KindUnbind, locktable.KindRotate:
		c.dropSlot(r.File)
	case locktable.KindForceClear:
		c.ended += len(c.leases)
		clear(c.leases)
		for key := range c.waits {
			c.endWait(key, r)
		}
	}
}

// endWait takes a waiter out and answers the calls that wait for it.
func (c *core) endWait(key waitKey, r *locktable.Record) {
	w, ok := c.waits[key]
	if !ok {
		return
	}
	delete(c.waits, key)
	c.ended++
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
	var after []*fileWriter
	if r.Kind == locktable.KindGrant {
		after = c.writingUnder(r.Lock)
	}
	for _, x := range w.calls {
		c.answerAfter(x, out, after)
	}
}

// view shows the table to a read.
func (c *core) view() View {
	return View{
		Table: c.table,
		At:    c.cur.End(),
		Remaining: func(t cluster.Token) time.Duration {
			l, ok := c.leases[t]
			if !ok {
				return 0
			}
			return max(0, c.deadline(l)-c.now)
		},
		Heard: func(id cluster.ClientID) bool {
			at, ok := c.heard[id]
			return ok && at >= 0
		},
	}
}
