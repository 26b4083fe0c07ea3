// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// feedBytes of committed frames are kept for replicas that lag.
	feedBytes = 4 << 20
	// feedBytesMost of them are kept while a snapshot is on its way.
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

// add takes a committed frame over. The bytes are copied, because the batch is used again.
func (f *feed) add(before, end wal.Position, elided []byte) {
	f.mu.Lock()
	f.mu.frames = append(f.mu.frames, fedFrame{before: before, bytes: append([]byte(nil), elided...)})
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

// after joins the frames that follow a position. It returns false where the
// position is not one of those kept, so that only a snapshot helps.
func (f *feed) after(at wal.Position) (frames []byte, end wal.Position, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at == f.mu.end {
		return nil, at, true
	}
	i := 0
	for i < len(f.mu.frames) && f.mu.frames[i].before != at {
		i++
	}
	if i == len(f.mu.frames) {
		return nil, at, false
	}
	for ; i < len(f.mu.frames) && len(frames) < pushBytes; i++ {
		frames = append(frames, f.mu.frames[i].bytes...)
	}
	if end = f.mu.end; i < len(f.mu.frames) {
		end = f.mu.frames[i].before
	}
	return frames, end, true
}

// pusher feeds one replica until the reign ends.
type pusher struct {
	p    *Primary
	to   cluster.ServerID
	link Link
	wake chan struct{}
	// at is where the replica stands, or nil when it has to be asked. Owned by run.
	at *push.Ack
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
		if !x.p.sleep(backoff) {
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
	if x.at != nil {
		ack = *x.at
	} else {
		ack, err = x.send(ctx, push.Push{Before: x.p.feed.position()}, pushWait)
	}
	for sent := 0; err == nil; {
		frames, end, ok := x.p.feed.after(ack.At)
		if ok && len(frames) == 0 {
			x.at = &ack
			return nil
		}
		if ok {
			before := ack.At
			ack, err = x.send(ctx, push.Push{Before: before, Frames: frames}, pushWait)
			ok = err != nil || ack.At == end
		}
		if !ok {
			if sent++; sent > 1 {
				return errBehind // the next attempt comes after a pause
			}
			ack, err = x.snapshot(ctx)
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
	ack, err := x.link.Push(ctx, m)
	if err == nil && ack.Epoch > m.Epoch {
		// Somebody claims to be newer: the volume knows.
		if err := x.p.check(); err != nil {
			return ack, err
		}
		return ack, errHigher
	}
	return ack, err
}

// snapshot sends the whole table.
func (x *pusher) snapshot(ctx context.Context) (push.Ack, error) {
	x.p.feed.hold(1)
	defer x.p.feed.hold(-1)
	s, err := x.p.Snapshot(ctx)
	if err != nil {
		return push.Ack{}, err
	}
	b, err := push.EncodeSnapshot(s)
	if err != nil {
		return push.Ack{}, err
	}
	for off := 0; ; {
		n := min(len(b)-off, push.ChunkSize)
		last := off+n == len(b)
		ack, err := x.send(ctx, push.Push{Chunk: &push.Chunk{At: s.At, Offset: off, Bytes: b[off : off+n], Last: last}}, snapshotWait)
		if err != nil || last {
			if err == nil && ack.At != s.At {
				err = push.ErrMismatch
			}
			return ack, err
		}
		off += n
	}
}

// startPushers begins to feed the replicas from the adopted end on.
func (p *Primary) startPushers() {
	for to, link := range p.opt.Replicas {
		x := &pusher{p: p, to: to, link: link, wake: make(chan struct{}, 1)}
		p.feed.wakes = append(p.feed.wakes, x.wake)
		p.wg.Go(x.run)
	}
}
