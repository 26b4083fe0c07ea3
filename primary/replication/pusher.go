// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// pushEvery is the pause after a replica where clients read or watch has got everything: what
	// is committed meanwhile goes as one message. pushUnread is the pause after each push to
	// other replicas.
	pushEvery  = 2 * time.Millisecond
	pushUnread = 10 * time.Millisecond
	// pushIdle is the longest time between two pushes to a replica when nothing is committed.
	pushIdle = time.Second
	// pushWait bounds the wait for one answer, snapshotWait that for the answer to a chunk
	// of a table.
	pushWait     = 2 * time.Second
	snapshotWait = time.Minute
)

// pusher feeds one replica until the term ends.
type pusher struct {
	r    *Replication
	to   cluster.ServerID
	link Link
	wake wake.Signal
	// Owned by the goroutine of run.
	at    *push.Ack // the replica's position, or nil when it has to be asked
	stamp uint64    // of its last answer, 0 without one
	heard time.Time // when that came
	tries int       // snapshots that were begun since it had everything
}

// run asks for the replica's position and sends what it lacks, again and again. Nothing here is
// needed for safety, so an error only means to try again later.
func (x *pusher) run(ctx context.Context) {
	backoff, failing := pushEvery, false
	for {
		err := x.catchUp(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing, backoff = false, pushEvery
			if x.at.Unread {
				backoff = pushUnread
			}
		default:
			x.at = nil
			if !failing {
				x.r.opt.Log.Warn().Err(err).Uint32("replica", uint32(x.to)).Msg("replica is not fed")
			}
			failing, backoff = true, min(2*backoff, time.Second)
		}
		// If answers wait for this replica, the time of one push is pause enough.
		if !x.r.Waits() || err != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		case <-time.After(pushIdle):
			x.at = nil // asking shows it that the primary lives
		}
	}
}

// errHigher means that a replica has heard of a later term.
var errHigher = errors.New("a replica knows a higher epoch")

// catchUp sends until the replica has everything that is committed now. To a replica where no
// client reads, and for which no answers wait, it sends only what was committed when catchUp was
// called, or when a snapshot had been sent: the rest goes as one push after the pause.
func (x *pusher) catchUp(ctx context.Context) error {
	var ack push.Ack
	var err error
	unknown := x.stamp == 0 // the replica does not know yet how old a push is
	if x.at != nil {
		ack = *x.at
	} else {
		ack, err = x.send(ctx, push.Push{Before: x.r.feed.position()}, pushWait)
	}
	goal := x.r.feed.position().LSN
	for sent := 0; err == nil; {
		frames, ok := x.r.feed.after(ack.At)
		if ok {
			x.r.acknowledge(x.to, ack.At.LSN, len(frames) == 0)
		}
		if ok && len(frames) == 0 && unknown && x.stamp != 0 {
			unknown = false
			ack, err = x.send(ctx, push.Push{Before: ack.At}, pushWait)
			continue
		}
		if ok && (len(frames) == 0 || ack.Unread && ack.At.LSN >= goal && !x.r.Waits()) {
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
			x.r.feed.hold(1)
			defer x.r.feed.hold(-1) // when it has what was committed meanwhile
			ack, err = x.snapshot(ctx, ack.At)
			goal = x.r.feed.position().LSN
		}
	}
	return err
}

// errBehind means that a replica did not connect even after a snapshot.
var errBehind = errors.New("the replica does not keep up")

func (x *pusher) send(ctx context.Context, m push.Push, wait time.Duration) (push.Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m.Epoch = x.r.opt.Epoch
	m.Stamp, m.Asks = x.stamp, x.stamp == 0
	if !m.Asks {
		m.Since = time.Since(x.heard)
	}
	ack, err := x.link.Push(ctx, m)
	x.stamp, x.heard = ack.Stamp, time.Now() // none with an error: it may be another process by then
	if err == nil && ack.Epoch > m.Epoch {
		// A replica knows a higher epoch: the volume shows whether it ended this term.
		return ack, cmp.Or(x.r.host.CheckNow(), errHigher)
	}
	return ack, err
}

// errConnected means that a replica has got another table meanwhile, from which it goes on.
var errConnected = errors.New("the replica needs no snapshot any more")

// snapshot sends the whole table, chunk by chunk as it comes out of the core loop, to a replica
// at this position. If it came too late, the next one is sent without rests.
func (x *pusher) snapshot(ctx context.Context, at wal.Position) (push.Ack, error) {
	x.tries++
	limit := throttle.New(ctx.Done(), func() bool { return x.tries > 1 || x.r.feed.crowded() })
	s, stop, err := x.r.Export(ctx, limit)
	if err != nil {
		return push.Ack{}, err
	}
	defer stop()
	w := &chunkWriter{x: x, ctx: ctx, from: at, at: s.At, throttle: limit}
	if err = s.Stream(w); err == nil {
		err = w.send(true)
	}
	switch {
	case errors.Is(err, errConnected):
		err = nil
	case err == nil && w.ack.At != s.At:
		err = push.ErrMismatch
	}
	return w.ack, err
}

// chunkWriter sends what is written to it as chunks of a snapshot. The last chunk is sent by an
// explicit send(true). It belongs to the goroutine of its pusher.
type chunkWriter struct {
	x        *pusher
	ctx      context.Context
	from     wal.Position // where the replica was before
	at       wal.Position
	throttle *throttle.Throttle
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
	w.throttle.Waited(time.Since(sent))
	w.off, w.buf = w.off+len(w.buf), w.buf[:0]
	if err == nil && !last && w.ack.At != w.from && w.x.r.feed.keeps(w.ack.At) {
		return errConnected
	}
	if err == nil && !last && w.ack.Chunk != w.off {
		err = push.ErrMismatch // the replica has dropped what came before
	}
	return err
}
