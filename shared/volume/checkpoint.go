// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
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

// WriteCheckpoint writes x as a checkpoint of this term: first under a temporary name, complete
// and durable, then renamed. The caller has made sure that every append up to x.At is synced in its protected
// file or is in x.Pending, and that a check passed after x was
// durable in the log.
//
// It returns the size of the files in bytes. After an error the term goes on, and a later call begins again; the
// caller ends the term where the error is not a full disk.
func (r *Term) WriteCheckpoint(x checkpoint.Export) (size int64, err error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	x.Cluster = r.v.cluster.ID
	return checkpoint.Write(r.v.fs, r.path, x, r.Err)
}

// PublishViews writes the two views for people, with now as the time at which they were taken. Nothing is
// restored from a view, so one that is written late does no harm: the present primary writes its own again.
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

// RemoveTemporaries removes the temporary files of processes that ended while they replaced a view for people. The
// caller has checked, and writes no view meanwhile. If this process was paused before, the present primary may fail
// to write a view, and writes it again.
func (r *Term) RemoveTemporaries() error {
	return r.removeTemporaries(layout.StateName, layout.RequestsName)
}

func (r *Term) removeTemporaries(views ...string) error {
	entries, err := r.v.fs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, x := range entries {
		if !slices.ContainsFunc(views, func(view string) bool { return isTemporary(x, view) }) {
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

// isTemporary reports whether an entry is a temporary file that FS.Replace renames to name.
func isTemporary(x vfs.Entry, name string) bool {
	digits, ok := strings.CutPrefix(x.Name, "."+name)
	return ok && x.Type == vfs.TypeFile && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// ViewEpoch returns the epoch of the term that wrote the view lock_state.json, and the view's LSN. It returns 0 and
// 0 if the view cannot be read.
func (r *Term) ViewEpoch() (cluster.Epoch, cluster.LSN) {
	h, err := checkpoint.ReadHead(r.v.fs, layout.StateName)
	if err != nil {
		return 0, 0
	}
	return h.Epoch, h.LSN
}

// RemoveCheckpoints removes the checkpoints of this term, except the newest two that are
// not damaged. The caller has checked after the newest one was durable.
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

// PreviousBase returns the LSN of the term's second newest checkpoint, 0 if there are fewer than two. Nothing needs
// the log up to there any more.
func (r *Term) PreviousBase() (cluster.LSN, error) {
	all, err := checkpoint.List(r.v.fs, r.path)
	if err != nil || len(all) < 2 {
		return 0, err
	}
	return all[1], nil
}

// StartedBefore returns the newest term older than src that started, or may have, and src if there is none. Where
// the log of src is damaged, a recovery reads what that term left.
func (r *Term) StartedBefore(ctx context.Context, src Source) (cluster.Epoch, error) {
	taken, err := epochdir.List(r.v.fs)
	for _, e := range slices.Backward(taken) {
		x := epochdir.State{Epoch: e}
		if e >= src.Epoch {
			continue
		}
		if err = x.Read(ctx, r.v.fs); err != nil || x.Start != nil || x.Unknown() {
			return e, err
		}
	}
	return src.Epoch, err
}

// RemoveOlder removes the contents of every term older than this one, except src, which this term adopted
// from, and the one before, as StartedBefore returned it. Those between src and this term never started. The
// directories, their fences with START and their claim.json are never removed. The caller has checked, after
// WriteStart. If this process was paused since, it still removes only what no claimant adopts from: each finds
// the START of this term, or of a later one.
func (r *Term) RemoveOlder(src Source, before cluster.Epoch) error {
	taken, err := epochdir.List(r.v.fs)
	if err != nil {
		return err
	}
	for _, e := range taken {
		if e >= r.epoch {
			break
		}
		if e == src.Epoch || e == before {
			continue
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
