// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// maxOverhead is what a message may have beside the data of an append, in bytes.
const maxOverhead = 64 << 10

// GRPCOptions are the options of the gRPC server for clients.
func GRPCOptions() []grpc.ServerOption {
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

// RegisterGRPC makes g answer clients with b.
func RegisterGRPC(g *grpc.Server, b Backend) {
	s := newService(b)
	g.RegisterService(meantFor(s.cluster), &grpcServer{s: s})
}

type grpcServer struct {
	pb.UnimplementedLockServiceServer
	s *service
}

var _ pb.LockServiceServer = (*grpcServer)(nil)

// response is a message that carries a status.
type response interface {
	GetStatus() pb.Status
	GetMessage() string
}

// unary ends a call: with the message, or with the error that its status is.
func unary[R response](s *service, r R, err error) (R, error) {
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
	p, after := s.advice(e.Status)
	e.Primary, e.RetryAfter = wire.PrimaryOf(p), wire.Millis(after)
	return none, e
}

// table has a request executed by the lock table.
func table[Q any](ctx context.Context, g *grpcServer, m Q, to func(Q) (*locktable.Request, error)) (*pb.Answer, error) {
	q, err := to(m)
	if err != nil {
		return refusal(err), nil
	}
	q.Own = !passedOn(ctx, q.Client)
	a, err := g.s.own(ctx, q)
	return unary(g.s, a, err)
}

// passedOn says that a request may use a token that another client got. Opened clients are
// those of the client library, which asks from several for one program.
func passedOn(ctx context.Context, client cluster.ClientID) bool {
	return client.Opened() || len(metadata.ValueFromIncomingContext(ctx, wire.PassedOnKey)) > 0
}

func (g *grpcServer) ForgetClient(ctx context.Context, q *pb.ForgetClientRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToForget)
}

func (g *grpcServer) OpenClient(ctx context.Context, q *pb.OpenClientRequest) (*pb.Answer, error) {
	a, err := table(ctx, g, q, convert.ToOpenClient)
	if a != nil {
		a.ClusterId = g.s.cluster
	}
	return a, err
}

func (g *grpcServer) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToAcquire)
}

func (g *grpcServer) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToRelease)
}

func (g *grpcServer) FileAppend(ctx context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToAppend)
}

func (g *grpcServer) BindFile(ctx context.Context, q *pb.BindFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToBind)
}

func (g *grpcServer) UnbindFile(ctx context.Context, q *pb.UnbindFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToUnbind)
}

func (g *grpcServer) RotateFile(ctx context.Context, q *pb.RotateFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToRotate)
}

func (g *grpcServer) SealFile(ctx context.Context, q *pb.SealFileRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToSeal)
}

func (g *grpcServer) Cancel(ctx context.Context, q *pb.CancelRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToCancel)
}

func (g *grpcServer) BreakLock(ctx context.Context, q *pb.BreakLockRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToBreak)
}

func (g *grpcServer) Downgrade(ctx context.Context, q *pb.DowngradeRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToDowngrade)
}

func (g *grpcServer) SetMetadata(ctx context.Context, q *pb.SetMetadataRequest) (*pb.Answer, error) {
	return table(ctx, g, q, convert.ToMetadata)
}

func (g *grpcServer) RenewLease(ctx context.Context, q *pb.RenewLeaseRequest) (*pb.Answer, error) {
	r, err := g.s.renew(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) Verify(ctx context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	r, err := g.s.verify(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	r, err := g.s.keepAlive(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) Outcome(ctx context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	r, err := g.s.outcome(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) GetLock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	r, err := g.s.getLock(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	r, err := g.s.listLocks(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) ListFiles(ctx context.Context, q *pb.ListFilesRequest) (*pb.ListFilesResponse, error) {
	r, err := g.s.listFiles(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) BlameFile(ctx context.Context, q *pb.BlameFileRequest) (*pb.BlameFileResponse, error) {
	r, err := g.s.blameFile(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) ReadFile(ctx context.Context, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	r, err := g.s.readFile(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) Status(ctx context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	r, err := g.s.status(ctx, q)
	return unary(g.s, r, err)
}

func (g *grpcServer) Handover(ctx context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	r, err := g.s.handover(ctx, q)
	return unary(g.s, r, err)
}
