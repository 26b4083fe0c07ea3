// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/api"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// These methods are what front ends call. They ask the primary of this node's
// reign, or say SECONDARY_MODE.

// Do executes a request, see primary.Primary.Do.
func (n *Node) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if p := n.current(); p != nil {
		return p.Do(ctx, q)
	}
	return secondary(), nil
}

// Reign is this node's, nil if it has none.
func (n *Node) Reign() api.Reign {
	if p := n.current(); p != nil {
		return p
	}
	return nil
}

// Renew extends a lease, see primary.Primary.Renew.
func (n *Node) Renew(ctx context.Context, lock cluster.LockName, token cluster.Token) (locktable.Outcome, error) {
	if p := n.current(); p != nil {
		return p.Renew(ctx, lock, token)
	}
	return secondary(), nil
}

// KeepAlive renews what a client holds and waits for, see primary.Primary.KeepAlive.
func (n *Node) KeepAlive(ctx context.Context, client cluster.ClientID, b primary.Belief) ([]locktable.Grant, []locktable.Ask, locktable.Outcome, error) {
	if p := n.current(); p != nil {
		return p.KeepAlive(ctx, client, b)
	}
	return nil, nil, secondary(), nil
}

func secondary() locktable.Outcome {
	return locktable.Outcome{Status: cluster.StatusSecondaryMode, Message: "this server is not primary"}
}

// Read lets f look at the table: the primary's, or a replica's own, which may be behind.
func (n *Node) Read(ctx context.Context, f func(primary.View)) (api.Reading, error) {
	if p := n.current(); p != nil {
		var at cluster.LSN
		out, err := p.Read(ctx, func(v primary.View) {
			at = v.At.LSN
			f(v)
		})
		if err != nil || out.Status != cluster.StatusOK {
			return api.Reading{Status: out.Status, Epoch: p.Epoch()}, err
		}
		return api.Reading{Status: cluster.StatusOK, LSN: at, Epoch: p.Epoch()}, nil
	}
	r := api.Reading{Status: cluster.StatusSecondaryMode, Local: true}
	n.replica.Read(func(at cluster.LSN, epoch cluster.Epoch, age time.Duration, t *locktable.Table) {
		r.Status, r.LSN, r.Epoch, r.Age = cluster.StatusOK, at, epoch, age
		f(primary.View{Table: t})
	})
	return r, nil
}

// Recent is what ended lately, in memory.
func (n *Node) Recent() history.Recent {
	if p := n.current(); p != nil {
		return p.Recent()
	}
	return n.replica.Recent()
}

// SearchHistory looks through the files of the history.
func (n *Node) SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (volume.History, error) {
	return n.vol.History(ctx, q, r, upTo)
}

// File is what the table knows of a protected file, see primary.Primary.File.
func (n *Node) File(ctx context.Context, name cluster.FileName) (locktable.FileState, bool, api.Reading, string, error) {
	p := n.current()
	if p == nil {
		return locktable.FileState{}, false, api.Reading{Status: cluster.StatusSecondaryMode, Local: true}, secondary().Message, nil
	}
	state, bound, out, err := p.File(ctx, name)
	return state, bound, api.Reading{Status: out.Status, LSN: out.LSN, Epoch: p.Epoch()}, out.Message, err
}

// OpenFile opens a protected file for reading.
func (n *Node) OpenFile(name cluster.FileName) (api.SharedFile, error) { return n.vol.OpenReader(name) }

// Blame reads the index, which at a primary tells every append that was answered before.
func (n *Node) Blame(ctx context.Context, q volume.BlameQuery) (volume.Blame, error) {
	if p := n.current(); p != nil {
		p.SyncIndex(ctx)
	}
	return volume.ReadBlame(ctx, n.opt.FS, q)
}

// Primary is who is believed to reign, with its addresses.
func (n *Node) Primary() (cluster.Member, cluster.Epoch, bool) {
	id, epoch, ok := n.elector.Primary()
	if n.current() != nil {
		id, ok = n.opt.Server, true
	}
	m, known := n.vol.Cluster().Servers.Find(id)
	return m, epoch, ok && known
}

// Server is this node's ID.
func (n *Node) Server() cluster.ServerID { return n.opt.Server }

// Role is this node's now.
func (n *Node) Role() election.Role { return n.self().Role }

// Timing is what the node was started with.
func (n *Node) Timing() cluster.Timing { return n.opt.Timing }
