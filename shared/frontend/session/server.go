// SPDX-License-Identifier: Apache-2.0

// Package session serves the connections of the client library. A connection carries frames (package
// shared/wire/frames): settings, calls such as Status, and, where this server is primary, one
// session, which is the operations, keep-alives, losses and watches of one client within one term.
//
// Operations are submitted to the term without waiting for them, and their answers are sent as they
// come, many in one frame. Nothing is bound to the connection: what a client holds or waits for lives
// by its keep-alives, over any connection or call.
//
// A connection has one goroutine, which reads. Another one writes, only while there is something to
// write, and each pending call, keep-alive and query has one of its own. The server has one goroutine
// that looks for silent connections, and one for each term, which ends its sessions.
package session

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// lookEvery is how often the server looks for silent connections.
	lookEvery = time.Second
	// quiet is after how many looks without a word a connection is pinged, and silent after how
	// many it is closed: a client that vanished keeps no places in queues.
	quiet  = 10
	silent = 15
	// idle is after how many looks without a message a connection without a session is closed:
	// clients that looked for the primary leave them behind.
	idle = 30
	// stopEvery is how often Stop looks whether the connections have ended.
	stopEvery = 10 * time.Millisecond
)

// Server serves connections of one server. Make it with New and end it with Close.
type Server struct {
	s      *service.Service
	log    zerolog.Logger
	spare  sync.Pool    // of *outFrame
	looks  atomic.Int64 // how often silent connections were looked for
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		conns map[*conn]struct{}
		terms map[serving.Term]struct{} // those that a goroutine waits for the end of
		// looking is set while a goroutine looks for silent connections.
		looking, closed bool
	}
	work sync.WaitGroup
}

// New returns a server of a service.
func New(s *service.Service, log zerolog.Logger) *Server {
	v := &Server{s: s, log: log}
	v.spare.New = func() any { return &outFrame{} }
	v.mu.conns, v.mu.terms = map[*conn]struct{}{}, map[serving.Term]struct{}{}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v
}

// Serve serves the connections that a listener accepts until that fails, and returns why.
func (v *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		v.ServeConn(c)
	}
}

// ServeConn serves one connection, from its preface on, in the background.
func (v *Server) ServeConn(c net.Conn) {
	x := newConn(v, c)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.closed {
		c.Close() //nolint:errcheck // nothing was said
		return
	}
	v.mu.conns[x] = struct{}{}
	if !v.mu.looking {
		v.mu.looking = true
		v.work.Go(v.look)
	}
	v.work.Go(func() {
		x.serve()
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.mu.conns, x)
	})
}

// Stop takes no connection any more and closes all: those with a session when their client has read
// its end, where the term has ended, or when ctx ends.
func (v *Server) Stop(ctx context.Context) {
	v.mu.Lock()
	v.mu.closed = true
	for x := range v.mu.conns {
		if x.term == nil {
			x.abort()
		}
	}
	v.mu.Unlock()
	t := time.NewTicker(stopEvery)
	defer t.Stop()
	for !v.empty() {
		select {
		case <-t.C:
		case <-ctx.Done():
			v.Close()
			return
		}
	}
	v.Close()
}

// Sessions returns how many connections have a session.
func (v *Server) Sessions() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for x := range v.mu.conns {
		if x.term != nil {
			n++
		}
	}
	return n
}

// empty reports whether there is no connection.
func (v *Server) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.mu.conns) == 0
}

// Close closes all connections and waits until nothing of them is left.
func (v *Server) Close() {
	v.mu.Lock()
	v.mu.closed = true
	for x := range v.mu.conns {
		x.abort()
	}
	v.mu.Unlock()
	v.cancel()
	v.work.Wait()
}

// look closes connections that are silent, while there are any connections.
func (v *Server) look() {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-v.ctx.Done():
			return
		}
		now := v.looks.Add(1)
		v.mu.Lock()
		if v.mu.looking = len(v.mu.conns) > 0; !v.mu.looking {
			v.mu.Unlock()
			return
		}
		for x := range v.mu.conns {
			x.look(now)
		}
		v.mu.Unlock()
	}
}

// join notes that a connection has a session within a term, and has it end with the term.
func (v *Server) join(x *conn, t serving.Term) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x.term = t
	if _, ok := v.mu.terms[t]; ok || v.mu.closed {
		return
	}
	v.mu.terms[t] = struct{}{}
	v.work.Go(func() {
		select {
		case <-t.Ended():
		case <-v.ctx.Done():
			return
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.mu.terms, t)
		for x := range v.mu.conns {
			if x.term == t {
				x.end(cluster.StatusSecondaryMode, "the term ended: what has no answer is UNKNOWN")
			}
		}
	})
}
