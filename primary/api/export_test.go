// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// ResetPage is how many locks a reset reads at once.
const ResetPage = resetPage

// Watch serves a watch without gRPC.
func Watch(ctx context.Context, b Backend, q *pb.WatchRequest, send func(*pb.WatchResponse) error) error {
	return newService(b).watch(ctx, q, nil, send)
}

// RegisterImpatient is RegisterGRPC with another bound on what a client leaves of a reset. It
// returns how many watches are served now.
func RegisterImpatient(g *grpc.Server, b Backend, wait time.Duration) (watchers func() int) {
	s := newService(b)
	s.resetWait = wait
	pb.RegisterLockServiceServer(g, &grpcServer{s: s})
	return func() int { return int(s.watchers.Load()) }
}

// Paths lists what is served: a method and a path each.
func (h *HTTP) Paths() []string { return slices.Sorted(maps.Keys(h.routes())) }

// Watchers is how many watches the front end serves now.
func (h *HTTP) Watchers() int { return int(h.s.watchers.Load()) }

// Fill has the front end serve as many watches as it may, until leave.
func (h *HTTP) Fill() (leave func()) {
	h.s.watchers.Add(maxWatchers)
	return func() { h.s.watchers.Add(-maxWatchers) }
}

// SSEWait and SSEPiece bound how slowly a client may read.
const (
	SSEWait  = sseWait
	SSEPiece = ssePiece
)

// FollowFile serves a follower without gRPC.
func FollowFile(ctx context.Context, b Backend, q *pb.FollowFileRequest, send func(*pb.ReadFileResponse) error) error {
	return newService(b).followFile(ctx, q, send)
}

// ReadFile serves a read without gRPC.
func ReadFile(ctx context.Context, b Backend, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	return newService(b).readFile(ctx, q)
}
