// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// interrupted is a service whose user presses Ctrl-C while the lock is on its way.
type interrupted struct {
	pb.UnimplementedLockServiceServer
	press    context.CancelFunc
	outcome  *pb.Answer
	released []*pb.ReleaseRequest
}

func (s *interrupted) Acquire(ctx context.Context, _ *pb.AcquireRequest) (*pb.Answer, error) {
	s.press()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *interrupted) Cancel(context.Context, *pb.CancelRequest) (*pb.Answer, error) {
	return s.outcome, nil
}

func (s *interrupted) Release(_ context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	s.released = append(s.released, q)
	return &pb.Answer{Status: pb.Status_STATUS_OK}, nil
}

// served is the address of a service.
func served(t *testing.T, s pb.LockServiceServer) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterLockServiceServer(g, s)
	go g.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// acquireInterrupted is the error of an acquire that somebody gave up, whose cancel is
// answered so.
func acquireInterrupted(t *testing.T, outcome *pb.Answer) (*interrupted, error) {
	t.Helper()
	ctx, press := context.WithCancel(t.Context())
	defer press()
	s := &interrupted{press: press, outcome: outcome}
	c, err := remote.New(remote.Options{Endpoints: []string{served(t, s)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	_, err = (&app{Env: Env{Getenv: func(string) string { return "" }}}).acquire(ctx, c, "a", &lease{ttl: 30 * time.Second, wait: "0"}, identity{"me", 5})
	return s, err
}

// The numbers behind that of a request are its user's, who takes the next one for the next
// command: the release of a lock that nobody wants any more must not use it up.
func TestInterruptedAcquireUsesNoOtherNumberOfItsUser(t *testing.T) {
	s, err := acquireInterrupted(t, &pb.Answer{Status: pb.Status_STATUS_OK, Lock: "a", Token: 17})
	if !errors.Is(err, errInterrupted) {
		t.Errorf("got %v", err)
	}
	if len(s.released) != 1 || s.released[0].Token != 17 || s.released[0].ClientId == "me" {
		t.Errorf("released with %v", s.released)
	}
}

// A request whose outcome is known is in no queue.
func TestInterruptedAcquireThatHasEnded(t *testing.T) {
	for _, status := range []pb.Status{pb.Status_STATUS_CANCELLED, pb.Status_STATUS_WAIT_TIMEOUT, pb.Status_STATUS_LEASE_EXPIRED} {
		if _, err := acquireInterrupted(t, &pb.Answer{Status: status}); err != errInterrupted {
			t.Errorf("%v: got %v", status, err)
		}
	}
}
