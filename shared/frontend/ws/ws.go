// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Path is the path at which clients connect.
const Path = "/v1/ws"

// Protocol is the name of the protocol. A client may leave it out, unless it offers its credential as another one, see
// httpapi.Handler.Authenticated.
const Protocol = "holdfast.v1"

const (
	// closeWait is how long a client may take to answer a close frame.
	closeWait = 3 * time.Second
	// bodyWait is how long a refusal may take to be written.
	bodyWait = 10 * time.Second
)

// Limits bound what clients may do. 0 means the default.
type Limits struct {
	Connections int           // at a time; one too many is answered 503
	Message     int64         // bytes of what a client sends: an append in base64, and its fields
	InFlight    int           // operations of a connection without an answer, except acquires that wait
	Bytes       int64         // of the messages of both
	Waiting     int           // acquires of a connection that wait
	Watches     int           // of a connection
	Unread      int           // bytes that wait to be sent to a client
	Idle        time.Duration // without a pong
	Write       time.Duration // for a client to read 64 KiB
}

func (l Limits) orDefault() Limits {
	return Limits{
		Connections: cmp.Or(l.Connections, 1000),
		Message:     cmp.Or(l.Message, 3<<19),
		InFlight:    cmp.Or(l.InFlight, 256),
		Bytes:       cmp.Or(l.Bytes, 16<<20),
		Waiting:     cmp.Or(l.Waiting, 1024),
		Watches:     cmp.Or(l.Watches, 256),
		Unread:      cmp.Or(l.Unread, 4<<20),
		Idle:        cmp.Or(l.Idle, 30*time.Second),
		Write:       cmp.Or(l.Write, 10*time.Second),
	}
}

// Options are what a Server needs besides its door.
type Options struct {
	Log zerolog.Logger
	// Pages says which pages of other origins are admitted; nil = none.
	Pages  *origins.Policy
	Limits Limits
}

// Server is the WebSocket front end, as the http.Handler of Path: its connections, and their end.
type Server struct {
	door *httpapi.Door
	opt  Options

	mu struct {
		sync.Mutex
		conns    map[*conn]struct{}
		opening  int // connections that are not in conns yet
		stopping bool
	}
	serving sync.WaitGroup // connections
}

// New returns a front end over door.
func New(door *httpapi.Door, opt Options) *Server {
	opt.Limits = opt.Limits.orDefault()
	if opt.Pages == nil {
		opt.Pages = origins.New(nil)
	}
	s := &Server{door: door, opt: opt}
	s.mu.conns = map[*conn]struct{}{}
	return s
}

// Stop ends the front end: there is no further handshake. Each connection gets the answers of its pending operations, except
// acquires that wait, and then a close frame; when ctx ends it is cut.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.mu.stopping = true
	s.mu.Unlock()
	answers, cancel := beforeDeadline(ctx)
	defer cancel()
	for _, x := range s.connections() {
		go func() {
			select {
			case <-x.pending.quiet():
			case <-answers.Done():
			}
			x.out.end(goingAway())
		}()
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.serving.Wait()
	}()
	select {
	case <-over:
	case <-ctx.Done():
		for _, x := range s.connections() {
			x.cut()
		}
	}
}

func (s *Server) connections() (all []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.mu.conns {
		all = append(all, x)
	}
	return all
}

func goingAway() websocket.CloseError {
	return websocket.CloseError{Code: websocket.StatusGoingAway, Reason: "this server stops: connect to another one"}
}

// beforeDeadline returns a context that ends before ctx does, so that there is time left for a close
// frame.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if at, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, at.Add(-time.Until(at)/4))
	}
	return context.WithCancel(ctx)
}

// ServeHTTP makes a connection, and serves it until it ends.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.opt.Pages.Handshake(r); err != nil {
		refuse(w, http.StatusForbidden, cluster.StatusPermissionDenied, err.Error())
		return
	}
	if status, why := s.open(); why != "" {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, status, why)
		return
	}
	defer s.serving.Done()
	h := &hijacked{ResponseWriter: w}
	c, err := websocket.Accept(h, r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: []string{Protocol}}) // pages did it
	if err != nil {
		s.admit(nil)
		return // Accept has answered
	}
	c.SetReadLimit(s.opt.Limits.Message)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	cut := func() {
		cancel()
		h.conn.Close() //nolint:errcheck // it may have ended
	}
	defer cut()
	x := newConn(s, c, cut)
	defer s.door.OnRevoked(ctx, func(e *wire.Error) {
		x.out.end(websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: e.Message})
	})()
	serving.WhenUnproven(serving.RemoteOf(ctx), func() {
		x.out.end(websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: serving.Unproven})
	})
	s.admit(x)
	defer s.leave(x)
	err = x.serve(ctx)
	s.opt.Log.Debug().Err(err).Str("remote", r.RemoteAddr).Msg("WebSocket connection ended")
}

// hijacked keeps the connection that a handshake takes over. To close it ends every read and write,
// also those without a context.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, b, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = c
	return c, b, err
}

// open counts a connection, or returns the status and message of its refusal.
func (s *Server) open() (cluster.Status, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.stopping:
		return cluster.StatusSecondaryMode, "this server stops"
	case len(s.mu.conns)+s.mu.opening >= s.opt.Limits.Connections:
		return cluster.StatusStorageUnavailable, fmt.Sprintf("this server has %d connections already", s.opt.Limits.Connections)
	}
	s.mu.opening++
	s.serving.Add(1)
	return cluster.StatusOK, ""
}

// admit registers a connection after its handshake, or nil if that failed.
func (s *Server) admit(x *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.opening--
	if x == nil {
		return
	}
	s.mu.conns[x] = struct{}{}
	if s.mu.stopping { // Stop has not seen it
		x.out.end(goingAway())
	}
}

func (s *Server) leave(x *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, x)
}

// refuse answers a handshake as HTTP answers a refusal.
func refuse(w http.ResponseWriter, code int, status cluster.Status, message string) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWait)) // not everything that calls a handler has deadlines
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(refusal(&wire.Error{Status: status, Message: message}))
}

// refusal returns the answer for an error.
func refusal(e *wire.Error) []byte { return encode(wire.BodyOf(e.Answer())) }

// encode returns JSON. It panics for what cannot be encoded: v is made of numbers and strings.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}
