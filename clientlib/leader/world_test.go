// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/nettest"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// ttl is the lease of every candidate.
const ttl = 8 * time.Second

// world is one server with its front end, in virtual time or out of it.
type world struct {
	node *node.Node
	port *fronttest.Port
	in   chan net.Conn // to the server
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex // guards clients while they come
	clients []*process
}

// alone are the connections of a server that has no others.
type alone struct{ node.Peers }

func (alone) Follow(cluster.Members) {}

// inBubble runs a test in virtual time. The bubble fails if a goroutine is left.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		f(t, w)
	})
}

// newWorld starts the server.
func newWorld(opts ...grpc.ServerOption) *world { return newWorldOf(1, opts...) }

// newWorldOf starts the server of a volume that the seed makes.
func newWorldOf(seed byte, opts ...grpc.ServerOption) *world {
	disk := volumetest.New(1)
	host := disk.Host(1, volumetest.ProfileLocal())
	members := cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:3"}}
	random := rand.NewChaCha8([32]byte{seed})
	if _, err := volume.Init(context.Background(), host, members, random); err != nil {
		panic(err)
	}
	n, err := node.New(node.Options{
		Server: 1, FS: host, Timing: cluster.DefaultTiming(), Peers: alone{}, Random: random, Rand: rand.New(random),
		FirstSegment: 1 << 20, Segment: 1 << 20,
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &world{node: n, in: make(chan net.Conn), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		n.Run(ctx) //nolint:errcheck // it ends with ctx
	}()
	l, s := listener{in: w.in, closed: ctx}, service.New(n, service.Options{})
	if len(opts) > 0 {
		w.port = fronttest.ServeOlder(l, s, opts...)
	} else {
		w.port = fronttest.Serve(l, s)
	}
	return w
}

// end ends the clients and the server.
func (w *world) end() {
	for _, p := range w.clients {
		p.net.Mend()
		p.c.Close() //nolint:errcheck // it cannot fail
	}
	w.stop()
	w.port.Close()
	<-w.done
}

// listener takes connections from a channel.
type listener struct {
	in     chan net.Conn
	closed context.Context
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.UnixAddr{Name: "world", Net: "unix"} }

// clock is the time of the bubble, plus what this machine slept through.
type clock struct {
	start time.Time
	mu    sync.Mutex
	slept time.Duration
}

func (c *clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.start) + c.slept
}

func (c *clock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

// process is one machine with a client.
type process struct {
	c     *clientlib.Client
	clock *clock
	net   *nettest.Gate
}

func (w *world) process(o clientlib.Options) *process {
	p := &process{clock: &clock{start: time.Now()}, net: nettest.NewGate()}
	o.Endpoints, o.Clock = []string{"h1:1"}, p.clock
	o.Dialer = func(ctx context.Context, _ string) (net.Conn, error) {
		select { // who is cut off does not get through
		case <-p.net.Open():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		here, there := net.Pipe()
		select {
		case w.in <- there:
			return nettest.Through(here, p.net), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.done:
			return nil, net.ErrClosed
		}
	}
	c, err := clientlib.New(o)
	if err != nil {
		panic(err)
	}
	p.c = c
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients = append(w.clients, p)
	return p
}

func (p *process) election(o leader.Options) *leader.Election {
	if o.TTL == 0 {
		o.TTL = ttl
	}
	e, err := leader.NewElection(p.c, "svc", o)
	if err != nil {
		panic(err)
	}
	return e
}

// leads campaigns and wants to lead.
func leads(t *testing.T, e *leader.Election, value string) *leader.Leadership {
	t.Helper()
	l, err := e.Campaign(t.Context(), value)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
