// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// State is what a volume says without any server: the newest term's table, as far as its
// log goes. Deadlines are not on the volume.
type State struct {
	Cluster Cluster
	Epoch   cluster.Epoch // the newest that started
	LSN     cluster.LSN
	Table   *locktable.Table
	// Recent is what the records behind the base ended.
	Recent history.Recent
	// Written is when the newest sign of life was written, in milliseconds since 1970 by
	// the clock of a primary: a record, or the canary. 0 if there is none.
	Written int64
	// Warnings say what may be wrong with the picture, for people.
	Warnings []string
}

const (
	// stateWait is how long everything is read anew when files vanish or do not fit, as
	// they do beside a primary that rotates, checkpoints and removes. On a network
	// filesystem caches may show for as long what is gone.
	stateWait        = 2 * time.Second
	stateWaitNetwork = 65 * time.Second
	statePause       = 300 * time.Millisecond
)

// ReadState reads a volume, and changes nothing there. Servers may run meanwhile. The state
// is that at the end of the log, whose last frame may be of requests that nobody was
// told of yet. Stale caches can make it old, and not wrong: chain values join it from
// its base to its end, and it is not older than what its epoch adopted. What did not fit
// is told to again, unless that is nil, before everything is read anew.
func ReadState(ctx context.Context, fsys vfs.FS, again func(error)) (*State, error) {
	wait := stateWait
	if fsys.Kind().Network {
		wait = stateWaitNetwork
	}
	for began := time.Now(); ; {
		s, err := readState(ctx, fsys)
		if err == nil || errors.Is(err, ErrNoCluster) || ctx.Err() != nil || time.Since(began) > wait {
			return s, err
		}
		if again != nil {
			again(err)
		}
		if err := vfs.Pause(ctx, statePause); err != nil {
			return nil, err
		}
	}
}

// errNoStart says that no epoch of a volume began.
var errNoStart = errors.New("no epoch has a START: type holdfast fsck --volume DIR")

func readState(ctx context.Context, fsys vfs.FS) (*State, error) {
	c, err := ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	epochs, err := epochdir.Survey(ctx, fsys)
	if err != nil {
		return nil, err
	}
	s := &State{Cluster: c}
	v := Offline(fsys, c)
	for i := range slices.Backward(epochs) {
		e := &epochs[i]
		if e.Unknown() {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s cannot be read (%v): if it began, what follows is older", layout.EpochDir(e.Epoch), errors.Join(e.FenceErr, e.StartErr)))
		}
		if e.Start == nil {
			continue
		}
		a, err := v.ReadTerm(ctx, e.Epoch, *e.Start)
		if err != nil {
			return nil, fmt.Errorf("%w; type holdfast fsck --volume DIR", err)
		}
		s.Epoch, s.LSN, s.Table, s.Recent, s.Written = e.Epoch, a.End.LSN, a.Table, a.Ends.Recent(), a.Time
		if alive, err := v.ReadCanary(e.Claim.Server, vfs.FlagDirect); err == nil {
			s.Written = max(s.Written, int64(alive.Value))
		}
		return s, nil
	}
	return nil, errNoStart
}
