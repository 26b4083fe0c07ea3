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

// HandlePing returns the answer to another server's ping.
func (n *Node) HandlePing(p election.Ping) election.Pong { return n.elector.HandlePing(p) }

// ConnectionBroke has another server pinged at once, because it may have ended.
func (n *Node) ConnectionBroke(to cluster.ServerID) { n.elector.Broke(to) }

// HandlePreVote returns this server's vote for another one that wants to be primary.
func (n *Node) HandlePreVote(ctx context.Context, a election.Ask) election.Vote {
	return n.elector.HandlePreVote(ctx, a)
}

// HandlePush applies a primary's push. One of a term which is new here is accepted once the
// volume shows the term; otherwise it returns ErrUnseenTerm and the push was not read.
func (n *Node) HandlePush(p push.Push) (push.Ack, error) {
	if p.Epoch > n.replica.Epoch() && !n.awaitTerm(p.Epoch) {
		return push.Ack{}, fmt.Errorf("push of epoch %d: %w", p.Epoch, ErrUnseenTerm)
	}
	ack, err := n.replica.Push(p)
	n.tellOutdated(err, ack.At.LSN > 0)
	if err != nil {
		n.opt.Log.Debug().Err(err).Uint64("epoch", uint64(p.Epoch)).Msg("push not applied")
	}
	n.heardOf(ack.Epoch)
	return ack, nil
}

// ErrNotAble means that this server cannot take the primary role over now.
var ErrNotAble = errors.New("not able to be primary: no prepared claim or no fresh write to the volume")

// ErrLateHandover means that a handover comes when a later term serves: it must not end that.
var ErrLateHandover = errors.New("the handover comes too late: another server is primary by now")

// ErrNotResigned means that the term which a handover names has not ended, as far as the volume and
// its server show: any process can send a handover.
var ErrNotResigned = errors.New("the primary that hands over has not resigned, as far as the volume and its server show")

// HandleHandover has this server claim at once after the primary of this epoch has resigned and
// named it, if the volume and that server confirm it. The message may be late, by minutes if a
// network keeps packets. It returns ErrNotAble, ErrLateHandover or ErrNotResigned.
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
	if _, voter := n.members().Voters().Find(n.opt.Server); !voter {
		n.reread.Notify() // it became a member a moment ago: the nomination holds until it knows
	}
	if !n.elector.Nominate() {
		n.opt.Log.Warn().Uint64("from_epoch", uint64(epoch)).Msg("handover: too late, another server is primary")
		return ErrLateHandover
	}
	n.opt.Log.Info().Uint64("from_epoch", uint64(epoch)).Msg("handover: nominated")
	return nil
}

var (
	// ErrNotPrimary means that a handover was requested of a server that is not primary.
	ErrNotPrimary = errors.New("this server is not the primary")
	// ErrNoSuccessor means that no server can take the role over; the term goes on.
	ErrNoSuccessor = errors.New("no live server is able to take over")
)

// Handover moves the primary role on purpose, to the given server or, with 0, to the
// first able one in turn: it stops admitting, commits, logs HandedOver and notifies the successor,
// which it returns. It returns ErrNotPrimary, or ErrNoSuccessor if no server is able; then
// the term goes on. It takes no longer than handoverWait and tellWait, whatever the volume
// and the successor do. With any other error the term may be over; then an election decides.
func (n *Node) Handover(ctx context.Context, to cluster.ServerID) (cluster.ServerID, error) {
	p := n.current()
	if p == nil || n.self().Role != election.RolePrimary {
		return 0, ErrNotPrimary
	}
	able := cluster.ServerID(0)
	for _, peer := range n.elector.Peers() {
		fits := !peer.Joining && peer.Reachable && peer.Status.Able && !peer.Conflict && peer.Status.Storage <= n.opt.Timing.StorageTimeout
		if fits && (to == peer.ID || to == 0 && (able == 0 || n.elector.Before(peer.ID, able))) {
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
	// The term is over: the successor is notified even if the caller does not wait any more.
	tells, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWait)
	defer cancel()
	return able, n.opt.Peers.Handover(tells, able, p.Epoch())
}
