// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// slowEvery is how often a line of the log tells of a slow call at most.
const slowEvery = time.Second

// age returns how long ago the term began: the time of everything that is measured.
func (p *Primary) age() time.Duration { return time.Since(p.began) }

// commitTimes are the moments of one commit, since the term began.
type commitTimes struct{ began, synced, checked time.Duration }

// op returns as what a call is counted, 0 for one of the primary's own.
func (x *call) op() meter.Op {
	switch x.kind {
	case callRequest:
		return meter.Op(x.req.Op)
	case callRenew:
		return meter.OpRenew
	case callKeepAlive:
		return meter.OpKeepAlive
	case callRead:
		return meter.OpRead
	case callFile:
		return meter.OpFile
	}
	return 0
}

// countAnswer counts the answer to one call that is delivered by itself.
func (p *Primary) countAnswer(x *call, status cluster.Status) {
	op := x.op()
	if op == 0 {
		return
	}
	now := p.age()
	p.opt.Meter.Answer(op, status, now-x.at)
	p.noteSlow(x, status, now)
	if x.trace != nil {
		p.reportTrace(x, status, now)
	}
}

// countAnswers counts the answers of a batch that are delivered together, at this age of the term. The others count themselves.
func (p *Primary) countAnswers(b *batch, at time.Duration) {
	slowest, traced := time.Duration(0), false
	counts := p.opt.Meter.Begin()
	for i := range b.answers {
		if a := &b.answers[i]; a.joins() {
			took := at - a.call.at
			slowest = max(slowest, took)
			traced = traced || a.call.trace != nil
			counts.Answer(a.call.op(), a.out.Status, took.Seconds())
		}
	}
	p.opt.Meter.End()
	if (p.opt.Slow == 0 || slowest < p.opt.Slow) && !traced {
		return
	}
	for i := range b.answers {
		if a := &b.answers[i]; a.joins() {
			a.call.times = b.times
			p.noteSlow(a.call, a.out.Status, at)
			if a.call.trace != nil {
				p.reportTrace(a.call, a.out.Status, at)
			}
		}
	}
}

// countBatch counts a batch that is committed.
func (p *Primary) countBatch(b *batch) {
	counts := p.opt.Meter.Begin()
	defer p.opt.Meter.End()
	counts.Batch.Observe(float64(len(b.answers) + len(b.appends)))
	if b.Len() > 0 {
		counts.Sync.Observe((b.times.synced - b.times.began).Seconds())
	}
	counts.Check.Observe((b.times.checked - b.times.synced).Seconds())
	counts.Add(&b.tally)
}

// countTakeover counts that the term has begun to serve.
func (p *Primary) countTakeover() {
	p.opt.Meter.Begin().Takeover.Observe(p.age().Seconds())
	p.opt.Meter.End()
}

// noteSlow logs where the time of a slow call went. There is one line each slowEvery at most, which counts the slow calls before
// it that got none.
func (p *Primary) noteSlow(x *call, status cluster.Status, now time.Duration) {
	took := now - x.at
	if p.opt.Slow == 0 || took < p.opt.Slow {
		return
	}
	n := p.slow.Count(slowEvery)
	if n == 0 {
		return
	}
	e := p.opt.Log.Warn().Stringer("op", x.op()).Stringer("status", status).Dur("took", took)
	if q := x.req; q != nil {
		e = e.Str("lock", string(q.Lock)).Str("identity", q.Identity)
		if q.File != "" {
			e = e.Str("file", string(q.File))
		}
	}
	if t := x.times; t.checked > 0 {
		rest := "push"
		if x.writes() {
			rest = "write"
		}
		e = e.Dur("queue", t.began-x.at).Dur("sync", t.synced-t.began).Dur("check", t.checked-t.synced).Dur(rest, now-t.checked)
	}
	if x.trace != nil {
		e = e.Str("trace", x.trace.ID())
	}
	e.Int("more", n-1).Msg("slow call")
}

// writes reports whether the answer to a call waits for a write to a file after its commit, rather than for replicas.
func (x *call) writes() bool { return x.kind == callRequest && x.req.Op == locktable.OpAppend }

// countWork counts how long the core loop was busy since it woke, without its calls into the volume.
func (c *core) countWork() {
	c.p.opt.Meter.Work(max(0, time.Since(c.woke)-c.elsewhere))
	c.elsewhere = 0
}

// tallyRecord notes what a record means for the metrics.
func (c *core) tallyRecord(r *locktable.Record) {
	switch r.Kind {
	case locktable.KindExpire:
		c.cur.tally.Expired++
	case locktable.KindBreak:
		c.cur.tally.Broken++
	case locktable.KindAppend:
		c.cur.tally.Appended += uint64(r.Length)
	}
}

// tallyHold notes how long a grant lasted that a record ends.
func (c *core) tallyHold(r *locktable.Record, l *locktable.Lease) {
	if l.Since() > 0 {
		c.cur.tally.Holds = append(c.cur.tally.Holds, r.Time-l.Since())
	}
}

// tallyWait notes that a wait in a queue is over: its calls have waited for the server only since then.
func (c *core) tallyWait(w *waiter, r *locktable.Record) {
	if r.Kind == locktable.KindGrant {
		c.cur.tally.Waits = append(c.cur.tally.Waits, c.now-w.began)
	}
	for _, x := range w.calls {
		x.at = max(x.at, c.taken)
	}
}

// publishSizes publishes how much the core loop counts.
func (c *core) publishSizes() {
	s := &c.p.sizes
	s.grants.Store(int64(c.leases.n))
	s.waiters.Store(int64(len(c.waits)))
	s.clients.Store(int64(c.table.ClientCount()))
}

// contents is what was in the table when its views were written last.
type contents struct {
	receipts, files, sealed, quarantined int
	oldest                               int64 // when the oldest grant was decided, in milliseconds since 1970; 0 for none
}

// add counts an entity.
func (s *contents) add(e *locktable.Entity) {
	switch {
	case e.Receipt != nil:
		s.receipts++
	case e.File != nil && e.File.Quarantined:
		s.quarantined++
	case e.File != nil && e.File.Sealed:
		s.sealed++
	case e.File != nil:
		s.files++
	case e.Lock != nil && e.Lock.Grant != nil:
		if at := e.Lock.Grant.SinceMS; at > 0 && (s.oldest == 0 || at < s.oldest) {
			s.oldest = at
		}
	}
}

// Sizes is how much a serving primary has.
type Sizes struct {
	Grants, Waiters, Clients int
	// Receipts, Files and OldestGrant are as of the last time that the views were written. Files are by state.
	Receipts    int
	Files       map[string]int
	OldestGrant time.Duration
	// Calls is how many wait for the core loop.
	Calls int
	// PendingBytes is how much of committed appends is not known to be durable in the files.
	PendingBytes int64
	// LogBytes is how much log follows the last checkpoint, and LogLimit how much causes the next one. CheckpointAge is how long
	// ago that was written by this term; without one, how old the term is.
	LogBytes, LogLimit int64
	CheckpointAge      time.Duration
}

// Sizes returns how much the primary has. It waits neither for the core loop nor for the volume.
func (p *Primary) Sizes(now time.Time) Sizes {
	s := Sizes{
		Grants: int(p.sizes.grants.Load()), Waiters: int(p.sizes.waiters.Load()), Clients: int(p.sizes.clients.Load()),
		Calls: p.queue.length(), PendingBytes: p.files.PendingBytes(),
		LogBytes: p.logBytes.Load(), LogLimit: p.logLimit.Load(), CheckpointAge: now.Sub(p.began) - time.Duration(p.checkpointAt.Load()),
	}
	if seen := p.contents.Load(); seen != nil {
		s.Receipts = seen.receipts
		s.Files = map[string]int{"open": seen.files, "sealed": seen.sealed, "quarantined": seen.quarantined}
		if seen.oldest > 0 {
			s.OldestGrant = time.Duration(max(0, p.opt.TimeOfDay(now).UnixMilli()-seen.oldest)) * time.Millisecond
		}
	}
	return s
}

// Late returns how long ago the core loop should have made its next round, 0 where it waits for the volume: nothing that is
// done to the process helps against that.
func (p *Primary) Late(now time.Time) time.Duration {
	if p.State() != StateServing || p.away.Load() {
		return 0
	}
	return max(0, now.Sub(p.began)-time.Duration(p.rounds.Load())-tick)
}
