// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/nettest"
)

// memberAt is a server with an address that needs no name service.
func memberAt(id cluster.ServerID) cluster.Member {
	at := func(port int) string { return fmt.Sprintf("192.0.2.%d:%d", id, port) }
	return cluster.Member{ID: id, Client: at(1), Peer: at(3)}
}

// fronts are the gRPC front ends of a cluster's servers, for the real client library.
type fronts struct {
	c  *Cluster
	mu sync.Mutex
	// serving has the listeners of those servers that run, or did.
	serving map[*server]*memoryListener
	gates   map[cluster.ServerID]*nettest.Gate
	opts    []grpc.ServerOption // beside the product's
}

func newFronts(c *Cluster) *fronts {
	f := &fronts{c: c, serving: map[*server]*memoryListener{}, gates: map[cluster.ServerID]*nettest.Gate{}}
	for id := range cluster.ServerID(3) {
		f.gates[id+1] = nettest.NewGate()
	}
	return f
}

// listener is where a server listens; it begins with the first who asks.
func (f *fronts) listener(id cluster.ServerID) *memoryListener {
	x := f.c.server(id)
	if x == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.serving[x]; l != nil {
		return l
	}
	l := &memoryListener{in: make(chan net.Conn), closed: make(chan struct{})}
	f.serving[x] = l
	s := service.New(x.node, service.Options{})
	port := func() *fronttest.Port {
		if f.opts != nil {
			return fronttest.ServeOlder(l, s, f.opts...)
		}
		return fronttest.Serve(l, s)
	}()
	go func() {
		<-x.done
		port.Close()
	}()
	return l
}

// dial connects a machine with a server.
func (f *fronts) dial(ctx context.Context, addr string, own *nettest.Gate) (net.Conn, error) {
	var id cluster.ServerID
	if _, err := fmt.Sscanf(addr, "192.0.2.%d:1", &id); err != nil {
		return nil, err
	}
	for _, g := range []*nettest.Gate{own, f.gates[id]} {
		select { // whoever is cut off does not get through
		case <-g.Open():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l := f.listener(id)
	if l == nil {
		return nil, fmt.Errorf("server %d does not run", id)
	}
	here, there := net.Pipe()
	select {
	case l.in <- there:
		return nettest.Through(here, own, f.gates[id]), nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryListener takes connections from a channel.
type memoryListener struct {
	in     chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// driftingClock goes faster or slower than the others' by less than the library's margin.
type driftingClock struct {
	start time.Time
	rate  float64
	mu    sync.Mutex
	slept time.Duration // the machine was suspended
}

func (c *driftingClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(float64(time.Since(c.start))*c.rate) + c.slept
}

func (c *driftingClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

// machine is where a client runs.
type machine struct {
	client *clientlib.Client
	net    *nettest.Gate
	clock  *driftingClock
}

// machine makes one with a clock of its own.
func (f *fronts) machine(t *testing.T) *machine {
	t.Helper()
	return f.machineOf(t, "")
}

// machineOf makes one whose client chose its ID, if it has one.
func (f *fronts) machineOf(t *testing.T, id cluster.ClientID) *machine {
	t.Helper()
	m := &machine{net: nettest.NewGate(), clock: &driftingClock{start: time.Now(), rate: 0.991 + 0.018*f.c.Rand.Float64()}}
	o := clientlib.Options{ClientID: id, Clock: m.clock, Rand: shared(f.c.Rand.Uint64())}
	for id := range cluster.ServerID(3) {
		o.Endpoints = append(o.Endpoints, memberAt(id+1).Client)
	}
	o.Dialer = func(ctx context.Context, addr string) (net.Conn, error) { return f.dial(ctx, addr, m.net) }
	var err error
	if m.client, err = clientlib.New(o); err != nil {
		t.Fatal(err)
	}
	return m
}
