// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// sessionTick is how often a session checks what is unanswered, and so the unit in which it
	// counts for how long.
	sessionTick = 50 * time.Millisecond
	// openWait is how long a call waits for a session to open before it uses the connection
	// itself. The server does not have to answer for that.
	openWait = 10 * time.Millisecond
	// sessionRest is after how many ticks with nothing under way the checking ends.
	sessionRest = 20
	// maxFlights is how many operations of a session may be unanswered, one less than
	// what the service takes.
	maxFlights = 1<<16 - 1
	// sessionless is after how long a server that had no sessions is tried again.
	sessionless = time.Minute
	// maxMessage is the size in bytes up to which operations share a message. The
	// service takes no message that is longer than the largest append and some.
	maxMessage = 256 << 10
)

// errNoSession is the error of an operation that was not sent, because the server, or a proxy
// before it, has no sessions, or the session is full.
var errNoSession = errors.New("no session takes this")

// session carries the operations of a client to one server on one stream, many in one message. It
// does not outlive the term, nor an error: then every operation on it ends with the cause, and is
// sent again under the same request ID elsewhere.
//
// It is a pb.LockServiceClient, whose methods use the stream for what its messages can carry, and
// the connection otherwise.
type session struct {
	pb.LockServiceClient
	c      *Client
	to     *server
	client string // of the hello
	holder *pb.Holder
	cancel context.CancelFunc
	stream pb.LockService_SessionClient

	// Answers are delivered without mu, for which hundreds of callers may contend.
	calls  atomic.Pointer[[]*pendingCall] // all there are; replaced with mu held
	flying atomic.Int64
	now    atomic.Uint64 // ticks
	heard  atomic.Uint64 // tick of the last message
	// delivering is set while answers are handed out: requests that come meanwhile leave in one
	// message afterwards.
	delivering atomic.Bool

	mu struct {
		sync.Mutex
		err     error    // why it ended
		welcome bool     // the server has accepted the hello; requests may be executed earlier
		sending bool     // a goroutine sends; what is queued meanwhile goes with the next message
		queued  [][]byte // encoded SessionRequests, none much above maxMessage
		free    []*pendingCall
		ticking bool // the goroutine that counts ticks runs
	}
}

// pendingCall is one operation that waits for its answer. Whatever takes its number away ends it.
type pendingCall struct {
	// number is the correlation: the place in calls and how often it was used; 0
	// while it is not in use.
	number atomic.Uint64
	result chan callResult
	// Guarded by session.mu: the last number, when it began, and whether it may wait in a queue,
	// so that no answer for long is normal.
	last  uint64
	began uint64 // tick
	waits bool
}

// callResult is how a pending call ended.
type callResult struct {
	answer *pb.Answer
	kept   *pb.KeepAliveResponse
	err    error
}

// session returns a session with a server, or nil: the connection will do until there is one.
func (c *Client) session(ctx context.Context, to *server) *session {
	return c.sessionWithin(ctx, to, openWait)
}

// sessionWithin returns the session with a server. It waits for one to be opened, and returns nil
// if that took longer than wait.
func (c *Client) sessionWithin(ctx context.Context, to *server, wait time.Duration) *session {
	if s := to.session.Load(); s != nil {
		return s
	}
	// Without a client ID in the hello, each operation would have to carry it.
	if c.main.current() == nil || c.life.Err() != nil || c.opt.Clock.Now() < time.Duration(to.sessionless.Load()) {
		return nil
	}
	to.opening.Lock()
	opened := to.opening.done
	if opened == nil {
		opened = make(chan struct{})
		to.opening.done = opened
		c.background.Go(func() { c.openSession(to, opened) })
	}
	to.opening.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-opened:
	case <-t.C:
	case <-ctx.Done():
	}
	return to.session.Load()
}

// openSession opens a session, closes opened, and reads the session until it ends.
func (c *Client) openSession(to *server, opened chan struct{}) {
	signal := sync.OnceFunc(func() { close(opened) })
	defer func() {
		to.opening.Lock()
		to.opening.done = nil
		to.opening.Unlock()
		signal()
	}()
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	stream, err := to.stub.Session(ctx, grpc.ForceCodecV2(wire.NewCodec()))
	if err != nil {
		if status.Code(err) == codes.Unimplemented {
			c.noSession(to)
		}
		return
	}
	s := &session{LockServiceClient: to.stub, c: c, to: to, holder: c.holder, cancel: cancel, stream: stream}
	s.calls.Store(new([]*pendingCall))
	first := &pb.SessionHello{Holder: s.holder}
	if who := c.main.current(); who != nil {
		s.client = string(who.id)
		first.ClientId, first.LossesAfterLsn = s.client, uint64(c.renewer.lossesAfter(who.id))
	}
	hello, err := wire.AppendRequest(nil, &pb.SessionRequest{Hello: first})
	if err != nil {
		return // the unary calls will return what is wrong with the holder
	}
	s.mu.queued, s.mu.sending = [][]byte{hello}, true
	s.flush()
	to.session.Store(s)
	signal()
	for err == nil {
		var m wire.Frame
		if err = stream.RecvMsg(&m); err == nil {
			to.heard.Store(int64(c.opt.Clock.Now()))
			var r *pb.SessionResponse
			r, err = s.handleResponse(m.B)
			c.renewer.applyLosses(r.GetLosses())
			c.renewer.asked(r.GetAsks())
		}
	}
	s.fail(s.c.judgeEnd(to, err, s.welcomed()))
	if s.welcomed() {
		c.renewer.renewSoon()
	}
}

// judgeEnd returns the error with which the operations on a stream end: its end is an answer to
// none of them.
func (c *Client) judgeEnd(to *server, err error, welcomed bool) error {
	if _, ok := errors.AsType[*ServiceError](err); ok {
		return err
	}
	if other, ok := otherCluster(err); ok {
		return other
	}
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	case codes.ResourceExhausted:
		to.longLists.Store(true) // nothing else on a session can be too long
	case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		if !welcomed {
			c.noSession(to)
			return errNoSession // the stream was refused as a whole; the calls will return why
		}
	}
	if !welcomed {
		c.noSession(to) // a proxy before the server may carry none
	}
	// The welcome is not waited for: what was sent after the hello may have been executed.
	return status.Error(codes.Unavailable, "the session broke: "+err.Error())
}

// noSession has no session opened with a server for a while.
func (c *Client) noSession(to *server) {
	to.sessionless.Store(int64(c.opt.Clock.Now() + sessionless))
}

func (s *session) welcomed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.welcome
}

// fail ends the session: every pending call ends with err.
func (s *session) fail(err error) {
	s.cancel()
	s.to.session.CompareAndSwap(s, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return
	}
	if s.mu.err = err; s.c.life.Err() != nil {
		s.mu.err = context.Cause(s.c.life)
	}
	for _, f := range *s.calls.Load() {
		s.end(f, f.number.Load(), callResult{err: s.mu.err})
	}
}

// end ends a pending call, if it still has the number.
func (s *session) end(f *pendingCall, number uint64, l callResult) {
	if number != 0 && f.number.CompareAndSwap(number, 0) {
		s.flying.Add(-1)
		f.result <- l // has room: one result for each start
	}
}

// find ends the pending call with the number.
func (s *session) find(number uint64, l callResult) {
	all := *s.calls.Load()
	if place := number & maxFlights; place < uint64(len(all)) {
		s.end(all[place], number, l)
	}
}

// handleResponse delivers the answers of a message to their calls. It returns the message where
// it has more than answers: losses and release requests are left to the caller.
func (s *session) handleResponse(b []byte) (*pb.SessionResponse, error) {
	s.heard.Store(s.now.Load())
	s.delivering.Store(true)
	defer s.sendDeferred()
	answer := func(a *pb.Answer) { s.find(a.GetCorrelation(), callResult{answer: a}) }
	if only, err := wire.EachAnswer(b, answer); only || err != nil {
		return nil, err
	}
	m := &pb.SessionResponse{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if w := m.GetWelcome(); w != nil {
		if err := s.checkWelcome(w); err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.mu.welcome = true
		s.mu.Unlock()
	}
	for _, a := range m.GetAnswers() {
		answer(a)
	}
	for _, r := range m.GetKeepAlives() {
		s.find(r.GetCorrelation(), callResult{kept: r})
	}
	d := m.GetEnd()
	if d == nil {
		return m, nil
	}
	e := &ServiceError{
		Status: wire.FromStatus(d.GetStatus()), Message: d.GetMessage(), Primary: wire.PrimaryOf(d.GetPrimary()),
		RetryAfter: wire.Millis(d.GetRetryAfterMs()), Epoch: Epoch(d.GetEpoch()),
	}
	if s.welcomed() {
		// Whatever ended it: what was sent may have been executed, and another server may
		// be tried at once.
		e.Status, e.RetryAfter = cluster.StatusUnknown, 0
	}
	return m, e
}

// checkWelcome checks the cluster of the server. An older server, which does not name it in the
// welcome, is asked beside: requests that came to it meanwhile bring client IDs that another
// cluster does not know.
func (s *session) checkWelcome(w *pb.SessionWelcome) error {
	if w.GetClusterId() == "" {
		s.c.background.Go(func() {
			ctx, cancel := context.WithTimeout(s.stream.Context(), probeTime)
			defer cancel()
			if f := s.c.servers.ask(ctx, s.to); f.others > 0 {
				s.fail(f.err)
			}
		})
	}
	return s.to.checkCluster(w, nil)
}

// sendDeferred sends what was queued while answers were handed out.
func (s *session) sendDeferred() {
	s.delivering.Store(false)
	s.mu.Lock()
	send := len(s.mu.queued) > 0 && !s.mu.sending
	s.mu.sending = s.mu.sending || send
	s.mu.Unlock()
	if send {
		s.c.background.Go(s.flush) // reading must not wait for writing
	}
}

// roundTrip puts a request of a size, in bytes, into the next message and waits for its answer.
// put appends it, under the number that the answer will have. It returns errNoSession if the
// session is full.
func (s *session) roundTrip(ctx context.Context, waits bool, size int, put func(b []byte, number uint64) ([]byte, error)) (callResult, error) {
	s.mu.Lock()
	if s.mu.err != nil {
		defer s.mu.Unlock()
		return callResult{}, s.mu.err
	}
	f := s.startCall(waits)
	if f == nil {
		s.mu.Unlock()
		return callResult{}, errNoSession
	}
	number := f.last
	last := len(s.mu.queued) - 1
	if last < 0 || len(s.mu.queued[last])+size > maxMessage {
		s.mu.queued = append(s.mu.queued, nil)
		last++
	}
	var bad error
	if s.mu.queued[last], bad = put(s.mu.queued[last], number); bad != nil {
		s.end(f, number, callResult{err: &ServiceError{Status: cluster.StatusInvalidArgument, Message: bad.Error()}})
	}
	send := !s.mu.sending && !s.delivering.Load()
	s.mu.sending = s.mu.sending || send
	s.mu.Unlock()
	if send {
		s.flush()
	}
	var l callResult
	select {
	case l = <-f.result:
	case <-outer(ctx):
		s.end(f, number, callResult{err: ctx.Err()}) // its cause may look like an answer
		l = <-f.result
	}
	s.mu.Lock()
	s.mu.free = append(s.mu.free, f)
	s.mu.Unlock()
	return l, l.err
}

// startCall returns a pending call that begins now; nil if there are too many. It is called with
// mu held.
func (s *session) startCall(waits bool) *pendingCall {
	var f *pendingCall
	if n := len(s.mu.free); n > 0 {
		f, s.mu.free = s.mu.free[n-1], s.mu.free[:n-1]
	} else {
		all := *s.calls.Load()
		if len(all) > maxFlights {
			return nil
		}
		f = &pendingCall{result: make(chan callResult, 1), last: uint64(len(all))}
		all = append(all, f) // readers of the old slice do not see past its end
		s.calls.Store(&all)
	}
	f.last += maxFlights + 1
	f.began, f.waits = s.now.Load(), waits
	s.flying.Add(1)
	f.number.Store(f.last)
	if !s.mu.ticking {
		s.mu.ticking = true
		s.c.background.Go(s.tick)
	}
	return f
}

// flush sends what is queued. After the first message a goroutine goes on, so that the caller is
// not kept from its own answer.
func (s *session) flush() {
	m, ok := s.next()
	if !ok || s.stream.SendMsg(&wire.Frame{B: m}) != nil {
		return // Recv returns why it failed, and no other goroutine sends
	}
	if m, ok = s.next(); ok {
		s.c.background.Go(func() {
			for ; ok && s.stream.SendMsg(&wire.Frame{B: m}) == nil; m, ok = s.next() {
			}
		})
	}
}

// next returns the next message; false ends the sending.
func (s *session) next() ([]byte, bool) {
	// Let other goroutines queue their requests first: a message costs as much as some
	// dozen operations in it.
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.queued) == 0 {
		s.mu.sending, s.mu.queued = false, nil
		return nil, false
	}
	m := s.mu.queued[0]
	s.mu.queued = s.mu.queued[1:]
	return m, true
}

// tick counts the ticks while calls are pending, and makes sure that none waits for a server that
// is dead, paused or no longer primary.
func (s *session) tick() {
	t := time.NewTicker(sessionTick)
	defer t.Stop()
	var asked uint64 // tick of the last question
	var asking atomic.Bool
	for idle := 0; ; {
		select {
		case <-t.C:
		case <-s.stream.Context().Done():
			return
		}
		prompt, waiting, now, deaf := s.count()
		if deaf {
			s.fail(context.DeadlineExceeded)
			return
		}
		switch {
		case prompt == 0 && waiting == 0:
			if idle++; idle >= sessionRest && s.rest() {
				return
			}
		default:
			idle = 0
			every := waitingInquiry
			if prompt >= suspicion {
				every = inquiry
			}
			if (prompt >= suspicion || waiting >= waitingInquiry) && time.Duration(now-asked)*sessionTick >= every && !asking.Swap(true) {
				asked = now
				s.c.background.Go(func() { // there may be no answer, and attempts are counted by the ticks
					defer asking.Store(false)
					s.inquire(prompt < suspicion)
				})
			}
		}
	}
}

// rest ends tick if no call is pending.
func (s *session) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ticking = s.flying.Load() > 0
	return !s.mu.ticking
}

// count begins a tick. It returns for how long the oldest calls have been pending, and ends the
// attempts whose time is over. The stream is deaf if nothing at all was heard since one of those
// began.
func (s *session) count() (prompt, waiting time.Duration, now uint64, deaf bool) {
	now = s.now.Add(1)
	if s.flying.Load() == 0 {
		return 0, 0, now, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.c.opt.Clock.Now() - time.Duration(s.to.heard.Load())
	for _, f := range *s.calls.Load() {
		number := f.number.Load()
		if number != f.last {
			continue // ended
		}
		age := time.Duration(now-f.began) * sessionTick
		limit := s.c.opt.Attempt
		if f.waits {
			waiting = max(waiting, age)
			// A server that was heard lately is well, and the call waits on.
			if limit = waitingAttempt; silent < 2*waitingInquiry {
				continue
			}
		} else {
			prompt = max(prompt, age)
		}
		if age >= limit {
			deaf = deaf || s.heard.Load() <= f.began
			s.end(f, number, callResult{err: context.DeadlineExceeded})
		}
	}
	return prompt, waiting, now, deaf
}

// inquire asks whether another server is primary now, and ends the session with errMoved if so.
func (s *session) inquire(waits bool) {
	ctx := s.stream.Context()
	if waits && s.c.probeHealthy(ctx, s.to) {
		return
	}
	f := s.c.servers.locate(ctx)
	if f.to != nil && f.to != s.to && f.rank >= rankNamed && s.c.servers.primary() == f.to {
		s.fail(errMoved)
	}
}

// operate sends an operation.
func (s *session) operate(ctx context.Context, waits bool, op *pb.Operation) (*pb.Answer, error) {
	l, err := s.roundTrip(ctx, waits, len(op.GetAppend().GetData()), func(b []byte, number uint64) ([]byte, error) {
		op.Correlation = number
		return wire.AppendOperation(b, op)
	})
	return l.answer, err
}

// own leaves out the client ID that was in the hello.
func (s *session) own(client *string) {
	if *client == s.client {
		*client = ""
	}
}

// Acquire implements pb.LockServiceClient, as do the others.
func (s *session) Acquire(ctx context.Context, q *pb.AcquireRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	if q.Holder == s.holder {
		q.Holder = nil
	}
	return s.operate(ctx, q.GetWaitMs() != 0, &pb.Operation{Request: &pb.Operation_Acquire{Acquire: q}})
}

// Release ends a grant.
func (s *session) Release(ctx context.Context, q *pb.ReleaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Release{Release: q}})
}

// RenewLease extends a lease.
func (s *session) RenewLease(ctx context.Context, q *pb.RenewLeaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Renew{Renew: q}})
}

// FileAppend appends to a protected file.
func (s *session) FileAppend(ctx context.Context, q *pb.FileAppendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Append{Append: q}})
}

// BindFile binds a file to a lock.
func (s *session) BindFile(ctx context.Context, q *pb.BindFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Bind{Bind: q}})
}

// UnbindFile ends a binding.
func (s *session) UnbindFile(ctx context.Context, q *pb.UnbindFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Unbind{Unbind: q}})
}

// RotateFile gives a file a new inode.
func (s *session) RotateFile(ctx context.Context, q *pb.RotateFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Rotate{Rotate: q}})
}

// SealFile ends a generation of a file.
func (s *session) SealFile(ctx context.Context, q *pb.SealFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Seal{Seal: q}})
}

// Cancel ends a request.
func (s *session) Cancel(ctx context.Context, q *pb.CancelRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Cancel{Cancel: q}})
}

// BreakLock ends the grant of another client.
func (s *session) BreakLock(ctx context.Context, q *pb.BreakLockRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Break{Break: q}})
}

// Downgrade lets others share a lock.
func (s *session) Downgrade(ctx context.Context, q *pb.DowngradeRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Downgrade{Downgrade: q}})
}

// Extend gives a lease a longer TTL.
func (s *session) Extend(ctx context.Context, q *pb.ExtendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Extend{Extend: q}})
}

// SetMetadata replaces the text that a holder publishes.
func (s *session) SetMetadata(ctx context.Context, q *pb.SetMetadataRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_SetMetadata{SetMetadata: q}})
}

// KeepAlive renews what a client holds and waits for.
func (s *session) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest, o ...grpc.CallOption) (*pb.KeepAliveResponse, error) {
	if s.to.longLists.Load() {
		return s.LockServiceClient.KeepAlive(ctx, q, o...)
	}
	s.own(&q.ClientId)
	l, err := s.roundTrip(ctx, false, 0, func(b []byte, number uint64) ([]byte, error) {
		q.Correlation = number
		return wire.AppendRequest(b, &pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{q}})
	})
	return l.kept, err
}
