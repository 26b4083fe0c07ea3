// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
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
	// pushIdle is how long a replica hears nothing when nothing happens.
	pushIdle = time.Second
	// pushWait bounds the wait for one answer, snapshotWait that for a table to
	// be taken in.
	pushWait     = 2 * time.Second
	snapshotWait = time.Minute
)

// Link reaches one replica.
type Link interface {
	// Push sends one message and returns the replica's answer.
	Push(ctx context.Context, p push.Push) (push.Ack, error)
}

// feed holds the newest committed frames, without append data, for the pushers.
type feed struct {
	mu struct {
		sync.Mutex
		frames []fedFrame
		bytes  int
		end    wal.Position
		// snapshots under way: what is committed meanwhile is wanted afterwards.
		snapshots int
	}
	wakes []chan struct{} // one for each pusher
}

// fedFrame is one frame and where it begins. Its bytes are never changed.
type fedFrame struct {
	before wal.Position
	bytes  []byte
}

// add takes a committed frame over.
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
		poke(w)
	}
}

// begin sets where the feed begins: at the end of the adopted log, with what is known of its
// last frames. Most replicas have those, or lack one.
func (f *feed) begin(end wal.Position, tail []volume.TailFrame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.end = end
	for i := range tail {
		f.mu.frames = append(f.mu.frames, fedFrame{before: tail[i].Before, bytes: tail[i].Bytes})
		f.mu.bytes += len(tail[i].Bytes)
	}
}

// after joins the frames that follow a position. It returns false where the
// position is not one of those kept, so that only a snapshot helps.
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

// pusher feeds one replica until the reign ends.
type pusher struct {
	p    *Primary
	to   cluster.ServerID
	link Link
	wake chan struct{}
	// Owned by run.
	at    *push.Ack // where the replica stands, or nil when it has to be asked
	stamp uint64    // of its last answer, 0 without one
	heard time.Time // when that came
	tries int       // snapshots that were begun since it had everything
}

// run asks where the replica stands and brings it on, again and again. Nothing here is
// needed for safety, so an error only means to try again later.
func (x *pusher) run() {
	ctx := x.p.reign.Context()
	idle := time.NewTimer(0)
	defer idle.Stop()
	backoff := pushEvery
	failing := false
	for {
		err := x.bringOn(ctx)
		switch {
		case x.p.reign.Err() != nil:
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
		// Where answers wait for this replica, what is committed during one push is
		// enough of a pause.
		if (x.p.acks == nil || err != nil) && !x.p.sleep(backoff) {
			return
		}
		idle.Reset(pushIdle)
		select {
		case <-x.p.reign.Done():
			return
		case <-x.wake:
		case <-idle.C:
			x.at = nil // asking tells it that the primary lives
		}
	}
}

// errHigher says that a replica has heard of a later reign.
var errHigher = errors.New("a replica knows a higher epoch")

// bringOn sends until the replica has everything that is committed now.
func (x *pusher) bringOn(ctx context.Context) error {
	var ack push.Ack
	var err error
	unknown := x.stamp == 0 // the replica cannot tell yet how old a push is
	if x.at != nil {
		ack = *x.at
	} else {
		ack, err = x.send(ctx, push.Push{Before: x.p.feed.position()}, pushWait)
	}
	for sent := 0; err == nil; {
		frames, ok := x.p.feed.after(ack.At)
		if x.p.acks != nil && ok {
			x.p.acks.stands(x.to, ack.At.LSN, len(frames) == 0)
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

// errBehind says that a replica did not connect even after a snapshot.
var errBehind = errors.New("the replica does not keep up")

// position is the end of what was committed.
func (f *feed) position() wal.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.end
}

// hold keeps what is committed from now on, or lets it go again.
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
		// Somebody claims to be newer: the volume knows.
		if err := x.p.check(); err != nil {
			return ack, err
		}
		return ack, errHigher
	}
	return ack, err
}

// crowded says that a snapshot under way had better be there soon: when frames are
// dropped that follow it, it was for nothing.
func (f *feed) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.bytes > feedBytesMost/4
}

// errConnected says that a replica has come to another table meanwhile, from which it goes on.
var errConnected = errors.New("the replica needs no snapshot any more")

// snapshot sends the whole table, chunk by chunk as it comes out of the core loop, to a replica
// at this position. One that came too late is followed by one that hurries.
func (x *pusher) snapshot(ctx context.Context, at wal.Position) (push.Ack, error) {
	x.tries++
	again := x.tries > 1
	pace := x.p.newPace()
	pace.hurry = func() bool { return again || x.p.feed.crowded() }
	s, stop, err := x.p.export(ctx, pace)
	if err != nil {
		return push.Ack{}, err
	}
	defer stop()
	w := &chunkWriter{x: x, ctx: ctx, from: at, at: s.At, pace: pace}
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

// chunkWriter sends what is written to it as chunks of a snapshot. The last one
// is sent by hand.
type chunkWriter struct {
	x    *pusher
	ctx  context.Context
	from wal.Position // where the replica was before
	at   wal.Position
	pace *pace
	off  int
	buf  []byte
	ack  push.Ack
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
	w.pace.idle += time.Since(sent)
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
	if p.acks != nil {
		p.wg.Go(p.acks.run)
	}
	for to, link := range p.opt.Replicas {
		x := &pusher{p: p, to: to, link: link, wake: make(chan struct{}, 1)}
		p.feed.wakes = append(p.feed.wakes, x.wake)
		p.wg.Go(x.run)
	}
}
