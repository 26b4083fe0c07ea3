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

// Look reads what a claimant would take over, as it would, and sets no fence. It returns
// where the log ends, and the highest LSN of which the history tells. Its errors are those of
// a takeover that is refused.
//
// It may keep a server from a claim that would only burn a number, and nothing else rests on it:
// primaries may write meanwhile.
func (v *Volume) Look(ctx context.Context) (end, told cluster.LSN, err error) {
	told = v.historyReach(ctx) // first: a primary may go on meanwhile
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
			if err != nil {
				return 0, 0, err
			}
			return a.End.LSN, told, nil
		}
		i = lookBelow(v.fs, taken[:i], &e)
	}
	return 0, 0, fmt.Errorf("%w: what lies below the epochs without a START is missing", ErrDamaged)
}

// lookBelow is where among these epochs, which are below e, a claimant would go on from e, which has
// not begun; -1 where that one is missing. See fenceWalk.down.
func lookBelow(fsys vfs.FS, below []cluster.Epoch, e *epochdir.State) int {
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

// TermState reads past the caches whether the term of epoch e has begun, and whether a later
// claimant has fenced it. What it says of a term that began stays true, and a fence stays set.
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

// Listed reports whether epochs/ lists an epoch. A cache may hide one that is new.
func (v *Volume) Listed(e cluster.Epoch) (bool, error) {
	all, err := epochdir.List(v.fs)
	return slices.Contains(all, e), err
}

// Claimant is the server that claimed an epoch.
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
