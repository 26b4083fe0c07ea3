// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// fakeStream is a session with a fakeServer: each operation is a call of its own, and
// the first that fails as a connection does breaks the stream.
type fakeStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	s      *fakeServer
	client string
	hello  *pb.SessionHello
	calls  struct {
		sync.WaitGroup
		sync.Mutex
		over bool // no more of them begin
	}
	out     chan *pb.SessionResponse
	broken  chan struct{}
	settled bool // of the goroutine that reads
	deaf    bool // what is sent is lost; guarded by s.mu
	reset   codes.Code
	once    sync.Once
	err     error
}

// dial connects to a server in a world with sessions.
func (s *fakeServer) dial(context.Context, string) (conduit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.sessions {
		return nil, errNoSession
	}
	s.mu.opened++
	x := &fakeStream{s: s, out: make(chan *pb.SessionResponse), broken: make(chan struct{}), reset: s.mu.reset}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	s.mu.stream, s.mu.reset = x, codes.OK
	return x, nil
}

// Close implements conduit.
func (x *fakeStream) Close() error {
	x.cancel()
	return nil
}

func (x *fakeStream) fail(err error) {
	x.once.Do(func() {
		x.err = err
		close(x.broken)
	})
}

// call does f meanwhile, unless the stream has ended.
func (x *fakeStream) call(f func()) {
	x.calls.Lock()
	defer x.calls.Unlock()
	if !x.calls.over {
		x.calls.Go(f)
	}
}

// end waits for the calls.
func (x *fakeStream) end() {
	x.calls.Lock()
	x.calls.over = true
	x.calls.Unlock()
	x.calls.Wait()
}

func (x *fakeStream) take(m *pb.SessionRequest) error {
	select {
	case <-x.broken:
		return io.EOF
	default:
	}
	if h := m.GetHello(); h != nil {
		x.client, x.hello = h.GetClientId(), h
		x.call(func() {
			if err := x.s.enter(x.ctx, "session"); err != nil {
				x.refuse(err)
				return
			}
			if x.reset != codes.OK {
				return
			}
			x.tell(&pb.SessionResponse{Welcome: &pb.SessionWelcome{ClientId: x.client}})
		})
	}
	for _, op := range m.GetOperations() {
		x.call(func() { x.operation(op) })
	}
	for _, q := range m.GetKeepAlives() {
		x.call(func() {
			x.own(&q.ClientId)
			r, err := x.s.KeepAlive(x.ctx, q)
			if e, ok := errors.AsType[*wire.Error](wire.FromGRPC(err)); ok {
				a := e.Answer()
				r = &pb.KeepAliveResponse{Status: a.Status, Message: a.Message, Primary: a.Primary, RetryAfterMs: a.RetryAfterMs}
			} else if err != nil {
				x.fail(err)
				return
			}
			r.Correlation = q.Correlation
			x.tell(&pb.SessionResponse{KeepAlives: []*pb.KeepAliveResponse{r}})
		})
	}
	return nil
}

// Send implements conduit.
func (x *fakeStream) Send(b []byte) error {
	if frames.Kind(b[frames.HeaderSize-1]) != frames.Message {
		return nil
	}
	b = b[frames.HeaderSize:]
	q := &pb.SessionRequest{}
	if err := proto.Unmarshal(b, q); err != nil {
		return err
	}
	deaf := false
	x.s.set(func() {
		deaf = x.deaf
		x.s.mu.streamed += len(q.Operations)
		x.s.mu.longest = max(x.s.mu.longest, len(b))
	})
	if deaf {
		return nil
	}
	return x.take(q)
}

// Recv implements conduit.
func (x *fakeStream) Recv() (frames.Kind, []byte, error) {
	if !x.settled {
		x.settled = true
		b, err := proto.Marshal(&pb.Settings{Version: 1})
		return frames.Settings, b, err
	}
	r, err := x.next()
	if status.Code(err) == codes.ResourceExhausted {
		err = fmt.Errorf("%w: %w", frames.ErrTooLong, err)
	}
	if err != nil {
		return 0, nil, err
	}
	b, err := proto.Marshal(r)
	return frames.Message, b, err
}

func (x *fakeStream) own(client *string) {
	if *client == "" {
		*client = x.client
	}
}

// refuse ends the session before it began, as a server does that is no primary.
func (x *fakeStream) refuse(err error) {
	e, ok := errors.AsType[*wire.Error](wire.FromGRPC(err))
	if !ok {
		x.fail(err)
		return
	}
	a := e.Answer()
	x.tell(&pb.SessionResponse{End: &pb.ErrorDetail{Status: a.Status, Message: a.Message, Primary: a.Primary, RetryAfterMs: a.RetryAfterMs}})
	x.fail(io.EOF)
}

func (x *fakeStream) operation(op *pb.Operation) {
	var a *pb.Answer
	var err error
	switch q := op.GetRequest().(type) {
	case *pb.Operation_Acquire:
		x.own(&q.Acquire.ClientId)
		a, err = x.s.Acquire(x.ctx, q.Acquire)
	case *pb.Operation_Release:
		x.own(&q.Release.ClientId)
		a, err = x.s.Release(x.ctx, q.Release)
	case *pb.Operation_Downgrade:
		x.own(&q.Downgrade.ClientId)
		a, err = x.s.Downgrade(x.ctx, q.Downgrade)
	case *pb.Operation_Extend:
		x.own(&q.Extend.ClientId)
		a, err = x.s.Extend(x.ctx, q.Extend)
	case *pb.Operation_Append:
		x.own(&q.Append.ClientId)
		a, err = x.s.FileAppend(x.ctx, q.Append)
	case *pb.Operation_Cancel:
		x.own(&q.Cancel.ClientId)
		a, err = x.s.Cancel(x.ctx, q.Cancel)
	case *pb.Operation_Break:
		x.own(&q.Break.ClientId)
		a, err = x.s.BreakLock(x.ctx, q.Break)
	case *pb.Operation_Renew:
		a, err = x.s.RenewLease(x.ctx, q.Renew)
	default:
		err = status.Error(codes.Unimplemented, "the fake knows no such operation")
	}
	if x.reset != codes.OK {
		x.fail(status.Error(x.reset, "the stream was reset"))
		return
	}
	if e, ok := errors.AsType[*wire.Error](wire.FromGRPC(err)); ok {
		a = e.Answer()
	} else if err != nil {
		x.fail(err)
		return
	}
	answer := &pb.Answer{
		Status: a.Status, Message: a.Message, Correlation: op.Correlation, Repeat: a.Repeat, Epoch: a.Epoch, Lsn: a.Lsn, Token: a.Token, TtlMs: a.TtlMs,
		Holder: a.Holder, QueueLength: a.QueueLength, Receipt: a.Receipt, Committed: a.Committed, Primary: a.Primary, RetryAfterMs: a.RetryAfterMs,
		HoldLeftMs: a.HoldLeftMs, Ask: a.Ask, Marked: a.Marked, Limit: a.Limit, Weight: a.Weight,
	}
	x.tell(&pb.SessionResponse{Answers: []*pb.Answer{answer}})
}

func (x *fakeStream) tell(m *pb.SessionResponse) {
	select {
	case x.out <- m:
	case <-x.broken:
	case <-x.ctx.Done():
	}
}

func (x *fakeStream) next() (*pb.SessionResponse, error) {
	select {
	case m := <-x.out:
		return m, nil
	case <-x.broken:
		return nil, x.err
	case <-x.ctx.Done():
		x.end()
		return nil, status.FromContextError(x.ctx.Err()).Err()
	}
}

// direct is a stub that calls a server without a network, for virtual time.
type direct struct {
	pb.LockServiceClient // nil: what is not below is not called
	s                    *fakeServer
}

func (d direct) OpenClient(ctx context.Context, r *pb.OpenClientRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.OpenClient(ctx, r)
}
func (d direct) ForgetClient(ctx context.Context, r *pb.ForgetClientRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.ForgetClient(ctx, r)
}
func (d direct) Acquire(ctx context.Context, r *pb.AcquireRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.Acquire(ctx, r)
}
func (d direct) Release(ctx context.Context, r *pb.ReleaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.Release(ctx, r)
}
func (d direct) Downgrade(ctx context.Context, r *pb.DowngradeRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.Downgrade(ctx, r)
}
func (d direct) Extend(ctx context.Context, r *pb.ExtendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.Extend(ctx, r)
}
func (d direct) FileAppend(ctx context.Context, r *pb.FileAppendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.FileAppend(ctx, r)
}
func (d direct) RenewLease(ctx context.Context, r *pb.RenewLeaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.RenewLease(ctx, r)
}
func (d direct) KeepAlive(ctx context.Context, r *pb.KeepAliveRequest, _ ...grpc.CallOption) (*pb.KeepAliveResponse, error) {
	return d.s.KeepAlive(ctx, r)
}
func (d direct) Cancel(ctx context.Context, r *pb.CancelRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.Cancel(ctx, r)
}
func (d direct) Status(ctx context.Context, r *pb.StatusRequest, _ ...grpc.CallOption) (*pb.StatusResponse, error) {
	return d.s.Status(ctx, r)
}
