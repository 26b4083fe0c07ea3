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
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// sessionTick is how often a session checks what is unanswered, and so the unit in which it
	// counts for how long.
	sessionTick = 50 * time.Millisecond
	// sessionRest is after how many ticks with nothing under way the checking ends.
	sessionRest = 20
	// maxFlights is how many operations of a session may be unanswered, one less than
	// what the service takes.
	maxFlights = 1<<16 - 1
	// maxMessage is the size in bytes up to which operations share a message. The
	// service takes no message that is longer than the largest append and some.
	maxMessage = 256 << 10
	// keptMessage is the largest memory of a message that is used again, in bytes, and keptQueue for
	// how many of them an idle session keeps room.
	keptMessage = 16 << 10
	keptQueue   = 4
)

// errNoSession is the error of an operation that was not sent, because the server has no sessions, or
// the session is full.
var errNoSession = errors.New("no session takes this")

// errRefused is the error of an operation that was not sent, because the server has just refused the
// session.
var errRefused = errors.New("the server has refused the session")

// noCalls is the connection of calls that sessions do not carry: it takes none.
type noCalls struct{}

func (noCalls) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errNoSession
}

func (noCalls) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoSession
}

// session is a connection to one server, and the session on it once the operations of this client go
// there: then it carries them, many in one message. It does not outlive the term, nor an error: then
// every operation on it ends with the cause, and is sent again under the same request ID elsewhere.
//
// It is a pb.LockServiceClient, whose methods return errNoSession for what its messages do not carry: that is a
// call of its own, of which its caller counts the time.
type session struct {
	pb.LockServiceClient // of noCalls
	c                    *Client
	to                   *server
	client               string // of the hello; set with mu held before the first operation
	holder               *pb.Holder
	ctx                  context.Context // ends with the connection
	cancel               context.CancelFunc
	conn                 conduit
	// turns has room for the calls that may be under way.
	turns chan struct{}
	send  func() // the method sendAll: a func that is at hand costs no memory

	// Answers are delivered without mu, for which hundreds of callers may contend.
	calls  atomic.Pointer[[]*pendingCall] // all there are; replaced with mu held
	flying atomic.Int64
	now    atomic.Uint64 // ticks
	heard  atomic.Uint64 // tick of the last message
	// heardAt is when something was heard last, on the client's clock.
	heardAt atomic.Int64
	// delivering is set while answers are handed out: requests that come meanwhile leave in one
	// message afterwards.
	delivering atomic.Bool

	mu struct {
		sync.Mutex
		err     error // why it ended
		hello   bool  // a session is begun; requests may be executed from then on
		welcome bool  // the server has accepted the hello
		// unheard is when the first call began that was given up since something was heard, on the
		// client's clock; 0 = there is none.
		unheard time.Duration
		sending bool       // a goroutine sends; what is queued meanwhile goes with the next message
		queued  []outgoing // no message of them much above maxMessage
		spare   []byte     // memory for the next message
		free    []*pendingCall
		ticking bool // the goroutine that counts ticks runs
	}
}

// outgoing is a frame that is to be sent: its header, still empty, and its payload.
type outgoing struct {
	b    []byte
	kind frames.Kind
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
	class callClass
	// merged is set where the context of the call ends with the client and cannot be waited for.
	merged bool
}

// callClass says how long an answer may take.
type callClass uint8

const (
	// promptCall: an answer comes at once, or something is wrong.
	promptCall callClass = iota
	// waitingCall may wait in a queue.
	waitingCall
	// ownTime: its caller counts the time.
	ownTime
)

// callResult is how a pending call ended.
type callResult struct {
	answer *pb.Answer
	kept   *pb.KeepAliveResponse
	back   *pb.Return
	err    error
}

// session returns the session with a server. It waits for the connection, until ctx ends, and returns
// the error where there is none: then nothing was sent. It returns nil without an error where the
// server has no sessions, or this client has no name yet; a call will do.
func (c *Client) session(ctx context.Context, to *server) (*session, error) {
	if s := to.session.Load(); s != nil {
		return s, nil
	}
	// Without a client ID in the hello, each operation would have to carry it.
	who := c.main.current()
	if who == nil {
		return nil, nil
	}
	s, err := c.connect(ctx, to)
	if errors.Is(err, errNoSession) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.begin(who); err != nil {
		return nil, &retry.UnsentError{Err: err}
	}
	return s, nil
}

// begin sends the hello, if that was not done. It returns the error of a session that has ended.
func (s *session) begin(who *identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil || s.mu.hello {
		return s.mu.err
	}
	s.client = string(who.id)
	hello := &pb.SessionHello{
		Holder: s.holder, ClientId: s.client, LossesAfterLsn: uint64(s.c.renewer.lossesAfter(who.id)), ClusterId: s.to.known.ID(),
	}
	b := s.message(0)
	var err error
	if *b, err = wire.AppendRequest(*b, &pb.SessionRequest{Hello: hello}); err != nil {
		return wire.Invalid("what Options.Holder says cannot be sent: " + err.Error())
	}
	s.mu.hello = true
	s.to.session.Store(s)
	return nil
}

// read hands out what the server sends, until the connection ends, and returns why.
func (s *session) read() error {
	for {
		kind, b, err := s.conn.Recv()
		if err != nil {
			return err
		}
		now := int64(s.c.opt.Clock.Now())
		s.to.heard.Store(now)
		s.heardAt.Store(now)
		switch kind {
		case frames.Message:
			r, err := s.handleResponse(b)
			s.c.renewer.applyLosses(r.GetLosses())
			s.c.renewer.asked(r.GetAsks())
			if err != nil {
				return err
			}
		case frames.Ping:
			s.pong(b)
		}
	}
}

// pong answers a ping.
func (s *session) pong(b []byte) {
	s.mu.Lock()
	s.mu.queued = append(s.mu.queued, outgoing{append(frames.Begin(nil), b...), frames.Pong})
	s.mu.Unlock()
	s.sendDeferred()
}

// judgeEnd returns the error with which the operations on a connection end: its end is an answer to
// none of them.
func (c *Client) judgeEnd(to *server, err error) error {
	if _, ok := errors.AsType[*ServiceError](err); ok {
		return err
	}
	if other, ok := otherCluster(err); ok {
		return other
	}
	if errors.Is(err, frames.ErrTooLong) {
		to.longLists.Store(true) // nothing else on a session can be too long
	}
	// The welcome is not waited for: what was sent after the hello may have been executed.
	return status.Error(codes.Unavailable, "the connection broke: "+err.Error())
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return
	}
	// With mu held: what begins a session looks at err.
	s.to.session.CompareAndSwap(s, nil)
	s.to.link.CompareAndSwap(s, nil)
	if s.mu.err = err; s.c.linked.Err() != nil {
		s.mu.err = context.Cause(s.c.linked)
	}
	for _, f := range *s.calls.Load() {
		l := callResult{err: s.mu.err}
		if f.class == ownTime && retry.OfError(err) != retry.OtherCluster { // the end of a session says nothing of calls
			l.err = status.Error(codes.Unavailable, "the connection ended: "+err.Error())
		}
		s.end(f, f.number.Load(), l)
	}
}

// refused ends the operations that were sent since the hello: the server has looked at none of them, nor
// will it. Another hello may follow.
func (s *session) refused(d *pb.ErrorDetail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.hello = false
	s.to.session.CompareAndSwap(s, nil)
	for _, f := range *s.calls.Load() {
		if f.class != ownTime {
			s.end(f, f.number.Load(), callResult{err: failureOf(d)})
		}
	}
}

// failureOf returns the error that ends or refuses a session.
func failureOf(d *pb.ErrorDetail) *ServiceError {
	return &ServiceError{
		Status: wire.FromStatus(d.GetStatus()), Message: d.GetMessage(), Primary: wire.PrimaryOf(d.GetPrimary()),
		RetryAfter: wire.Millis(d.GetRetryAfterMs()), Epoch: Epoch(d.GetEpoch()),
	}
}

// endCalls ends the pending calls that users wait for: the client has ended, and the connection stays
// for what is left to be done.
func (s *session) endCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range *s.calls.Load() {
		if f.merged {
			s.end(f, f.number.Load(), callResult{err: context.Cause(s.c.life)})
		}
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
		if err := s.to.checkCluster(w, nil); err != nil {
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
	for _, r := range m.GetReturns() {
		s.find(r.GetCorrelation(), callResult{back: r})
	}
	if d := m.GetRefused(); d != nil {
		s.refused(d)
	}
	d := m.GetEnd()
	if d == nil {
		return m, nil
	}
	e := failureOf(d)
	if s.welcomed() {
		// Whatever ended it: what was sent may have been executed, and another server may
		// be tried at once.
		e.Status, e.RetryAfter = cluster.StatusUnknown, 0
	}
	return m, e
}

// sendDeferred sends what was queued while answers were handed out.
func (s *session) sendDeferred() {
	s.delivering.Store(false)
	s.mu.Lock()
	send := len(s.mu.queued) > 0 && !s.mu.sending
	s.mu.sending = s.mu.sending || send
	s.mu.Unlock()
	if send {
		s.flush()
	}
}

// message returns where a request of a size, in bytes, is appended. It is called with mu held.
func (s *session) message(size int) *[]byte {
	last := len(s.mu.queued) - 1
	if last < 0 || s.mu.queued[last].kind != frames.Message || len(s.mu.queued[last].b)+size > maxMessage {
		s.mu.queued = append(s.mu.queued, outgoing{frames.Begin(s.mu.spare[:0]), frames.Message})
		s.mu.spare = nil
		last++
	}
	return &s.mu.queued[last].b
}

// roundTrip puts a request of a size, in bytes, into the next message and waits for its answer.
// put appends it, under the number that the answer will have. It returns errNoSession if the
// session is full.
func (s *session) roundTrip(ctx context.Context, class callClass, size int, put func(b []byte, number uint64) ([]byte, error)) (callResult, error) {
	s.mu.Lock()
	err := s.mu.err
	if err == nil {
		err = ctx.Err() // the end of the client is looked for with mu held, see endCalls
	}
	if err == nil && class != ownTime && !s.mu.hello {
		err = errRefused
	}
	if err != nil {
		s.mu.Unlock()
		return callResult{}, &retry.UnsentError{Err: err}
	}
	f := s.startCall(class)
	if f == nil {
		s.mu.Unlock()
		return callResult{}, errNoSession
	}
	_, f.merged = ctx.(*mergedContext)
	number := f.last
	var bad error
	b := s.message(size)
	if *b, bad = put(*b, number); bad != nil {
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
func (s *session) startCall(class callClass) *pendingCall {
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
	f.began, f.class = s.now.Load(), class
	s.flying.Add(1)
	f.number.Store(f.last)
	if !s.mu.ticking && class != ownTime {
		s.mu.ticking = true
		s.c.links.Go(s.tick)
	}
	return f
}

// flush begins to send what is queued. A server that reads nothing holds up neither callers nor the
// reading of answers.
func (s *session) flush() {
	s.c.links.Add(1)
	go s.send()
}

// sendAll sends until nothing is queued.
func (s *session) sendAll() {
	defer s.c.links.Done()
	for s.sendNext() {
	}
}

// sendNext sends the next frame. It returns false where there is none: then the sending has ended.
func (s *session) sendNext() bool {
	if s.flying.Load() > 1 {
		// Let other goroutines queue their requests first: a message costs as much as some
		// dozen operations in it.
		runtime.Gosched()
	}
	s.mu.Lock()
	if len(s.mu.queued) == 0 {
		s.mu.sending = false
		s.mu.Unlock()
		return false
	}
	m := s.mu.queued[0]
	left := copy(s.mu.queued, s.mu.queued[1:])
	s.mu.queued[left] = outgoing{} // an idle session keeps no long message
	if s.mu.queued = s.mu.queued[:left]; left == 0 && cap(s.mu.queued) > keptQueue {
		s.mu.queued = nil
	}
	s.mu.Unlock()
	if err := s.conn.Send(frames.Finish(m.b, m.kind)); err != nil {
		s.conn.Close() //nolint:errcheck // reading returns why it failed, and no other goroutine sends
		return false
	}
	if cap(m.b) <= keptMessage {
		s.mu.Lock()
		s.mu.spare = m.b
		s.mu.Unlock()
	}
	return true
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
		case <-s.ctx.Done():
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
				s.c.links.Go(func() { // there may be no answer, and attempts are counted by the ticks
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
// attempts whose time is over. The connection is deaf if nothing at all was heard since one of those
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
		if f.class == ownTime {
			continue
		}
		age := time.Duration(now-f.began) * sessionTick
		limit := s.c.opt.Attempt
		if f.class == waitingCall {
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
	ctx := s.ctx
	if waits && s.c.probeHealthy(ctx, s.to) {
		return
	}
	f := s.c.servers.locate(ctx)
	if f.to != nil && f.to != s.to && f.rank >= rankNamed && s.c.servers.primary() == f.to {
		s.fail(errMoved)
	}
}

// operate sends an operation.
func (s *session) operate(ctx context.Context, class callClass, op *pb.Operation) (*pb.Answer, error) {
	ctx, op.Traceparent = untraced(ctx)
	l, err := s.roundTrip(ctx, class, len(op.GetAppend().GetData()), func(b []byte, number uint64) ([]byte, error) {
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
	class := promptCall
	if q.GetWaitMs() != 0 {
		class = waitingCall
	}
	return s.operate(ctx, class, &pb.Operation{Request: &pb.Operation_Acquire{Acquire: q}})
}

// Release ends a grant.
func (s *session) Release(ctx context.Context, q *pb.ReleaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Release{Release: q}})
}

// RenewLease extends a lease.
func (s *session) RenewLease(ctx context.Context, q *pb.RenewLeaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Renew{Renew: q}})
}

// FileAppend appends to a protected file.
func (s *session) FileAppend(ctx context.Context, q *pb.FileAppendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Append{Append: q}})
}

// BindFile binds a file to a lock.
func (s *session) BindFile(ctx context.Context, q *pb.BindFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Bind{Bind: q}})
}

// UnbindFile ends a binding.
func (s *session) UnbindFile(ctx context.Context, q *pb.UnbindFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Unbind{Unbind: q}})
}

// RotateFile gives a file a new inode.
func (s *session) RotateFile(ctx context.Context, q *pb.RotateFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Rotate{Rotate: q}})
}

// SealFile ends a generation of a file.
func (s *session) SealFile(ctx context.Context, q *pb.SealFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Seal{Seal: q}})
}

// Cancel ends a request.
func (s *session) Cancel(ctx context.Context, q *pb.CancelRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Cancel{Cancel: q}})
}

// BreakLock ends the grant of another client.
func (s *session) BreakLock(ctx context.Context, q *pb.BreakLockRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Break{Break: q}})
}

// Downgrade lets others share a lock.
func (s *session) Downgrade(ctx context.Context, q *pb.DowngradeRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Downgrade{Downgrade: q}})
}

// Extend gives a lease a longer TTL.
func (s *session) Extend(ctx context.Context, q *pb.ExtendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_Extend{Extend: q}})
}

// SetMetadata replaces the text that a holder publishes.
func (s *session) SetMetadata(ctx context.Context, q *pb.SetMetadataRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, promptCall, &pb.Operation{Request: &pb.Operation_SetMetadata{SetMetadata: q}})
}

// KeepAlive renews what a client holds and waits for.
func (s *session) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest, _ ...grpc.CallOption) (*pb.KeepAliveResponse, error) {
	if s.to.longLists.Load() {
		return nil, errNoSession
	}
	s.own(&q.ClientId)
	l, err := s.roundTrip(ctx, promptCall, 0, func(b []byte, number uint64) ([]byte, error) {
		q.Correlation = number
		return wire.AppendRequest(b, &pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{q}})
	})
	return l.kept, err
}
