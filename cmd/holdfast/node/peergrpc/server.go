// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	caller "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
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
	// HandleStranger records that a process pings as a server, and has no key on the volume.
	HandleStranger(x election.Stranger)
}

// Server answers other servers. Its zero value is of no use.
type Server struct {
	// members is for those whose key is on the volume, strangers for all others.
	members, strangers *grpc.Server
	keys               *peertls.Keys
}

// NewServer makes a server that has these keys, and answers the other servers of the cluster with h.
func NewServer(clusterID string, h Handler, keys *peertls.Keys) *Server {
	s := &Server{keys: keys, members: grpc.NewServer(append(serverOptions(), grpc.Creds(keys.Server()))...), strangers: grpc.NewServer(strangerOptions()...)}
	x := server{cluster: clusterID, h: h, keys: keys}
	pb.RegisterPeerServiceServer(s.members, &x)
	pb.RegisterPeerServiceServer(s.strangers, &forStrangers{server: x})
	return s
}

// Serve serves a listener until Stop, even if that comes first, and returns nil then. Else it returns why it ended.
func (s *Server) Serve(l net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- unlessStopped(s.strangers.Serve(s.keys.Strangers())) }()
	err := unlessStopped(s.members.Serve(l))
	s.strangers.Stop()
	return errors.Join(err, <-ended)
}

// unlessStopped returns an error, but not that of a server which was stopped before it served.
func unlessStopped(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Stop closes the listener and all connections.
func (s *Server) Stop() {
	s.members.Stop()
	s.strangers.Stop()
}

func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ConnectionTimeout(5 * time.Second),
		// A peer that vanished leaves no connection behind for long.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}
}

// strangerOptions leave strangers little room. Their connections end soon, and with the next one their key is looked for
// again.
func strangerOptions() []grpc.ServerOption {
	const most = 64 << 10 // bytes, of a message and of all that is on its way
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(most), grpc.InitialWindowSize(most), grpc.InitialConnWindowSize(most),
		grpc.MaxHeaderListSize(8 << 10), grpc.MaxConcurrentStreams(4),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Second, MaxConnectionAgeGrace: time.Second}),
	}
}

// forStrangers answers processes whose key is not on the volume.
type forStrangers struct {
	pb.UnimplementedPeerServiceServer
	server server
}

// Ping tells a stranger what this server is, and that it is a stranger. Its ping counts for nothing.
func (s *forStrangers) Ping(ctx context.Context, q *pb.Ping) (*pb.Pong, error) {
	if err := s.server.admitCluster(q.GetClusterId()); err != nil {
		return nil, err
	}
	s.server.h.HandleStranger(election.Stranger{ID: cluster.ServerID(q.GetFrom()), Nonce: q.GetNonce(), About: q.GetAbout(), From: remote(ctx)})
	r := pongProto(s.server.h.HandlePing(election.Ping{From: cluster.ServerID(q.GetFrom()), Stranger: true, Seq: q.GetSeq()}))
	r.Stranger = true
	return r, nil
}

type server struct {
	pb.UnimplementedPeerServiceServer
	cluster string
	h       Handler
	keys    *peertls.Keys
}

// admit refuses a message that does not come from the server that it names.
func (s *server) admit(ctx context.Context, clusterID []byte, from uint32) error {
	if err := s.admitCluster(clusterID); err != nil {
		return err
	}
	return s.keys.Admit(ctx, cluster.ServerID(from))
}

// admitCluster refuses a server of another cluster that was given this
// address, or found it where one of its own used to be. It names no cluster but the one that
// was asked for.
func (s *server) admitCluster(clusterID []byte) error {
	if hex.EncodeToString(clusterID) != s.cluster {
		return status.Errorf(codes.FailedPrecondition, "this server belongs to another cluster than %x: compare CLUSTER on both volumes", clusterID)
	}
	return nil
}

func (s *server) Ping(ctx context.Context, q *pb.Ping) (*pb.Pong, error) {
	if err := s.admit(ctx, q.GetClusterId(), q.GetFrom()); err != nil {
		return nil, err
	}
	p := pingOf(q)
	p.Address = remote(ctx)
	return pongProto(s.h.HandlePing(p)), nil
}

func (s *server) Heartbeats(stream grpc.BidiStreamingServer[pb.Ping, pb.Pong]) error {
	return answerEach(stream, func(q *pb.Ping) (*pb.Pong, error) { return s.Ping(stream.Context(), q) })
}

// answerEach answers what comes over a stream, one after the other, until the other side ends it or there is an error.
func answerEach[Q, A any](stream grpc.BidiStreamingServer[Q, A], answer func(*Q) (*A, error)) error {
	for {
		q, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a, err := answer(q)
		if err != nil {
			return err
		}
		if err := stream.Send(a); err != nil {
			return err
		}
	}
}

// remote is where a call came from.
func remote(ctx context.Context) string {
	if p, ok := caller.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

func (s *server) PreVote(ctx context.Context, q *pb.Ask) (*pb.Vote, error) {
	if err := s.admit(ctx, q.GetClusterId(), q.GetFrom()); err != nil {
		return nil, err
	}
	a := election.Ask{From: cluster.ServerID(q.GetFrom()), Nonce: q.GetNonce(), Epoch: cluster.Epoch(q.GetEpoch()), Address: remote(ctx)}
	return voteProto(s.h.HandlePreVote(ctx, a)), nil
}

func (s *server) Handover(ctx context.Context, q *pb.PeerHandoverRequest) (*pb.HandoverReply, error) {
	if err := s.admit(ctx, q.GetClusterId(), q.GetFrom()); err != nil {
		return nil, err
	}
	if err := s.h.HandleHandover(cluster.Epoch(q.GetEpoch())); err != nil {
		return &pb.HandoverReply{Message: err.Error()}, nil
	}
	return &pb.HandoverReply{Accepted: true}, nil
}

func (s *server) UpdateSecondaryState(stream grpc.BidiStreamingServer[pb.Push, pb.PushAck]) error {
	return answerEach(stream, func(q *pb.Push) (*pb.PushAck, error) {
		if err := s.admit(stream.Context(), q.GetClusterId(), q.GetFrom()); err != nil {
			return nil, err
		}
		ack, err := s.h.HandlePush(pushOf(q))
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		return ackProto(ack), nil
	})
}
