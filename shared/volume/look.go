// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Look reads what a claimant would take over, as it would, and sets no fence. It returns
// where the log ends, and the highest LSN of which the history tells. Its errors are those of
// a takeover that is refused.
//
// It may keep a server from a claim that would only burn a number, and nothing else rests on it:
// primaries may write meanwhile.
func (v *Volume) Look(ctx context.Context) (end, told cluster.LSN, err error) {
	told = v.historyReach(ctx) // first: a primary may go on meanwhile
	taken, err := listEpochs(v.fs)
	if err != nil {
		return 0, 0, err
	}
	for i, number := range slices.Backward(taken) {
		e := epochState{epoch: number}
		if err := e.read(ctx, v.fs); err != nil {
			return 0, 0, err
		}
		if errors.Is(e.fenceErr, fs.ErrNotExist) {
			return 0, 0, fmt.Errorf("%w: %w", ErrDamaged, e.fenceErr)
		}
		if e.unknown() {
			return 0, 0, errors.Join(e.fenceErr, e.startErr)
		}
		if e.by > number {
			if err := claimedBy(v.fs, e.flag); err != nil {
				return 0, 0, fmt.Errorf("epoch %d was fenced by epoch %d: %w", number, e.by, err)
			}
		}
		if e.start != nil {
			a, err := v.scan(ctx, Source{Epoch: number, start: *e.start}, nil)
			if err == nil {
				err = v.laterThan(ctx, number, taken[len(taken)-1])
			}
			if err != nil {
				return 0, 0, err
			}
			return a.End.LSN, told, nil
		}
		if i == 0 || taken[i-1] < e.before() {
			break
		}
	}
	return 0, 0, fmt.Errorf("%w: what lies below the epochs without a START is missing", ErrDamaged)
}
