// SPDX-License-Identifier: Apache-2.0

// Package grpcapi is the gRPC front end: unary calls, streams of watches and files, and
// sessions, which carry many operations of one client on one stream.
package grpcapi

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// maxOverhead is what a message may have besides the data of an append, in bytes.
const maxOverhead = 64 << 10

// Options returns the options of a gRPC server that Register is called with: limits, the codec of
// sessions, and keep-alives.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cluster.MaxAppend + maxOverhead),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ForceServerCodecV2(wire.NewCodec()),
		// Measured: with goroutines that are kept and fixed windows, unary calls are
		// half as fast again. Write buffers are shared by default.
		grpc.NumStreamWorkers(uint32(2 * runtime.GOMAXPROCS(0))),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(4 << 20),
		grpc.ConnectionTimeout(10 * time.Second),
		// A client that vanished is noticed: its calls end, and what waits for it.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
	}
}

// Register makes g serve clients with s. Calls that are meant for another cluster are refused.
func Register(g *grpc.Server, s *service.Service) {
	g.RegisterService(meantFor(s.Cluster()), &server{s: s})
}

// Local returns a service for calls within this process, without a connection.
func Local(s *service.Service) pb.LockServiceServer { return &server{s: s} }

type server struct {
	pb.UnimplementedLockServiceServer
	s *service.Service
}

var _ pb.LockServiceServer = (*server)(nil)

// response is an answer with a status.
type response interface {
	GetStatus() pb.Status
	GetMessage() string
}

// unary returns the result of a call: the message, or the gRPC error that its status maps to.
func unary[R response](s *service.Service, r R, err error) (R, error) {
	var none R
	if err != nil {
		return none, status.FromContextError(err).Err()
	}
	if !isError(r.GetStatus()) {
		return r, nil
	}
	if a, ok := any(r).(*pb.Answer); ok {
		_, err := wire.Unary(a)
		return none, err
	}
	e := &wire.Error{Status: wire.FromStatus(r.GetStatus()), Message: r.GetMessage()}
	p, after := s.Advice(e.Status)
	e.Primary, e.RetryAfter = wire.PrimaryOf(p), wire.Millis(after)
	return none, e
}

// table executes a request to the lock table.
func table[Q any](ctx context.Context, g *server, m Q, to func(Q) (*locktable.Request, error)) (*pb.Answer, error) {
	q, err := to(m)
	if err != nil {
		return service.Refusal(err), nil
	}
	q.Own = !passedOn(ctx, q.Client)
	a, err := g.s.ExecuteOrAbandon(ctx, q)
	return unary(g.s, a, err)
}

// passedOn reports whether a request may use a token that another client got. Opened clients are
// those of the client library, which uses several for one program.
func passedOn(ctx context.Context, client cluster.ClientID) bool {
	return client.Opened() || len(metadata.ValueFromIncomingContext(ctx, wire.PassedOnKey)) > 0
}

func (g *server) ForgetClient(ctx context.Context, q *pb.ForgetClientRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToForget)
}

func (g *server) OpenClient(ctx context.Context, q *pb.OpenClientRequest) (*pb.Answer, error) {
	a, err := table(ctx, g, q, convert.ToOpenClient)
	if a != nil {
		a.ClusterId = g.s.Cluster()
	}
	return a, err
}

func (g *server) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToAcquire)
}

func (g *server) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToRelease)
}

func (g *server) FileAppend(ctx context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToAppend)
}

func (g *server) BindFile(ctx context.Context, q *pb.BindFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToBind)
}

func (g *server) UnbindFile(ctx context.Context, q *pb.UnbindFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToUnbind)
}

func (g *server) RotateFile(ctx context.Context, q *pb.RotateFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToRotate)
}

func (g *server) SealFile(ctx context.Context, q *pb.SealFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToSeal)
}

func (g *server) Cancel(ctx context.Context, q *pb.CancelRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToCancel)
}

func (g *server) BreakLock(ctx context.Context, q *pb.BreakLockRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToBreak)
}

func (g *server) Downgrade(ctx context.Context, q *pb.DowngradeRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToDowngrade)
}

func (g *server) SetMetadata(ctx context.Context, q *pb.SetMetadataRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToMetadata)
}

func (g *server) RenewLease(ctx context.Context, q *pb.RenewLeaseRequest) (*pb.Answer, error) {
	r, err := g.s.Renew(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) Verify(ctx context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	r, err := g.s.Verify(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	r, err := g.s.KeepAlive(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) Outcome(ctx context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	r, err := g.s.Outcome(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) GetLock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	r, err := g.s.GetLock(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	r, err := g.s.ListLocks(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) ListFiles(ctx context.Context, q *pb.ListFilesRequest) (*pb.ListFilesResponse, error) {
	r, err := g.s.ListFiles(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) BlameFile(ctx context.Context, q *pb.BlameFileRequest) (*pb.BlameFileResponse, error) {
	r, err := g.s.BlameFile(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) ReadFile(ctx context.Context, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	r, err := g.s.ReadFile(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) Status(ctx context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	r, err := g.s.Status(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) Handover(ctx context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	r, err := g.s.Handover(ctx, q)
	return unary(g.s, r, err)
}

func (g *server) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	r, err := g.s.History(ctx, q)
	return unary(g.s, r, err)
}

// Watch streams events. What ends it is the status of the last message; only a client that went
// away, or left a reset unread, gets an error.
func (g *server) Watch(q *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ctx := stream.Context()
	return streamEnded(ctx, g.s.Watch(ctx, q, nil, func(r *pb.WatchResponse) error {
		if r.GetReset_() == nil {
			return stream.Send(r)
		}
		sent := make(chan error, 1)
		go func() { sent <- stream.Send(r) }()
		return g.s.WaitSent(ctx, sent)
	}))
}

// FollowFile streams what is appended to a file. What ends it is the status of the last message;
// only a client that went away gets an error.
func (g *server) FollowFile(q *pb.FollowFileRequest, stream grpc.ServerStreamingServer[pb.ReadFileResponse]) error {
	ctx := stream.Context()
	return streamEnded(ctx, g.s.FollowFile(ctx, q, stream.Send))
}

// streamEnded returns the error with which a stream ends: where the client went away, that.
func streamEnded(ctx context.Context, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, service.ErrResetNotRead):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return err
}

// isError reports whether a status is an error over gRPC.
func isError(status pb.Status) bool { return wire.GRPCCode(wire.FromStatus(status)) != codes.OK }

// meantFor describes the service of one cluster: calls that are meant for another one are refused
// before anything else, because names, tokens and LSNs mean something else here. Status answers
// all calls.
func meantFor(id string) *grpc.ServiceDesc {
	refuse := func(ctx context.Context) error {
		meant := metadata.ValueFromIncomingContext(ctx, wire.ClusterKey)
		if len(meant) == 0 || meant[0] == id {
			return nil
		}
		return status.Errorf(codes.FailedPrecondition, "this server belongs to cluster %s, and the call is meant for cluster %s", id, meant[0])
	}
	d := pb.LockService_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i, m := range d.Methods {
		if m.MethodName == "Status" {
			continue
		}
		d.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, via grpc.UnaryServerInterceptor) (any, error) {
			if err := refuse(ctx); err != nil {
				return nil, err
			}
			return m.Handler(srv, ctx, decode, via)
		}
	}
	for i, s := range d.Streams {
		d.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			if err := refuse(stream.Context()); err != nil {
				return err
			}
			return s.Handler(srv, stream)
		}
	}
	return &d
}
