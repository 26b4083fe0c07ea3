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
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

// Replica is a table fed by pushes. It is safe for use by several goroutines.
type Replica struct {
	// Copies for Epoch and LSN, which must not wait for a table being applied.
	epoch, lsn atomic.Uint64

	mu struct {
		sync.Mutex
		table *locktable.Table // nil until the first snapshot, and when handed over
		of    volume.ClusterID // whose table it is
		at    wal.Position
		epoch cluster.Epoch // highest heard of
		fed   time.Time     // when the table was last known to be the primary's
		// The snapshot under way.
		coming   []byte
		comingAt wal.Position
	}
}

// New makes an empty replica.
func New() *Replica { return &Replica{} }

// Epoch is the highest that a push told of. It never blocks.
func (r *Replica) Epoch() cluster.Epoch { return cluster.Epoch(r.epoch.Load()) }

// LSN is where the replica stands. It never blocks.
func (r *Replica) LSN() cluster.LSN { return cluster.LSN(r.lsn.Load()) }

// Push applies a push and says where the replica stands then. A push of an
// older epoch changes nothing and is told of the newer one. An error says why a
// push was not applied; the answer is right nevertheless.
func (r *Replica) Push(p push.Push) (push.Ack, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Epoch < r.mu.epoch {
		return r.ack(), nil
	}
	if p.Epoch > r.mu.epoch {
		r.mu.epoch, r.mu.coming = p.Epoch, nil
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
	if err == nil {
		r.mu.fed = time.Now()
	}
	return r.ack(), err
}

// ack is called with mu held, like the other helpers.
func (r *Replica) ack() push.Ack {
	a := push.Ack{Epoch: r.mu.epoch, Chunk: len(r.mu.coming)}
	if r.mu.table != nil {
		a.At = r.mu.at
	}
	r.epoch.Store(uint64(r.mu.epoch))
	r.lsn.Store(uint64(a.At.LSN))
	return a
}

func (r *Replica) chunk(epoch cluster.Epoch, c *push.Chunk) error {
	if c.Offset == 0 {
		r.mu.coming, r.mu.comingAt = nil, c.At
	}
	if c.Offset != len(r.mu.coming) || c.At != r.mu.comingAt {
		r.mu.coming = nil
		return push.ErrMismatch
	}
	r.mu.coming = append(r.mu.coming, c.Bytes...)
	if !c.Last {
		return nil
	}
	b := r.mu.coming
	r.mu.coming = nil
	// A large table takes seconds to decode: not while others wait for mu.
	r.mu.Unlock()
	s, err := push.DecodeSnapshot(b)
	r.mu.Lock()
	if err == nil && (s.At != c.At || r.mu.epoch != epoch) {
		err = push.ErrMismatch
	}
	if err != nil {
		return fmt.Errorf("snapshot at LSN %d: %w", c.At.LSN, err)
	}
	r.mu.table, r.mu.at, r.mu.of = s.Table, s.At, s.Cluster
	return nil
}

func (r *Replica) frames(p push.Push) error {
	if r.mu.table == nil || p.Before != r.mu.at {
		return push.ErrMismatch
	}
	for b := p.Frames; len(b) > 0; {
		f, entries, n, err := wal.DecodeFrame(b)
		if err == nil {
			err = r.frame(f, entries)
		}
		if err != nil {
			r.mu.table = nil // a frame may be applied in part: ask for a snapshot
			return fmt.Errorf("push behind LSN %d: %w", p.Before.LSN, err)
		}
		b = b[n:]
	}
	return nil
}

var errChain = errors.New("chain value differs from the frame's")

func (r *Replica) frame(f wal.FrameHeader, entries []wal.Entry) error {
	if f.First != r.mu.at.LSN+1 {
		return push.ErrMismatch
	}
	if wal.VerifyChain(r.mu.at.Chain, entries) != f.Chain {
		return errChain
	}
	for i := range entries {
		rec, err := locktable.DecodeHeader(entries[i].Header)
		if err != nil {
			return err
		}
		if err := r.mu.table.Apply(&rec); err != nil {
			return err
		}
	}
	r.mu.at = wal.Position{LSN: r.mu.table.LSN(), Chain: f.Chain}
	return nil
}

// Read lets f look at the table, during the call only: at which LSN it is, of
// which epoch, and how long ago that epoch's primary was heard. False says that
// there is no table yet.
func (r *Replica) Read(f func(at cluster.LSN, epoch cluster.Epoch, age time.Duration, t *locktable.Table)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil {
		return false
	}
	f(r.mu.at.LSN, r.mu.epoch, time.Since(r.mu.fed), r.mu.table)
	return true
}

// HandOver gives the table away to a takeover; nil when there is none. The
// replica is empty afterwards and waits for the next primary's snapshot.
func (r *Replica) HandOver() *volume.Warm {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil {
		return nil
	}
	w := &volume.Warm{At: r.mu.at, Table: r.mu.table}
	r.mu.table, r.mu.coming = nil, nil
	return w
}
