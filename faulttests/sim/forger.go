// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// farEpoch and farLSN are what no cluster comes to.
	farEpoch = cluster.Epoch(1<<63 - 5)
	farLSN   = cluster.LSN(1_000_000_000_000_000)
)

// Forger is an attacker that reaches the servers' peer ports, and knows the cluster's ID and the
// servers' nonces, but cannot write to the volume.
type Forger struct {
	c   *Cluster
	rng *rand.Rand
}

// NewForger returns a Forger whose messages are drawn from rng.
func (c *Cluster) NewForger(rng *rand.Rand) *Forger { return &Forger{c, rng} }

// elsewhere is where no server is.
const elsewhere = 9

func (f *Forger) peers() (node.Peers, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	return f.c.Net.Peers(elsewhere), ctx, cancel
}

// nonce returns the nonce in a server's answers; 0 if it does not answer.
func (f *Forger) nonce(of cluster.ServerID) uint64 {
	peers, ctx, cancel := f.peers()
	defer cancel()
	vote, err := peers.PreVote(ctx, of, election.Ask{})
	if err != nil {
		return 0
	}
	return vote.Nonce
}

// Ping sends a ping in the name of a server.
func (f *Forger) Ping(from, to cluster.ServerID, seq uint64, s election.Status) {
	peers, ctx, cancel := f.peers()
	defer cancel()
	if nonce := f.nonce(from); nonce != 0 {
		_, _ = peers.Ping(ctx, to, election.Ping{From: from, Nonce: nonce, Seq: seq, Status: s})
	}
}

// Ask requests a vote in the name of a server.
func (f *Forger) Ask(from, to cluster.ServerID, epoch cluster.Epoch) {
	peers, ctx, cancel := f.peers()
	defer cancel()
	if nonce := f.nonce(from); nonce != 0 {
		_, _ = peers.PreVote(ctx, to, election.Ask{From: from, Nonce: nonce, Epoch: epoch})
	}
}

// Handover sends a server a forged handover: the primary of the epoch resigned and named it.
func (f *Forger) Handover(to cluster.ServerID, epoch cluster.Epoch) error {
	peers, ctx, cancel := f.peers()
	defer cancel()
	return peers.Handover(ctx, to, epoch)
}

func (f *Forger) push(to cluster.ServerID, p push.Push) (push.Ack, error) {
	peers, ctx, cancel := f.peers()
	defer cancel()
	return peers.Push(ctx, to, p)
}

// Snapshot pushes a table without locks that is as of lsn.
func (f *Forger) Snapshot(to cluster.ServerID, epoch cluster.Epoch, lsn cluster.LSN) error {
	return f.state(to, epoch, lsn)
}

// Removal pushes a table as of lsn whose list has no server of the cluster any more.
func (f *Forger) Removal(to cluster.ServerID, epoch cluster.Epoch, lsn cluster.LSN) error {
	return f.List(to, epoch, lsn, cluster.Members{{ID: elsewhere, Client: "h9:1", Peer: "h9:2"}})
}

// List pushes a table as of lsn whose list has these servers, in a version that is newer than any.
func (f *Forger) List(to cluster.ServerID, epoch cluster.Epoch, lsn cluster.LSN, all cluster.Members) error {
	return f.state(to, epoch, lsn, locktable.Entity{Members: &cluster.Membership{Version: 1 << 40, HighestID: elsewhere, Servers: all}})
}

// state pushes a table with these entities that is as of lsn.
func (f *Forger) state(to cluster.ServerID, epoch cluster.Epoch, lsn cluster.LSN, all ...locktable.Entity) error {
	table, err := locktable.Restore(lsn, func(yield func(locktable.Entity, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	of, err := volume.ReadCluster(f.c.Disk.Host(9, f.c.Profile))
	if err != nil {
		return err
	}
	at := wal.Position{LSN: lsn, Chain: 4711}
	var b bytes.Buffer
	if err := (checkpoint.Snapshot{Cluster: of.ID, Epoch: epoch, At: at, Table: table}).Export().Stream(&b); err != nil {
		return err
	}
	_, err = f.push(to, push.Push{Epoch: epoch, Chunk: &push.Chunk{At: at, Bytes: b.Bytes(), Last: true}})
	return err
}

// Frame pushes a record after the last one that the server has.
func (f *Forger) Frame(to cluster.ServerID, epoch cluster.Epoch) error {
	ack, err := f.push(to, push.Push{Epoch: epoch})
	if err != nil {
		return err
	}
	rec := locktable.Record{LSN: ack.At.LSN + 1, Kind: locktable.KindForceClear, Epoch: epoch}
	h := rec.AppendHeader(nil)
	frame := wal.AppendFrame(nil, wal.FrameHeader{
		Kind: wal.FrameRecords, Elided: true, Epoch: epoch, First: rec.LSN, Count: 1, Chain: ack.At.Chain.Next(h),
	}, []wal.Entry{{Header: h}})
	_, err = f.push(to, push.Push{Epoch: epoch, Before: ack.At, Frames: frame})
	return err
}

// Message sends a message of a random kind, but no push with the epoch of a term: its table would
// be recognized as wrong only afterwards.
func (f *Forger) Message() {
	from, to := cluster.ServerID(1+f.rng.IntN(3)), cluster.ServerID(1+f.rng.IntN(3))
	newest := cluster.Epoch(f.c.epoch())
	e := []cluster.Epoch{newest - 1, newest, newest + 1, newest + 2, farEpoch}[f.rng.IntN(5)]
	none := []cluster.Epoch{newest + 1000, farEpoch}[f.rng.IntN(2)]
	switch f.rng.IntN(6) {
	case 0:
		_ = f.Snapshot(to, none, farLSN) // refused, or the server is down
	case 1:
		_ = f.Frame(to, none)
	case 2:
		_ = f.Handover(to, e)
	case 3:
		f.Ask(from, to, e)
	default:
		role := []election.Role{election.RoleReplica, election.RoleFencing, election.RolePrimary}[f.rng.IntN(3)]
		f.Ping(from, to, 1+f.rng.Uint64()>>f.rng.IntN(64), election.Status{
			Role: role, Epoch: e, LSN: farLSN, Beat: f.rng.Uint64(), Able: f.rng.IntN(2) == 0, FeatureLevel: uint32(f.rng.IntN(4)),
		})
	}
}
