// SPDX-License-Identifier: Apache-2.0

package holdfasttest

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/session"
	"github.com/holdfast-lock/holdfast/shared/frontend/text"
	"github.com/holdfast-lock/holdfast/shared/frontend/ws"
	"github.com/holdfast-lock/holdfast/shared/nettest"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// Sizes of the log, in bytes: one append more than a batch fits into a segment.
const (
	maxBatch = 128 << 10
	segment  = 2 << 20
)

// timing has no waits that matter only where servers have machines and disks of their own.
func timing() cluster.Timing {
	t := cluster.DefaultTiming()
	t.Heartbeat, t.Suspicion, t.FencingPeriod = 20*time.Millisecond, 200*time.Millisecond, 0
	t.MinTTL = 100 * time.Millisecond
	return t
}

// member is one server. Its port is open from Start to the end of the test, also while the server does not run: then
// connections are closed at once.
type member struct {
	s        *Server
	id       cluster.ServerID
	listener net.Listener
	// apart is cut while the server is in a partition of its own.
	apart *nettest.Gate
	// loop is what accepts.
	loop sync.WaitGroup

	mu struct {
		sync.Mutex
		running *running // nil while it does not
	}
}

// running is one process of a server.
type running struct {
	host  *volumetest.Host
	node  *node.Node
	jumps chan primary.Jump
	stop  context.CancelCauseFunc
	fronts
	all sync.WaitGroup
}

// fronts are the front ends for clients. (Those of package cmd/holdfast/serve need the files of a host.)
type fronts struct {
	port     *clientport.Port
	grpc     *grpc.Server
	http     *http.Server
	sockets  *ws.Server
	lines    *text.Server
	sessions *session.Server
	in       *conns
}

func newMember(s *Server, id cluster.ServerID, l net.Listener) *member {
	m := &member{s: s, id: id, listener: l, apart: nettest.NewGate()}
	m.loop.Go(m.accept)
	return m
}

// accept hands connections to the process that runs.
func (m *member) accept() {
	for {
		c, err := m.listener.Accept()
		if err != nil {
			return
		}
		x := m.process()
		if x == nil || !x.in.deliver(through(c, m.s.paused, m.apart)) {
			c.Close() //nolint:errcheck // nothing was said
		}
	}
}

func (m *member) process() *running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.running
}

var errStopped = errors.New("the test has stopped this server")

// start starts a process.
func (m *member) start() error {
	x := &running{host: m.s.disk.Host(int(m.id), volumetest.ProfileLocal()), jumps: make(chan primary.Jump)}
	var err error
	x.node, err = node.New(node.Options{
		Server: m.id, FS: x.host, Address: m.listener.Addr().String(), Timing: timing(), Peers: peers{m.s, m.id}, Log: zerolog.Nop(),
		Random: rand.Reader, Rand: mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64())),
		Version: "holdfasttest", Path: "in memory", FirstSegment: segment, Segment: segment, MaxBatch: maxBatch, Jumps: x.jumps,
	})
	if err != nil {
		x.host.Kill()
		return err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	x.stop = stop
	x.serve(m)
	x.all.Go(func() { x.node.Run(ctx) }) //nolint:errcheck // it ends with its context, or is seen not to serve
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.running = x
	return nil
}

// serve starts the front ends.
func (x *running) serve(m *member) {
	log := zerolog.Nop()
	service := func() *service.Service {
		return service.New(x.node, service.Options{Authenticator: m.s.auth, Prover: m.s.auth})
	}
	x.in = &conns{addr: m.listener.Addr(), next: make(chan net.Conn), closed: make(chan struct{})}
	x.port, x.grpc = clientport.New(log, x.node.Late), grpc.NewServer(grpcapi.Options()...)
	calls, sessions, pages := service(), service(), service()
	x.port.DemandIdentity(calls.DemandsIdentity)
	grpcapi.Register(x.grpc, calls)
	x.sessions = session.New(sessions, log)
	h := httpapi.New(pages, httpapi.Options{Log: log})
	x.sockets, x.lines, x.http = ws.New(h.Door(), ws.Options{Log: log}), text.New(h.Door()), h.Server()
	sockets := h.Authenticated(x.sockets)
	x.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == ws.Path {
			sockets.ServeHTTP(w, r)
		} else {
			h.ServeHTTP(w, r)
		}
	})
	for _, serve := range []func() error{
		func() error { return x.port.Serve(x.in) },
		func() error { return x.grpc.Serve(x.port.Listener(clientport.GRPC)) },
		func() error { return x.http.Serve(x.port.Listener(clientport.HTTP)) },
		func() error { return x.lines.Serve(x.port.Listener(clientport.Text)) },
		func() error { return x.sessions.Serve(x.port.Listener(clientport.Sessions)) },
	} {
		x.all.Go(func() { serve() }) //nolint:errcheck // it ends with the port
	}
}

// kill ends the process as kill -9 does, and waits until nothing of it is left.
func (m *member) kill() {
	m.mu.Lock()
	x := m.mu.running
	m.mu.running = nil
	m.mu.Unlock()
	if x == nil {
		return
	}
	x.host.Kill()
	x.stop(errStopped)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	x.in.Close()   //nolint:errcheck // never fails
	x.port.Close() //nolint:errcheck // never fails
	x.sockets.Stop(now)
	x.lines.Stop(now)
	x.sessions.Close()
	x.http.Close() //nolint:errcheck // it is over in any case
	x.grpc.Stop()
	x.all.Wait()
}

// end ends the process and closes the port.
func (m *member) end() {
	m.listener.Close() //nolint:errcheck // once
	m.kill()
	m.loop.Wait()
}

// conns is a listener for connections that were accepted already.
type conns struct {
	addr   net.Addr
	next   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// deliver hands a connection over. It returns false if the listener is closed.
func (l *conns) deliver(c net.Conn) bool {
	select {
	case l.next <- c:
		return true
	case <-l.closed:
		return false
	}
}

// Accept implements net.Listener.
func (l *conns) Accept() (net.Conn, error) {
	select {
	case c := <-l.next:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *conns) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *conns) Addr() net.Addr { return l.addr }
