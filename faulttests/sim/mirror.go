// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/watch"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// glass compares what a client's mirror shows with what servers read from their
// tables: at one LSN there is one state, from any source.
type glass struct {
	c    *Cluster
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	ports  map[string]*port
	read   map[cluster.LSN]string // by servers
	shown  map[cluster.LSN]string // by the mirror
	mirror *watch.Mirror
	bad    []string
}

// port is where a server listens for clients, while its process lives.
type port struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *port) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// bubbleClock is the bubble's.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.start) }

const (
	// sampling is how often tables are read, mirrorBookmark how often a server says
	// how far it has sent events.
	sampling       = 100 * time.Millisecond
	mirrorBookmark = 200 * time.Millisecond
)

// shared is a source of random numbers for several goroutines.
func shared(seed uint64) func() uint64 {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 5))
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return rng.Uint64()
	}
}

// Mirror starts a client that mirrors the locks, over real connections between
// goroutines, until EndMirror.
func (c *Cluster) Mirror() error {
	g := &glass{c: c, ports: map[string]*port{}, read: map[cluster.LSN]string{}, shown: map[cluster.LSN]string{}}
	g.ctx, g.stop = context.WithCancel(context.Background())
	o := clientlib.Options{Clock: bubbleClock{time.Now()}, Rand: shared(c.Rand.Uint64()), Dialer: g.dial}
	for _, m := range Members() {
		o.Endpoints = append(o.Endpoints, m.Client)
	}
	client, err := clientlib.New(o)
	if err != nil {
		return err
	}
	g.mirror = watch.NewMirror(client, watch.Options{Bookmark: mirrorBookmark})
	c.glass = g
	c.mu.Lock()
	for id, x := range c.servers {
		g.serve(id, x)
	}
	c.mu.Unlock()
	g.all.Go(func() {
		for g.ctx.Err() == nil { // it gives up when no server answers for long
			_ = g.mirror.Run(g.ctx)
		}
		client.Close() //nolint:errcheck // it cannot fail
	})
	g.all.Go(g.look)
	return nil
}

func address(id cluster.ServerID) string { return fmt.Sprintf("h%d:1", id) }

// serve serves a process until it is killed.
func (g *glass) serve(id cluster.ServerID, x *server) {
	p := &port{conns: make(chan net.Conn), done: make(chan struct{})}
	g.mu.Lock()
	g.ports[address(id)] = p
	g.mu.Unlock()
	ended := make(chan struct{})
	front := fronttest.Serve(p, service.New(x.node, service.Options{}))
	x.front = func() {
		g.mu.Lock()
		delete(g.ports, address(id))
		g.mu.Unlock()
		front.Close()
		close(ended)
	}
	g.all.Go(func() { g.sample(x.node, ended) })
}

func (g *glass) dial(ctx context.Context, addr string) (net.Conn, error) {
	g.mu.Lock()
	p := g.ports[addr]
	g.mu.Unlock()
	if p == nil {
		return nil, errors.New("nobody listens")
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, errors.New("nobody listens any more")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// sample reads a server's table now and then.
func (g *glass) sample(n *node.Node, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-g.ctx.Done():
			return
		case <-time.After(sampling):
		}
		ctx, cancel := context.WithTimeout(g.ctx, patience)
		state := ""
		r, err := n.Read(ctx, func(v serving.View) {
			state = ""
			for l := range v.Table.Locks("", "") {
				s := watch.LockState{Name: l.Name, QueueLength: l.QueueLength, FileCount: l.FileCount}
				if x := l.Grant; x.Token != 0 {
					s.Holder = wire.Holder{
						Client: x.Client, Token: x.Token, Host: x.Holder.Host, PID: int64(x.Holder.PID), Command: x.Holder.Command,
						Since: wire.Moment(x.Since), Mode: wire.ModeWord(pb.Mode(x.Mode)), Holders: uint32(l.Holders),
						Limit: x.Permit.Limit, Weight: x.Permit.Weight,
					}
					s.TTL, s.GrantEpoch, s.Request, s.Metadata = x.TTL, x.Epoch, x.Request, x.Metadata
				}
				state += fmt.Sprintf("%+v\n", s)
			}
		})
		cancel()
		if err == nil && r.Status == cluster.StatusOK {
			g.note(g.read, r.LSN, state)
		}
	}
}

// look notes every state that the mirror shows.
func (g *glass) look() {
	last := cluster.LSN(0)
	for g.ctx.Err() == nil {
		g.mirror.WaitUntil(g.ctx, func(v watch.View) bool { //nolint:errcheck // then it is run again, or not
			if v.LSN() < last {
				g.mu.Lock()
				g.bad = append(g.bad, fmt.Sprintf("mirror: LSN %d after %d", v.LSN(), last))
				g.mu.Unlock()
			}
			last = v.LSN()
			state := ""
			for l := range v.All() {
				state += fmt.Sprintf("%+v\n", l)
			}
			g.note(g.shown, v.LSN(), state)
			return false
		})
		select {
		case <-g.ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// note notes the state at an LSN: there must not be two.
func (g *glass) note(in map[cluster.LSN]string, at cluster.LSN, state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, known := range []map[cluster.LSN]string{g.read, g.shown} {
		if other, ok := known[at]; ok && other != state {
			g.bad = append(g.bad, fmt.Sprintf("mirror: two states at LSN %d:\n%s---\n%s", at, other, state))
		}
	}
	in[at] = state
}

// MirrorShows waits until the mirror shows an LSN. It returns true also if there is no mirror, and
// false at the limit.
func (c *Cluster) MirrorShows(at cluster.LSN, limit time.Duration) bool {
	if c.glass == nil {
		return true
	}
	for began := time.Now(); c.glass.mirror.LSN() < at; time.Sleep(sampling) {
		if time.Since(began) > limit {
			return false
		}
	}
	return true
}

// EndMirror ends the mirror, if there is one, and returns the violations. It adds to
// Compared at how many LSNs the mirror had the state of a server.
func (c *Cluster) EndMirror() []string {
	g := c.glass
	if g == nil {
		return nil
	}
	g.stop()
	g.all.Wait()
	for at := range g.shown {
		if _, ok := g.read[at]; ok {
			c.Compared++
		}
	}
	return g.bad
}
