// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/primary/protected"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/wal"
)

// batch is what one round of the core loop decided. It belongs to the core loop until it is
// dispatched, then to the goroutine that commits it.
type batch struct {
	wal.Batch
	answers []answer
	appends []appendJob
	files   []func()     // to do with files' writers, after the appends
	losses  []watch.Loss // published with the frame
	ended   history.Batch
	members *cluster.Membership // the list of servers that it makes, nil for none
	places  int                 // records among all that give a request its place in a queue, and nothing else
	resigns bool
	tally   meter.Tally
	times   commitTimes
}

// answer is the answer to one call, delivered when its batch is committed.
type answer struct {
	call  *call
	out   locktable.Outcome
	after []*protected.Writer // whose writes under way come first
	// inFile is set if the answer promises that bytes are in the file of after.
	inFile bool
}

// appendJob is a decided append on its way to its file.
type appendJob struct {
	writer *protected.Writer
	rec    locktable.Record
	call   *call                   // nil if no caller waits
	done   func(locktable.Outcome) // likewise; it is that of call, maybe behind what comes first
}

func (b *batch) reset(at wal.Position) {
	b.Reset(at)
	clear(b.answers)
	clear(b.appends)
	clear(b.files)
	b.answers, b.appends, b.files = b.answers[:0], b.appends[:0], b.files[:0]
	b.losses, b.members, b.places, b.resigns = nil, nil, 0, false
	b.ended.Reset()
	b.tally.Reset()
	b.times = commitTimes{}
}

func (b *batch) empty() bool {
	return b.Len()+len(b.answers)+len(b.files) == 0
}

// unawaited reports whether nobody waits for the batch: it gives requests their places in queues, of which
// their clients hear when the wait is over.
func (b *batch) unawaited() bool {
	return b.places > 0 && b.places == b.Len() && len(b.answers)+len(b.files) == 0
}

// fail answers everything in the batch UNKNOWN: the term ended, and the next
// one may or may not adopt what was in flight.
func (b *batch) fail() {
	for i := range b.answers {
		b.answers[i].call.done(serving.Unknown())
	}
	for i := range b.appends {
		if done := b.appends[i].done; done != nil {
			done(serving.Unknown())
		}
	}
}

// commit makes a batch durable, proves that this term had not ended by then,
// and only then lets anything of it leave. Nothing else that rests on the table goes
// to clients, replicas and protected files, but writes of adopted appends, which rest on the
// check of START, and those that are repeated after a file's error, which rest on that of reopen.
func (p *Primary) commit(b *batch) {
	b.times.began = p.age()
	if err := p.persist(b); err != nil {
		p.End(err)
		b.fail()
		return
	}
	if b.times.synced = b.times.began; b.Len() > 0 {
		b.times.synced = p.age()
	}
	// A crash here loses no answer that was given; the next term adopts the frame.
	if err := p.check(); err != nil {
		b.fail()
		return
	}
	// The check began after the sync: no claimant had fenced this term before the
	// frame was durable, so a later claimant finds the frame when it scans.
	p.setEnd(b.End())
	p.setMembers(b.members)
	b.times.checked = p.age()
	p.countBatch(b)
	for i := range b.appends {
		p.index.Add(&b.appends[i].rec)
	}
	p.holdAppends(b.appends)
	for i := range b.appends {
		a := &b.appends[i]
		if a.call != nil {
			a.call.times = b.times
		}
		a.writer.Append(&a.rec, a.done)
	}
	for _, do := range b.files {
		do()
	}
	p.history.Add(&b.ended, b.End().LSN)
	p.publish(b)
	if b.resigns {
		p.files.Drain(time.Second)
		p.deliverAll(b, p.age())
		p.End(ErrResigned)
		return
	}
	p.deliverAcknowledged(b)
}

// persist writes the batch as one frame and syncs it. A full log waits for the next segment.
func (p *Primary) persist(b *batch) error {
	if b.Len() == 0 {
		return nil
	}
	for {
		err := p.log.Append(&b.Batch)
		if err == nil {
			break
		}
		if !errors.Is(err, wal.ErrFull) {
			return fmt.Errorf("commit LSN %d to %d: %w", b.Start().LSN+1, b.End().LSN, err)
		}
		p.wake.segments.Notify()
		if !p.sleep(5 * time.Millisecond) {
			return p.term.Err()
		}
	}
	if !p.log.NextReady() {
		p.wake.segments.Notify()
	}
	if p.logBytes.Add(int64(b.Size())) > p.logLimit.Load() {
		p.wake.housekeeper.Notify()
	}
	return nil
}

// deliverAll delivers all answers, at this age of the term. Adjacent ones to one sink are flushed together.
func (p *Primary) deliverAll(b *batch, at time.Duration) {
	p.countAnswers(b, at)
	var to serving.ResultSink
	for i := range b.answers {
		a := &b.answers[i]
		if !a.joins() {
			a.call.times = b.times
			a.deliver()
			continue
		}
		order := a.call.order
		if order.To != to && to != nil {
			to.Flush()
		}
		to = order.To
		to.Answer(order, a.out)
	}
	if to != nil {
		to.Flush()
	}
}

// joins reports whether the answer is delivered together with others, and not by the done of its call.
func (a *answer) joins() bool { return a.call.order != nil && len(a.after) == 0 }

// deliver delivers the answer, after the writes it has to wait for.
func (a *answer) deliver() {
	if len(a.after) == 0 {
		a.call.done(a.out)
		return
	}
	protected.DeliverAfter(a.after, a.inFile, a.out, a.call.done)
}

// logRecord writes a line of the server's log for a record. Grants and releases are many: debug.
func (p *Primary) logRecord(r *locktable.Record, s *silence) {
	e := p.opt.Log.Debug()
	switch r.Kind {
	case locktable.KindExpire, locktable.KindBreak, locktable.KindForceClear, locktable.KindQuarantine,
		locktable.KindTerm, locktable.KindHandedOver, locktable.KindRotate, locktable.KindSeal, locktable.KindAsk,
		locktable.KindLevel, locktable.KindMembers:
		e = p.opt.Log.Info()
	}
	if !e.Enabled() {
		return
	}
	e = e.Uint64("lsn", uint64(r.LSN)).Str("client", string(r.Client))
	if r.Lock != "" {
		token := r.Token
		if r.Kind == locktable.KindGrant {
			token = r.LSN.Token()
		}
		e = e.Str("lock", string(r.Lock)).Uint64("token", uint64(token))
	}
	if r.File != "" {
		e = e.Str("file", string(r.File))
	}
	if r.Reason != "" || r.Actor != "" {
		e = e.Str("actor", r.Actor).Str("reason", r.Reason)
	}
	if r.Kind == locktable.KindLevel {
		e = e.Uint32("feature_level", r.Level).Str("version", r.Version)
	}
	if r.Kind == locktable.KindMembers {
		e = e.Str("members", r.Members)
	}
	if s != nil {
		e = e.Dur("heard_ago", s.heardAgo).Dur("own_timer_late_by", s.late)
	}
	e.Msg(r.Kind.String())
}
