// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// keptName is the copy of the table in a server's own data directory.
	keptName = "replica.table"
	// keepEvery is how often the copy is written while the table changes.
	keepEvery = 30 * time.Second
)

// Keep writes the table into a directory of this server's own, now and then and
// when ctx ends, so that a restarted replica is warm and a copy survives the
// volume. Nothing rests on it: a takeover compares chain values, and a failure
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
		at, err := r.save(dir, kept)
		if err != nil {
			report(fmt.Errorf("keep a copy of the table: %w", err))
		}
		kept = at
	}
}

// save writes the table unless it is the one written last.
func (r *Replica) save(dir string, last wal.Position) (wal.Position, error) {
	r.mu.Lock()
	if r.mu.table == nil || r.mu.at == last {
		r.mu.Unlock()
		return last, nil
	}
	s := volume.Snapshot{Cluster: r.mu.of, Epoch: r.mu.epoch, At: r.mu.at, Table: r.mu.table.Clone()}
	r.mu.Unlock()
	b, err := push.EncodeSnapshot(s)
	if err != nil {
		return last, err
	}
	return s.At, renameio.WriteFile(filepath.Join(dir, keptName), b, 0o600)
}

// ReadKept reads the copy that Keep left in dir and verifies it. It fails with
// fs.ErrNotExist where there is none.
func ReadKept(dir string) (volume.Snapshot, error) {
	b, err := os.ReadFile(filepath.Join(dir, keptName))
	if err != nil {
		return volume.Snapshot{}, fmt.Errorf("read the copy of the table: %w", err)
	}
	s, err := push.DecodeSnapshot(b)
	if err != nil {
		return volume.Snapshot{}, fmt.Errorf("read the copy of the table in %s: %w", filepath.Join(dir, keptName), err)
	}
	return s, nil
}

// ErrForeignCopy says that the copy in a data directory is of another cluster, or
// does not say of which.
var ErrForeignCopy = errors.New("the copy of the table is of another cluster")

// Load begins with the copy that Keep left, if there is a good one of this
// cluster: the table, and the epoch below which nobody is listened to any more.
func (r *Replica) Load(dir string, id volume.ClusterID) error {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table == nil && r.mu.epoch <= s.Epoch {
		r.mu.table, r.mu.at, r.mu.of, r.mu.epoch = s.Table, s.At, s.Cluster, s.Epoch
		r.epoch.Store(uint64(s.Epoch))
		r.lsn.Store(uint64(s.At.LSN))
	}
	return nil
}
