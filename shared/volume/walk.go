// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// fenceWalk fences older terms in the name of a claimant, from the newest one down.
type fenceWalk struct {
	fs    vfs.FS
	by    cluster.Epoch
	nonce epochdir.Nonce
	may   func() error // its error stops the walk before the next fence
	// notes says whether fencedNotes are written and followed: not where a note may say of a term that
	// it has not started, because its START was read too early.
	notes bool
	// fenced are the terms whose fences were set, newest first.
	fenced []cluster.Epoch
}

// down fences the terms below top down to the first that started, and returns that one.
// A term that never started has answered nobody. A term that is missing, or
// has no fence, may have acknowledged operations, so the walk is refused, except for the
// numbers that a recovery left out.
func (w *fenceWalk) down(ctx context.Context, top cluster.Epoch) (cluster.Epoch, *epochdir.Start, error) {
	for d := top; d > 0; {
		d--
		if err := w.may(); err != nil {
			return 0, nil, err
		}
		s, err := fenceTerm(ctx, w.fs, d, w.by, w.nonce)
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
		if began, ok := readFencedNote(w.fs, d); ok && w.notes {
			d = began + 1 // all between are fenced, durably, and did not start
		}
	}
	return 0, nil, fmt.Errorf("%w: no term below epoch %d has a START", ErrDamaged, top)
}

// passedBy returns an error if term d has started or its fence is not set.
func passedBy(ctx context.Context, fsys vfs.FS, d cluster.Epoch) (err error) {
	f, _, err := epochdir.OpenFence(fsys, d, vfs.FlagRead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := vfs.AlignedBuffer(vfs.BlockSize)
	if err := vfs.ReadBlock(f, block, 0); err != nil {
		return fmt.Errorf("read the flag of epoch %d: %w", d, err)
	}
	if vfs.AllZero(block) {
		return fmt.Errorf("epoch %d was claimed meanwhile: claim anew", d)
	}
	s, err := epochdir.ReadStart(ctx, f, d)
	if err == nil && s != nil {
		err = fmt.Errorf("epoch %d started meanwhile: claim anew", d)
	}
	return err
}

// across continues below the numbers that a recovery left out: below top, which the recovery made
// and never started. Its claim says which epoch it follows. Epochs that servers claimed while the recovery
// was paused come directly after that one, without a gap. The fences are set before the next number is looked
// up: if it is free, a server that takes it later finds in the flag below that it was overtaken.
func (w *fenceWalk) across(ctx context.Context, top cluster.Epoch, missing error) (cluster.Epoch, *epochdir.Start, error) {
	note, err := epochdir.ReadRecovered(w.fs, top)
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
		more, err := epochdir.TakenAfter(w.fs, last, top)
		if err != nil || len(more) == 0 {
			return e, s, err
		}
		last = more[len(more)-1]
	}
}

// fencedNote, in the directory of an epoch, says that its claimant durably set
// the fence of every epoch below, down to one that started. The epoch itself need not have started. The note
// stays true however late it is written or read, because fences are never reset. So later
// claimants need not set these fences again, of which there may be thousands.
type fencedNote struct {
	Nonce string        `json:"nonce"`
	Began cluster.Epoch `json:"began"`
}

// fencedMany is the number of fences from which on a note is written.
const fencedMany = 16

// writeFencedNote records that the walk has set all fences down to that of epoch began.
func (w *fenceWalk) writeFencedNote(began cluster.Epoch) error {
	if !w.notes || len(w.fenced) < fencedMany {
		return nil
	}
	b, err := json.Marshal(fencedNote{Nonce: hex.EncodeToString(w.nonce[:]), Began: began})
	if err != nil {
		return err
	}
	return vfs.CreateFile(w.fs, layout.EpochDir(w.by)+"/"+layout.FencedName, b)
}

// readFencedNote reads the note of epoch e. It returns false if there is none with the nonce of the epoch's claim.
func readFencedNote(fsys vfs.FS, e cluster.Epoch) (began cluster.Epoch, ok bool) {
	b, err := vfs.ReadFile(fsys, layout.EpochDir(e)+"/"+layout.FencedName, vfs.FlagRead)
	if err != nil {
		return 0, false
	}
	var note fencedNote
	var c epochdir.Claim
	if json.Unmarshal(b, &note) != nil || note.Began >= e {
		return 0, false
	}
	b, err = vfs.ReadFile(fsys, layout.EpochDir(e)+"/"+layout.ClaimName, vfs.FlagRead)
	return note.Began, err == nil && json.Unmarshal(b, &c) == nil && note.Nonce != "" && c.Nonce == note.Nonce
}

// fenceTerm sets the fence of term d and then, through the same descriptor,
// reads its START, nil if it has none. The order makes this safe: a term whose
// START becomes durable after its fence was set finds the fence in its first check. Where
// either read may be stale, ConfirmSource looks again.
//
// The flag is written even if it is set already, because the flag of another
// claimant may be visible without being durable. A flag set by a higher epoch
// means that this claimant was paused during a recovery, which leaves free numbers
// below its own: the term that it would adopt has been superseded. A flag set by another claim must
// belong to an epoch that exists and still has the nonce of that claim. Otherwise that epoch, which
// may have served, was removed, and its number is free or was taken a second time.
func fenceTerm(ctx context.Context, fsys vfs.FS, d, by cluster.Epoch, nonce epochdir.Nonce) (s *epochdir.Start, err error) {
	f, _, err := epochdir.OpenFence(fsys, d, vfs.FlagWrite)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	block := vfs.AlignedBuffer(vfs.BlockSize)
	if err := vfs.ReadBlock(f, block, 0); err != nil {
		return nil, fmt.Errorf("fence epoch %d: read its flag: %w", d, err)
	}
	other, _ := epochdir.DecodeFlag(block)
	if other.By > by {
		return nil, fmt.Errorf("%w: epoch %d was fenced by epoch %d", ErrOvertaken, d, other.By)
	}
	if other.By > d && other.Nonce != nonce {
		if err := epochdir.CheckFlag(fsys, other); err != nil {
			return nil, fmt.Errorf("epoch %d was fenced by epoch %d: %w", d, other.By, err)
		}
	}
	if err := epochdir.SetFlag(f, by, nonce); err != nil {
		return nil, fmt.Errorf("fence epoch %d: %w", d, err)
	}
	return epochdir.ReadProvenStart(ctx, fsys, f, d)
}
