// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// levelWait is for how long every server has to have said that it knows a feature level before the cluster is
// raised to it: a binary that does not stay up, or is taken back at once, is no upgrade.
const levelWait = 10 * time.Second

// Upgrade raises the feature level of the cluster to level. This server decides by what it hears itself, and only while it is
// primary: a level that a server does not know would keep that server from the log for good.
func (n *Node) Upgrade(ctx context.Context, level uint32) (locktable.Outcome, error) {
	p := n.current()
	if p == nil || n.self().Role != election.RolePrimary {
		return secondary(), nil
	}
	now, next, waits := n.upgrade()
	switch {
	case level <= now: // a repeat, or what a cluster has from its beginning
	case level != max(now, next):
		return locktable.Outcome{Status: cluster.StatusInvalidArgument, Message: fmt.Sprintf(
			"feature level %d: the cluster has %d, and the highest that a server knows is %d", level, now, max(now, next))}, nil
	case len(waits) > 0:
		return locktable.Outcome{Status: cluster.StatusError, Message: "not yet: " + strings.Join(waits, "; ")}, nil
	}
	return p.Raise(ctx, level)
}

// upgrade returns the feature level of the cluster. At a primary, next is the highest level that a server knows which
// is heard, and waits says why the cluster cannot be raised to it yet; 0 where it is the cluster's.
func (n *Node) upgrade() (level, next uint32, waits []string) {
	level = n.vol.Cluster().Level(nil)
	p := n.current()
	if p == nil {
		return max(level, n.replica.Level()), 0, nil
	}
	if level = max(level, p.Level()); n.self().Role != election.RolePrimary {
		return level, 0, nil
	}
	peers := n.elector.Peers()
	next = volume.FeatureLevel
	for _, x := range peers {
		if x.LevelFor > 0 {
			next = max(next, x.Status.FeatureLevel)
		}
	}
	if next <= level {
		return level, 0, nil
	}
	if volume.FeatureLevel < next {
		waits = append(waits, fmt.Sprintf("server %d, the primary, knows feature level %d only: upgrade it", n.opt.Server, volume.FeatureLevel))
	}
	for _, x := range peers {
		if why := waitsFor(x, next); why != "" {
			waits = append(waits, why)
		}
	}
	return level, next, waits
}

// waitsFor returns why the cluster cannot be raised to a level for the sake of this server, "" if it can.
func waitsFor(x election.PeerStatus, level uint32) string {
	switch known := max(1, x.Status.FeatureLevel); {
	case x.Joining && !x.Reachable:
		return "" // it counts for nothing, and does not start where it is too old
	case x.Conflict:
		return fmt.Sprintf("two processes use the ID of server %d: stop one", x.ID)
	case !x.Reachable || x.LevelFor == 0:
		return fmt.Sprintf("server %d is not heard: start it", x.ID)
	case known < level:
		return fmt.Sprintf("server %d knows feature level %d only: upgrade it", x.ID, known)
	case x.LevelFor < levelWait:
		return fmt.Sprintf("server %d knows level %d, and has said so for %v: %v are needed", x.ID, level, x.LevelFor.Truncate(time.Second), levelWait)
	}
	return ""
}

// tellOutdated notes whether this binary is too old for what the primary sends, which the error of a push says: then it does
// not take over either. A push after which there is a table shows that it is not.
func (n *Node) tellOutdated(err error, follows bool) {
	why := ""
	switch {
	case locktable.Newer(err):
		why = "THIS SERVER IS TOO OLD FOR THE CLUSTER, and neither follows nor takes over: " + err.Error()
	case err != nil || !follows:
		return // nothing is known by it
	}
	n.mu.Lock()
	told := n.mu.outdated != ""
	n.mu.outdated = why
	n.mu.Unlock()
	if why != "" && !told {
		n.opt.Log.Error().Err(err).Msg("this server is too old for the cluster: it neither follows nor takes over")
	}
}

// outdated returns why this binary is too old for the cluster, "" if it is not known to be.
func (n *Node) outdated() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.outdated
}
