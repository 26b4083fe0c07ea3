// SPDX-License-Identifier: Apache-2.0

// Package peergrpc carries what servers say to each other over gRPC, on a port
// of their own.
//
// Each other server is reached over two connections. One is for pings,
// pre-votes and handovers and for nothing else, so that a heartbeat never stands
// behind a push; pings share a stream of it, see heartbeats. The other is for pushes: one stream, one push in flight.
//
// Nobody waits for a connection that cannot be made: a server that is not there
// is an error at once, because the elector takes that for its end, and it is
// tried again a few times a second, so that a quick restart is seen quickly.
//
// Package peertls says who the other side of a connection is. Each message names its sender, which has to be that one.
package peergrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxBackoff is the longest pause between two attempts to connect.
	maxBackoff = 100 * time.Millisecond
	// connectWait bounds one attempt to connect. A host that does not answer at all is
	// tried anew after it, rather than waited for while TCP backs off.
	connectWait = time.Second
	// greetWait bounds the wait for the first bytes of a server whose system has accepted the
	// connection: the server is there, and may be late for want of CPU. Pings meanwhile meet silence
	// and no broken connection.
	greetWait = 3 * time.Second
	// unackedWait is how long the kernel lets sent bytes stand unacknowledged.
	// After a partition a new connection is faster than the old one's retransmissions.
	unackedWait = time.Second
	// maxMessage bounds a message, in bytes: a push carries 1 MiB of frames and one frame more.
	maxMessage = 8 << 20
	// Windows of the connections, in bytes, on both sides: a push fits into one. A side without
	// a fixed window would send a ping with each message that it gets, to measure which one
	// the path can use.
	streamWindow, connWindow = 2 << 20, 4 << 20
)

var _ node.Peers = (*Peers)(nil)

// Peers reaches the servers of one cluster. It is safe for use by several goroutines.
type Peers struct {
	self    cluster.ServerID
	cluster []byte
	keys    *peertls.Keys
	further []grpc.DialOption
	mu      struct {
		sync.Mutex
		closed bool
		peers  map[cluster.ServerID]*peer
		broke  func(cluster.ServerID) // nil: nobody wants to know
	}
}

// peer is one server at one address.
type peer struct {
	addr          string
	control, bulk *grpc.ClientConn
	client        pb.PeerServiceClient // over control
	heartbeats    *heartbeats          // over control
	pushes        pushes               // over bulk
}

// New makes a Peers for the server self, which has these keys. It connects to nobody yet. Further dial
// options are for tests.
func New(self cluster.ServerID, c volume.Cluster, keys *peertls.Keys, further ...grpc.DialOption) *Peers {
	p := &Peers{self: self, cluster: c.ID[:], keys: keys, further: further}
	p.mu.peers = map[cluster.ServerID]*peer{}
	p.Follow(c.Servers)
	return p
}

// Follow replaces the servers: those that are new or have moved are dialed when they are used, and the connections to
// those that are gone, or to where they were, end with what is in flight on them.
func (p *Peers) Follow(all cluster.Members) {
	p.keys.Follow(all)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	now := map[cluster.ServerID]*peer{}
	for _, m := range all {
		if x := p.mu.peers[m.ID]; x != nil && x.addr == m.Peer {
			now[m.ID] = x
		} else {
			now[m.ID] = p.dials(m)
		}
	}
	for id, x := range p.mu.peers {
		if now[id] != x {
			x.close() //nolint:errcheck // nothing is lost with it
		}
	}
	p.mu.peers = now
}

// dials makes the connections to a server.
func (p *Peers) dials(m cluster.Member) *peer {
	options := append(dialOptions(), grpc.WithTransportCredentials(p.keys.Client(m.ID, dial)))
	options = append(options, p.further...)
	x := &peer{addr: m.Peer, control: connect(m.Peer, options), bulk: connect(m.Peer, options)}
	x.client = pb.NewPeerServiceClient(x.control)
	x.heartbeats = newHeartbeats(x.client, func() { p.broke(m.ID) })
	x.pushes = newPushes(pb.NewPeerServiceClient(x.bulk))
	return x
}

func (x *peer) close() error { return errors.Join(x.control.Close(), x.bulk.Close()) }

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: maxBackoff / 4, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: connectWait + greetWait, // dial bounds the first part
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}
}

// OnBroken has f called when a connection for pings breaks, as that to a server does which ends, without a ping that would find out. F must not wait.
func (p *Peers) OnBroken(f func(cluster.ServerID)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.broke = f
}

func (p *Peers) broke(id cluster.ServerID) {
	p.mu.Lock()
	f := p.mu.broke
	p.mu.Unlock()
	if f != nil {
		f(id)
	}
}

// connect makes a connection that dials when it is first used. The address goes to the
// dialer as it is: it is looked up at each attempt.
func connect(addr string, options []grpc.DialOption) *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err != nil {
		// Only options that contradict each other get here: a mistake in this file.
		panic(fmt.Sprintf("peer connection to %s: %v", addr, err))
	}
	return c
}

// Close ends all connections and what is in flight on them.
func (p *Peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	var errs []error
	for _, x := range p.mu.peers {
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

// find returns the peer.
func (p *Peers) find(to cluster.ServerID) (*peer, error) {
	p.mu.Lock()
	x, ok := p.mu.peers[to]
	p.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("server %d is no member of the cluster", to)
	}
	return x, nil
}

// Ping sends a heartbeat, see election.Transport.
func (p *Peers) Ping(ctx context.Context, to cluster.ServerID, q election.Ping) (election.Pong, error) {
	x, err := p.find(to)
	if err != nil {
		return election.Pong{}, err
	}
	m := pingProto(q)
	m.ClusterId = p.cluster
	r, by, err := x.heartbeats.ping(ctx, m)
	if err != nil {
		return election.Pong{}, failure(ctx, to, err)
	}
	if info, _ := by.(peertls.Info); !info.Plain { // else anybody may have said it
		p.keys.Told(to, r.GetStranger())
	}
	return pongOf(r), nil
}

// PreVote asks for a vote, see election.Transport.
func (p *Peers) PreVote(ctx context.Context, to cluster.ServerID, a election.Ask) (election.Vote, error) {
	x, err := p.find(to)
	if err != nil {
		return election.Vote{}, err
	}
	r, err := x.client.PreVote(ctx, &pb.Ask{ClusterId: p.cluster, From: uint32(a.From), Nonce: a.Nonce, Epoch: uint64(a.Epoch)})
	if err != nil {
		return election.Vote{}, failure(ctx, to, err)
	}
	return voteOf(r), nil
}

// Handover asks a server to be primary now.
func (p *Peers) Handover(ctx context.Context, to cluster.ServerID, epoch cluster.Epoch) error {
	x, err := p.find(to)
	if err != nil {
		return err
	}
	r, err := x.client.Handover(ctx, &pb.PeerHandoverRequest{ClusterId: p.cluster, From: uint32(p.self), Epoch: uint64(epoch)})
	switch {
	case err != nil:
		return failure(ctx, to, err)
	case !r.Accepted:
		return fmt.Errorf("server %d does not take over: %s", to, r.Message)
	}
	return nil
}

// Push sends one push and waits for its answer. Pushes to one server go one
// after the other.
func (p *Peers) Push(ctx context.Context, to cluster.ServerID, m push.Push) (push.Ack, error) {
	x, err := p.find(to)
	if err != nil {
		return push.Ack{}, err
	}
	q := pushProto(m)
	q.ClusterId, q.From = p.cluster, uint32(p.self)
	r, err := x.pushes.send(ctx, q)
	if err != nil {
		return push.Ack{}, failure(ctx, to, err)
	}
	return ackOf(r), nil
}

// failure tells a call that was given up from a server that is not there: the
// former is a context error, the latter never is.
func failure(ctx context.Context, to cluster.ServerID, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded: // the other side's clock of the same deadline ran out first
		return context.DeadlineExceeded
	case codes.Canceled: // this Peers was closed
		return context.Canceled
	}
	return fmt.Errorf("server %d: %w", to, err)
}
