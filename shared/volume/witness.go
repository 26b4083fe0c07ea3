// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// witness is what a file outside of epochs/ says of how far the volume was. Such files
// are derived: nothing is made from them. But only the primary of an epoch writes in its
// name, after its START, which stays for ever; and the history tells only what was committed
// and checked. So one that tells of more than there is proves that something is gone. None
// proves nothing, and one that cannot be read is none.
type witness struct {
	path  string
	epoch cluster.Epoch
	lsn   cluster.LSN // 0 where it tells of none
	odd   int         // lines of it that are damaged
}

// witnesses asks the history, the index and the canaries for the newest epoch of each, where
// it is not below from.
func (v *Volume) witnesses(ctx context.Context, from cluster.Epoch) (all []witness) {
	if w, ok := v.historyWitness(ctx, from); ok {
		all = append(all, w)
	}
	if entries, err := v.fs.ReadDir(indexDir); err == nil {
		newest := witness{}
		for _, x := range entries {
			if e, _, ok := parseIndexName(x.Name); ok && e >= max(from, newest.epoch) {
				newest = witness{path: indexDir + "/" + x.Name, epoch: e}
			}
		}
		if newest.path != "" {
			all = append(all, newest)
		}
	}
	for _, id := range v.cluster.Servers.IDs() {
		if c, err := v.ReadCanary(id, FlagDirect); err == nil && c.Epoch >= from {
			all = append(all, witness{path: canaryPath(id), epoch: c.Epoch})
		}
	}
	return all
}

// laterThan refuses where anything tells of a reign that began after that of epoch e, which is
// the newest that the claimant by has found.
func (v *Volume) laterThan(ctx context.Context, e, by cluster.Epoch) error {
	all := v.witnesses(ctx, e+1)
	if len(all) == 0 {
		return nil
	}
	w := &all[0]
	if w.epoch > by {
		if _, err := v.fs.Lstat(epochDir(w.epoch)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: epoch %d", ErrOvertaken, w.epoch)
		}
	}
	return fmt.Errorf("%w: %s", ErrDamaged, w.beyond(e))
}

// beyond says what is gone, where e is the newest reign that began.
func (w *witness) beyond(e cluster.Epoch) string {
	return fmt.Sprintf("%s was written by the primary of epoch %d, and the newest epoch that has a START is %d: all that epoch %d acknowledged is gone", w.path, w.epoch, e, w.epoch)
}

// goneReigns are the witnesses of reigns newer than the newest that began. An epoch that
// cannot be read may be the one.
func goneReigns(epochs []epochState, all []witness) (gone []string) {
	began := cluster.Epoch(0)
	unknown := map[cluster.Epoch]bool{}
	for i := range epochs {
		if epochs[i].start != nil {
			began = epochs[i].epoch
		}
		unknown[epochs[i].epoch] = epochs[i].unknown()
	}
	for i := range all {
		if w := &all[i]; w.epoch > began && !unknown[w.epoch] {
			gone = append(gone, w.beyond(began))
		}
	}
	return gone
}
