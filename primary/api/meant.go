// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// meantFor is the service of one cluster: what is meant for another one is refused before
// anything is looked at, because names, tokens and LSNs mean something else here. Only
// Status answers everybody.
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
