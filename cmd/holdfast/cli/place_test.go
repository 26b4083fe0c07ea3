// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// patient is a service that grants a lock when who waits for it has said that it lives.
type patient struct {
	pb.UnimplementedLockServiceServer
	said chan *pb.KeepAliveRequest
	told *pb.KeepAliveRequest
}

func (s *patient) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	select {
	case s.told = <-s.said:
		return &pb.Answer{Status: pb.Status_STATUS_OK, Lock: q.GetLock(), Token: 17}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *patient) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	select {
	case s.said <- q:
	case <-ctx.Done():
	}
	return &pb.KeepAliveResponse{Status: pb.Status_STATUS_OK}, nil
}

// A command that waits keeps its place. What an earlier run of its name holds it leaves
// alone: it might be that very lock, and would never end.
func TestAcquireKeepsItsPlaceOnly(t *testing.T) {
	s := &patient{said: make(chan *pb.KeepAliveRequest)}
	a := &app{Env: Env{Getenv: func(string) string { return "" }}, endpoints: served(t, s)}
	c, err := remote.New(remote.Options{Endpoints: a.servers()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	r, err := a.acquire(t.Context(), c, "a", &lease{ttl: 300 * time.Millisecond, wait: "forever"}, identity{"me", 5})
	if err != nil || r.GetToken() != 17 || s.told.GetClientId() != "me" || !s.told.GetPlacesOnly() {
		t.Errorf("said %v, got %v, %v", s.told, r, err)
	}
}
