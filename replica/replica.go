// SPDX-License-Identifier: Apache-2.0

// Package replica keeps a table warm: it applies what the primary pushes,
// answers local reads from it and hands it to a takeover.
//
// What a replica holds was durable and checked before it was pushed, so a local read
// tells the truth of a moment in the past; it says which. A takeover uses the
// table only where the adopted log has the same chain value, so nothing here is
// needed for safety.
package replica

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// Replica is a table fed by pushes. It is safe for use by several goroutines.
type Replica struct {
	began time.Time // the clock of stamps
	// Copies for Epoch and LSN, which must not wait for a table being applied.
	epoch, lsn atomic.Uint64
	feed       Feed
	rate       int // of ends that are kept

	mu struct {
		sync.Mutex
		table *locktable.Table // nil until the first snapshot, and when handed over
		ends  *history.Ring    // what table went through last
		of    volume.ClusterID // whose table it is
		at    wal.Position
		epoch cluster.Epoch // highest heard of
		// claimed is that of this server's own claim while the table is handed over, else 0.
		claimed cluster.Epoch
		fed     time.Time // when the primary sent the newest push that says that the table is its own
		// doubtful says that the table came back from a takeover: a primary has to know its
		// position before anybody reads it.
		doubtful bool
		coming   *incoming         // the snapshot under way
		decoder  locktable.Decoder // of frames
		// The export of table under way, to keep a copy of it.
		export *locktable.Exporter
	}
}

// incoming is a snapshot that is decoded while it comes. It is decoded without mu, by
// the push that brings a piece: busy says that one does.
type incoming struct {
	at   wal.Position
	size int // of what came
	busy bool
	d    *volume.SnapshotDecoder
}

// Feed hears of every change of the table before anybody can read it. Its methods
// must not block.
type Feed interface {
	// Begin says that there is a table at this position, however it came.
	Begin(at wal.Position, epoch cluster.Epoch)
	// Frames says that these frames were applied, behind each other, and what they took
	// from holders.
	Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, taken []Taken)
	// Alive says that the primary has nothing more.
	Alive()
}

// Taken is a grant that a record ends otherwise than by its holder's own release, or whose
// holder it asks to let go. That of a ForceClear is empty: it ends all.
type Taken struct {
	Record locktable.Record
	Grant  locktable.Grant
	Last   *pb.Receipt // the last append under it, nil if the table has none
}

// nobody hears nothing.
type nobody struct{}

func (nobody) Begin(wal.Position, cluster.Epoch)                              {}
func (nobody) Frames(_, _ wal.Position, _ cluster.Epoch, _ []byte, _ []Taken) {}
func (nobody) Alive()                                                         {}

// New makes an empty replica.
func New() *Replica { return &Replica{began: time.Now(), feed: nobody{}} }

// SetHistoryRate says how many plain releases a second are kept for the history, as of
// history.NewLimiter. It is called before the first Push or Load.
func (r *Replica) SetHistoryRate(rate int) { r.rate = rate }

// SetFeed has f hear what changes. It is called before the first Push or Load.
func (r *Replica) SetFeed(f Feed) { r.feed = f }

// Epoch is the highest that a push told of. It never blocks.
func (r *Replica) Epoch() cluster.Epoch { return cluster.Epoch(r.epoch.Load()) }

// LSN is where the replica stands. It never blocks.
func (r *Replica) LSN() cluster.LSN { return cluster.LSN(r.lsn.Load()) }

// At is where the replica stands, with the chain value; zero without a table that a primary told of.
func (r *Replica) At() wal.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil || r.mu.doubtful {
		return wal.Position{}
	}
	return r.mu.at
}

// Drop forgets a table that the volume contradicts, if it still stands there: the primary sends
// another one. False says that it stands elsewhere by now.
func (r *Replica) Drop(at wal.Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil || r.mu.at != at {
		return false
	}
	r.mu.table, r.mu.ends = nil, nil
	r.lsn.Store(0)
	return true
}

// Push applies a push and says where the replica stands then. A push of an
// older epoch, or of one not behind that which this server claimed, changes nothing and is told of
// the newer one. An error says why a push was not applied; the answer is right nevertheless.
func (r *Replica) Push(p push.Push) (push.Ack, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Epoch < r.mu.epoch || p.Epoch <= r.mu.claimed {
		a := r.ack()
		a.Epoch = max(a.Epoch, r.mu.claimed)
		return a, nil
	}
	if p.Epoch > r.mu.epoch {
		r.mu.epoch, r.mu.coming = p.Epoch, nil
	}
	if p.Chunk == nil && r.mu.table != nil && r.mu.at == p.Before {
		r.believe(p.Epoch)
		r.mu.coming = nil // the primary has stopped sending it
	}
	var err error
	switch {
	case p.Chunk != nil:
		err = r.chunk(p.Epoch, p.Chunk)
	case len(p.Frames) > 0:
		err = r.frames(p)
	case r.mu.table == nil || r.mu.at != p.Before:
		return r.ack(), nil // the primary lives, and is ahead
	}
	if err == nil && (p.Chunk == nil || p.Chunk.Last) { // pieces do not make an old table new
		if sent := r.sent(&p); !sent.IsZero() && !sent.Before(r.mu.fed) {
			r.mu.fed = sent
			r.feed.Alive()
		}
	}
	return r.ack(), err
}

// sent is when a push was sent, or a little before, by this server's clock: zero where nobody
// can know, for it may have been long on its way.
func (r *Replica) sent(p *push.Push) time.Time {
	now := time.Now()
	switch at := r.began.Add(time.Duration(p.Stamp) + p.Since); {
	case p.Stamp == 0 && p.Asks:
		return time.Time{}
	case p.Stamp == 0:
		return now // of a primary that knows nothing of stamps
	case p.Since < 0 || at.After(now):
		return time.Time{} // of an answer that an earlier process gave
	default:
		return at
	}
}

// ack is called with mu held, like the other helpers.
func (r *Replica) ack() push.Ack {
	a := push.Ack{Epoch: r.mu.epoch, Stamp: max(1, uint64(time.Since(r.began)))}
	if r.mu.coming != nil {
		a.Chunk = r.mu.coming.size
	}
	if r.mu.table != nil {
		a.At = r.mu.at
	}
	r.epoch.Store(uint64(r.mu.epoch))
	if !r.mu.doubtful {
		r.lsn.Store(uint64(a.At.LSN))
	}
	return a
}

// believe is told that a primary knows the table's position: that much is committed.
func (r *Replica) believe(epoch cluster.Epoch) {
	if r.mu.doubtful {
		r.mu.doubtful = false
		r.feed.Begin(r.mu.at, epoch)
	}
}

// chunk decodes a piece of a snapshot: not while others wait for mu.
func (r *Replica) chunk(epoch cluster.Epoch, c *push.Chunk) error {
	if c.Offset == 0 {
		r.mu.coming = &incoming{at: c.At, d: volume.NewSnapshotDecoder()}
	}
	in := r.mu.coming
	if in == nil || in.busy || c.Offset != in.size || c.At != in.at {
		r.mu.coming = nil
		return push.ErrMismatch
	}
	in.size += len(c.Bytes)
	in.busy = true
	r.mu.Unlock()
	_, err := in.d.Write(c.Bytes)
	var s volume.Snapshot
	if err == nil && c.Last {
		s, err = in.d.Close()
	}
	r.mu.Lock()
	in.busy = false
	if err == nil && (r.mu.coming != in || c.Last && s.At != c.At) { // another one began, or a later reign
		err = push.ErrMismatch
	}
	if r.mu.coming == in && (err != nil || c.Last) {
		r.mu.coming = nil
	}
	if err != nil {
		return fmt.Errorf("snapshot at LSN %d: %w", c.At.LSN, err)
	}
	if !c.Last {
		return nil
	}
	r.mu.table, r.mu.at, r.mu.of, r.mu.doubtful = s.Table, s.At, s.Cluster, false
	r.mu.ends = history.NewRing(r.rate, s.At.LSN)
	r.feed.Begin(s.At, epoch)
	return nil
}

func (r *Replica) frames(p push.Push) error {
	if r.mu.table == nil || p.Before != r.mu.at {
		return push.ErrMismatch
	}
	var taken []Taken
	for b := p.Frames; len(b) > 0; {
		f, entries, n, err := wal.DecodeFrame(b)
		if err == nil {
			taken, err = r.frame(f, entries, taken)
		}
		if err != nil {
			r.mu.table, r.mu.ends = nil, nil // a frame may be applied in part: ask for a snapshot
			return fmt.Errorf("push behind LSN %d: %w", p.Before.LSN, err)
		}
		b = b[n:]
	}
	r.mu.coming = nil // a snapshot would lead back
	r.feed.Frames(p.Before, r.mu.at, p.Epoch, p.Frames, taken)
	return nil
}

var errChain = errors.New("chain value differs from the frame's")

// frame applies a frame, and adds to taken what that takes.
func (r *Replica) frame(f wal.FrameHeader, entries []wal.Entry, taken []Taken) ([]Taken, error) {
	if f.First != r.mu.at.LSN+1 {
		return nil, push.ErrMismatch
	}
	if wal.VerifyChain(r.mu.at.Chain, entries) != f.Chain {
		return nil, errChain
	}
	for i := range entries {
		rec, err := r.mu.decoder.DecodeHeader(entries[i].Header)
		if err != nil {
			return nil, err
		}
		r.mu.ends.Observe(r.mu.table, &rec)
		if x, ok := takes(r.mu.table, &rec); ok {
			taken = append(taken, x)
		}
		if err := r.mu.table.Apply(&rec); err != nil {
			return nil, err
		}
	}
	r.mu.at = wal.Position{LSN: r.mu.table.LSN(), Chain: f.Chain}
	return taken, nil
}

// takes is what a record that is about to be applied takes: the table still knows the
// grant, and the record does not say whose it is.
func takes(t *locktable.Table, rec *locktable.Record) (Taken, bool) {
	switch rec.Kind {
	case locktable.KindForceClear:
		return Taken{Record: *rec}, true
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak, locktable.KindAsk:
	default:
		return Taken{}, false
	}
	g, live := t.Live(rec.Lock, rec.Token)
	if !live || rec.Kind == locktable.KindRelease && rec.Client == g.Client {
		return Taken{}, false
	}
	return Taken{Record: *rec, Grant: g, Last: convert.LastAppend(t, &g)}, true
}

// Read lets f look at the table, during the call only: at which LSN it is, of
// which epoch, and how long ago that epoch's primary was heard. False says that
// there is no table yet.
func (r *Replica) Read(f func(at cluster.LSN, epoch cluster.Epoch, age time.Duration, t *locktable.Table)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil || r.mu.doubtful {
		return false
	}
	f(r.mu.at.LSN, r.mu.epoch, time.Since(r.mu.fed), r.mu.table)
	return true
}

// Recent is what ended lately.
func (r *Replica) Recent() history.Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.doubtful {
		return (*history.Ring)(nil).Recent()
	}
	return r.mu.ends.Recent()
}

// HandOver gives the table away to the takeover of a claimed epoch; nil when there is none.
// The replica is empty afterwards, and hears no older epoch until TakeBack: one that pushes
// late must not have the reign's own server show its state.
func (r *Replica) HandOver(claimed cluster.Epoch) *volume.Warm {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.claimed, r.mu.coming = claimed, nil
	if r.mu.table == nil {
		return nil
	}
	r.closeExport()
	w := &volume.Warm{At: r.mu.at, Table: r.mu.table, Of: r.mu.of, Ends: r.mu.ends}
	r.mu.table, r.mu.ends = nil, nil
	return w
}

// TakeBack ends what HandOver began: the replica waits for the next primary. Began says that
// the reign did, so that no older one is listened to any more; it need not have served. The
// table that it leaves, if not nil, comes back: a large one costs much to send. A takeover may
// have moved it on along a log that it then did not adopt, so nobody reads it, and it counts
// as nothing known, until a primary knows its position.
func (r *Replica) TakeBack(w *volume.Warm, began bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began {
		r.mu.epoch = max(r.mu.epoch, r.mu.claimed)
		r.epoch.Store(uint64(r.mu.epoch))
	}
	r.mu.claimed = 0
	if w == nil || r.mu.table != nil || w.Table.LSN() != w.At.LSN {
		return
	}
	r.mu.table, r.mu.at, r.mu.of, r.mu.ends, r.mu.doubtful = w.Table, w.At, w.Of, w.Ends, true
}
