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
)

// fenceWalk is a claimant's way down through the older reigns.
type fenceWalk struct {
	fs    FS
	by    cluster.Epoch
	nonce Nonce
	may   func() error // an error stops the walk before the next fence
	// fenced are the reigns whose fences were set.
	fenced []cluster.Epoch
}

// down fences from the reign below top to the first that started, and returns that one.
// A reign that never started has told nobody anything. One that is missing, or
// has no fence, may have told everything, so the walk refuses, except for the
// numbers that a recovery left out.
func (w *fenceWalk) down(ctx context.Context, top cluster.Epoch) (cluster.Epoch, *start, error) {
	for d := top; d > 0; {
		d--
		if err := w.may(); err != nil {
			return 0, nil, err
		}
		s, err := fenceReign(ctx, w.fs, d, w.by, w.nonce)
		if errors.Is(err, fs.ErrNotExist) {
			return w.across(ctx, d+1, err)
		}
		if err != nil {
			return 0, nil, err
		}
		w.fenced = append(w.fenced, d)
		if s != nil {
			return d, s, nil
		}
	}
	return 0, nil, fmt.Errorf("%w: no reign below epoch %d has a START", ErrDamaged, top)
}

// across goes on below the numbers that a recovery left out: below top, which it made
// and never started. Its claim says which epoch it follows. Whoever claimed while the recovery
// slept lies between, without a gap. Fences come first, then a look at the next number:
// where it is free, whoever takes it later reads in the flag below that it was overtaken.
func (w *fenceWalk) across(ctx context.Context, top cluster.Epoch, missing error) (cluster.Epoch, *start, error) {
	note, err := readRecovered(w.fs, top)
	if err != nil {
		return 0, nil, errors.Join(missing, err)
	}
	if note == nil || note.Follows+1 >= top {
		return 0, nil, fmt.Errorf("%w: %w", ErrDamaged, missing)
	}
	for last := note.Follows; ; {
		e, s, err := w.down(ctx, last+1)
		if err != nil {
			return 0, nil, err
		}
		more, err := takenBehind(w.fs, last, top)
		if err != nil || len(more) == 0 {
			return e, s, err
		}
		last = more[len(more)-1]
	}
}

// readRecovered reads what a recovery says of an epoch that it made; nil where a
// server claimed it.
func readRecovered(fsys FS, e cluster.Epoch) (*recoveredNote, error) {
	name := epochDir(e) + "/" + claimName
	b, err := readFile(fsys, name, FlagRead)
	if err != nil {
		return nil, err
	}
	var c claimFile
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return c.Recovered, nil
}

// takenBehind lists the epochs between last and top. A listing may be old, so names
// are looked up as well, each once, since a cache may remember that it was free.
func takenBehind(fsys FS, last, top cluster.Epoch) ([]cluster.Epoch, error) {
	var more []cluster.Epoch
	for e := last + 1; e < top; e++ {
		_, err := fsys.Lstat(epochDir(e))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		more = append(more, e)
	}
	listed, err := listEpochs(fsys)
	for _, e := range listed {
		if e > last && e < top && !slices.Contains(more, e) {
			more = append(more, e)
		}
	}
	slices.Sort(more)
	return more, err
}
