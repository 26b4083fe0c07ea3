// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
)

// HandlePing answers another server's ping.
func (n *Node) HandlePing(p election.Ping) election.Pong { return n.elector.HandlePing(p) }

// HandlePreVote answers another server that wants to know whether it should reign.
func (n *Node) HandlePreVote(ctx context.Context, a election.Ask) election.Vote {
	return n.elector.HandlePreVote(ctx, a)
}

// HandlePush applies a primary's push. That of a reign which is new here is believed once the
// volume shows the reign. An error says that it was not even looked into.
func (n *Node) HandlePush(p push.Push) (push.Ack, error) {
	if p.Epoch > n.replica.Epoch() && !n.awaitReign(p.Epoch) {
		return push.Ack{}, fmt.Errorf("push of epoch %d: %w", p.Epoch, ErrUnseenReign)
	}
	ack, err := n.replica.Push(p)
	if err != nil {
		n.opt.Log.Debug().Err(err).Uint64("epoch", uint64(p.Epoch)).Msg("push not applied")
	}
	n.heardOf(ack.Epoch)
	return ack, nil
}

// ErrNotAble says that this server cannot take a reign over now.
var ErrNotAble = errors.New("not able to reign: no prepared claim or no fresh write to the volume")

// ErrLateHandover says that a handover comes when a later reign serves: it must not end that.
var ErrLateHandover = errors.New("the handover comes too late: another server reigns by now")

// ErrNotResigned says that nothing but the word of a handover speaks for the end of the reign that
// is handed over: anybody can send one.
var ErrNotResigned = errors.New("the reign that is handed over has not resigned, as far as the volume and its server tell")

// HandleHandover makes this server claim at once, on the word of a primary that
// has resigned, where the volume and that server bear it out. The word may be late, by minutes
// where a network keeps packets.
func (n *Node) HandleHandover(epoch cluster.Epoch) error {
	s := n.self()
	if !s.Able || s.Storage > n.opt.Timing.StorageTimeout {
		return ErrNotAble
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.opt.Timing.Suspicion)
	defer cancel()
	if err := n.resigned(ctx, epoch); err != nil {
		n.opt.Log.Warn().Err(err).Uint64("from_epoch", uint64(epoch)).Msg("handover refused")
		return err
	}
	if !n.elector.Nominate() {
		n.opt.Log.Warn().Uint64("from_epoch", uint64(epoch)).Msg("handover: too late, another server reigns")
		return ErrLateHandover
	}
	n.opt.Log.Info().Uint64("from_epoch", uint64(epoch)).Msg("handover: nominated")
	return nil
}

var (
	// ErrNotPrimary says that a handover was asked of a server that does not reign.
	ErrNotPrimary = errors.New("this server is not primary")
	// ErrNoSuccessor says that a handover has nobody to go to; the reign goes on.
	ErrNoSuccessor = errors.New("no live server is able to take over")
)

// Handover moves the reign on purpose, to the given server or, with 0, to the
// lowest able one: stop admitting, commit, log Resigned, tell the successor. The
// reign goes on when there is no able successor. It takes no longer than handoverWait and
// tellWait, whatever the volume and the successor do. With an error that comes with a server
// the reign may be over; an election decides then.
func (n *Node) Handover(ctx context.Context, to cluster.ServerID) (cluster.ServerID, error) {
	p := n.current()
	if p == nil || n.self().Role != election.RolePrimary {
		return 0, ErrNotPrimary
	}
	able := cluster.ServerID(0)
	for _, peer := range n.elector.Peers() {
		fits := peer.Reachable && peer.Status.Able && !peer.Conflict && peer.Status.Storage <= n.opt.Timing.StorageTimeout
		if fits && (to == peer.ID || to == 0 && (able == 0 || peer.ID < able)) {
			able = peer.ID
		}
	}
	if able == 0 {
		return 0, ErrNoSuccessor
	}
	resigns, cancel := context.WithTimeout(ctx, handoverWait)
	defer cancel()
	if err := p.Resign(resigns, fmt.Sprintf("handover to server %d", able)); err != nil {
		if resigns.Err() == nil {
			able = 0
		}
		return able, fmt.Errorf("resign: %w", err)
	}
	// The reign is over: the successor is told whether anybody waits for that or not.
	tells, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWait)
	defer cancel()
	return able, n.opt.Peers.Handover(tells, able, p.Epoch())
}
