// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	caller "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Handler is what answers other servers: a node.Node.
type Handler interface {
	HandlePing(p election.Ping) election.Pong
	HandlePreVote(ctx context.Context, a election.Ask) election.Vote
	HandlePush(p push.Push) (push.Ack, error)
	HandleHandover(epoch cluster.Epoch) error
}

// ServerOptions are those of the gRPC server for the peers' port.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ConnectionTimeout(5 * time.Second),
		// A peer that vanished leaves no connection behind for long.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}
}

// Register makes s answer other servers of the cluster with h.
func Register(s *grpc.Server, clusterID string, h Handler) {
	pb.RegisterPeerServiceServer(s, &server{cluster: clusterID, h: h})
}

type server struct {
	pb.UnimplementedPeerServiceServer
	cluster string
	h       Handler
}

// admit refuses strangers: a server of another cluster that was given this
// address, or found it where one of its own used to be. It names no cluster but the one that
// was asked for: who knows the ID is taken for a server of the cluster.
func (s *server) admit(clusterID []byte) error {
	if hex.EncodeToString(clusterID) != s.cluster {
		return status.Errorf(codes.FailedPrecondition, "this server belongs to another cluster than %x: compare CLUSTER on both volumes", clusterID)
	}
	return nil
}

func (s *server) Ping(ctx context.Context, q *pb.Ping) (*pb.Pong, error) {
	if err := s.admit(q.GetClusterId()); err != nil {
		return nil, err
	}
	p := pingOf(q)
	p.Address = remote(ctx)
	return pongProto(s.h.HandlePing(p)), nil
}

// remote is where a call came from.
func remote(ctx context.Context) string {
	if p, ok := caller.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

func (s *server) PreVote(ctx context.Context, q *pb.Ask) (*pb.Vote, error) {
	if err := s.admit(q.GetClusterId()); err != nil {
		return nil, err
	}
	a := election.Ask{From: cluster.ServerID(q.GetFrom()), Nonce: q.GetNonce(), Epoch: cluster.Epoch(q.GetEpoch()), Address: remote(ctx)}
	return voteProto(s.h.HandlePreVote(ctx, a)), nil
}

func (s *server) Handover(_ context.Context, q *pb.PeerHandoverRequest) (*pb.HandoverReply, error) {
	if err := s.admit(q.GetClusterId()); err != nil {
		return nil, err
	}
	if err := s.h.HandleHandover(cluster.Epoch(q.GetEpoch())); err != nil {
		return &pb.HandoverReply{Message: err.Error()}, nil
	}
	return &pb.HandoverReply{Accepted: true}, nil
}

func (s *server) UpdateSecondaryState(stream grpc.BidiStreamingServer[pb.Push, pb.PushAck]) error {
	for {
		q, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.admit(q.GetClusterId()); err != nil {
			return err
		}
		ack, err := s.h.HandlePush(pushOf(q))
		if err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		if err := stream.Send(ackProto(ack)); err != nil {
			return err
		}
	}
}
