// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/metrics"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peergrpc"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/session"
	"github.com/holdfast-lock/holdfast/shared/frontend/text"
	"github.com/holdfast-lock/holdfast/shared/frontend/ws"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// probeWait is how long a request to the port for metrics may take, and mostProbes how many connections that has.
	probeWait  = 30 * time.Second
	mostProbes = 64
)

// Front is a front end that serves one listener.
type Front interface {
	// Serve serves until Stop is called or it cannot go on. It always returns an error.
	Serve(net.Listener) error
	// Stop ends it: calls in flight may be answered until ctx ends. It may be called
	// before Serve.
	Stop(ctx context.Context)
}

// fronts are the front ends: one for the other servers, and those that share the port for clients.
type fronts struct {
	peer     *peergrpc.Server
	port     *clientport.Port
	grpc     *grpc.Server
	http     *http.Server // and the handshakes of WebSocket
	sockets  *ws.Server
	text     Front
	sessions *session.Server
	// services are those of the front ends.
	services []*service.Service
	tallies  *service.Tallies
	traces   *trace.Recorder
	// probes serves the metrics and the probes by themselves.
	probes *http.Server
}

func newFronts(n *node.Node, c volume.Cluster, keys *peertls.Keys, secured *clientTLS, who *callers, audit auditor, traces *trace.Recorder, opt *Options) *fronts {
	f := &fronts{peer: peergrpc.NewServer(c.ID.String(), n, keys), port: clientport.New(opt.Log, n.Late), grpc: grpc.NewServer(grpcapi.Options()...), traces: traces}
	if opt.TLS12 {
		f.port.TakeTLS12()
	}
	secured.use(f.port)
	f.tallies = &service.Tallies{}
	failures, usage := &service.Failures{}, &service.Usage{}
	for range 3 { // the limits of each are its own, but for failures and quotas
		f.services = append(f.services, service.New(n, service.Options{Authenticator: who, Prover: who, Logins: who.logins, Auditor: audit, Failures: failures, Usage: usage, Tallies: f.tallies, Traces: traces.Traces()}))
	}
	f.port.DemandIdentity(f.services[0].DemandsIdentity)
	grpcapi.Register(f.grpc, f.services[0])
	opt.Live.pages.Know(secured.known())
	h := httpapi.New(f.services[1], httpapi.Options{
		Log: opt.Log, Dial: secured.dial, Pages: opt.Live.pages,
		Metrics: metrics.Handler(n, func() metrics.Fronts { return f.measure(secured, who, audit) }), LockMetrics: metrics.Locks, Loops: n.Loops,
	})
	f.probes = newProbes(h)
	f.sockets = ws.New(h.Door(), ws.Options{Log: opt.Log, Pages: opt.Live.pages})
	sockets := h.Authenticated(f.sockets)
	f.http = h.Server()
	f.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == ws.Path {
			sockets.ServeHTTP(w, r)
		} else {
			h.ServeHTTP(w, r)
		}
	})
	f.text, f.sessions = text.New(h.Door()), session.New(f.services[2], opt.Log)
	return f
}

// newProbes returns the server of the port for metrics. Nothing on it takes longer than probeWait, so that strangers who neither
// ask nor read hold none of its few connections for long.
func newProbes(h *httpapi.Handler) *http.Server {
	s := h.Server()
	s.Handler = h.Probes()
	s.ReadTimeout, s.WriteTimeout = probeWait, probeWait
	return s
}

// endForbidden ends what the access rules do not permit any more.
func (f *fronts) endForbidden() {
	for _, s := range f.services {
		s.EndForbidden()
	}
}

// serving returns a function for each goroutine that the front ends need, by name. It returns when its front end has
// ended.
func (f *fronts) serving(p *ports, who *callers, opt *Options) map[string]func() error {
	all := map[string]func() error{
		"peer":     func() error { return f.peer.Serve(p.peer) },
		"gRPC":     func() error { return f.grpc.Serve(f.port.Listener(clientport.GRPC)) },
		"HTTP":     func() error { return f.http.Serve(f.port.Listener(clientport.HTTP)) },
		"text":     func() error { return f.text.Serve(f.port.Listener(clientport.Text)) },
		"sessions": func() error { return f.sessions.Serve(f.port.Listener(clientport.Sessions)) },
	}
	clients := newRoom(opt.Log, cmp.Or(opt.Connections, Connections), opt.Live.perAddress, f.tallies)
	if p.metrics != nil {
		probes := newRoom(opt.Log, mostProbes, opt.Live.perAddress, f.tallies) // of its own: strangers there take none from clients
		all["metrics"] = func() error { return f.probes.Serve(onlyRoom{Listener: probes.listener(p.metrics)}) }
	}
	if p.socket != nil {
		all["socket"] = func() error {
			return f.port.Serve(clients.listener(newSocketListener(p.socket, who.names.OfProcess, opt.Log)))
		}
	}
	for _, l := range p.clients {
		all["client port "+l.Addr().String()] = func() error { return f.port.Serve(clients.listener(l)) }
	}
	return all
}

// measure returns what the front ends have, for the metrics.
func (f *fronts) measure(secured *clientTLS, who *callers, audit auditor) metrics.Fronts {
	m := metrics.Fronts{
		Connections: map[string]int{}, Sessions: f.sessions.Sessions(), Tallies: f.tallies.All(),
		RulesVersion: who.Rules().Version(), AuditDropped: audit.Dropped(), Certificates: secured.certificateEnds(), Traces: f.traces.Counts(),
	}
	for class, n := range f.port.Open() {
		m.Connections[class.String()] = n
	}
	for _, s := range f.services {
		m.Watches += s.Watchers()
	}
	return m
}

// stop stops the front ends; calls in flight may be answered for endWait.
func (f *fronts) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	cut := context.AfterFunc(ctx, func() { f.grpc.Stop(); f.peer.Stop() })
	defer cut()
	f.port.Close() //nolint:errcheck // never fails
	var ending sync.WaitGroup
	for _, stop := range []func(context.Context){f.sockets.Stop, f.text.Stop, f.sessions.Stop} {
		ending.Go(func() { stop(ctx) })
	}
	for _, s := range []*http.Server{f.http, f.probes} {
		if err := s.Shutdown(ctx); err != nil {
			s.Close() //nolint:errcheck // they had their time
		}
	}
	ending.Wait()
	f.grpc.GracefulStop()
	f.peer.Stop()
}
