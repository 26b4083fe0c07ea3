// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// WriteCheckpoint makes x a base: first complete and durable under a temporary
// name, then renamed. The caller has made sure that every protected file is
// synced up to x.At or carried in x.Pending, and that a check passed after x was
// durable in the log.
//
// It returns the size in bytes. A full disk leaves the term as it was; the next call begins anew. Any other
// error leaves it to the caller to depose.
func (r *Term) WriteCheckpoint(x checkpoint.Export) (size int64, err error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	x.Cluster = r.v.cluster.ID
	return checkpoint.Write(r.v.fs, r.path, x, r.Err)
}

// PublishViews writes the two views for people, which say that they were taken now. They
// are derived and untrusted, so a late one does no harm: whoever is primary writes them again.
func (r *Term) PublishViews(x checkpoint.Export, now time.Time) error {
	x.Cluster, x.Taken = r.v.cluster.ID, now.UTC().Format(time.RFC3339Nano)
	return x.Files(r.publishView)
}

func (r *Term) publishView(name string, write func(io.Writer) error) error {
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
func (r *Term) RemoveTemporaries() error {
	entries, err := r.v.fs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, x := range entries {
		if !isTemporary(x, layout.StateName) && !isTemporary(x, layout.RequestsName) {
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

// isTemporary reports whether an entry is what FS.Replace writes before it renames it to name.
func isTemporary(x vfs.Entry, name string) bool {
	digits, ok := strings.CutPrefix(x.Name, "."+name)
	return ok && x.Type == vfs.TypeFile && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// ViewEpoch reads which term wrote the view lock_state.json, to see whether it
// is still mine. A view that cannot be read is nobody's.
func (r *Term) ViewEpoch() (cluster.Epoch, cluster.LSN) {
	h, err := checkpoint.ReadHead(r.v.fs, layout.StateName)
	if err != nil {
		return 0, 0
	}
	return h.Epoch, h.LSN
}

// RemoveCheckpoints removes the term's own checkpoints but the newest two that are
// not among the damaged ones. The caller has checked after the newest was durable.
func (r *Term) RemoveCheckpoints(damaged ...cluster.LSN) error {
	all, err := checkpoint.List(r.v.fs, r.path)
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
		if err := vfs.RemoveTree(r.v.fs, r.path+"/"+layout.CheckpointDir(lsn)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove checkpoint %d: %w", lsn, err)
		}
	}
	return nil
}

// PreviousBase is the LSN of the term's second newest checkpoint: what lies
// behind it in the log is needed by nobody. 0 where there are fewer than two.
func (r *Term) PreviousBase() (cluster.LSN, error) {
	all, err := checkpoint.List(r.v.fs, r.path)
	if err != nil || len(all) < 2 {
		return 0, err
	}
	return all[1], nil
}

// RemoveOlder removes the contents of every term older than the one that this
// term adopted from. Names, fences, START and claim.json stay for ever. The
// caller checks before; done an hour late, it removes what nobody adopts from.
func (r *Term) RemoveOlder(src Source) error {
	taken, err := epochdir.List(r.v.fs)
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

func (r *Term) removeContents(e cluster.Epoch) error {
	entries, err := r.v.fs.ReadDir(layout.EpochDir(e))
	if err != nil {
		return err
	}
	for _, x := range entries {
		if x.Name == layout.FenceName || x.Name == layout.ClaimName {
			continue
		}
		if err := r.Err(); err != nil {
			return err
		}
		name := layout.EpochDir(e) + "/" + x.Name
		if x.Type == vfs.TypeDir {
			err = vfs.RemoveTree(r.v.fs, name)
		} else {
			err = r.v.fs.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
