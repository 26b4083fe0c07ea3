// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	caller "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxUnanswered is how many pings in a row a stream carries without any answer. A server that is stopped reads none, and what is sent
	// to it is kept.
	maxUnanswered = 64
	// plainFor is how long pings are calls, to a server that has no Heartbeats: one before them, or one for which this one is a stranger.
	plainFor = 10 * time.Second
)

// heartbeats sends pings to one server, on one stream. A call for each ping wakes more than twice as many goroutines, on both sides, which is most of
// what an idle server does. No ping waits for the answer to another one.
type heartbeats struct {
	client pb.PeerServiceClient
	// broke is called when the connection breaks under a stream.
	broke func()
	// turn holds the stream while nobody looks whether it is good, nil for none.
	turn  chan *beatStream
	plain atomic.Pointer[time.Time] // until then, pings are calls
}

// beatStream is one stream of pings. It outlives the call that opened it.
type beatStream struct {
	cancel  context.CancelFunc
	stream  grpc.BidiStreamingClient[pb.Ping, pb.Pong]
	sending chan struct{} // full while a ping is sent
	over    chan struct{} // closed when the stream has ended
	err     error         // why; written before over is closed
	mu      struct {      // held for no call
		sync.Mutex
		waiting    map[uint64]chan<- *pb.Pong // by seq of the ping; each has room
		unanswered int
	}
}

func newHeartbeats(client pb.PeerServiceClient, broke func()) *heartbeats {
	h := &heartbeats{client: client, broke: broke, turn: make(chan *beatStream, 1)}
	h.turn <- nil
	return h
}

// ping returns the answer to a ping, and what is known of who gave it.
func (h *heartbeats) ping(ctx context.Context, q *pb.Ping) (*pb.Pong, credentials.AuthInfo, error) {
	if until := h.plain.Load(); until == nil || !time.Now().Before(*until) {
		r, by, err := h.beat(ctx, q)
		if status.Code(err) != codes.Unimplemented {
			return r, by, err
		}
		h.plain.Store(new(time.Now().Add(plainFor)))
	}
	var at caller.Peer
	r, err := h.client.Ping(ctx, q, grpc.Peer(&at))
	return r, at.AuthInfo, err
}

// beat is ping over the stream.
func (h *heartbeats) beat(ctx context.Context, q *pb.Ping) (*pb.Pong, credentials.AuthInfo, error) {
	s, err := h.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.ask(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	var by credentials.AuthInfo
	if at, ok := caller.FromContext(s.stream.Context()); ok {
		by = at.AuthInfo
	}
	return r, by, nil
}

// open returns the stream, or a new one if that has ended.
func (h *heartbeats) open(ctx context.Context) (*beatStream, error) {
	var s *beatStream
	select {
	case s = <-h.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { h.turn <- s }()
	if s != nil {
		select {
		case <-s.over:
		default:
			return s, nil
		}
	}
	fresh := &beatStream{sending: make(chan struct{}, 1), over: make(chan struct{})}
	fresh.mu.waiting = map[uint64]chan<- *pb.Pong{}
	var within context.Context
	within, fresh.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, fresh.cancel)
	var err error
	fresh.stream, err = h.client.Heartbeats(within)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		fresh.cancel()
		s = nil
		return nil, err
	}
	go fresh.read(h.broke)
	s = fresh
	return s, nil
}

// ask sends a ping and returns its answer. No ping waits longer than its ctx, whatever the others do.
func (s *beatStream) ask(ctx context.Context, q *pb.Ping) (*pb.Pong, error) {
	answer := make(chan *pb.Pong, 1)
	if s.expect(q.GetSeq(), answer) {
		s.cancel()
	}
	defer s.forget(q.GetSeq(), answer)
	s.send(ctx, q)
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.over:
	}
	select {
	case r := <-answer: // it came before the end
		return r, nil
	default:
		return nil, s.err
	}
}

// send sends a ping. If it fails the stream has ended, or is about to, and the reader learns why. To send may connect anew; then the stream ends
// with ctx.
func (s *beatStream) send(ctx context.Context, q *pb.Ping) {
	select {
	case s.sending <- struct{}{}:
	case <-s.over:
		return
	case <-ctx.Done():
		return
	}
	defer func() { <-s.sending }()
	if ctx.Err() != nil { // it may have come this far all the same, and other pings are under way
		return
	}
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	_ = s.stream.Send(q)
}

// expect has the answer to a ping handed out, and reports whether there was none to too many.
func (s *beatStream) expect(seq uint64, answer chan<- *pb.Pong) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.waiting[seq] = answer
	s.mu.unanswered++
	return s.mu.unanswered > maxUnanswered
}

func (s *beatStream) forget(seq uint64, answer chan<- *pb.Pong) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.waiting[seq] == answer {
		delete(s.mu.waiting, seq)
	}
}

// read hands out answers until the stream ends.
func (s *beatStream) read(broke func()) {
	defer s.cancel()
	for {
		r, err := s.stream.Recv()
		if err != nil {
			s.err = err
			close(s.over)
			if status.Code(err) == codes.Unavailable { // else one of the two has ended the stream
				broke()
			}
			return
		}
		s.mu.Lock()
		s.mu.unanswered = 0
		if answer := s.mu.waiting[r.GetSeq()]; answer != nil {
			delete(s.mu.waiting, r.GetSeq())
			answer <- r
		}
		s.mu.Unlock()
	}
}
