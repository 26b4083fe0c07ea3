// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// scripted is a server, and its one stream, that does what a test says.
type scripted struct {
	pb.PeerServiceClient
	grpc.ClientStream
	ctx  context.Context // of the stream
	send func(*pb.Ping) error
	recv func() (*pb.Pong, error)
}

func (x *scripted) Heartbeats(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.Ping, pb.Pong], error) {
	x.ctx = ctx
	return x, nil
}

func (x *scripted) Context() context.Context { return x.ctx }
func (x *scripted) Send(q *pb.Ping) error    { return x.send(q) }
func (x *scripted) Recv() (*pb.Pong, error)  { return x.recv() }
func (x *scripted) CloseSend() error         { return nil }

// TestPingBesideTheEndOfTheStream: a ping finds that the stream has ended before the answer to another one was read from it. That is handed out, and
// every ping ends. It is in real time, because one that waits for a mutex stops the time of a bubble.
func TestPingBesideTheEndOfTheStream(t *testing.T) {
	second, first := make(chan struct{}), make(chan error, 1)
	answers := []*pb.Pong{{Seq: 1}}
	x := &scripted{}
	x.send = func(q *pb.Ping) error {
		if q.GetSeq() == 1 {
			return nil
		}
		close(second)
		select {
		case err := <-first:
			first <- err
		case <-time.After(2 * time.Second):
		}
		return io.EOF
	}
	x.recv = func() (*pb.Pong, error) {
		if <-second; len(answers) == 0 {
			return nil, status.Error(codes.Unavailable, "the connection broke")
		}
		r := answers[0]
		answers = nil
		return r, nil
	}
	broke := make(chan struct{}, 2)
	h := newHeartbeats(x, func() { broke <- struct{}{} })
	ping := func(seq uint64, ended chan<- error) {
		_, _, err := h.ping(t.Context(), &pb.Ping{Seq: seq})
		ended <- err
	}
	last := make(chan error, 1)
	go ping(1, first)
	go func() {
		for !waits(h, 1) {
			runtime.Gosched()
		}
		ping(2, last)
	}()
	for seq, ended := range map[int]chan error{1: first, 2: last} {
		select {
		case err := <-ended:
			ended <- err
			if want := map[int]codes.Code{1: codes.OK, 2: codes.Unavailable}[seq]; status.Code(err) != want {
				t.Errorf("ping %d: %v, want %v", seq, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("ping %d hangs", seq)
		}
	}
	<-broke
}

// waits reports whether a ping has been sent and has no answer.
func waits(h *heartbeats, seq uint64) bool {
	s := <-h.turn
	h.turn <- s
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.waiting[seq] != nil
}

// TestPingThatCameTooLate, as a probe of an asker who has his answer by now, ends no other ping of its stream.
func TestPingThatCameTooLate(t *testing.T) {
	for range 20 { // of all that a ping waits for, it may find any first
		synctest.Test(t, func(t *testing.T) {
			x, answer := &scripted{}, make(chan *pb.Pong, 1)
			x.send = func(*pb.Ping) error { return nil }
			x.recv = func() (*pb.Pong, error) {
				select {
				case r := <-answer:
					return r, nil
				case <-x.ctx.Done():
					return nil, status.FromContextError(x.ctx.Err()).Err()
				}
			}
			h := newHeartbeats(x, func() {})
			ended := make(chan error, 1)
			go func() {
				_, _, err := h.ping(t.Context(), &pb.Ping{Seq: 1})
				ended <- err
			}()
			synctest.Wait()
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if _, _, err := h.ping(over, &pb.Ping{Seq: 2}); err == nil {
				t.Error("a ping whose time was over has an answer")
			}
			synctest.Wait()
			answer <- &pb.Pong{Seq: 1}
			if err := <-ended; err != nil {
				t.Errorf("the ping beside it: %v", err)
			}
			(<-h.turn).cancel()
			synctest.Wait()
		})
	}
}

// TestPingThatCannotBeSent: to send may take as long as a connection is made anew.
func TestPingThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &scripted{}
		x.send = func(*pb.Ping) error { <-x.ctx.Done(); return io.EOF }
		x.recv = func() (*pb.Pong, error) {
			<-x.ctx.Done()
			return nil, status.FromContextError(x.ctx.Err()).Err()
		}
		h := newHeartbeats(x, func() { t.Error("no connection broke") })
		var all sync.WaitGroup
		for seq := range uint64(2) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, _, err := h.ping(ctx, &pb.Ping{Seq: seq + 1})
				if took := time.Since(began); took != time.Second || !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.Canceled {
					t.Errorf("ping %d did not end in its time: %v, after %v", seq+1, err, took)
				}
			})
		}
		time.AfterFunc(2*time.Second, func() {
			select {
			case <-x.ctx.Done():
			default:
				panic("ping 1 did not end in its time, nor did its stream")
			}
		})
		all.Wait()
	})
}
