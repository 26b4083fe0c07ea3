// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
)

// Front ends call the methods below. They ask the primary of this node's term, or
// answer SECONDARY_MODE if there is none.

// Do executes a request, see primary.Primary.Do.
func (n *Node) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if p := n.current(); p != nil {
		return p.Do(ctx, q)
	}
	return secondary(), nil
}

// Late reports whether this server gets so little CPU that it waits for others more than twice as long as configured.
func (n *Node) Late() bool { return n.elector.Allowance() > n.opt.Timing.Suspicion }

// Term returns this node's term, nil if it has none.
func (n *Node) Term() serving.Term {
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
func (n *Node) KeepAlive(ctx context.Context, client cluster.ClientID, b serving.Belief) ([]locktable.Grant, []locktable.Ask, locktable.Outcome, error) {
	if p := n.current(); p != nil {
		return p.KeepAlive(ctx, client, b)
	}
	return nil, nil, secondary(), nil
}

func secondary() locktable.Outcome {
	return locktable.Outcome{Status: cluster.StatusSecondaryMode, Message: "this server is not the primary"}
}

// Read calls f with the table: the primary's, or a replica's own, which may lag.
func (n *Node) Read(ctx context.Context, f func(serving.View)) (serving.Reading, error) {
	if p := n.current(); p != nil {
		var at cluster.LSN
		out, err := p.Read(ctx, func(v serving.View) {
			at = v.At.LSN
			f(v)
		})
		if err != nil || out.Status != cluster.StatusOK {
			return serving.Reading{Status: out.Status, Epoch: p.Epoch()}, err
		}
		return serving.Reading{Status: cluster.StatusOK, LSN: at, Epoch: p.Epoch()}, nil
	}
	r := serving.Reading{Status: cluster.StatusSecondaryMode, Local: true}
	n.replica.Read(func(at cluster.LSN, epoch cluster.Epoch, age time.Duration, t *locktable.Table) {
		r.Status, r.LSN, r.Epoch, r.Age = cluster.StatusOK, at, epoch, age
		f(serving.View{Table: t})
	})
	return r, nil
}

// Recent returns the ends of grants that are in memory.
func (n *Node) Recent() history.Recent {
	if p := n.current(); p != nil {
		return p.Recent()
	}
	return n.replica.Recent()
}

// SearchHistory searches the files of the history.
func (n *Node) SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (historydir.Result, error) {
	return historydir.Dir{FS: n.opt.FS, Cluster: n.vol.Cluster().ID}.Search(ctx, q, r, upTo)
}

// File returns the state of a protected file, see primary.Primary.File.
func (n *Node) File(ctx context.Context, name cluster.FileName) (locktable.FileState, bool, serving.Reading, string, error) {
	p := n.current()
	if p == nil {
		return locktable.FileState{}, false, serving.Reading{Status: cluster.StatusSecondaryMode, Local: true}, secondary().Message, nil
	}
	state, bound, out, err := p.File(ctx, name)
	return state, bound, serving.Reading{Status: out.Status, LSN: out.LSN, Epoch: p.Epoch()}, out.Message, err
}

// OpenFile opens a protected file for reading.
func (n *Node) OpenFile(name cluster.FileName) (serving.SharedFile, error) {
	return n.vol.OpenReader(name)
}

// Blame searches the index, which at a primary has every append that was answered before.
func (n *Node) Blame(ctx context.Context, q index.Query) (index.Blame, error) {
	if p := n.current(); p != nil {
		p.SyncIndex(ctx)
	}
	return index.ReadBlame(ctx, n.opt.FS, q)
}

// Primary returns the server that is believed to be primary, with its addresses, and its epoch;
// false if none is known.
func (n *Node) Primary() (cluster.Member, cluster.Epoch, bool) {
	id, epoch, ok := n.elector.Primary()
	if n.current() != nil {
		id, ok = n.opt.Server, true
	}
	m, known := n.members().Find(id)
	return m, epoch, ok && known
}

// Server returns this node's ID.
func (n *Node) Server() cluster.ServerID { return n.opt.Server }

// Role returns this node's present role.
func (n *Node) Role() election.Role { return n.self().Role }

// Timing returns the timing the node was started with.
func (n *Node) Timing() cluster.Timing { return n.opt.Timing }
