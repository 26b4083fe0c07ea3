// SPDX-License-Identifier: Apache-2.0

package holdfasttest

import (
	"context"
	"fmt"
	"syscall"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
)

// peers are the connections of one server to the others: calls within the process.
type peers struct {
	s    *Server
	self cluster.ServerID
}

// call asks another server. The answer of one in another partition never comes.
func call[T any](ctx context.Context, p peers, to cluster.ServerID, handle func(*node.Node) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if p.s.divided(p.self, to) {
		<-ctx.Done()
		return none, context.Cause(ctx)
	}
	x := p.s.members[to-1].process()
	if x == nil {
		return none, fmt.Errorf("server %d: %w", to, syscall.ECONNREFUSED)
	}
	answer, err := handle(x.node)
	if err == nil && p.s.divided(p.self, to) {
		<-ctx.Done()
		return none, context.Cause(ctx)
	}
	return answer, err
}

func (p peers) Ping(ctx context.Context, to cluster.ServerID, m election.Ping) (election.Pong, error) {
	return call(ctx, p, to, func(x *node.Node) (election.Pong, error) { return x.HandlePing(m), nil })
}

func (p peers) PreVote(ctx context.Context, to cluster.ServerID, m election.Ask) (election.Vote, error) {
	return call(ctx, p, to, func(x *node.Node) (election.Vote, error) { return x.HandlePreVote(ctx, m), nil })
}

func (p peers) Push(ctx context.Context, to cluster.ServerID, m push.Push) (push.Ack, error) {
	return call(ctx, p, to, func(x *node.Node) (push.Ack, error) { return x.HandlePush(m) })
}

// Follow does nothing: the servers of a test stay the same.
func (p peers) Follow(cluster.Members) {}

func (p peers) Handover(ctx context.Context, to cluster.ServerID, epoch cluster.Epoch) error {
	_, err := call(ctx, p, to, func(x *node.Node) (struct{}, error) { return struct{}{}, x.HandleHandover(epoch) })
	return err
}
