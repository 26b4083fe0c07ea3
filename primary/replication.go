// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// feedBytes of committed frames are kept for replicas that lag.
	feedBytes = 4 << 20
	// feedBytesMost of them are kept while a snapshot, and what follows it, is on its way.
	feedBytesMost = 64 << 20
	// pushBytes bounds one push.
	pushBytes = 1 << 20
	// pushEvery is the shortest time between two pushes to one replica: what is
	// committed meanwhile goes as one message.
	pushEvery = 2 * time.Millisecond
	// pushIdle is the longest time between two pushes to a replica when nothing is committed.
	pushIdle = time.Second
	// pushWait bounds the wait for one answer, snapshotWait that for the answer to a chunk
	// of a table.
	pushWait     = 2 * time.Second
	snapshotWait = time.Minute
)

// Link sends to one replica.
type Link interface {
	// Push sends one message and returns the replica's answer, or an error if there is none.
	Push(ctx context.Context, p push.Push) (push.Ack, error)
}

// feed keeps the newest committed frames, without append data, for the pushers.
type feed struct {
	mu struct {
		sync.Mutex
		frames []fedFrame
		bytes  int
		end    wal.Position
		// snapshots under way: what is committed meanwhile is needed after them.
		snapshots int
	}
	wakes []chan struct{} // one for each pusher
}

// fedFrame is one frame and where it begins. Its bytes are never changed.
type fedFrame struct {
	before wal.Position
	bytes  []byte
}

// add adds a committed frame; the caller must not change its bytes any more.
func (f *feed) add(before, end wal.Position, elided []byte) {
	f.mu.Lock()
	f.mu.frames = append(f.mu.frames, fedFrame{before: before, bytes: elided})
	f.mu.bytes += len(elided)
	f.mu.end = end
	limit := feedBytes
	if f.mu.snapshots > 0 {
		limit = feedBytesMost
	}
	for f.mu.bytes > limit && len(f.mu.frames) > 1 {
		f.mu.bytes -= len(f.mu.frames[0].bytes)
		f.mu.frames[0] = fedFrame{}
		f.mu.frames = f.mu.frames[1:]
	}
	f.mu.Unlock()
	for _, w := range f.wakes {
		notify(w)
	}
}

// begin sets where the feed begins: at the end of the adopted log, with its last frames. Most
// replicas have those, or lack one.
func (f *feed) begin(end wal.Position, tail []volume.TailFrame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.end = end
	for i := range tail {
		f.mu.frames = append(f.mu.frames, fedFrame{before: tail[i].Before, bytes: tail[i].Bytes})
		f.mu.bytes += len(tail[i].Bytes)
	}
}

// after returns the frames that follow a position, about pushBytes at most, joined. It returns
// false if the position is not one of those kept: then the replica needs a snapshot.
func (f *feed) after(at wal.Position) (frames []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at == f.mu.end {
		return nil, true
	}
	i := 0
	for i < len(f.mu.frames) && f.mu.frames[i].before != at {
		i++
	}
	if i == len(f.mu.frames) {
		return nil, false
	}
	for ; i < len(f.mu.frames) && len(frames) < pushBytes; i++ {
		frames = append(frames, f.mu.frames[i].bytes...)
	}
	return frames, true
}

// keeps reports whether after would find the position.
func (f *feed) keeps(at wal.Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return at == f.mu.end || slices.ContainsFunc(f.mu.frames, func(x fedFrame) bool { return x.before == at })
}

// pusher feeds one replica until the term ends.
type pusher struct {
	p    *Primary
	to   cluster.ServerID
	link Link
	wake chan struct{}
	// Owned by run.
	at    *push.Ack // the replica's position, or nil when it has to be asked
	stamp uint64    // of its last answer, 0 without one
	heard time.Time // when that came
	tries int       // snapshots that were begun since it had everything
}

// run asks for the replica's position and sends what it lacks, again and again. Nothing here is
// needed for safety, so an error only means to try again later.
func (x *pusher) run() {
	ctx := x.p.term.Context()
	idle := time.NewTimer(0)
	defer idle.Stop()
	backoff := pushEvery
	failing := false
	for {
		err := x.catchUp(ctx)
		switch {
		case x.p.term.Err() != nil:
			return
		case err == nil:
			failing, backoff = false, pushEvery
		default:
			x.at = nil
			if !failing {
				x.p.opt.Log.Warn().Err(err).Uint32("replica", uint32(x.to)).Msg("replica is not fed")
			}
			failing, backoff = true, min(2*backoff, time.Second)
		}
		// If answers wait for this replica, the time of one push is pause enough.
		if (x.p.barrier == nil || err != nil) && !x.p.sleep(backoff) {
			return
		}
		idle.Reset(pushIdle)
		select {
		case <-x.p.term.Done():
			return
		case <-x.wake:
		case <-idle.C:
			x.at = nil // asking shows it that the primary lives
		}
	}
}

// errHigher means that a replica has heard of a later term.
var errHigher = errors.New("a replica knows a higher epoch")

// catchUp sends until the replica has everything that is committed now.
func (x *pusher) catchUp(ctx context.Context) error {
	var ack push.Ack
	var err error
	unknown := x.stamp == 0 // the replica does not know yet how old a push is
	if x.at != nil {
		ack = *x.at
	} else {
		ack, err = x.send(ctx, push.Push{Before: x.p.feed.position()}, pushWait)
	}
	for sent := 0; err == nil; {
		frames, ok := x.p.feed.after(ack.At)
		if x.p.barrier != nil && ok {
			x.p.barrier.stands(x.to, ack.At.LSN, len(frames) == 0)
		}
		if ok && len(frames) == 0 && unknown && x.stamp != 0 {
			unknown = false
			ack, err = x.send(ctx, push.Push{Before: ack.At}, pushWait)
			continue
		}
		if ok && len(frames) == 0 {
			x.at, x.tries = &ack, 0
			return nil
		}
		if ok {
			before := ack.At
			ack, err = x.send(ctx, push.Push{Before: before, Frames: frames}, pushWait)
			ok = err != nil || ack.At != before // it may have moved by an older push that was late
		}
		if !ok {
			if sent++; sent > 1 {
				return errBehind // the next attempt comes after a pause
			}
			x.p.feed.hold(1)
			defer x.p.feed.hold(-1) // when it has what was committed meanwhile
			ack, err = x.snapshot(ctx, ack.At)
		}
	}
	return err
}

// errBehind means that a replica did not connect even after a snapshot.
var errBehind = errors.New("the replica does not keep up")

// position returns the end of what was committed.
func (f *feed) position() wal.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.end
}

// hold has more of what is committed from now on kept (1), or ends that (-1).
func (f *feed) hold(by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.snapshots += by
}

func (x *pusher) send(ctx context.Context, m push.Push, wait time.Duration) (push.Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m.Epoch = x.p.Epoch()
	m.Stamp, m.Asks = x.stamp, x.stamp == 0
	if !m.Asks {
		m.Since = time.Since(x.heard)
	}
	ack, err := x.link.Push(ctx, m)
	x.stamp, x.heard = ack.Stamp, time.Now() // none with an error: it may be another process by then
	if err == nil && ack.Epoch > m.Epoch {
		// A replica knows a higher epoch: the volume shows whether it ended this term.
		if err := x.p.check(); err != nil {
			return ack, err
		}
		return ack, errHigher
	}
	return ack, err
}

// crowded reports whether a snapshot under way should end soon: once frames that follow it are
// dropped, it is useless.
func (f *feed) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.bytes > feedBytesMost/4
}

// errConnected means that a replica has got another table meanwhile, from which it goes on.
var errConnected = errors.New("the replica needs no snapshot any more")

// snapshot sends the whole table, chunk by chunk as it comes out of the core loop, to a replica
// at this position. If it came too late, the next one is sent without rests.
func (x *pusher) snapshot(ctx context.Context, at wal.Position) (push.Ack, error) {
	x.tries++
	again := x.tries > 1
	limit := x.p.newThrottle()
	limit.hurry = func() bool { return again || x.p.feed.crowded() }
	s, stop, err := x.p.export(ctx, limit)
	if err != nil {
		return push.Ack{}, err
	}
	defer stop()
	w := &chunkWriter{x: x, ctx: ctx, from: at, at: s.At, throttle: limit}
	if err := s.Stream(w); errors.Is(err, errConnected) {
		return w.ack, nil
	} else if err != nil {
		return w.ack, err
	}
	if err := w.send(true); err != nil {
		return w.ack, err
	}
	if w.ack.At != s.At {
		return w.ack, push.ErrMismatch
	}
	return w.ack, nil
}

// chunkWriter sends what is written to it as chunks of a snapshot. The last chunk is sent by an
// explicit send(true).
type chunkWriter struct {
	x        *pusher
	ctx      context.Context
	from     wal.Position // where the replica was before
	at       wal.Position
	throttle *throttle
	off      int
	buf      []byte
	ack      push.Ack
}

// Write implements io.Writer.
func (w *chunkWriter) Write(b []byte) (int, error) {
	if len(w.buf)+len(b) > push.ChunkSize && len(w.buf) > 0 {
		if err := w.send(false); err != nil {
			return 0, err
		}
	}
	w.buf = append(w.buf, b...)
	return len(b), nil
}

func (w *chunkWriter) send(last bool) (err error) {
	c := &push.Chunk{At: w.at, Offset: w.off, Bytes: w.buf, Last: last}
	sent := time.Now()
	w.ack, err = w.x.send(w.ctx, push.Push{Chunk: c}, snapshotWait)
	w.throttle.idle += time.Since(sent)
	w.off, w.buf = w.off+len(w.buf), w.buf[:0]
	if err == nil && !last && w.ack.At != w.from && w.x.p.feed.keeps(w.ack.At) {
		return errConnected
	}
	if err == nil && !last && w.ack.Chunk != w.off {
		err = push.ErrMismatch // the replica has dropped what came before
	}
	return err
}

// startPushers begins to feed the replicas from the adopted end on.
func (p *Primary) startPushers() {
	if p.barrier != nil {
		p.wg.Go(p.barrier.run)
	}
	for to, link := range p.opt.Replicas {
		x := &pusher{p: p, to: to, link: link, wake: make(chan struct{}, 1)}
		p.feed.wakes = append(p.feed.wakes, x.wake)
		p.wg.Go(x.run)
	}
}

// replicationBarrier holds answers back until replicas have applied what they depend on, see
// cluster.PushAck. A replica that is silent for the bound is removed from the set that answers
// wait for, and returns to it when it lags by less than the bound. This is about what local
// reads show and not about safety: what is held back is durable and checked.
type replicationBarrier struct {
	p     *Primary
	mode  cluster.PushAck
	bound time.Duration
	mu    struct {
		sync.Mutex
		replicas map[cluster.ServerID]*replicaProgress
		held     []pendingAck // by LSN
		ended    bool
	}
}

// replicaProgress is how far a replica has applied the log.
type replicaProgress struct {
	lsn cluster.LSN
	out bool // of the set that answers wait for
	// goal is what was committed at since: a replica that is out and reaches it in time is back.
	goal  cluster.LSN
	since time.Time
}

// aim sets the next goal of a replica that is out.
func (s *replicaProgress) aim(goal cluster.LSN, now time.Time) { s.goal, s.since = goal, now }

// pendingAck is an answer or answers that wait until replicas have an LSN.
type pendingAck struct {
	lsn   cluster.LSN
	since time.Time
	tell  func(ok bool) // called once; false: the term has ended
}

// newReplicationBarrier returns nil if nothing is to be held back. At first answers wait for
// every replica; one that is down is removed after the bound.
func newReplicationBarrier(p *Primary) *replicationBarrier {
	mode := p.opt.Timing.PushAck
	if mode != cluster.PushAckAll && mode != cluster.PushAckMajority || len(p.opt.Replicas) == 0 {
		return nil
	}
	a := &replicationBarrier{p: p, mode: mode, bound: p.opt.Timing.PushAckTimeout}
	a.mu.replicas = map[cluster.ServerID]*replicaProgress{}
	for id := range p.opt.Replicas {
		a.mu.replicas[id] = &replicaProgress{}
	}
	return a
}

// run drops silent replicas until the term ends, and then answers what is held back.
func (a *replicationBarrier) run() {
	t := time.NewTicker(max(a.bound/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-a.p.term.Done():
			a.end()
			return
		case now := <-t.C:
			a.dropSilent(now)
		}
	}
}

// enough reports whether answers of this LSN need not wait. It is called with mu held.
func (a *replicationBarrier) enough(lsn cluster.LSN) bool {
	in, have := 0, 0
	for _, s := range a.mu.replicas {
		if s.out {
			continue
		}
		if in++; s.lsn >= lsn {
			have++
		}
	}
	need := in
	if a.mode == cluster.PushAckMajority {
		need = min(in, (len(a.mu.replicas)+1)/2) // with the primary more than half
	}
	return have >= need
}

// shown reports whether answers of this LSN need not wait, also because the term has ended.
func (a *replicationBarrier) shown(lsn cluster.LSN) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.enough(lsn) || a.mu.ended
}

// hold calls tell when the replicas have an LSN, or the term has ended.
func (a *replicationBarrier) hold(lsn cluster.LSN, tell func(ok bool)) {
	a.mu.Lock()
	if a.mu.ended || a.enough(lsn) {
		ok := !a.mu.ended
		a.mu.Unlock()
		tell(ok)
		return
	}
	i := len(a.mu.held)
	for i > 0 && a.mu.held[i-1].lsn > lsn { // appends come when they are written
		i--
	}
	a.mu.held = slices.Insert(a.mu.held, i, pendingAck{lsn: lsn, since: time.Now(), tell: tell})
	a.mu.Unlock()
}

// stands records how far a replica is. everything is set if it lacks nothing.
func (a *replicationBarrier) stands(id cluster.ServerID, lsn cluster.LSN, everything bool) {
	now := time.Now()
	a.mu.Lock()
	s := a.mu.replicas[id]
	s.lsn = lsn
	back := s.out && (everything || lsn >= s.goal && now.Sub(s.since) < a.bound)
	switch {
	case back:
		s.out = false
	case s.out && lsn >= s.goal:
		s.aim(a.p.LSN(), now)
	}
	ready := a.ready()
	a.mu.Unlock()
	if back {
		a.p.opt.Log.Info().Uint32("replica", uint32(id)).Msg("answers wait for this replica again")
	}
	tellAll(ready, true)
}

// ready removes and returns what need not wait any more. It is called with mu held.
func (a *replicationBarrier) ready() (out []pendingAck) {
	n := 0
	for n < len(a.mu.held) && a.enough(a.mu.held[n].lsn) {
		n++
	}
	out = slices.Clone(a.mu.held[:n])
	a.mu.held = slices.Delete(a.mu.held, 0, n)
	return out
}

func tellAll(all []pendingAck, ok bool) {
	for _, h := range all {
		h.tell(ok)
	}
}

// dropSilent removes the replicas that answers have waited for too long.
func (a *replicationBarrier) dropSilent(now time.Time) {
	a.mu.Lock()
	var dropped []cluster.ServerID
	if len(a.mu.held) > 0 {
		late := cluster.LSN(0)
		for _, h := range a.mu.held {
			if now.Sub(h.since) >= a.bound {
				late = max(late, h.lsn)
			}
		}
		for id, s := range a.mu.replicas {
			if !s.out && s.lsn < late {
				s.out, dropped = true, append(dropped, id)
				s.aim(a.p.LSN(), now)
			}
		}
	}
	ready := a.ready()
	a.mu.Unlock()
	for _, id := range dropped {
		a.p.opt.Log.Warn().Uint32("replica", uint32(id)).Dur("silent", a.bound).Msg("answers do not wait for this replica any more: its local reads may be old")
	}
	tellAll(ready, true)
}

func (a *replicationBarrier) end() {
	a.mu.Lock()
	held := a.mu.held
	a.mu.held, a.mu.ended = nil, true
	a.mu.Unlock()
	tellAll(held, false)
}

// tell delivers the answers of a batch when the replicas have applied what they depend on.
func (a *replicationBarrier) tell(b *batch) {
	lsn := b.End().LSN
	if len(b.answers) == 0 || a.shown(lsn) {
		b.deliverAll()
		return
	}
	later := &batch{answers: slices.Clone(b.answers)} // b is used again
	a.hold(lsn, func(ok bool) {
		if !ok {
			later.fail()
			return
		}
		later.deliverAll()
	})
}

// delay has appends answered only when the replicas have applied them, too.
func (a *replicationBarrier) delay(jobs []appendJob) {
	for i := range jobs {
		done, lsn := jobs[i].done, jobs[i].rec.LSN
		if done == nil {
			continue
		}
		jobs[i].done = func(out locktable.Outcome) {
			a.hold(lsn, func(ok bool) {
				if !ok {
					out = serving.Unknown()
				}
				done(out)
			})
		}
	}
}

// Waited returns for each replica whether answers wait for it; nil if they wait for none by
// configuration.
func (p *Primary) Waited() map[cluster.ServerID]bool {
	if p.barrier == nil {
		return nil
	}
	p.barrier.mu.Lock()
	defer p.barrier.mu.Unlock()
	waited := map[cluster.ServerID]bool{}
	for id, s := range p.barrier.mu.replicas {
		waited[id] = !s.out
	}
	return waited
}
