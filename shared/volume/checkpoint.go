// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// Snapshot is a table at one position of the log.
type Snapshot struct {
	Cluster ClusterID // whose state it is
	Epoch   cluster.Epoch
	At      wal.Position
	// Table is nobody else's; it is not changed while the snapshot lives.
	Table *locktable.Table
	// Pending are committed appends up to At that their files may lack.
	Pending []locktable.Record
}

// Export is the snapshot on its way into files.
func (s Snapshot) Export() Export {
	return Export{
		Cluster: s.Cluster, Epoch: s.Epoch, At: s.At, Hash: s.Table.Hash(), Pending: s.Pending,
		Entities: func(yield func(locktable.Entity, error) bool) {
			for e := range s.Table.Export() {
				if !yield(e, nil) {
					return
				}
			}
		},
	}
}

// Export is the state at one position of the log while it is written down, which
// needs no table in memory.
type Export struct {
	Cluster ClusterID // whose state it is
	Epoch   cluster.Epoch
	At      wal.Position
	// Hash is that of the table.
	Hash uint64
	// Entities yields the state once, receipts first. An error ends it.
	Entities iter.Seq2[locktable.Entity, error]
	// Pending are committed appends up to At that their files may lack.
	Pending []locktable.Record

	taken string // when; of views
}

// WriteCheckpoint makes x a base: first complete and durable under a temporary
// name, then renamed. The caller has made sure that every protected file is
// synced up to x.At or carried in x.Pending, and that a check passed after x was
// durable in the log.
//
// It returns the size in bytes. A full disk leaves the reign as it was; the next call begins anew. Any other
// error leaves it to the caller to depose.
func (r *Reign) WriteCheckpoint(x Export) (size int64, err error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	final := r.path + "/" + checkpointDir(x.At.LSN)
	tmp := final + tmpSuffix
	if err := ignoreMissing(removeTree(r.v.fs, tmp)); err != nil {
		return 0, fmt.Errorf("checkpoint %d: remove an unfinished one: %w", x.At.LSN, err)
	}
	if size, err = r.fillCheckpoint(tmp, x); err != nil {
		return 0, errors.Join(fmt.Errorf("checkpoint %d: %w", x.At.LSN, err), ignoreMissing(removeTree(r.v.fs, tmp)))
	}
	// A crash here leaves a complete directory under a name that recovery ignores.
	if err := r.Err(); err != nil {
		return 0, err
	}
	if err := r.v.fs.Rename(tmp, final); err != nil {
		return 0, fmt.Errorf("checkpoint %d: %w", x.At.LSN, err)
	}
	return size, r.v.fs.SyncDir(r.path)
}

func (r *Reign) fillCheckpoint(tmp string, x Export) (size int64, err error) {
	if err := r.v.fs.Mkdir(tmp); err != nil {
		return 0, err
	}
	x.Cluster = r.v.cluster.ID
	err = x.write(func(name string, write func(io.Writer) error) error {
		n, err := r.writeWhole(tmp+"/"+name, write)
		size += n
		return err
	})
	if err != nil {
		return 0, err
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
	w := bufio.NewWriterSize(InPieces(out, f.Sync), pieceSize)
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

// pieceSize is how much of a large file is written before it is synced.
const pieceSize = 256 << 10

// InPieces makes a large file durable while it is written: one sync of all of it
// at the end would hold up those of the log. The last piece is left to the caller.
func InPieces(w io.Writer, sync func() error) io.Writer { return &inPieces{w: w, sync: sync} }

type inPieces struct {
	w        io.Writer
	sync     func() error
	unsynced int
}

// Write implements io.Writer.
func (p *inPieces) Write(b []byte) (int, error) {
	if p.unsynced >= pieceSize {
		if err := p.sync(); err != nil {
			return 0, err
		}
		p.unsynced = 0
	}
	n, err := p.w.Write(b)
	p.unsynced += n
	return n, err
}

// PublishViews writes the two views for people, which say that they were taken now. They
// are derived and untrusted, so a late one does no harm: whoever is primary writes them again.
func (r *Reign) PublishViews(x Export, now time.Time) error {
	x.Cluster, x.taken = r.v.cluster.ID, now.UTC().Format(time.RFC3339Nano)
	return x.write(r.publishView)
}

func (r *Reign) publishView(name string, write func(io.Writer) error) error {
	if err := r.Err(); err != nil {
		return err
	}
	if err := r.v.fs.Replace(name, write); err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}
	return nil
}

// RemoveTemporaries removes what processes left that died while they replaced a view. The
// caller has checked, and writes no view meanwhile; done an hour late, it makes a view of the present primary's fail,
// which that writes again.
func (r *Reign) RemoveTemporaries() error {
	entries, err := r.v.fs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, x := range entries {
		if !isTemporary(x, stateName) && !isTemporary(x, requestsName) {
			continue
		}
		if err := r.Err(); err != nil {
			return err
		}
		if err := r.v.fs.Remove(x.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isTemporary says that an entry is what FS.Replace writes before it renames it to name.
func isTemporary(x Entry, name string) bool {
	digits, ok := strings.CutPrefix(x.Name, "."+name)
	return ok && x.Type == TypeFile && digits != "" && strings.Trim(digits, "0123456789") == ""
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

// RemoveCheckpoints removes the reign's own checkpoints but the newest two that are
// not among the damaged ones. The caller has checked after the newest was durable.
func (r *Reign) RemoveCheckpoints(damaged ...cluster.LSN) error {
	all, err := listCheckpoints(r.v.fs, r.path)
	if err != nil {
		return err
	}
	kept := 0
	for _, lsn := range all {
		if kept < 2 && !slices.Contains(damaged, lsn) {
			kept++
			continue
		}
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
