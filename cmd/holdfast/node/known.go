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
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// knownEvery is how often what the server knows is written while it changes.
const knownEvery = time.Second

// ErrForeignData refuses a data directory that another cluster's server used.
var ErrForeignData = errors.New("the data directory belongs to another cluster")

// knewBefore returns what this server knew before it opened the volume, in this process and in
// earlier ones.
func knewBefore(opt Options, id cluster.ID) (replica.Known, error) {
	k := opt.Known
	if k != (replica.Known{}) && k.Cluster != id {
		return k, fmt.Errorf("the volume is of cluster %v, and this server was one of cluster %v until now: look what is mounted there", id, k.Cluster)
	}
	if opt.DataDir == "" {
		return k, nil
	}
	kept, err := readKnown(opt.DataDir, id)
	kept.LSN, kept.Epoch = max(kept.LSN, k.LSN), max(kept.Epoch, k.Epoch)
	return kept, err
}

// readKnown reads what earlier processes of this server knew.
func readKnown(dir string, id cluster.ID) (replica.Known, error) {
	k, err := replica.ReadKnown(dir)
	if err != nil {
		return k, err
	}
	if k != (replica.Known{}) && k.Cluster != id {
		return k, fmt.Errorf("%w: %s is of cluster %v, the volume of %v: give each server of each cluster a --data-dir of its own; if the old volume is lost and this one was recovered, move the old directory away",
			ErrForeignData, dir, k.Cluster, id)
	}
	return k, nil
}

// Known returns what this server knows to be committed, for the Node after this one.
func (n *Node) Known() replica.Known { return n.knows() }

// knows returns what this server knows to be committed: by its own terms, and by what it read on
// the volume. Messages of others are no part of it, because a wrong value would keep this server
// from ever becoming primary.
func (n *Node) knows() replica.Known {
	if p := n.current(); p != nil && p.State() == primary.StateServing {
		n.learn(p)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.known.Cluster = n.vol.Cluster().ID
	return n.mu.known
}

// learn adds how far a term of this server came, if it began.
func (n *Node) learn(p *primary.Primary) { n.know(p.Epoch(), p.LSN()) }

// learnFrom adds what a canary shows. It may be an old one: what was committed stays so.
func (n *Node) learnFrom(c volume.Canary) { n.know(c.Epoch, c.At.LSN) }

func (n *Node) know(e cluster.Epoch, lsn cluster.LSN) {
	if lsn == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.known.LSN, n.mu.known.Epoch = max(n.mu.known.LSN, lsn), max(n.mu.known.Epoch, e)
}

// remember writes what this server knows into its data directory, now and then.
func (n *Node) remember(ctx context.Context) error {
	t := wake.Every(knownEvery)
	defer t.Stop()
	var kept replica.Known
	for {
		if now := n.knows(); now != kept && n.keepKnown(now) {
			kept = now
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
	}
}

// keepKnown writes what this server knows, if it knows anything, and reports whether it is written.
func (n *Node) keepKnown(k replica.Known) bool {
	if k.LSN == 0 {
		return false
	}
	err := k.Write(n.opt.DataDir)
	if err != nil {
		n.opt.Log.Warn().Err(err).Msg("data directory")
	}
	return err == nil
}
