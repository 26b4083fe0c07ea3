// SPDX-License-Identifier: Apache-2.0

// Package gateway is the process between clients and the servers of a volume, or of all cells of a site. It passes connections on, as they are, to the server that is
// primary, so that clients need one address, that of a gateway or of a load balancer before several, and no way to the servers.
//
// It takes no connection apart. What a client says goes to one server, once, and what the server says goes back; TLS, credentials and
// certificates are between the two, and a gateway has none of its own. It keeps no state, and repeats nothing: where a connection breaks, its client
// does not know what became of its requests, and asks again with the same IDs, as where a server dies.
//
//   - cells.go has a port for each volume: one, or one for each cell of a site.
//   - site.go asks the servers of a volume, several times a second, which one is primary, and chooses where connections go.
//   - pass.go passes a connection on.
//   - health.go has the probes and the metrics.
//
// A gateway begins each connection to a server with clientport.GatewayPreface. So the server knows that the client is on another host,
// wherever the gateway is, and tells it to stay with its gateway (StatusResponse.gateway): the addresses of servers in its answers may
// mean nothing where the client is.
package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/conns"
)

const (
	// descriptors is how many each connection takes: one to the client, and one to the server.
	descriptors = 2
	// firstLook is how long a start may look for the primary before the gateway counts as started without one.
	firstLook = 2 * time.Second
)

// Options configure a gateway.
type Options struct {
	// Listen is the HOST:PORT for clients. Those of other cells of a site than the one that Site names are at other ports, see cells.
	Listen string
	// Site are endpoints of the servers, see package join, or the directory of a site.
	Site []string
	// Metrics is the HOST:PORT for /metrics, /livez and /readyz; "" = none.
	Metrics string
	// Connections and PerAddress bound the connections of clients, in all and of one address.
	Connections, PerAddress int
	// Drain is how long connections may go on when the gateway ends.
	Drain time.Duration
	Log   zerolog.Logger
}

// Gateway passes connections on to the servers of one volume.
type Gateway struct {
	opt  Options
	site *site
	// patience is how long a connection waits for a server.
	patience time.Duration
	counts   *counts
	// chunks are buffers.
	chunks sync.Pool

	passing sync.WaitGroup
	mu      struct {
		sync.Mutex
		over  bool // connections have had their time
		links map[*link]struct{}
	}
}

// Run listens, and passes connections on until ctx ends. Then it takes no more, gives those that are open the time of Drain, and returns nil. It
// returns an error if it cannot listen, or if an endpoint of the site is none.
func Run(ctx context.Context, opt Options) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var probes net.Listener
	if opt.Metrics != "" {
		var err error
		if probes, err = net.Listen("tcp", opt.Metrics); err != nil {
			return fmt.Errorf("listen for metrics: %w", err)
		}
		defer probes.Close() //nolint:errcheck // its server may have closed it
	}
	c, err := newCells(ctx, opt, overGRPC)
	if err != nil {
		return err
	}
	health := &http.Server{Handler: c.health(ctx), ReadTimeout: probeWait, WriteTimeout: probeWait}
	var beside sync.WaitGroup
	if probes != nil {
		bounded := serve.Bounded(opt.Log, mostProbes, mostProbes, 1, nil)(probes)
		beside.Go(func() { _ = health.Serve(bounded) }) // until it is closed
	}
	beside.Go(func() {
		c.first.site.await(ctx, firstLook)
		serve.Supervised(ctx, opt.Log, func() { c.primaryKnown() })
	})
	c.wait()
	health.Close() //nolint:errcheck // nobody is served any more
	beside.Wait()
	opt.Log.Info().Msg("ended")
	return nil
}

func newGateway(opt Options, n *counts, s *site) *Gateway {
	g := &Gateway{opt: opt, site: s, patience: serverWait, counts: n}
	g.chunks.New = func() any { return new([chunk]byte) }
	g.mu.links = map[*link]struct{}{}
	s.moved = g.follow
	return g
}

// run takes connections from l until ctx ends, and its connections have.
func (g *Gateway) run(ctx context.Context, l net.Listener) {
	looking, looked := context.WithCancel(context.WithoutCancel(ctx)) // connections that go on still follow the primary
	defer looked()
	var all sync.WaitGroup
	all.Go(func() { g.site.run(looking) })
	end := context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // serve returns why it ended
	defer end()
	g.serve(ctx, l)
	g.drain()
	looked()
	all.Wait()
}

// serve takes connections from l until it is closed.
func (g *Gateway) serve(ctx context.Context, l net.Listener) {
	failed := func(err error, pause time.Duration) {
		g.opt.Log.Warn().Err(err).Dur("pause", pause).Msg("a connection was not taken")
	}
	_ = conns.AcceptAll(l, ctx.Done(), failed, func(c net.Conn) { // which returns that it is closed
		g.counts.taken.Add(1)
		g.passing.Go(func() { g.pass(ctx, c.(stream)) })
	})
}

// drain waits for the connections that are open, for the time of Drain, and then closes them.
func (g *Gateway) drain() {
	done := make(chan struct{})
	go func() { g.passing.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(g.opt.Drain):
	}
	g.mu.Lock()
	g.mu.over = true
	for k := range g.mu.links {
		k.close()
	}
	g.mu.Unlock()
	<-done
}

// follow closes the connections to other servers than the one to which they go now: at once where their server does not answer, else when it
// had the time to send what it has to say.
func (g *Gateway) follow(was, now target, answers bool) {
	n := 0
	g.mu.Lock()
	for k := range g.mu.links {
		if k.elsewhere(now.addr) {
			n++
		}
	}
	g.mu.Unlock()
	if was.primary && now.primary {
		g.counts.failovers.Add(1)
	}
	said := g.opt.Log.Info().Uint64("epoch", now.epoch)
	if !now.primary {
		said = g.opt.Log.Warn()
	}
	said.Str("to", now.addr).Uint32("server", now.id).Bool("primary", now.primary).Int("ending", n).Msg("connections go to another server from now on")
	wait := time.Duration(0)
	if answers {
		wait = lastWords
	}
	time.AfterFunc(wait, func() { g.closeOthers(now.addr) })
}

// closeOthers closes the connections to other servers than this one, if connections still go there.
func (g *Gateway) closeOthers(addr string) {
	if g.site.latest().addr != addr {
		return // a later change sees to it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for k := range g.mu.links {
		if k.elsewhere(addr) {
			k.close()
			g.counts.cut.Add(1)
		}
	}
}
