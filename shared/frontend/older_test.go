// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A client library of the version before begins a session as a stream of gRPC. It is told that there is none, and goes
// on with calls, over the same connection to the same port.
func TestOlderClientGoesOnWithCalls(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer fronttest.Serve(l, service.New(startPrimary(t), service.Options{})).Close()
	var connections atomic.Int64
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			connections.Add(1)
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := pb.NewLockServiceClient(conn)
	opened, err := c.OpenClient(ctx, &pb.OpenClientRequest{Nonce: 7})
	if err != nil || opened.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(opened, err)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Session", ClientStreams: true, ServerStreams: true}, "/"+pb.LockService_ServiceDesc.ServiceName+"/Session")
	if err != nil {
		t.Fatal(err)
	}
	// An error of sending is that the stream has ended: receiving says why.
	_ = stream.SendMsg(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: opened.GetClientId()}})
	if err := stream.RecvMsg(&pb.SessionResponse{}); status.Code(err) != codes.Unimplemented {
		t.Fatalf("a session over gRPC: %v", err)
	}
	got, err := c.Acquire(ctx, &pb.AcquireRequest{ClientId: opened.GetClientId(), RequestId: 1, Lock: "a", TtlMs: 30000})
	if err != nil || got.GetStatus() != pb.Status_STATUS_OK || !got.GetProtected() {
		t.Fatal(got, err)
	}
	if kept, err := c.KeepAlive(ctx, &pb.KeepAliveRequest{ClientId: opened.GetClientId()}); err != nil || kept.GetStatus() != pb.Status_STATUS_OK {
		t.Error(kept, err)
	}
	for name, call := range map[string]func() (*pb.Answer, error){
		"append": func() (*pb.Answer, error) {
			return c.FileAppend(ctx, &pb.FileAppendRequest{ClientId: opened.GetClientId(), RequestId: 2, Lock: "a", Token: got.GetToken(), File: "f", Data: []byte("x")})
		},
		"renew": func() (*pb.Answer, error) {
			return c.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: "a", Token: got.GetToken()})
		},
	} {
		if a, err := call(); err != nil || a.GetStatus() != pb.Status_STATUS_OK {
			t.Error(name, a, err)
		}
	}
	if a, err := c.Release(ctx, &pb.ReleaseRequest{ClientId: opened.GetClientId(), RequestId: 3, Lock: "a", Token: got.GetToken()}); err != nil || a.GetStatus() != pb.Status_STATUS_OK {
		t.Error(a, err)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("over %d connections", n)
	}
}
