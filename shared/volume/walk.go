// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
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
		if began, ok := readFencedNote(w.fs, d); ok {
			d = began + 1 // all between are fenced, durably, and have not started
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

// fencedNote says, in the directory of an epoch that may be burned, that its claimant had set
// the fence of every epoch below it down to one that began, durably. That stays so for ever,
// whenever it is read and however late it was written: flags are never taken back. So later
// claimants need not set them anew, of which there may be thousands.
type fencedNote struct {
	Nonce string        `json:"nonce"`
	Began cluster.Epoch `json:"began"`
}

const (
	fencedName = "fenced.json"
	// fencedMany is how many fences are set before it is worth a note.
	fencedMany = 16
)

// writeFencedNote notes that the walk has set all fences down to that of epoch began.
func (w *fenceWalk) writeFencedNote(began cluster.Epoch) error {
	if len(w.fenced) < fencedMany {
		return nil
	}
	b, err := json.Marshal(fencedNote{Nonce: hex.EncodeToString(w.nonce[:]), Began: began})
	if err != nil {
		return err
	}
	return createFile(w.fs, epochDir(w.by)+"/"+fencedName, b)
}

// readFencedNote reads the note of epoch e; false where there is none of its claim.
func readFencedNote(fsys FS, e cluster.Epoch) (began cluster.Epoch, ok bool) {
	b, err := readFile(fsys, epochDir(e)+"/"+fencedName, FlagRead)
	if err != nil {
		return 0, false
	}
	var note fencedNote
	var c claimFile
	if json.Unmarshal(b, &note) != nil || note.Began >= e {
		return 0, false
	}
	b, err = readFile(fsys, epochDir(e)+"/"+claimName, FlagRead)
	return note.Began, err == nil && json.Unmarshal(b, &c) == nil && note.Nonce != "" && c.Nonce == note.Nonce
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
