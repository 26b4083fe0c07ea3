// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// connectTime is how long a connection may take to be made, and settingsTime how long its server may take to say who
	// it is: longer than a server lets a connection wait that it will not serve (package clientport), so that none is
	// given up, and made again, while it waits.
	connectTime  = deafTime
	settingsTime = deafTime
	// redialBase and redialCap bound how long a server that could not be connected to is not tried
	// again: with jitter, so that the clients of a primary that died do not come back together.
	redialBase = 10 * time.Millisecond
	redialCap  = 75 * time.Millisecond
	// maxBusy bounds how long a server may ask its clients to stay away.
	maxBusy = 5 * time.Second
	// sessionless is after how long a server that had no sessions is tried again.
	sessionless = 15 * time.Second
	// maxTurns is how many calls may be under way on one connection; the service takes no more.
	maxTurns = 64
	// deafTime is how long calls may go unanswered, with nothing heard, before a connection is given
	// up: not every network says when one is broken.
	deafTime = 3 * time.Second
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
	// shown is the credential in the settings.
	shown string
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
func (s *servers) framed(ctx context.Context, addr string) (conduit, error) {
	c, err := s.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	over := context.AfterFunc(ctx, func() { c.Close() }) //nolint:errcheck // writing returns why it failed
	text, err := s.introduce(ctx, c)
	if !over() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close() //nolint:errcheck // nothing was said
		return nil, err
	}
	return &framed{c, frames.NewReader(c, maxAnswer), text}, nil
}

// introduce sends the settings, and returns the credential in them.
func (s *servers) introduce(ctx context.Context, c net.Conn) (text string, err error) {
	if text, err = credential.Source(s.c.opt.Credential).For(ctx, c); err != nil {
		return "", err
	}
	// A server that knows gRPC only reads 24 bytes before it closes the connection.
	settings, err := proto.Marshal(&pb.Settings{Version: frames.Version, Agent: "holdfast client library", Credential: text})
	if err != nil {
		return "", err
	}
	_, err = c.Write(frames.Append([]byte(frames.Preface), frames.Settings, settings))
	return text, err
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
	// silent counts the connections in a row that the other side closed without a word: an older
	// server does so, and once also one that stops. It belongs to what makes the connection.
	silent int
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

// connects reports whether a connection to a server is being made.
func (v *server) connects() bool {
	v.connecting.mu.Lock()
	defer v.connecting.mu.Unlock()
	return v.connecting.under != nil
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
	conn, err := c.greeted(to)
	if err != nil {
		o.err = status.Error(codes.Unavailable, fmt.Sprintf("connecting to %s: %v", to.addr, err))
		if other, ok := otherCluster(err); ok {
			o.err = other
		} else if busy, ok := errors.AsType[*busyError](err); ok {
			o.err = busy
		} else if errors.Is(err, errNoSession) {
			c.noSession(to)
			o.err = errNoSession
		}
		c.opened(to, o)
		return
	}
	s := &session{LockServiceClient: pb.NewLockServiceClient(noCalls{}), c: c, to: to, holder: c.holder, conn: conn, turns: make(chan struct{}, maxTurns)}
	s.ctx, s.cancel = context.WithCancel(c.linked)
	s.send = s.sendAll
	s.calls.Store(new([]*pendingCall))
	stop := context.AfterFunc(s.ctx, func() { conn.Close() }) //nolint:errcheck // it ends reading, whatever it returns
	defer stop()
	defer context.AfterFunc(c.life, s.endCalls)()
	if f, ok := conn.(*framed); ok && f.shown != "" {
		c.links.Go(func() { s.renewCredential(f) })
	}
	o.s = s
	to.link.Store(s)
	c.opened(to, o)
	s.fail(c.judgeEnd(to, s.read()))
	conn.Close() //nolint:errcheck // it has ended
	if s.welcomed() {
		c.renewer.renewSoon()
	}
}

// greeted makes a connection whose server has said who it is: what is sent before that is in doubt, and
// an older server closes the connection without a word. Then the error is errNoSession. It is a *busyError
// if the server takes no connection now.
func (c *Client) greeted(to *server) (conduit, error) {
	for {
		conn, err := c.greet(to)
		if !cutOff(err) {
			to.connecting.silent = 0
			return conn, err
		}
		if to.connecting.silent++; to.connecting.silent > 1 {
			to.connecting.silent = 0
			return nil, errNoSession
		}
	}
}

// greet makes a connection and reads the settings of the server.
func (c *Client) greet(to *server) (conduit, error) {
	dialing, dialed := context.WithTimeout(c.linked, connectTime)
	defer dialed()
	conn, err := to.dial(dialing, to.addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.linked, settingsTime)
	defer cancel()
	over := context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // reading returns why it failed
	kind, b, err := conn.Recv()
	if err == nil {
		err = to.settle(kind, b)
	}
	if !over() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		conn.Close() //nolint:errcheck // nothing was asked
		return nil, err
	}
	return conn, nil
}

// busyError is the error of a server that takes no connection now.
type busyError struct {
	addr  string
	after time.Duration // so long it asks its clients to stay away
	until time.Duration // so long this one does, on its clock; of connecting
}

func (e *busyError) Error() string {
	return fmt.Sprintf("connecting to %s: it has too many new connections, and asks to come again after %v", e.addr, e.after)
}

// GRPCStatus makes it an error of a server that cannot be reached.
func (e *busyError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// cutOff reports whether an error says that the other side closed a connection.
func cutOff(err error) bool {
	for _, e := range []error{io.EOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// settle notes who a server is, by the first frame that it sent.
func (v *server) settle(kind frames.Kind, b []byte) error {
	m := &pb.Settings{}
	if why := turnedAway(kind, b); why != "" {
		return fmt.Errorf("%s: %s", v.addr, why)
	}
	if kind != frames.Settings {
		return fmt.Errorf("%s: its first frame is of kind %d: this is no server of this service", v.addr, kind)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%s: %w", v.addr, err)
	}
	if after := wire.Millis(m.GetRetryAfterMs()); after > 0 {
		return &busyError{addr: v.addr, after: min(after, maxBusy)}
	}
	return v.checkCluster(m, nil)
}

// turnedAway returns why a server ends a connection before it says who it is, "" if it does not.
func turnedAway(kind frames.Kind, b []byte) string {
	m := &pb.SessionResponse{}
	if kind != frames.Message || proto.Unmarshal(b, m) != nil {
		return ""
	}
	return m.GetEnd().GetMessage()
}

// opened notes how the making of a connection ended, and tells who waits for it.
func (c *Client) opened(to *server, o *opening) {
	to.connecting.mu.Lock()
	defer to.connecting.mu.Unlock()
	to.connecting.under = nil
	busy, _ := errors.AsType[*busyError](o.err)
	switch {
	case o.err == nil:
		to.connecting.failures = 0
	case busy != nil:
		busy.until = c.opt.Clock.Now() + busy.after + time.Duration(c.opt.Rand()%uint64(busy.after))
		to.connecting.err, to.connecting.notBefore = busy, busy.until
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
		pb.LockService_Verify_FullMethodName, pb.LockService_Prove_FullMethodName, pb.LockService_GetLock_FullMethodName, pb.LockService_Outcome_FullMethodName:
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
	if inner, traceparent := untraced(ctx); traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(inner, wire.TraceparentKey, traceparent)
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
	began := s.c.opt.Clock.Now()
	l, err := s.roundTrip(ctx, ownTime, len(request), func(b []byte, number uint64) ([]byte, error) {
		q := &pb.Call{Correlation: number, Method: method, Request: request, ClusterId: s.to.known.ID()}
		return wire.AppendRequest(b, &pb.SessionRequest{Calls: []*pb.Call{q}})
	})
	switch {
	case err != nil && ctx.Err() != nil:
		s.unanswered(began)
		return status.FromContextError(ctx.Err()).Err()
	case err != nil && retry.OfError(err) == retry.OtherCluster:
		return err
	case err != nil: // whatever ended the session says nothing of calls
		return status.Error(codes.Unavailable, "the connection ended: "+err.Error())
	}
	if err := wire.ReturnError(l.back); err != nil {
		return err
	}
	if err := proto.Unmarshal(l.back.GetResponse(), reply); err != nil {
		return status.Errorf(codes.Internal, "the answer of %s: %v", method, err)
	}
	return nil
}

// unanswered notes that a call that began at a time, on the client's clock, was given up. It gives the
// connection up where nothing at all was heard for long.
func (s *session) unanswered(began time.Duration) {
	s.mu.Lock()
	if heard := time.Duration(s.heardAt.Load()); s.mu.unheard <= heard {
		s.mu.unheard = began
		if began <= heard {
			s.mu.unheard = 0
		}
	}
	deaf := s.mu.unheard > 0 && s.c.opt.Clock.Now()-s.mu.unheard >= deafTime
	s.mu.Unlock()
	if deaf {
		s.fail(context.DeadlineExceeded)
	}
}
