// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// connectTime is how long a connection may take to be made.
	connectTime = time.Second
	// redialBase and redialCap bound how long a server that could not be connected to is not tried
	// again: with jitter, so that the clients of a primary that died do not come back together.
	redialBase = 10 * time.Millisecond
	redialCap  = 75 * time.Millisecond
	// sessionless is after how long a server that had no sessions is tried again.
	sessionless = 15 * time.Second
	// maxTurns is how many calls may be under way on one connection; the service takes no more.
	maxTurns = 64
)

// conduit carries frames between this client and one server.
type conduit interface {
	// Send writes a whole frame. One goroutine at a time sends.
	Send(b []byte) error
	// Recv returns the next frame. The payload is valid until the next call.
	Recv() (frames.Kind, []byte, error)
	// Close ends both. Any goroutine may call it, at any time.
	Close() error
}

// framed is a conduit over a connection.
type framed struct {
	net.Conn
	r *frames.Reader
}

func (f *framed) Send(b []byte) error {
	_, err := f.Write(b)
	return err
}

func (f *framed) Recv() (frames.Kind, []byte, error) {
	kind, b, _, err := f.r.Next()
	return kind, b, err
}

// dialer makes connections.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// dialNetwork is the dialer without Options.Dialer.
func dialNetwork(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Control: noticeBreaks}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			path = rest
		}
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// framed connects to a server and sends the settings.
func (d dialer) framed(ctx context.Context, addr string) (conduit, error) {
	c, err := d(ctx, addr)
	if err != nil {
		return nil, err
	}
	settings, err := proto.Marshal(&pb.Settings{Version: frames.Version})
	if err == nil {
		_, err = c.Write(frames.Append([]byte(frames.Preface), frames.Settings, settings))
	}
	if err != nil {
		c.Close() //nolint:errcheck // nothing was said
		return nil, err
	}
	return &framed{c, frames.NewReader(c, maxAnswer)}, nil
}

// opening is a connection that is being made.
type opening struct {
	done chan struct{}
	s    *session // after done, nil where err is not
	err  error
}

// connecting is what a server knows of its connections.
type connecting struct {
	mu    sync.Mutex
	under *opening // nil while none is being made
	// failures counts those in a row; until notBefore, on the client's clock, a caller gets err.
	failures  int
	notBefore time.Duration
	err       error
}

// connect returns the connection to a server. It waits, until ctx ends, for one that is being made.
// The error is errNoSession if the server has none, else a *retry.UnsentError.
func (c *Client) connect(ctx context.Context, to *server) (*session, error) {
	if s := to.link.Load(); s != nil {
		return s, nil
	}
	if c.opt.Clock.Now() < time.Duration(to.sessionless.Load()) {
		return nil, errNoSession
	}
	o, err := c.opening(to)
	if err != nil {
		return nil, &retry.UnsentError{Err: err}
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, &retry.UnsentError{Err: status.FromContextError(ctx.Err()).Err()}
	}
	if o.err != nil && !errors.Is(o.err, errNoSession) {
		return nil, &retry.UnsentError{Err: o.err}
	}
	return o.s, o.err
}

// opening returns the connection that is being made to a server, and begins with one if there is
// none, unless the last one has just failed.
func (c *Client) opening(to *server) (*opening, error) {
	to.connecting.mu.Lock()
	defer to.connecting.mu.Unlock()
	switch {
	case to.connecting.under != nil:
		return to.connecting.under, nil
	case c.linked.Err() != nil:
		return nil, status.Error(codes.Canceled, ErrClosed.Error())
	case c.opt.Clock.Now() < to.connecting.notBefore:
		return nil, to.connecting.err
	}
	if s := to.link.Load(); s != nil { // made meanwhile
		done := make(chan struct{})
		close(done)
		return &opening{done: done, s: s}, nil
	}
	o := &opening{done: make(chan struct{})}
	to.connecting.under = o
	c.links.Go(func() { c.open(to, o) })
	return o, nil
}

// open makes a connection, and reads it until it ends.
func (c *Client) open(to *server, o *opening) {
	ctx, cancel := context.WithTimeout(c.linked, connectTime)
	conn, err := to.dial(ctx, to.addr)
	cancel()
	if err != nil {
		if errors.Is(err, errNoSession) {
			c.noSession(to)
			o.err = errNoSession
		} else {
			o.err = status.Error(codes.Unavailable, fmt.Sprintf("connecting to %s: %v", to.addr, err))
		}
		c.opened(to, o)
		return
	}
	s := &session{LockServiceClient: to.stub, c: c, to: to, holder: c.holder, conn: conn, turns: make(chan struct{}, maxTurns)}
	s.ctx, s.cancel = context.WithCancel(c.linked)
	s.calls.Store(new([]*pendingCall))
	stop := context.AfterFunc(s.ctx, func() { conn.Close() }) //nolint:errcheck // it ends reading, whatever it returns
	defer stop()
	defer context.AfterFunc(c.life, s.endCalls)()
	o.s = s
	to.link.Store(s)
	c.opened(to, o)
	err = s.read()
	known, welcome := s.seen()
	s.fail(c.judgeEnd(to, err, known))
	conn.Close() //nolint:errcheck // it has ended
	if welcome {
		c.renewer.renewSoon()
	}
}

// opened notes how the making of a connection ended, and tells who waits for it.
func (c *Client) opened(to *server, o *opening) {
	to.connecting.mu.Lock()
	defer to.connecting.mu.Unlock()
	to.connecting.under = nil
	switch {
	case o.err == nil:
		to.connecting.failures = 0
	case !errors.Is(o.err, errNoSession):
		d := min(redialCap, redialBase<<min(to.connecting.failures, 3))
		to.connecting.failures++
		to.connecting.err = o.err
		to.connecting.notBefore = c.opt.Clock.Now() + d/2 + time.Duration(c.opt.Rand()%uint64(d/2))
	}
	close(o.done)
}

// route carries calls over the connection for sessions where that can take them, else by gRPC. It is
// the connection of a server's stub.
type route struct {
	c  *Client
	to *server
}

// quickMethod reports whether a method is answered so soon, and so briefly, that the operations of a
// session may share a connection with it.
func quickMethod(name string) bool {
	switch name {
	case pb.LockService_Status_FullMethodName, pb.LockService_OpenClient_FullMethodName, pb.LockService_ForgetClient_FullMethodName,
		pb.LockService_Verify_FullMethodName, pb.LockService_GetLock_FullMethodName, pb.LockService_Outcome_FullMethodName:
		return true
	}
	return false
}

// Invoke implements grpc.ClientConnInterface.
func (r route) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	if quickMethod(method) {
		s, err := r.c.connect(ctx, r.to)
		if err == nil {
			err = s.call(ctx, method[strings.LastIndexByte(method, '/')+1:], args.(proto.Message), reply.(proto.Message))
		}
		if !errors.Is(err, errNoSession) {
			return err
		}
	}
	conn, err := r.to.grpc()
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, method, args, reply, o...)
}

// NewStream implements grpc.ClientConnInterface.
func (r route) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, err := r.to.grpc()
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, d, method, o...)
}

// call makes a call over the connection. Its error is what gRPC's would be.
func (s *session) call(ctx context.Context, method string, args, reply proto.Message) error {
	request, err := proto.Marshal(args)
	if err != nil {
		return status.Error(codes.Internal, err.Error()) // as gRPC does
	}
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return &retry.UnsentError{Err: status.FromContextError(ctx.Err()).Err()}
	}
	defer func() { <-s.turns }()
	l, err := s.roundTrip(ctx, ownTime, len(request), func(b []byte, number uint64) ([]byte, error) {
		q := &pb.Call{Correlation: number, Method: method, Request: request, ClusterId: s.to.known.ID()}
		return wire.AppendRequest(b, &pb.SessionRequest{Calls: []*pb.Call{q}})
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return err
	}
	if err := wire.ReturnError(l.back); err != nil {
		return err
	}
	if err := proto.Unmarshal(l.back.GetResponse(), reply); err != nil {
		return status.Errorf(codes.Internal, "the answer of %s: %v", method, err)
	}
	return nil
}
