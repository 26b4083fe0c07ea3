// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// registerReflection makes g describe itself to programs such as grpcurl, which then need no .proto file. It describes the service
// for clients and this description, and nothing else that is linked into the binary. Whether a caller gets an answer is asked of
// the rules for each question, because a stream may be older than they are.
func registerReflection(g *grpc.Server, s *service.Service) {
	files := &protoregistry.Files{}
	for _, f := range []protoreflect.FileDescriptor{pb.File_shared_wire_holdfast_proto, reflectionpb.File_grpc_reflection_v1_reflection_proto} {
		if err := files.RegisterFile(f); err != nil {
			panic(fmt.Sprintf("describe %s: %v", f.Path(), err)) // two files that declare the same
		}
	}
	d := reflectionpb.ServerReflection_ServiceDesc
	d.Streams = slices.Clone(d.Streams)
	for i, x := range d.Streams {
		d.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			if err := meantFor(clusterOf(stream.Context()), s.Cluster()); err != nil {
				return err
			}
			ctx, err := (&server{s: s}).authenticate(stream.Context())
			if err != nil {
				return err
			}
			return x.Handler(srv, &questions{authenticated{stream, ctx}, s})
		}
	}
	g.RegisterService(&d, reflection.NewServerV1(reflection.ServerOptions{
		Services: g, DescriptorResolver: files, ExtensionResolver: &protoregistry.Types{},
	}))
}

// questions is a stream of requests that each have to be permitted.
type questions struct {
	authenticated
	s *service.Service
}

// RecvMsg implements grpc.ServerStream.
func (q *questions) RecvMsg(m any) error {
	if err := q.authenticated.RecvMsg(m); err != nil {
		return err
	}
	return mayAsk(q.ctx, q.s)
}

// mayAsk returns the gRPC error for a caller that gets no description, nil for others.
func mayAsk(ctx context.Context, s *service.Service) error {
	err := s.MayDescribe(ctx)
	if errors.Is(err, wire.ErrPermissionDenied) {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return err
}
