// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Witness is a file outside of epochs/ that shows which epoch and LSN the volume had reached. No state
// is restored from such files. But a primary writes in the name of its epoch only
// after its START, which is never removed, and the history has only what was committed
// and checked. So a witness that is ahead of epochs/ proves that something was lost. A missing witness
// proves nothing, and one that cannot be read counts as missing.
type Witness struct {
	Path  string        // on the volume
	Epoch cluster.Epoch // of the primary that wrote it
	LSN   cluster.LSN   // the highest in it, 0 if it has none
	Odd   int           // number of its lines that are damaged
}

// Witnesses returns the newest history, the newest index and every canary, also of servers that were added or removed, as far as their
// epochs are at least from.
func (v *Volume) Witnesses(ctx context.Context, from cluster.Epoch) (all []Witness) {
	if r, ok := v.history().Reach(ctx, from); ok {
		all = append(all, Witness{Path: historydir.Path(r.File), Epoch: r.File.Epoch, LSN: r.LSN, Odd: r.Odd})
	}
	dir := index.Dir(v.fs)
	if names, err := dir.List(); err == nil && len(names) > 0 {
		if newest := names[len(names)-1]; newest.Epoch >= from {
			all = append(all, Witness{Path: dir.File(newest), Epoch: newest.Epoch})
		}
	}
	ids, _ := ServerIDs(v.fs, v.cluster) //nolint:errcheck // a witness that cannot be read counts as missing
	for _, id := range ids {
		if c, err := v.ReadCanary(id, vfs.FlagDirect); err == nil && c.Epoch >= from {
			all = append(all, Witness{Path: canaryPath(id), Epoch: c.Epoch})
		}
	}
	return all
}

func (v *Volume) history() historydir.Dir { return historydir.Dir{FS: v.fs, Cluster: v.cluster.ID} }

// HistoryReach returns the highest LSN that the end of the history names, 0 if none is known. It was committed and
// checked: a log that ends before it has lost something.
func (r *Term) HistoryReach(ctx context.Context) cluster.LSN { return r.v.historyReach(ctx) }

func (v *Volume) historyReach(ctx context.Context) cluster.LSN {
	r, _ := v.history().Reach(ctx, 0)
	return r.LSN
}

// laterThan returns an error if a witness shows that a term later than epoch e has started, where e is
// the newest started term that the claimant by found: one that wraps ErrOvertaken if that term is newer than by and
// exists, ErrDamaged if it is missing.
func (v *Volume) laterThan(ctx context.Context, e, by cluster.Epoch) error {
	all := v.Witnesses(ctx, e+1)
	if len(all) == 0 {
		return nil
	}
	w := &all[0]
	if w.Epoch > by {
		if _, err := v.fs.Lstat(layout.EpochDir(w.Epoch)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: epoch %d", ErrOvertaken, w.Epoch)
		}
	}
	return fmt.Errorf("%w: %s", ErrDamaged, w.describeLoss(e))
}

// describeLoss returns a sentence that says what is lost if e is the newest term that started.
func (w *Witness) describeLoss(e cluster.Epoch) string {
	return fmt.Sprintf("%s was written by the primary of epoch %d, and the newest epoch that has a START is %d: all that epoch %d acknowledged is gone", w.Path, w.Epoch, e, w.Epoch)
}

// WitnessedTerms returns a sentence for each witness of a term that is newer than all that started, and is not an
// epoch that cannot be read: that one may have started.
func WitnessedTerms(epochs []epochdir.State, all []Witness) (gone []string) {
	began := cluster.Epoch(0)
	unknown := map[cluster.Epoch]bool{}
	for i := range epochs {
		if epochs[i].Start != nil {
			began = epochs[i].Epoch
		}
		unknown[epochs[i].Epoch] = epochs[i].Unknown()
	}
	for i := range all {
		if w := &all[i]; w.Epoch > began && !unknown[w.Epoch] {
			gone = append(gone, w.describeLoss(began))
		}
	}
	return gone
}
