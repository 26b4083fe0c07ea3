// SPDX-License-Identifier: Apache-2.0

// Package replica keeps a table warm: it applies what the primary pushes,
// answers local reads from it and hands it over to a takeover.
//
// What a replica holds was durable and checked before it was pushed, so a local read
// is a consistent state of the past, with its age. A takeover uses the table only if
// the adopted log has the same chain value, so nothing here is needed for safety.
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
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// readLately is how long after a local read the primary is asked to feed this replica often.
const readLately = time.Second

// Replica is a table fed by pushes. It is safe for use by several goroutines.
type Replica struct {
	began time.Time // the zero of the stamps
	// Copies for Epoch, LSN and Level, which must not wait for a table being applied.
	epoch, lsn atomic.Uint64
	level      atomic.Uint32
	members    atomic.Pointer[cluster.Membership]
	feed       Feed
	rate       int // of SetHistoryRate

	mu struct {
		sync.Mutex
		table *locktable.Table // nil until the first snapshot, and when handed over
		ends  *history.Ring    // the last ends of grants in table
		of    cluster.ID       // the cluster of table
		at    wal.Position
		epoch cluster.Epoch // highest heard of
		// claimed is the epoch of this server's own claim while the table is handed over, else 0.
		claimed cluster.Epoch
		fed     time.Time // when the primary sent the newest push that confirms the table
		read    time.Time // when Read was called last; zero: never
		// unconfirmed is set if the table came back from a takeover: it is not read before a
		// primary knows its position.
		unconfirmed bool
		coming      *incoming         // the snapshot under way
		decoder     locktable.Decoder // of frames
		// The export of table under way, to keep a copy of it.
		export *locktable.Exporter
	}
}

// incoming is a snapshot that is decoded while it comes. The push with a piece decodes it
// without mu; busy is set meanwhile.
type incoming struct {
	at   wal.Position
	size int // of what came
	busy bool
	d    *checkpoint.Decoder
}

// Feed gets every change of the table before a local read can show it. Its methods must not
// block.
type Feed interface {
	// Begin is called when there is a table at this position, however it came.
	Begin(at wal.Position, epoch cluster.Epoch)
	// Frames is called when these adjacent frames were applied, with the grants that they
	// revoked.
	Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, taken []RevokedGrant)
	// Alive is called when the primary has nothing more.
	Alive()
	// Watched reports whether a client waits for changes.
	Watched() bool
}

// RevokedGrant is a grant that a record ends otherwise than by its holder's own release, or whose
// holder it asks to release. That of a ForceClear is empty: it ends all.
type RevokedGrant struct {
	Record locktable.Record
	Grant  locktable.Grant
	Last   *pb.Receipt // the last append under it, nil if the table has none
}

// nopFeed ignores everything.
type nopFeed struct{}

func (nopFeed) Begin(wal.Position, cluster.Epoch)                                     {}
func (nopFeed) Frames(_, _ wal.Position, _ cluster.Epoch, _ []byte, _ []RevokedGrant) {}
func (nopFeed) Alive()                                                                {}
func (nopFeed) Watched() bool                                                         { return false }

// New returns an empty replica.
func New() *Replica { return &Replica{began: time.Now(), feed: nopFeed{}} }

// SetHistoryRate sets how many plain releases a second are kept for the history, as for
// history.NewLimiter. Call it before the first Push or Load.
func (r *Replica) SetHistoryRate(rate int) { r.rate = rate }

// SetFeed sets the Feed. Call it before the first Push or Load.
func (r *Replica) SetFeed(f Feed) { r.feed = f }

// Epoch returns the highest epoch of a push. It never blocks.
func (r *Replica) Epoch() cluster.Epoch { return cluster.Epoch(r.epoch.Load()) }

// LSN returns the last LSN that was applied. It never blocks.
func (r *Replica) LSN() cluster.LSN { return cluster.LSN(r.lsn.Load()) }

// Level returns the feature level that the cluster was raised to by the log that was applied, 0 for none. It never blocks.
func (r *Replica) Level() uint32 { return r.level.Load() }

// Members returns the list of servers of the log that was applied, nil as long as it made none. It never blocks.
func (r *Replica) Members() *cluster.Membership { return r.members.Load() }

// At returns the position of the table, with the chain value; zero without a table that a primary
// has confirmed.
func (r *Replica) At() wal.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil || r.mu.unconfirmed {
		return wal.Position{}
	}
	return r.mu.at
}

// Drop drops a table that the volume contradicts, if it is still at this position: the primary
// sends another one. It returns false if the table has moved on.
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

// Push applies a push and returns the replica's position after it. A push of an older epoch, or of
// one not above that which this server claimed, changes nothing; the Ack then has the newer epoch.
// An error is why a push was not applied; the Ack is valid nevertheless.
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
		return r.ack(), nil // the primary lives, and has more
	}
	if err == nil && (p.Chunk == nil || p.Chunk.Last) { // pieces do not make an old table new
		if sent := r.sent(&p); !sent.IsZero() && !sent.Before(r.mu.fed) {
			r.mu.fed = sent
			r.feed.Alive()
		}
	}
	return r.ack(), err
}

// sent returns when a push was sent, or a little before, by this server's clock; zero if that
// cannot be known, because it may have been long on its way.
func (r *Replica) sent(p *push.Push) time.Time {
	now := time.Now()
	switch at := r.began.Add(time.Duration(p.Stamp) + p.Since); {
	case p.Stamp == 0 && p.Asks:
		return time.Time{}
	case p.Stamp == 0:
		return now // from a primary without stamps
	case p.Since < 0 || at.After(now):
		return time.Time{} // the stamp of an earlier process
	default:
		return at
	}
}

// ack returns the answer to a push. It is called with mu held, like the helpers below.
func (r *Replica) ack() push.Ack {
	now := time.Now()
	a := push.Ack{Epoch: r.mu.epoch, Stamp: max(1, uint64(now.Sub(r.began)))}
	a.Unread = (r.mu.read.IsZero() || now.Sub(r.mu.read) > readLately) && !r.feed.Watched()
	if r.mu.coming != nil {
		a.Chunk = r.mu.coming.size
	}
	if r.mu.table != nil {
		a.At = r.mu.at
	}
	r.epoch.Store(uint64(r.mu.epoch))
	if !r.mu.unconfirmed {
		r.lsn.Store(uint64(a.At.LSN))
		if r.mu.table != nil {
			n, _ := r.mu.table.Level()
			r.level.Store(n)
			if list, made := r.mu.table.Members(); made && (r.members.Load() == nil || r.members.Load().Version != list.Version) {
				r.members.Store(&list)
			}
		}
	}
	return a
}

// believe makes a table that came back from a takeover readable: a primary has said that all up to
// its position is committed.
func (r *Replica) believe(epoch cluster.Epoch) {
	if r.mu.unconfirmed {
		r.mu.unconfirmed = false
		r.feed.Begin(r.mu.at, epoch)
	}
}

// chunk decodes a piece of a snapshot, without mu, so that others need not wait.
func (r *Replica) chunk(epoch cluster.Epoch, c *push.Chunk) error {
	if c.Offset == 0 {
		r.mu.coming = &incoming{at: c.At, d: checkpoint.NewDecoder()}
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
	var s checkpoint.Snapshot
	if err == nil && c.Last {
		s, err = in.d.Close()
	}
	r.mu.Lock()
	in.busy = false
	if err == nil && (r.mu.coming != in || c.Last && s.At != c.At) { // another one began, or a later term
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
	r.mu.table, r.mu.at, r.mu.of, r.mu.unconfirmed = s.Table, s.At, s.Cluster, false
	r.mu.ends = history.NewRing(r.rate, s.At.LSN)
	r.feed.Begin(s.At, epoch)
	return nil
}

func (r *Replica) frames(p push.Push) error {
	if r.mu.table == nil || p.Before != r.mu.at {
		return push.ErrMismatch
	}
	var taken []RevokedGrant
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
	r.mu.coming = nil // a snapshot would be older
	r.feed.Frames(p.Before, r.mu.at, p.Epoch, p.Frames, taken)
	return nil
}

var errChain = errors.New("chain value differs from the frame's")

// frame applies a frame, and appends the grants that it revokes to taken.
func (r *Replica) frame(f wal.FrameHeader, entries []wal.Entry, taken []RevokedGrant) ([]RevokedGrant, error) {
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

// takes returns the grant that a record revokes. It is called before the record is applied: the
// table still has the grant, and the record does not name its client.
func takes(t *locktable.Table, rec *locktable.Record) (RevokedGrant, bool) {
	switch rec.Kind {
	case locktable.KindForceClear:
		return RevokedGrant{Record: *rec}, true
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak, locktable.KindAsk:
	default:
		return RevokedGrant{}, false
	}
	g, live := t.Live(rec.Lock, rec.Token)
	if !live || rec.Kind == locktable.KindRelease && rec.Client == g.Client {
		return RevokedGrant{}, false
	}
	return RevokedGrant{Record: *rec, Grant: g, Last: convert.LastAppend(t, &g)}, true
}

// Read calls f with the table, which is valid during the call only, its LSN and epoch, and how
// long ago the primary of that epoch confirmed it. It returns false if there is no table yet.
func (r *Replica) Read(f func(at cluster.LSN, epoch cluster.Epoch, age time.Duration, t *locktable.Table)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.read = time.Now()
	if r.mu.table == nil || r.mu.unconfirmed {
		return false
	}
	f(r.mu.at.LSN, r.mu.epoch, r.mu.read.Sub(r.mu.fed), r.mu.table)
	return true
}

// Recent returns the ends of grants that the replica saw lately.
func (r *Replica) Recent() history.Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.unconfirmed {
		return (*history.Ring)(nil).Recent()
	}
	return r.mu.ends.Recent()
}

// HandOver gives the table to the takeover of a claimed epoch; nil if there is none. The replica
// is empty afterwards, and rejects pushes of older epochs until TakeBack: a late push must not
// make the new primary's own server show an old state.
func (r *Replica) HandOver(claimed cluster.Epoch) *volume.WarmState {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.claimed, r.mu.coming = claimed, nil
	if r.mu.table == nil {
		return nil
	}
	r.closeExport()
	w := &volume.WarmState{At: r.mu.at, Table: r.mu.table, Of: r.mu.of, Ends: r.mu.ends}
	r.mu.table, r.mu.ends = nil, nil
	return w
}

// TakeBack ends what HandOver began: the replica waits for the next primary. began reports whether
// the term began, so that feeds of older epochs are rejected; it need not have served. The table
// that the term leaves, if not nil, comes back, because a large one costs much to send. A takeover
// may have moved it on along a log that it then did not adopt, so it is not read, and nothing in
// it counts as known, until a primary knows its position.
func (r *Replica) TakeBack(w *volume.WarmState, began bool) {
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
	r.mu.table, r.mu.at, r.mu.of, r.mu.ends, r.mu.unconfirmed = w.Table, w.At, w.Of, w.Ends, true
}
