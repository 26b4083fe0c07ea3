// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// askedWait is how long another server may take to be heard before this one counts as started without it. A cluster whose
	// hosts all start must not wait for itself.
	askedWait = 2 * time.Second
	// askedLook is how often it is looked.
	askedLook = 20 * time.Millisecond
	// startTime is how long a start may take, as the unit has it (TimeoutStartSec), from the last word of one that waits to be added.
	startTime = 2 * time.Minute
)

// tellManager tells the service manager that started this process, if one did.
func tellManager(log zerolog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn().Err(err).Str("state", state).Msg("the service manager cannot be told")
	}
}

// moreTime has the service manager wait for the start.
func moreTime() string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startTime.Microseconds()) }

// unlistedState says that a server waits to be added: it is not ready, and to be killed and started again does not help.
func unlistedState(id cluster.ServerID) string {
	return fmt.Sprintf("STATUS=waits to be added: holdfast member add %d=HOST\n%s", id, moreTime())
}

// listedState takes back what unlistedState said, and begins the time for the start anew.
func listedState() string { return "STATUS=\n" + moreTime() }

// statusNode is a node that says how it is. To say that, it takes the locks that its loops take: where one of them is stuck under
// a lock, it does not come back.
type statusNode interface{ Status() serving.ClusterStatus }

// announce tells the service manager that started this process, if one did, what the server does, until ctx ends: READY when it
// listens and has asked the other servers once, WATCHDOG as long as its locks are to be had, STOPPING at the end, unless the volume is to be opened again. A hanging
// volume is no reason to be killed: servers judge each other by that.
func announce(ctx context.Context, n statusNode, log zerolog.Logger) {
	asking := time.NewTicker(askedLook)
	defer asking.Stop()
	for began := time.Now(); !heardAll(n.Status()) && time.Since(began) < askedWait && ctx.Err() == nil; {
		select {
		case <-asking.C:
		case <-ctx.Done():
		}
	}
	Supervised(ctx, log, func() { n.Status() })
}

// Supervised tells the service manager that started this process, if one did, that it is ready, and lives as long as alive comes back; and at the
// end of ctx that it stops, unless the volume is to be opened again.
func Supervised(ctx context.Context, log zerolog.Logger, alive func()) {
	if ctx.Err() == nil {
		tellManager(log, daemon.SdNotifyReady)
	}
	feed := make(<-chan time.Time) // never
	if limit, err := daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn().Err(err).Msg("the service manager's watchdog is not fed")
	} else if limit > 0 {
		t := time.NewTicker(limit / 3)
		defer t.Stop()
		feed = t.C
	}
	for {
		select {
		case <-feed:
			alive()
			tellManager(log, daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), node.ErrReopen) { // the manager would kill what goes on
				tellManager(log, daemon.SdNotifyStopping)
			}
			return
		}
	}
}

// heardAll reports whether every member was heard.
func heardAll(s serving.ClusterStatus) bool {
	for _, x := range s.Servers {
		if x.Heard < 0 && !x.Member.Joining {
			return false
		}
	}
	return true
}
