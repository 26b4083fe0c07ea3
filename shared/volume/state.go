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

// State is what can be read from a volume without any server: the table of the newest term at the end of its
// log. Deadlines are not on the volume.
type State struct {
	Cluster Cluster
	Epoch   cluster.Epoch // of the newest term that started
	LSN     cluster.LSN
	Table   *locktable.Table
	// Recent are the grants that the records after the base ended.
	Recent history.Recent
	// Written is when the newest record or the canary was written, in milliseconds since 1970 by
	// the clock of a primary; 0 if there is none.
	Written int64
	// Warnings tell people what may be missing from this state.
	Warnings []string
}

const (
	// stateWait is how long everything is read again when files vanish or do not fit, which
	// happens beside a primary that rotates, checkpoints and removes. The caches of a network
	// filesystem may show removed files for stateWaitNetwork.
	stateWait        = 2 * time.Second
	stateWaitNetwork = 65 * time.Second
	statePause       = 300 * time.Millisecond
)

// ReadState reads a volume, and changes nothing there. Servers may run meanwhile. The state
// is that of the end of the log, whose last frame may belong to requests that are not answered
// yet. Stale caches can make the state old, but not wrong: chain values connect it from
// its base to its end, and it is not older than what its epoch adopted. If something does not fit, ReadState
// calls again with the error, unless again is nil, and reads everything once more. It returns ErrNoCluster if
// the directory is not a volume, an error that wraps ErrTooOld if this binary is too old for it, and the last error if the state still does not fit after a while.
func ReadState(ctx context.Context, fsys vfs.FS, again func(error)) (*State, error) {
	wait := stateWait
	if fsys.Kind().Network {
		wait = stateWaitNetwork
	}
	for began := time.Now(); ; {
		s, err := readState(ctx, fsys)
		if err == nil || errors.Is(err, ErrNoCluster) || errors.Is(err, ErrTooOld) || ctx.Err() != nil || time.Since(began) > wait {
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

// errNoStart means that no term of a volume started.
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
		if errors.Is(err, ErrTooOld) {
			return nil, err
		}
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
