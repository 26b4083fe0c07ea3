// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// keptName is the copy of the table in a server's own data directory.
	keptName = checkpoint.CopyName
	// keepEvery is how often the copy is written while the table changes; the pause between
	// two writes is at least keepShare times as long as a write.
	keepEvery = 30 * time.Second
	keepShare = 10
	// keepPiece is how many entities are read from the table at a time; the rest after them
	// is keepRest times as long as reading and writing them took.
	keepPiece = 256
	keepRest  = 3
)

// Keep writes the table into a directory of this server's own, from time to time and
// when ctx ends, so that a restarted replica is warm and a copy survives the
// volume. Nothing depends on it: a takeover compares chain values, and a failure
// is reported and tried again.
func (r *Replica) Keep(ctx context.Context, dir string, report func(error)) {
	t := time.NewTicker(keepEvery)
	defer t.Stop()
	var kept wal.Position
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-t.C:
		}
		began := time.Now()
		at, err := r.save(ctx, dir, kept)
		if err != nil {
			report(fmt.Errorf("keep a copy of the table: %w", err))
		}
		kept = at
		t.Reset(max(keepEvery, keepShare*time.Since(began)))
	}
}

// save writes the table unless it has not changed since the last time.
func (r *Replica) save(ctx context.Context, dir string, last wal.Position) (_ wal.Position, err error) {
	r.mu.Lock()
	table := r.mu.table
	if table == nil || r.mu.unconfirmed || r.mu.at == last {
		r.mu.Unlock()
		return last, nil
	}
	x := table.BeginExport()
	r.mu.export = x
	s := checkpoint.Export{Cluster: r.mu.of, Epoch: r.mu.epoch, At: r.mu.at, Hash: x.Hash(), Entities: r.pieces(ctx, table, x)}
	r.mu.Unlock()
	defer r.endExport(x)
	f, err := renameio.NewPendingFile(filepath.Join(dir, keptName), renameio.WithPermissions(0o600))
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	w := bufio.NewWriterSize(vfs.InPieces(f, f.Sync), 1<<16)
	if err := s.Stream(w); errors.Is(err, errGone) {
		return last, nil
	} else if err != nil {
		return last, err
	}
	if err := w.Flush(); err != nil {
		return last, err
	}
	return s.At, f.CloseAtomicallyReplace()
}

// errGone means that the table was handed over or replaced while it was written.
var errGone = errors.New("the table has gone meanwhile")

// pieces yields what x exports. It reads a few entities at a time, so that pushes and
// local reads go on, and rests in between unless ctx has ended.
func (r *Replica) pieces(ctx context.Context, table *locktable.Table, x *locktable.Exporter) iter.Seq2[locktable.Entity, error] {
	return func(yield func(locktable.Entity, error) bool) {
		var buf []locktable.Entity
		for more := true; more; {
			began := time.Now()
			r.mu.Lock()
			gone := r.mu.table != table || r.mu.export != x
			if !gone {
				buf, more = x.Next(keepPiece, buf[:0])
			}
			r.mu.Unlock()
			if gone {
				yield(locktable.Entity{}, errGone)
				return
			}
			for _, e := range buf {
				if !yield(e, nil) {
					return
				}
			}
			retry.Rest(ctx, keepRest*time.Since(began))
		}
	}
}

// endExport closes an export, unless the table was handed over.
func (r *Replica) endExport(x *locktable.Exporter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.export == x {
		r.closeExport()
	}
}

// closeExport is called with mu held, before the table goes away.
func (r *Replica) closeExport() {
	if r.mu.export != nil {
		r.mu.export.Close()
		r.mu.export = nil
	}
}

// ReadKept reads the copy that Keep left in dir and verifies it. It returns an error that
// wraps fs.ErrNotExist if there is none.
func ReadKept(dir string) (checkpoint.Snapshot, error) {
	f, err := os.Open(filepath.Join(dir, keptName))
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("read the copy of the table: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	s, err := checkpoint.ReadSnapshot(f)
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("read the copy of the table in %s: %w", filepath.Join(dir, keptName), err)
	}
	return s, nil
}

// ErrUnseenCopy means that the copy in a data directory is of a term that the volume does not show.
var ErrUnseenCopy = errors.New("the copy of the table is of a term that the volume does not show: it is not used, and written anew")

// ErrForeignCopy means that the copy in a data directory is of another cluster, or
// does not name its cluster.
var ErrForeignCopy = errors.New("the copy of the table is of another cluster")

// Load begins with the copy that Keep left in a data directory: its table, and its epoch, below
// which pushes are rejected. Without a copy it does nothing. began reports whether the volume
// shows that the term of an epoch began. Load returns an error that wraps ErrForeignCopy if the
// copy is of another cluster, ErrUnseenCopy if the volume does not show its term.
func (r *Replica) Load(dir string, id cluster.ID, began func(cluster.Epoch) bool) error {
	s, err := ReadKept(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Cluster != id {
		return fmt.Errorf("%w: %s is of %s, this one is %s: it is not used, and written anew", ErrForeignCopy, filepath.Join(dir, keptName), s.Cluster, id)
	}
	if !began(s.Epoch) {
		return fmt.Errorf("%w: epoch %d", ErrUnseenCopy, s.Epoch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil && r.mu.epoch <= s.Epoch {
		r.mu.table, r.mu.at, r.mu.of, r.mu.epoch = s.Table, s.At, s.Cluster, s.Epoch
		r.mu.ends = history.NewRing(r.rate, s.At.LSN)
		r.feed.Begin(s.At, s.Epoch)
		r.epoch.Store(uint64(s.Epoch))
		r.lsn.Store(uint64(s.At.LSN))
	}
	return nil
}
