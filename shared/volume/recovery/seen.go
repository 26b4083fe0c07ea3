// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrServersRun means that a server uses the volume.
var ErrServersRun = errors.New("servers are running")

// highest is the largest LSN and epoch that were seen.
type highest struct {
	lsn   cluster.LSN
	epoch cluster.Epoch
}

func (h *highest) saw(e cluster.Epoch, lsn cluster.LSN) {
	h.lsn, h.epoch = max(h.lsn, lsn), max(h.epoch, e)
}

// surveyHighest reads everything on the volume that names an LSN or an epoch. seen is the highest of all. proven is
// the highest that was certainly committed: a flag was set by an epoch that was claimed, views and witnesses have
// only what was checked.
func (r *recovery) surveyHighest(epochs []epochdir.State, witnesses []volume.Witness) (seen, proven highest) {
	for i := range epochs {
		e := &epochs[i]
		proven.saw(max(e.Epoch, e.By), 0)
		if e.Start != nil {
			seen.saw(0, e.Start.End.LSN)
		}
		entries, err := r.fs.ReadDir(layout.EpochDir(e.Epoch))
		if err != nil {
			continue // it is reported where it matters
		}
		for _, x := range entries {
			if lsn, ok := layout.ParseCheckpoint(x.Name); ok {
				seen.saw(0, lsn)
			}
			if first, ok := wal.ParseSegmentName(x.Name); ok {
				seen.saw(0, first-1)
			}
		}
	}
	for _, name := range []string{layout.StateName, layout.RequestsName} {
		if h, err := checkpoint.ReadHead(r.fs, name); err == nil && h.Cluster == r.v.Cluster().ID {
			proven.saw(h.Epoch, h.LSN)
		}
	}
	for _, w := range witnesses {
		proven.saw(w.Epoch, w.LSN)
	}
	seen.saw(proven.epoch, proven.lsn)
	return seen, proven
}

// unfinished returns a sentence for each earlier recovery that knew of missing operations and was interrupted before
// its epoch started, unless a server started a term after what that recovery saw. It adds what they saw to seen.
func unfinished(epochs []epochdir.State, seen *highest) (missing []string) {
	began := cluster.Epoch(0)
	for i := range epochs {
		if epochs[i].Start != nil {
			began = epochs[i].Epoch
		}
	}
	for i := range epochs {
		e := &epochs[i]
		if e.Epoch <= began || e.ClaimErr != nil || e.Claim.Recovered == nil || e.Claim.Recovered.Follows < began {
			continue
		}
		note := e.Claim.Recovered
		seen.saw(note.SeenEpoch, note.SeenLSN)
		if !note.Complete {
			missing = append(missing, fmt.Sprintf("the recovery of %s found that something is missing, and was interrupted", layout.EpochDir(e.Epoch)))
		}
	}
	return missing
}
