// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// Snapshot is a table at one position of the log, ready to be written down.
type Snapshot struct {
	Cluster ClusterID // whose state it is
	Epoch   cluster.Epoch
	At      wal.Position
	// Table is nobody else's; it is not changed while the snapshot lives.
	Table *locktable.Table
	// Pending are committed appends up to At that their files may lack.
	Pending []locktable.Record
}

// WriteCheckpoint makes s a base: first complete and durable under a temporary
// name, then renamed. The caller has made sure that every protected file is
// synced up to s.At or carried in s.Pending, and that a check passed after s was
// durable in the log.
//
// It returns the size in bytes. A full disk leaves the reign as it was; the next call begins anew. Any other
// error leaves it to the caller to depose.
func (r *Reign) WriteCheckpoint(s Snapshot) (size int64, err error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	final := r.path + "/" + checkpointDir(s.At.LSN)
	tmp := final + tmpSuffix
	if err := ignoreMissing(removeTree(r.v.fs, tmp)); err != nil {
		return 0, fmt.Errorf("checkpoint %d: remove an unfinished one: %w", s.At.LSN, err)
	}
	if size, err = r.fillCheckpoint(tmp, s); err != nil {
		return 0, errors.Join(fmt.Errorf("checkpoint %d: %w", s.At.LSN, err), ignoreMissing(removeTree(r.v.fs, tmp)))
	}
	// A crash here leaves a complete directory under a name that recovery ignores.
	if err := r.Err(); err != nil {
		return 0, err
	}
	if err := r.v.fs.Rename(tmp, final); err != nil {
		return 0, fmt.Errorf("checkpoint %d: %w", s.At.LSN, err)
	}
	return size, r.v.fs.SyncDir(r.path)
}

func (r *Reign) fillCheckpoint(tmp string, s Snapshot) (size int64, err error) {
	if err := r.v.fs.Mkdir(tmp); err != nil {
		return 0, err
	}
	c := &codec{cluster: r.v.cluster.ID, snapshot: s}
	for _, f := range c.files() {
		n, err := r.writeWhole(tmp+"/"+f.name, f.write)
		if err != nil {
			return 0, err
		}
		size += n
	}
	return size, r.v.fs.SyncDir(tmp)
}

// writeWhole creates a file, streams into it and makes it durable.
func (r *Reign) writeWhole(name string, write func(io.Writer) error) (size int64, err error) {
	f, err := r.v.fs.Open(name, FlagCreate)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := io.NewOffsetWriter(f, 0)
	w := bufio.NewWriterSize(out, 256<<10)
	if err := write(w); err != nil {
		return 0, err
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if size, err = out.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	return size, f.Sync()
}

// PublishViews writes the two views for people. They are derived and untrusted,
// so a late one does no harm: whoever is primary writes them again.
func (r *Reign) PublishViews(s Snapshot) error {
	c := &codec{cluster: r.v.cluster.ID, snapshot: s}
	for _, view := range c.files() {
		if err := r.Err(); err != nil {
			return err
		}
		if err := r.v.fs.Replace(view.name, view.write); err != nil {
			return fmt.Errorf("publish %s: %w", view.name, err)
		}
	}
	return nil
}

// ViewEpoch reads which reign wrote the view lock_state.json, to see whether it
// is still mine. A view that cannot be read is nobody's.
func (r *Reign) ViewEpoch() (cluster.Epoch, cluster.LSN) {
	h, err := viewHead(r.v.fs, stateName)
	if err != nil {
		return 0, 0
	}
	return h.Epoch, h.LSN
}

// listCheckpoints lists the complete checkpoints of a reign, newest first.
func listCheckpoints(fsys FS, path string) ([]cluster.LSN, error) {
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	var all []cluster.LSN
	for _, x := range entries {
		if lsn, ok := parseCheckpoint(x.Name); ok {
			all = append(all, lsn)
		}
	}
	slices.SortFunc(all, func(a, b cluster.LSN) int { return cmp.Compare(b, a) })
	return all, nil
}

// RemoveCheckpoints removes the reign's own checkpoints but the newest two. The
// caller has checked after the newest was durable.
func (r *Reign) RemoveCheckpoints() error {
	all, err := listCheckpoints(r.v.fs, r.path)
	if err != nil {
		return err
	}
	for _, lsn := range all[min(2, len(all)):] {
		if err := r.Err(); err != nil {
			return err
		}
		if err := removeTree(r.v.fs, r.path+"/"+checkpointDir(lsn)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove checkpoint %d: %w", lsn, err)
		}
	}
	return nil
}

// PreviousBase is the LSN of the reign's second newest checkpoint: what lies
// behind it in the log is needed by nobody. 0 where there are fewer than two.
func (r *Reign) PreviousBase() (cluster.LSN, error) {
	all, err := listCheckpoints(r.v.fs, r.path)
	if err != nil || len(all) < 2 {
		return 0, err
	}
	return all[1], nil
}

// RemoveOlder removes the contents of every reign older than the one that this
// reign adopted from. Names, fences, START and claim.json stay for ever. The
// caller checks before; done an hour late, it removes what nobody adopts from.
func (r *Reign) RemoveOlder(src Source) error {
	taken, err := listEpochs(r.v.fs)
	if err != nil {
		return err
	}
	for _, e := range taken {
		if e >= src.Epoch {
			break
		}
		if err := r.removeContents(e); err != nil {
			return fmt.Errorf("remove what epoch %d left: %w", e, err)
		}
	}
	return nil
}

func (r *Reign) removeContents(e cluster.Epoch) error {
	entries, err := r.v.fs.ReadDir(epochDir(e))
	if err != nil {
		return err
	}
	for _, x := range entries {
		if x.Name == fenceName || x.Name == claimName {
			continue
		}
		if err := r.Err(); err != nil {
			return err
		}
		name := epochDir(e) + "/" + x.Name
		if x.Type == TypeDir {
			err = removeTree(r.v.fs, name)
		} else {
			err = r.v.fs.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
