// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// askedWait is how long another server may take to be heard before this one counts as started without it. A cluster whose
	// hosts all start must not wait for itself.
	askedWait = 2 * time.Second
	// askedLook is how often it is looked.
	askedLook = 20 * time.Millisecond
)

// statusNode is a node that says how it is. To say that, it takes the locks that its loops take: where one of them is stuck under
// a lock, it does not come back.
type statusNode interface{ Status() serving.ClusterStatus }

// announce tells the service manager that started this process, if one did, what the server does, until ctx ends: READY when it
// listens and has asked the other servers once, WATCHDOG as long as its locks are to be had, STOPPING at the end. A hanging
// volume is no reason to be killed: servers judge each other by that.
func announce(ctx context.Context, n statusNode, log zerolog.Logger) {
	tell := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn().Err(err).Str("state", state).Msg("the service manager cannot be told")
		}
	}
	asking := time.NewTicker(askedLook)
	defer asking.Stop()
	for began := time.Now(); !heardAll(n.Status()) && time.Since(began) < askedWait && ctx.Err() == nil; {
		select {
		case <-asking.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		tell(daemon.SdNotifyReady)
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
			n.Status()
			tell(daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			tell(daemon.SdNotifyStopping)
			return
		}
	}
}

// heardAll reports whether every server was heard.
func heardAll(s serving.ClusterStatus) bool {
	for _, x := range s.Servers {
		if x.Heard < 0 {
			return false
		}
	}
	return true
}
