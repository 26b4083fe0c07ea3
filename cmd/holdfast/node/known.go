// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// knownEvery is how often what the server knows is kept while it changes.
const knownEvery = time.Second

// ErrForeignData refuses a data directory that another cluster's server used.
var ErrForeignData = errors.New("the data directory belongs to another cluster")

// readKnown reads what earlier processes of this server knew.
func readKnown(dir string, id volume.ClusterID) (cluster.LSN, error) {
	k, err := replica.ReadKnown(dir)
	if err != nil {
		return 0, err
	}
	if k != (replica.Known{}) && k.Cluster != id {
		return 0, fmt.Errorf("%w: %s is of cluster %v, the volume of %v: give each server of each cluster a --data-dir of its own; if the old volume is lost and this one was recovered, move the old directory away",
			ErrForeignData, dir, k.Cluster, id)
	}
	return k.LSN, nil
}

// knownLSN is the highest LSN that this server knows to be committed.
func (n *Node) knownLSN() cluster.LSN {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.known = max(n.mu.known, n.replica.LSN())
	if p := n.mu.primary; p != nil && p.State() == primary.StateServing {
		n.mu.known = max(n.mu.known, p.LSN())
	}
	return n.mu.known
}

// learn is told of an LSN that is committed.
func (n *Node) learn(lsn cluster.LSN) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.known = max(n.mu.known, lsn)
}

// remember keeps what this server knows in its data directory, and once more in the end.
func (n *Node) remember(ctx context.Context) error {
	t := time.NewTicker(knownEvery)
	defer t.Stop()
	k := replica.Known{Cluster: n.vol.Cluster().ID}
	for {
		over := ctx.Err() != nil
		if now := n.knownLSN(); now > k.LSN {
			next := replica.Known{Cluster: k.Cluster, LSN: now}
			if err := next.Write(n.opt.DataDir); err != nil {
				n.opt.Log.Warn().Err(err).Msg("data directory")
			} else {
				k = next
			}
		}
		if over {
			return context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}
