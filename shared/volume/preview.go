// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Preview reads what a claimant would take over, in the same way, without setting fences. It returns
// the end of the log and the highest LSN in the history. It returns the error with which a takeover would
// be refused.
//
// A server uses it to avoid a claim that would fail. Nothing else depends on it:
// a primary may write meanwhile.
func (v *Volume) Preview(ctx context.Context) (end, told cluster.LSN, err error) {
	told = v.historyReach(ctx) // before the log: a primary may write to both meanwhile, and to MEMBERS
	shown, shownErr := v.ReadMembers()
	taken, err := epochdir.List(v.fs)
	if err != nil {
		return 0, 0, err
	}
	for i := len(taken) - 1; i >= 0; {
		number := taken[i]
		e := epochdir.State{Epoch: number}
		if err := e.Read(ctx, v.fs); err != nil {
			return 0, 0, err
		}
		if errors.Is(e.FenceErr, fs.ErrNotExist) {
			return 0, 0, fmt.Errorf("%w: %w", ErrDamaged, e.FenceErr)
		}
		if e.Unknown() {
			return 0, 0, errors.Join(e.FenceErr, e.StartErr)
		}
		if e.By > number {
			if err := epochdir.CheckFlag(v.fs, e.Flag); err != nil {
				return 0, 0, fmt.Errorf("epoch %d was fenced by epoch %d: %w", number, e.By, err)
			}
		}
		if e.Start != nil {
			a, err := v.scan(ctx, Source{Epoch: number, start: *e.Start}, nil)
			if err == nil {
				err = v.laterThan(ctx, number, taken[len(taken)-1])
			}
			if err == nil && shownErr == nil {
				err = v.cluster.lostMembers(shown, a.Table)
			}
			if err != nil {
				return 0, 0, err
			}
			return a.End.LSN, told, nil
		}
		i = nextBelow(v.fs, taken[:i], &e)
	}
	return 0, 0, fmt.Errorf("%w: what lies below the epochs without a START is missing", ErrDamaged)
}

// nextBelow returns the index in below, the epochs below e, of the one that a claimant fences after e, a term
// that has not started. It returns -1 if that epoch is missing. See fenceWalk.down.
func nextBelow(fsys vfs.FS, below []cluster.Epoch, e *epochdir.State) int {
	if began, ok := readFencedNote(fsys, e.Epoch); ok {
		if i, ok := slices.BinarySearch(below, began); ok {
			return i
		}
		return -1
	}
	if len(below) == 0 || below[len(below)-1] < e.Before() {
		return -1
	}
	return len(below) - 1
}

// TermState reports whether the term of epoch e has a START, and whether a later claimant has set its
// fence. It reads past the caches. Neither ever changes back from true to false.
func (v *Volume) TermState(ctx context.Context, e cluster.Epoch) (began, fenced bool, err error) {
	f, _, err := epochdir.OpenFence(v.fs, e, vfs.FlagRead)
	if err != nil {
		return false, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := vfs.AlignedBuffer(vfs.BlockSize)
	if err := vfs.ReadBlock(f, block, 0); err != nil {
		return false, false, fmt.Errorf("read the fence of epoch %d: %w", e, err)
	}
	s, err := epochdir.ReadStart(ctx, f, e)
	return s != nil, !vfs.AllZero(block), err
}

// Listed reports whether a listing of epochs/ has epoch e. A cache may hide a new one.
func (v *Volume) Listed(e cluster.Epoch) (bool, error) {
	all, err := epochdir.List(v.fs)
	return slices.Contains(all, e), err
}

// Claimant returns the server that claimed epoch e, 0 if a recovery made it.
func (v *Volume) Claimant(e cluster.Epoch) (cluster.ServerID, error) {
	var c epochdir.Claim
	b, err := vfs.ReadFile(v.fs, layout.EpochDir(e)+"/"+layout.ClaimName, vfs.FlagRead)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return 0, fmt.Errorf("read the claim of epoch %d: %w", e, err)
	}
	return c.Server, nil
}
