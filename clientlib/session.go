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
	// sessionTick is how often a session looks at what is unanswered, and so the
	// unit in which it counts for how long.
	sessionTick = 50 * time.Millisecond
	// openWait is how long a call waits for a session to open before it goes its own
	// way. There is no answer to wait for, only a connection.
	openWait = 10 * time.Millisecond
	// sessionRest is how many ticks with nothing to look at end the looking.
	sessionRest = 20
	// maxFlights is how many operations of a session may be unanswered, one less than
	// what the service takes.
	maxFlights = 1<<16 - 1
	// sessionless is after how long a server that knew no sessions is asked again.
	sessionless = time.Minute
	// maxMessage is the size in bytes up to which operations share a message. The
	// service takes no message that is longer than the largest append and some.
	maxMessage = 256 << 10
)

// errNoSession says that an operation cannot go through a session: the server, or
// what lies before it, knows none, or this one is full. It was not sent.
var errNoSession = errors.New("no session takes this")

// session carries the operations of a client to one server on one stream, many in
// one message. It does not outlive the reign, nor an error: then every operation on
// it ends with the cause, and asks again under the same request ID elsewhere.
//
// It is a pb.LockServiceClient, whose methods take the stream where there is a
// place for them in it and the connection otherwise.
type session struct {
	pb.LockServiceClient
	c      *Client
	to     *server
	client string // of the hello
	holder *pb.Holder
	cancel context.CancelFunc
	stream pb.LockService_SessionClient

	// Answers land without mu, which hundreds of callers want meanwhile.
	flights atomic.Pointer[[]*flight] // all there are; replaced with mu held
	flying  atomic.Int64
	now     atomic.Uint64 // ticks
	heard   atomic.Uint64 // tick of the last message
	// landing is set while answers are handed out: what is asked for meanwhile goes in
	// one message behind them.
	landing atomic.Bool

	mu struct {
		sync.Mutex
		err     error    // why it ended
		welcome bool     // the server has said that it took the hello; requests may be executed earlier
		sending bool     // somebody sends; what is queued meanwhile goes with the next message
		queued  [][]byte // encoded SessionRequests, none much above maxMessage
		free    []*flight
		looking bool // the goroutine that counts ticks runs
	}
}

// flight is one operation that waits for its answer. Who takes its number off it
// lands it.
type flight struct {
	// number is the correlation: the place in flights and how often it was used; 0
	// while it is not in use.
	number atomic.Uint64
	landed chan landing
	// Guarded by session.mu: the last number, when it began, and whether it stands in a
	// queue, maybe, so that no answer for long is normal.
	last  uint64
	began uint64 // tick
	waits bool
}

// landing is how a flight ended.
type landing struct {
	answer *pb.Answer
	kept   *pb.KeepAliveResponse
	err    error
}

// session is a session with a server, or nil: then there may be one later, and the
// connection will do until then.
func (c *Client) session(ctx context.Context, to *server) *session {
	return c.sessionWithin(ctx, to, openWait)
}

// sessionWithin waits so long for a session that has to be opened.
func (c *Client) sessionWithin(ctx context.Context, to *server, wait time.Duration) *session {
	if s := to.session.Load(); s != nil {
		return s
	}
	// Without a name the hello would not spare the operations theirs.
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

// openSession opens a session, says so by closing opened, and reads it until it ends.
func (c *Client) openSession(to *server, opened chan struct{}) {
	tell := sync.OnceFunc(func() { close(opened) })
	defer func() {
		to.opening.Lock()
		to.opening.done = nil
		to.opening.Unlock()
		tell()
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
	s.flights.Store(new([]*flight))
	first := &pb.SessionHello{Holder: s.holder}
	if who := c.main.current(); who != nil {
		s.client = string(who.id)
		first.ClientId, first.LossesAfterLsn = s.client, uint64(c.keep.lossesAfter(who.id))
	}
	hello, err := wire.AppendRequest(nil, &pb.SessionRequest{Hello: first})
	if err != nil {
		return // the unary calls will say what is wrong with the holder
	}
	s.mu.queued, s.mu.sending = [][]byte{hello}, true
	s.flush()
	to.session.Store(s)
	tell()
	for err == nil {
		var m wire.Frame
		if err = stream.RecvMsg(&m); err == nil {
			to.heard.Store(int64(c.opt.Clock.Now()))
			var told *pb.SessionResponse
			told, err = s.land(m.B)
			c.keep.told(told.GetLosses())
			c.keep.asked(told.GetAsks())
		}
	}
	s.fail(s.c.judgeEnd(to, err, s.welcomed()))
	if s.welcomed() {
		c.keep.hurry()
	}
}

// judgeEnd is what the end of a stream says to the operations on it: it is an answer
// to none of them.
func (c *Client) judgeEnd(to *server, err error, welcomed bool) error {
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return err
	}
	if other, ok := estranged(err); ok {
		return other
	}
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	case codes.ResourceExhausted:
		to.longLists.Store(true) // nothing else that a session tells can be too long
	case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		if !welcomed {
			c.noSession(to)
			return errNoSession // the stream was refused as a whole, and the calls will tell more
		}
	}
	if !welcomed {
		c.noSession(to) // what lies before the server may carry none
	}
	// The hello is not waited for: what was sent behind it may have been executed, welcome or not.
	return status.Error(codes.Unavailable, "the session broke: "+err.Error())
}

// noSession has a server not be asked for a session for a while.
func (c *Client) noSession(to *server) {
	to.sessionless.Store(int64(c.opt.Clock.Now() + sessionless))
}

func (s *session) welcomed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.welcome
}

// fail ends the session: everything that flies ends with err.
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
	for _, f := range *s.flights.Load() {
		s.end(f, f.number.Load(), landing{err: s.mu.err})
	}
}

// end lands a flight, if it still has the number.
func (s *session) end(f *flight, number uint64, l landing) {
	if number != 0 && f.number.CompareAndSwap(number, 0) {
		s.flying.Add(-1)
		f.landed <- l // has room: one landing for each start
	}
}

// find ends the flight with the number.
func (s *session) find(number uint64, l landing) {
	all := *s.flights.Load()
	if place := number & maxFlights; place < uint64(len(all)) {
		s.end(all[place], number, l)
	}
}

// land gives the answers to those who wait for them. Losses and asks, which may be
// nil, are the caller's to tell.
func (s *session) land(b []byte) (told *pb.SessionResponse, err error) {
	s.heard.Store(s.now.Load())
	s.landing.Store(true)
	defer s.landed()
	answer := func(a *pb.Answer) { s.find(a.GetCorrelation(), landing{answer: a}) }
	if only, err := wire.EachAnswer(b, answer); only || err != nil {
		return nil, err
	}
	m := &pb.SessionResponse{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if w := m.GetWelcome(); w != nil {
		if err := s.met(w); err != nil {
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
		s.find(r.GetCorrelation(), landing{kept: r})
	}
	d := m.GetEnd()
	if d == nil {
		return m, nil
	}
	e := &wire.Error{
		Status: wire.FromStatus(d.GetStatus()), Message: d.GetMessage(), Primary: wire.PrimaryOf(d.GetPrimary()),
		RetryAfter: wire.Millis(d.GetRetryAfterMs()), Epoch: cluster.Epoch(d.GetEpoch()),
	}
	if s.welcomed() {
		// Whatever ended it: what was sent may have been executed, and somebody else may
		// be asked at once.
		e.Status, e.RetryAfter = cluster.StatusUnknown, 0
	}
	return m, e
}

// met looks at who welcomes. A server that does not say, because it is older, is asked
// beside: what came to it meanwhile is known to another cluster by no opened client's name.
func (s *session) met(w *pb.SessionWelcome) error {
	if w.GetClusterId() == "" {
		s.c.background.Go(func() {
			ctx, cancel := context.WithTimeout(s.stream.Context(), probeTime)
			defer cancel()
			if f := s.c.servers.ask(ctx, s.to); f.others > 0 {
				s.fail(f.err)
			}
		})
	}
	return s.to.met(w, nil)
}

// landed has sent what was asked for while answers were handed out.
func (s *session) landed() {
	s.landing.Store(false)
	s.mu.Lock()
	send := len(s.mu.queued) > 0 && !s.mu.sending
	s.mu.sending = s.mu.sending || send
	s.mu.Unlock()
	if send {
		s.c.background.Go(s.flush) // who reads must not wait for who writes
	}
}

// fly puts something of a size, in bytes, into the next message and waits for its
// answer. put appends it, under the number that the answer will have.
func (s *session) fly(ctx context.Context, waits bool, size int, put func(b []byte, number uint64) ([]byte, error)) (landing, error) {
	s.mu.Lock()
	if s.mu.err != nil {
		defer s.mu.Unlock()
		return landing{}, s.mu.err
	}
	f := s.takeOff(waits)
	if f == nil {
		s.mu.Unlock()
		return landing{}, errNoSession
	}
	number := f.last
	last := len(s.mu.queued) - 1
	if last < 0 || len(s.mu.queued[last])+size > maxMessage {
		s.mu.queued = append(s.mu.queued, nil)
		last++
	}
	var bad error
	if s.mu.queued[last], bad = put(s.mu.queued[last], number); bad != nil {
		s.end(f, number, landing{err: &wire.Error{Status: cluster.StatusInvalidArgument, Message: bad.Error()}})
	}
	send := !s.mu.sending && !s.landing.Load()
	s.mu.sending = s.mu.sending || send
	s.mu.Unlock()
	if send {
		s.flush()
	}
	var l landing
	select {
	case l = <-f.landed:
	case <-outer(ctx):
		s.end(f, number, landing{err: ctx.Err()}) // its cause may look like an answer
		l = <-f.landed
	}
	s.mu.Lock()
	s.mu.free = append(s.mu.free, f)
	s.mu.Unlock()
	return l, l.err
}

// takeOff is a flight that begins now; nil if there are too many. It is called with mu held.
func (s *session) takeOff(waits bool) *flight {
	var f *flight
	if n := len(s.mu.free); n > 0 {
		f, s.mu.free = s.mu.free[n-1], s.mu.free[:n-1]
	} else {
		all := *s.flights.Load()
		if len(all) > maxFlights {
			return nil
		}
		f = &flight{landed: make(chan landing, 1), last: uint64(len(all))}
		all = append(all, f) // whoever has the old slice does not see what lies behind its end
		s.flights.Store(&all)
	}
	f.last += maxFlights + 1
	f.began, f.waits = s.now.Load(), waits
	s.flying.Add(1)
	f.number.Store(f.last)
	if !s.mu.looking {
		s.mu.looking = true
		s.c.background.Go(s.look)
	}
	return f
}

// flush sends what is queued. After the first message somebody else goes on, so
// that the caller is not kept from its own answer.
func (s *session) flush() {
	m, ok := s.next()
	if !ok || s.stream.SendMsg(&wire.Frame{B: m}) != nil {
		return // Recv knows why it failed, and nobody else sends
	}
	if m, ok = s.next(); ok {
		s.c.background.Go(func() {
			for ; ok && s.stream.SendMsg(&wire.Frame{B: m}) == nil; m, ok = s.next() {
			}
		})
	}
}

// next is the next message; false ends the sending.
func (s *session) next() ([]byte, bool) {
	// Whoever is about to ask for something does so first: a message costs as much as
	// some dozen operations in it.
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

// look counts the ticks while something flies, and sees to it that nothing waits for
// a server that is dead, paused or no longer primary.
func (s *session) look() {
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
				s.c.background.Go(func() { // nobody may answer, and the ticks are what attempts are counted by
					defer asking.Store(false)
					s.inquire(prompt < suspicion)
				})
			}
		}
	}
}

// rest ends the looking if nothing flies.
func (s *session) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.looking = s.flying.Load() > 0
	return !s.mu.looking
}

// count begins a tick. It says for how long the oldest operations are unanswered,
// and ends the attempts whose time is over. If nothing at all was heard since one of
// those began, the stream is deaf.
func (s *session) count() (prompt, waiting time.Duration, now uint64, deaf bool) {
	now = s.now.Add(1)
	if s.flying.Load() == 0 {
		return 0, 0, now, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.c.opt.Clock.Now() - time.Duration(s.to.heard.Load())
	for _, f := range *s.flights.Load() {
		number := f.number.Load()
		if number != f.last {
			continue // landed
		}
		age := time.Duration(now-f.began) * sessionTick
		limit := s.c.opt.Attempt
		if f.waits {
			waiting = max(waiting, age)
			// A server that was heard lately is well, and we wait.
			if limit = waitingAttempt; silent < 2*waitingInquiry {
				continue
			}
		} else {
			prompt = max(prompt, age)
		}
		if age >= limit {
			deaf = deaf || s.heard.Load() <= f.began
			s.end(f, number, landing{err: context.DeadlineExceeded})
		}
	}
	return prompt, waiting, now, deaf
}

// inquire asks whether another server is primary now and moves there.
func (s *session) inquire(waits bool) {
	ctx := s.stream.Context()
	if waits && s.c.well(ctx, s.to) {
		return
	}
	f := s.c.servers.locate(ctx)
	if f.to != nil && f.to != s.to && f.rank >= rankNamed && s.c.servers.primary() == f.to {
		s.fail(errMoved)
	}
}
