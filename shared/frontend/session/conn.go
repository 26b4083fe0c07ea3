// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxOverhead is what a message may have besides the data of an append, in bytes; and all that a stranger's may have
	// where the rules give strangers nothing.
	maxOverhead = 64 << 10
	// settingsWait is how long a client may take to send its settings.
	settingsWait = 10 * time.Second
	// endWait is how long a client may take to read the end of its session and to close.
	endWait = 2 * time.Second
	// chunk is how much is written at a time, in bytes.
	chunk = 256 << 10
	// maxCalls is how many calls of one connection may be without an answer. The client library
	// keeps to it.
	maxCalls     = 64
	statusMethod = "Status"
)

// conn is one connection. Its reading goroutine owns what is not said to be shared.
type conn struct {
	v   *Server
	c   net.Conn
	r   *frames.Reader
	out outbox // shared
	// write is the method writeOut: a func that is at hand costs no memory when a writer begins.
	write func()
	// ctx ends with the connection or the session.
	ctx    context.Context
	cancel context.CancelFunc
	// term is that of the session, nil before there is one. It is set by the reading goroutine with
	// Server.mu held.
	term serving.Term
	session

	// allowed is what the rules permit the caller; from is ctx with the caller, as it is from now on. stranger says
	// why its credential is none. leave ends the attention to whether the credential was revoked.
	allowed  service.Permission
	from     context.Context
	stranger error
	leave    func()

	// Shared from here on.

	// caller is whose connection it is, with the credential that it showed last. The reading goroutine sets it.
	caller atomic.Pointer[access.Caller]

	// heard is the number of the look (Server.looks) at which the client was heard last, and asked
	// that at which it sent a message; pinged is set until it is heard. paused is set while the
	// reading goroutine reads nothing because of this server: then silence is no sign.
	heard, asked   atomic.Int64
	pinged, paused atomic.Bool
	// settled is set when the server's settings are the next frame to be sent, or sent.
	settled atomic.Bool
	// ended is set when the server has ended the session: what comes still is not looked at.
	ended   atomic.Bool
	pending atomic.Int64 // calls
	helpers sync.WaitGroup
}

func newConn(v *Server, c net.Conn) *conn {
	x := &conn{v: v, c: c}
	x.r = frames.NewReader(hearing{x}, maxOverhead)
	x.out.spare = &v.spare
	x.write = x.writeOut
	x.ctx, x.cancel = context.WithCancel(serving.WithRemote(v.ctx, c.RemoteAddr()))
	x.from, x.allowed, x.leave = serving.WithCallers(x.ctx, x.caller.Load), v.s.Permission(nil, c.RemoteAddr()), func() {}
	x.drained, x.few = wake.NewSignal(), make(chan struct{}, fewHelpers)
	x.heard.Store(v.looks.Load())
	x.asked.Store(v.looks.Load())
	// Last: after a pause of the process it may be called at once.
	serving.WhenUnproven(c.RemoteAddr(), func() { x.end(cluster.StatusUnauthenticated, serving.Unproven) })
	return x
}

// serve serves the connection until either side ends it.
func (x *conn) serve() {
	stopLooking := x.v.s.OnNewRules(x.leaveQueues)
	err := x.begin()
	for err == nil {
		x.waitForCapacity()
		err = x.next()
	}
	if !errors.Is(err, io.EOF) && !x.ended.Load() {
		x.v.log.Debug().Err(err).Stringer("client", x.c.RemoteAddr()).Msg("connection breaks")
	}
	// Also where only the client's side is closed: whoever is there no more keeps no place.
	x.gone.Store(true)
	x.stopLosses()
	if x.entered != nil {
		x.entered()
	}
	x.leave()
	stopLooking()
	x.abort()
	x.helpers.Wait()
}

// begin reads the preface and exchanges settings.
func (x *conn) begin() error {
	_ = x.c.SetReadDeadline(time.Now().Add(settingsWait)) // a connection without deadlines has none to keep
	if err := x.r.Skip(frames.Preface); err != nil {
		return err
	}
	kind, b, _, err := x.r.Next()
	if err != nil {
		return err
	}
	theirs := &pb.Settings{}
	if kind != frames.Settings {
		return fmt.Errorf("the first frame is of kind %d and not the settings", kind)
	}
	if err := proto.Unmarshal(b, theirs); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	_ = x.c.SetReadDeadline(time.Time{})
	var caller *access.Caller
	caller, x.stranger = x.v.s.Authenticate(theirs.GetCredential(), x.c.RemoteAddr())
	e, _ := errors.AsType[*wire.Error](x.stranger)
	notNow := e != nil && e.Status != cluster.StatusUnauthenticated
	mine := &pb.Settings{Version: frames.Version, ServerId: uint32(x.v.s.Self()), ClusterId: x.v.s.Cluster()}
	if notNow { // the client library comes again then
		mine.RetryAfterMs = wire.CeilMillis(e.RetryAfter)
	}
	ours, err := proto.Marshal(mine)
	if err != nil {
		return err
	}
	x.start(x.out.putFrame(frames.Settings, ours))
	x.settled.Store(true)
	if notNow {
		x.end(e.Status, e.Message)
		return nil
	}
	// Behind the settings, which are the first frame. A stranger may still ask where the primary is.
	x.setCaller(caller)
	if x.stranger == nil && x.v.s.Stranger(caller) == nil {
		x.r.Limit(cluster.MaxAppend + maxOverhead)
	}
	if theirs.GetVersion() == 0 {
		x.end(cluster.StatusInvalidArgument, "settings without a version: use 1")
	}
	return nil
}

// setCaller makes the connection, and what is under way on it, the caller's.
func (x *conn) setCaller(c *access.Caller) {
	x.caller.Store(c)
	x.allowed = x.v.s.Permission(c, x.c.RemoteAddr())
	x.leave()
	x.leave = x.v.s.OnRevoked(x.from, func(e *wire.Error) { x.end(e.Status, e.Message) })
}

// refuses returns why the connection may have no session, nil if it may.
func (x *conn) refuses() error {
	if x.stranger != nil {
		return x.stranger
	}
	return x.allowed.Check(access.Keep, "", "")
}

// renewCredential takes another credential of the same identity for the connection.
func (x *conn) renewCredential(credential string) error {
	c, err := x.v.s.Authenticate(credential, x.c.RemoteAddr())
	if was := x.caller.Load().Name(); err == nil && c.Name() != was {
		err = fmt.Errorf("the credential is of %s, and the connection of %s", c.Name(), was)
	}
	if err == nil {
		x.setCaller(c)
	}
	return err
}

// next handles one frame.
func (x *conn) next() error {
	kind, b, own, err := x.r.Next()
	if err != nil {
		return err
	}
	if kind == frames.Message {
		x.asked.Store(x.v.looks.Load())
	}
	switch {
	case x.ended.Load():
	case kind == frames.Message:
		if err := x.message(b, own); err != nil {
			x.end(cluster.StatusInvalidArgument, err.Error())
		}
	case kind == frames.Ping && len(b) <= frames.MaxPing:
		x.start(x.out.putFrame(frames.Pong, b))
	}
	return nil
}

// hearing is what the frames of a connection are read from. Bytes are a sign of life: a long frame may
// take long.
type hearing struct{ x *conn }

func (h hearing) Read(b []byte) (int, error) {
	n, err := h.x.c.Read(b)
	if n > 0 {
		h.x.alive()
	}
	return n, err
}

// alive notes a sign of life.
func (x *conn) alive() {
	if now := x.v.looks.Load(); x.heard.Load() != now {
		x.heard.Store(now)
		x.pinged.Store(false)
	}
}

// start begins a writer, if need be.
func (x *conn) start(begin bool) {
	if begin {
		go x.write() // ends with the connection: writing fails then
	}
}

// writeOut writes what waits.
func (x *conn) writeOut() {
	// Writers of files answer one by one: let those that are about to do so first.
	runtime.Gosched()
	for p := x.out.take(); p != nil; p = x.out.take() {
		if err := x.writeFrame(p.b); err != nil {
			x.abort()
			return
		}
		x.inFlight.Add(-p.n)
		last := p.last
		x.out.sentFrame(p)
		if last {
			x.closeWriting()
			return
		}
	}
}

// writeFrame writes a frame. Where much waits for the client, it is a sign of life that the connection
// takes some of it: the kernel keeps only so much.
func (x *conn) writeFrame(b []byte) error {
	for len(b) > 0 {
		n, err := x.c.Write(b[:min(len(b), chunk)])
		if err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 || x.out.has(chunk) {
			x.alive()
		}
	}
	return nil
}

// closeWriting ends a connection behind its last frame. The client closes its side, or is cut off.
func (x *conn) closeWriting() {
	half, ok := x.c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || x.c.SetReadDeadline(time.Now().Add(endWait)) != nil {
		x.c.Close() //nolint:errcheck // the client is told what it has to know
	}
}

// end ends the connection with a last message, which says why. It may be called by any goroutine.
func (x *conn) end(status cluster.Status, message string) {
	x.ended.Store(true)
	// A client that does not read does not keep the connection.
	_ = x.c.SetDeadline(time.Now().Add(endWait)) // what has no deadlines is closed behind the end
	x.start(x.out.finish(&pb.SessionResponse{End: x.detail(status, message)}))
	x.cancel()
}

// abort closes the connection at once. It may be called by any goroutine.
func (x *conn) abort() {
	x.out.drop()
	x.cancel()
	x.c.Close() //nolint:errcheck // nothing is left to say
}

// look pings or closes the connection if it is silent. It is called with Server.mu held.
func (x *conn) look(now int64) {
	silence := now - x.heard.Load()
	switch {
	case !x.settled.Load(): // it has settingsWait, and the settings are the first frame
	case x.paused.Load():
		x.heard.Store(now) // by our own choice
	case silence >= silent && x.pinged.Load():
		x.abort()
	case x.term == nil && now-x.asked.Load() >= idle && x.pending.Load() == 0:
		x.abort()
	case silence >= quiet && !x.pinged.Swap(true):
		x.start(x.out.putFrame(frames.Ping, nil))
	}
}

// call executes a call and sends its result.
func (x *conn) call(q *pb.Call) {
	limit := int64(maxCalls)
	if q.GetMethod() == statusMethod {
		limit *= 2 // other calls, which may wait for the volume, do not hide that the server is there
	}
	if x.pending.Add(1) > limit {
		x.pending.Add(-1)
		x.returns(q, nil, status.Errorf(codes.Unavailable, "this connection has %d calls under way", maxCalls))
		return
	}
	if o := ops.OfMethod(q.GetMethod()); x.stranger != nil && (o == nil || !o.Open()) {
		x.pending.Add(-1)
		_, err := wire.Unary(service.Refusal(x.stranger))
		x.returns(q, nil, err)
		return
	}
	x.helpers.Go(func() {
		b, err := grpcapi.Call(x.from, x.v.s, q.GetMethod(), q.GetClusterId(), q.GetRequest())
		x.pending.Add(-1) // before the client hears that it may send another one
		x.returns(q, b, err)
	})
}

// returns sends the result of a call.
func (x *conn) returns(q *pb.Call, b []byte, err error) {
	r := wire.ReturnOf(b, err)
	r.Correlation = q.GetCorrelation()
	x.put(&pb.SessionResponse{Returns: []*pb.Return{r}}, false)
}

// put sends m with the next message.
func (x *conn) put(m *pb.SessionResponse, counts bool) { x.start(x.out.put(m, counts)) }

// detail returns why a session ends or does not begin, and what the client should do.
func (x *conn) detail(status cluster.Status, message string) *pb.ErrorDetail {
	d := &pb.ErrorDetail{Status: pb.Status(status), Message: message}
	d.Primary, d.RetryAfterMs = x.v.s.Advice(status)
	return d
}

// waitForCapacity waits until there is room for more of what the client sends: a client that does
// not read is not read either, nor one that has sent much that waits for the volume. It is called
// by the reading goroutine.
func (x *conn) waitForCapacity() {
	for x.ctx.Err() == nil {
		sent := x.out.unread(maxUnread)
		if sent == nil && x.bytes.Load() <= maxBytes {
			return
		}
		x.paused.Store(sent == nil) // a client that does not read may be gone
		select {
		case <-sent: // nil waits for nothing
		case <-x.drained:
		case <-x.ctx.Done():
		}
		x.paused.Store(false)
	}
}

// runHelper runs f in a goroutine of its own. The reading goroutine waits while there are many.
func (x *conn) runHelper(f func()) {
	x.waitForCapacity()
	x.paused.Store(true)
	defer x.paused.Store(false)
	select {
	case x.few <- struct{}{}:
	case <-x.ctx.Done():
		return // the client is gone
	}
	x.helpers.Go(func() {
		defer func() { <-x.few }()
		f()
	})
}
