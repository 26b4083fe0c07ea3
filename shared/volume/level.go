// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrTooOld means that a newer binary wrote something which this one must not interpret, and so must not cut off or repair.
var ErrTooOld = errors.New("this holdfast is too old for what is stored here, which is not damaged; install the version that the servers of the volume run, or a newer one, and type the command again")

// TooOld returns nil unless an error shows that this binary is too old for what it read, which then is intact: a sum or a
// chain value has shown that. It returns an error that wraps ErrTooOld and err.
func TooOld(err error) error {
	switch {
	case errors.Is(err, ErrTooOld):
		return err
	case locktable.Newer(err), errors.Is(err, wal.ErrFeatureLevel):
		return fmt.Errorf("%w: %w", ErrTooOld, err)
	}
	return nil
}

// known returns an error that wraps ErrTooOld if this binary is too old for the content of CLUSTER.
func (c *Cluster) known() error {
	switch {
	case c.Format > Format:
		return fmt.Errorf("%w: CLUSTER has format %d, this binary knows %d", ErrTooOld, c.Format, Format)
	case c.Format != Format:
		return fmt.Errorf("CLUSTER has format %d, this binary knows %d: use a matching binary", c.Format, Format)
	case c.FeatureLevel > FeatureLevel:
		return fmt.Errorf("%w: CLUSTER asks for feature level %d, this binary knows %d", ErrTooOld, c.FeatureLevel, FeatureLevel)
	}
	return nil
}

// CheckLevel reads the newest term that started, and returns an error that wraps ErrTooOld if it shows that this binary is too
// old for the volume. It changes nothing there. A server asks it before its first write, because a claim fences whoever is
// primary. Everything else that may be wrong is found by whoever depends on it: a primary may write meanwhile.
func CheckLevel(ctx context.Context, fsys vfs.FS, c Cluster) error {
	taken, err := epochdir.List(fsys)
	if err != nil {
		return nil
	}
	for _, e := range slices.Backward(taken) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s := epochdir.State{Epoch: e}
		if err := s.Read(ctx, fsys); err != nil {
			return nil
		}
		if s.Start == nil {
			continue
		}
		return termLevel(fsys, c, e)
	}
	return nil
}

// termLevel reads the log of a term after its newest checkpoint, and returns an error that wraps ErrTooOld if that shows that
// this binary is too old. It builds no table.
func termLevel(fsys vfs.FS, c Cluster, e cluster.Epoch) error {
	path := layout.EpochDir(e)
	all, err := checkpoint.List(fsys, path)
	if err != nil {
		return nil
	}
	var from wal.Position
	for _, lsn := range all {
		b, err := checkpoint.Read(fsys, c.ID, path, lsn, false)
		if old := TooOld(err); old != nil {
			return old
		}
		if err == nil {
			from = b.At
			break
		}
	}
	var decoder locktable.Decoder
	_, err = wal.Scan(&epochdir.Dir{FS: fsys, Path: path}, wal.ScanOptions{
		Cluster: c.ID, FeatureLevel: FeatureLevel, MaxEpoch: e, From: from,
	}, func(lsn cluster.LSN, x wal.Entry, _ wal.FrameHeader) error {
		rec, err := decoder.DecodeHeader(x.Header)
		if err == nil {
			err = rec.Validate()
		}
		if old := TooOld(err); old != nil {
			return fmt.Errorf("record %d: %w", lsn, old)
		}
		return nil
	})
	return TooOld(err)
}
