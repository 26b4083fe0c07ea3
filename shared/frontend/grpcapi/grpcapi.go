// SPDX-License-Identifier: Apache-2.0

// Package grpcapi is the gRPC front end: unary calls, and streams of watches and files. The client
// library makes its unary calls over a connection of package session, to the same functions.
package grpcapi

import (
	"context"
	"errors"
	"path"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// maxOverhead is what a message may have besides the data of an append, in bytes.
const maxOverhead = 64 << 10

// MaxStreams is how many calls and streams of one connection may be under way.
const MaxStreams = 1024

// Options returns the options of a gRPC server that Register is called with: limits and
// keep-alives.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cluster.MaxAppend + maxOverhead),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(MaxStreams),
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

// Register makes g serve clients with s, and describe what it serves. Calls that are meant for another cluster are refused.
func Register(g *grpc.Server, s *service.Service) {
	g.RegisterService(describe(s.Cluster()), &server{s: s})
	registerReflection(g, s)
}

// Local returns a client of a service in this process, without a connection. Streams are refused.
func Local(s *service.Service) pb.LockServiceClient {
	return pb.NewLockServiceClient(local{&server{s: s}})
}

// Call answers a call that came otherwise than by gRPC: the method's name without the service, the
// cluster that is meant, "" for any, and the encoded request. It returns the encoded answer, or the
// error that gRPC would have sent.
func Call(ctx context.Context, s *service.Service, method, meant string, request []byte) ([]byte, error) {
	o := ops.OfMethod(method)
	if o == nil || !o.Unary() {
		return nil, status.Errorf(codes.Unimplemented, "there is no method %q that is no stream", method)
	}
	if err := meantFor(meant, s.Cluster()); err != nil && !o.AnyCluster {
		return nil, err
	}
	m := o.New()
	if err := proto.Unmarshal(request, m); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the request of %s: %v", method, err)
	}
	r, err := (&server{s: s}).call(ctx, o, m)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(r)
}

// server has the methods that are streams. The others are those of the table of operations.
type server struct {
	pb.UnimplementedLockServiceServer
	s *service.Service
}

// call answers a request of an operation that is no stream.
func (g *server) call(ctx context.Context, o *ops.Operation, m proto.Message) (ops.Response, error) {
	if traces := g.s.Traces(); traces.Tracer() != nil {
		// Without a traceparent, chance chooses among the requests to the lock table only.
		if parent := traceparentOf(ctx); parent != "" || o.Op != 0 {
			ctx = traces.Begin(ctx, parent)
		}
	}
	if o.Op == 0 {
		r, err := o.Serve(ctx, g.s, m)
		return unary(g.s, r, err)
	}
	q, err := o.Request(m, "")
	if err != nil {
		return service.Refusal(err), nil
	}
	q.Own = !passedOn(ctx, q.Client)
	a, err := g.s.ExecuteOrAbandon(ctx, q)
	if a != nil && q.Op == locktable.OpOpenClient {
		a.ClusterId = g.s.Cluster()
	}
	return unary(g.s, a, err)
}

// unary returns the result of a call: the message, or the gRPC error that its status maps to.
func unary(s *service.Service, r ops.Response, err error) (ops.Response, error) {
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if !isError(r.GetStatus()) {
		return r, nil
	}
	if a, ok := r.(*pb.Answer); ok {
		_, err := wire.Unary(a)
		return nil, err
	}
	e := &wire.Error{Status: wire.FromStatus(r.GetStatus()), Message: r.GetMessage()}
	p, after := s.Advice(e.Status)
	e.Primary, e.RetryAfter = wire.PrimaryOf(p), wire.Millis(after)
	if e.Status == cluster.StatusLimited {
		e.RetryAfter = service.ReadRetry
	}
	return nil, e
}

// local is a connection to a server in this process.
type local struct{ g *server }

// Invoke implements grpc.ClientConnInterface.
func (l local) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	o := ops.OfMethod(path.Base(method))
	if o == nil || !o.Unary() {
		return status.Errorf(codes.Unimplemented, "there is no method %s", method)
	}
	r, err := l.g.call(ctx, o, args.(proto.Message))
	if err == nil {
		proto.Merge(reply.(proto.Message), r)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (l local) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Errorf(codes.Unimplemented, "%s is a stream", method)
}

// passedOn reports whether a request may use a token that another client got. Opened clients are
// those of the client library, which uses several for one program.
func passedOn(ctx context.Context, client cluster.ClientID) bool {
	return client.Opened() || len(metadata.ValueFromIncomingContext(ctx, wire.PassedOnKey)) > 0
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

// describe describes the service of one cluster: its methods are those of the table of operations,
// and the streams.
func describe(id string) *grpc.ServiceDesc {
	d := pb.LockService_ServiceDesc
	d.Methods, d.Streams = nil, slices.Clone(d.Streams)
	for _, o := range ops.All() {
		if o.Unary() {
			d.Methods = append(d.Methods, grpc.MethodDesc{MethodName: o.Method, Handler: handler(id, o)})
		}
	}
	for i, s := range d.Streams {
		d.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			if err := meantFor(clusterOf(stream.Context()), id); err != nil {
				return err
			}
			ctx, err := srv.(*server).authenticate(stream.Context())
			if err != nil {
				return err
			}
			return s.Handler(srv, &authenticated{stream, ctx})
		}
	}
	return &d
}

// handler returns what grpc calls for a request of an operation.
func handler(id string, o *ops.Operation) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, via grpc.UnaryServerInterceptor) (any, error) {
		if err := meantFor(clusterOf(ctx), id); err != nil && !o.AnyCluster {
			return nil, err
		}
		ctx, err := srv.(*server).authenticate(ctx)
		if err != nil && !o.Open() {
			return nil, err
		}
		m := o.New()
		if err := decode(m); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, m any) (any, error) {
			r, err := srv.(*server).call(ctx, o, m.(proto.Message))
			if err != nil {
				return nil, err
			}
			return r, nil
		}
		if via == nil {
			return call(ctx, m)
		}
		return via(ctx, m, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + pb.LockService_ServiceDesc.ServiceName + "/" + o.Method}, call)
	}
}

// authenticate returns a context with the caller of a call.
func (g *server) authenticate(ctx context.Context) (context.Context, error) {
	credential := ""
	for _, v := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		credential = wire.BearerOf(v)
	}
	if p, ok := peer.FromContext(ctx); ok {
		ctx = serving.WithRemote(ctx, p.Addr)
	}
	c, err := g.s.Authenticate(credential, serving.RemoteOf(ctx))
	if err != nil {
		_, err = wire.Unary(service.Refusal(err))
		return ctx, err
	}
	return serving.WithCaller(ctx, c), nil
}

// authenticated is a stream whose context has its caller.
type authenticated struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *authenticated) Context() context.Context { return s.ctx }

// meantFor returns an error for a call that is meant for another cluster than this one: it is refused
// before anything else, because names, tokens and LSNs mean something else here.
func meantFor(meant, id string) error {
	if meant == "" || meant == id {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "this server belongs to cluster %s, and the call is meant for cluster %s", id, meant)
}

// traceparentOf returns the traceparent of a call, "" for none. Of several none counts.
func traceparentOf(ctx context.Context) string {
	if sent := metadata.ValueFromIncomingContext(ctx, wire.TraceparentKey); len(sent) == 1 {
		return sent[0]
	}
	return ""
}

// clusterOf returns the cluster that a call is meant for, "" for any.
func clusterOf(ctx context.Context) string {
	if meant := metadata.ValueFromIncomingContext(ctx, wire.ClusterKey); len(meant) > 0 {
		return meant[0]
	}
	return ""
}
