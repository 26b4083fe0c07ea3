// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
)

// Net is the network between the servers of a cluster, in virtual time.
type Net struct {
	Delay time.Duration // one way

	mu    sync.Mutex
	nodes map[cluster.ServerID]*node.Node               // nil or absent = not listening
	cut   map[route]bool                                // packets of this direction vanish
	late  func(from, to cluster.ServerID) time.Duration // of each question, nil: all are in time
	older map[cluster.ServerID]bool                     // they tell no feature level
	whole map[cluster.ServerID]int                      // pieces of snapshots that were sent to them
}

// route is one direction between two servers.
type route struct{ from, to cluster.ServerID }

// NewNet makes a network without faults.
func NewNet(delay time.Duration) *Net {
	return &Net{Delay: delay, nodes: map[cluster.ServerID]*node.Node{}, cut: map[route]bool{}, older: map[cluster.ServerID]bool{}, whole: map[cluster.ServerID]int{}}
}

// Listen makes a node reachable; with nil, connections to the server are refused.
func (n *Net) Listen(id cluster.ServerID, x *node.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[id] = x
}

// Cut makes one direction lose everything; Mend ends that.
func (n *Net) Cut(from, to cluster.ServerID) { n.set(route{from, to}, true) }

// Mend ends a Cut.
func (n *Net) Mend(from, to cluster.ServerID) { n.set(route{from, to}, false) }

func (n *Net) set(p route, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[p] = cut
}

// Isolate cuts a server off in both directions, or joins it again.
func (n *Net) Isolate(id cluster.ServerID, cut bool) {
	for other := cluster.ServerID(1); other <= mostServers; other++ {
		if other != id {
			n.set(route{id, other}, cut)
			n.set(route{other, id}, cut)
		}
	}
}

// Heal mends everything.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// Late delays requests by the duration that f returns, if that is not 0: they arrive when their
// sender no longer waits for the answer, and perhaps after later ones. Requests to a process that
// ends before are lost.
func (n *Net) Late(f func(from, to cluster.ServerID) time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = f
}

// delay keeps a question that is late for later, and says whether it is.
func (n *Net) delay(p route, handle func(*node.Node)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[p.to]
	if n.late == nil || x == nil {
		return false
	}
	by := n.late(p.from, p.to)
	if by == 0 {
		return false
	}
	time.AfterFunc(by, func() {
		n.mu.Lock()
		same := n.nodes[p.to] == x
		n.mu.Unlock()
		if same {
			handle(x)
		}
	})
	return true
}

// travel is one packet: it arrives, is refused, or never comes.
func (n *Net) travel(ctx context.Context, p route) (*node.Node, error) {
	t := time.NewTimer(n.Delay)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.C:
	}
	n.mu.Lock()
	cut, x := n.cut[p], n.nodes[p.to]
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if x == nil {
		return nil, fmt.Errorf("server %d: %w", p.to, syscall.ECONNREFUSED)
	}
	return x, nil
}

// call is a request and its answer.
func call[T any](ctx context.Context, n *Net, from, to cluster.ServerID, handle func(*node.Node) (T, error)) (T, error) {
	var none T
	if n.delay(route{from, to}, func(x *node.Node) { _, _ = handle(x) }) {
		<-ctx.Done()
		return none, context.Cause(ctx)
	}
	x, err := n.travel(ctx, route{from, to})
	if err != nil {
		return none, err
	}
	answer, err := handle(x)
	if err != nil {
		return none, err
	}
	// The asker need not listen on any port for its answer to come back.
	if _, err := n.travel(ctx, route{to, from}); err != nil && ctx.Err() != nil {
		return none, err
	}
	return answer, nil
}

// Older makes a server answer like binaries without a feature level, or ends that.
func (n *Net) Older(id cluster.ServerID, older bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.older[id] = older
}

// Whole returns how many pieces of snapshots were sent to a server.
func (n *Net) Whole(to cluster.ServerID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whole[to]
}

// said is what arrives of what a server says of itself.
func (n *Net) said(from cluster.ServerID, s election.Status) election.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.older[from] {
		s.FeatureLevel = 0
	}
	return s
}

// Peers returns the connections of one server to the others.
func (n *Net) Peers(self cluster.ServerID) node.Peers { return peers{n, self} }

type peers struct {
	net  *Net
	self cluster.ServerID
}

func (p peers) Ping(ctx context.Context, to cluster.ServerID, m election.Ping) (election.Pong, error) {
	m.Status = p.net.said(p.self, m.Status)
	return call(ctx, p.net, p.self, to, func(x *node.Node) (election.Pong, error) {
		pong := x.HandlePing(m)
		pong.Status = p.net.said(to, pong.Status)
		return pong, nil
	})
}

func (p peers) PreVote(ctx context.Context, to cluster.ServerID, m election.Ask) (election.Vote, error) {
	return call(ctx, p.net, p.self, to, func(x *node.Node) (election.Vote, error) { return x.HandlePreVote(ctx, m), nil })
}

func (p peers) Push(ctx context.Context, to cluster.ServerID, m push.Push) (push.Ack, error) {
	if m.Chunk != nil {
		p.net.mu.Lock()
		p.net.whole[to]++
		p.net.mu.Unlock()
	}
	return call(ctx, p.net, p.self, to, func(x *node.Node) (push.Ack, error) { return x.HandlePush(m) })
}

// Follow does nothing: servers of a Net are reached by their IDs.
func (p peers) Follow(cluster.Members) {}

func (p peers) Handover(ctx context.Context, to cluster.ServerID, epoch cluster.Epoch) error {
	_, err := call(ctx, p.net, p.self, to, func(x *node.Node) (struct{}, error) { return struct{}{}, x.HandleHandover(epoch) })
	return err
}
