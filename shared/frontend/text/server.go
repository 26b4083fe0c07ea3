// SPDX-License-Identifier: Apache-2.0

package text

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// ErrStopped is returned by Serve after Stop was called.
var ErrStopped = errors.New("the line protocol front end was stopped")

const (
	// maxConns bounds the connections.
	maxConns = 1024
	// closeWait is how long a client may take to read its last answer.
	closeWait = 200 * time.Millisecond
)

// Server is the front end: its connections, and their end.
type Server struct {
	s Service
	// served counts the goroutines of connections.
	served sync.WaitGroup

	mu struct {
		sync.Mutex
		listener net.Listener // nil before Serve
		conns    map[*conn]bool
		stopped  bool
	}
	// ctx is the context of all calls. It ends when Stop has no more time for them.
	ctx    context.Context
	cancel context.CancelFunc
}

// New returns a front end over s.
func New(s Service) *Server {
	x := &Server{s: s}
	x.mu.conns = map[*conn]bool{}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// Serve serves until Stop is called, and then returns ErrStopped, or until it cannot go
// on. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close() //nolint:errcheck // it is not used any more
	if !s.begin(l) {
		return ErrStopped
	}
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.admit(nc)
		case s.ctx.Err() != nil || s.stopped():
			return ErrStopped
		default:
			return err
		}
	}
}

func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.listener = l
	return !s.mu.stopped
}

func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopped
}

// admit begins to serve a connection, or answers ERROR and closes it if there is no room.
func (s *Server) admit(nc net.Conn) {
	c := newConn(nc, s.s)
	if !s.room(c) {
		// A new connection takes these few bytes without waiting.
		_ = nc.SetWriteDeadline(time.Now().Add(closeWait))
		_, _ = nc.Write([]byte(failed + "\n"))
		nc.Close() //nolint:errcheck // it is not served
		return
	}
	left, leave := context.WithCancelCause(s.ctx)
	go func() {
		defer s.served.Done()
		c.read(left, leave)
	}()
	go func() {
		defer s.served.Done()
		c.answer(s.ctx, left, leave)
		leave(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.conns, c)
	}()
}

// room registers a connection and reports whether there was room for it. It is counted here,
// before Stop waits.
func (s *Server) room(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped || len(s.mu.conns) >= maxConns {
		return false
	}
	s.mu.conns[c] = true
	s.served.Add(2)
	return true
}

// Stop ends the front end. No line is read any more. What was read is answered until
// ctx ends; then it is an ERROR, and all connections are closed when Stop returns.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.mu.stopped = true
	if s.mu.listener != nil {
		s.mu.listener.Close() //nolint:errcheck // Serve may have done so
	}
	for c := range s.mu.conns {
		c.stop()
	}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		s.cancel()
		time.AfterFunc(closeWait, s.closeAll)
	})()
	s.served.Wait()
	s.cancel()
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.nc.Close() //nolint:errcheck // it had its time
	}
}
