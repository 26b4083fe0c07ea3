// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// server answers Release by a script, and Handover like Release.
type server struct {
	pb.UnimplementedLockServiceServer
	addr  string
	reply func(n int) (*pb.Answer, error)
	mu    sync.Mutex // guards seen
	seen  []uint64   // the request IDs

	role      pb.Role
	names     string // the address of whom it takes for the primary
	forgotten []string
	looked    func() pb.Role // instead of role
	cluster   string
	older     bool // it does not look for which cluster a call is meant
	gateway   bool // it is reached through one
	cells     []*pb.CellServers
	own       *pb.Cell
}

func (s *server) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	if s.looked != nil {
		return &pb.StatusResponse{Status: pb.Status_STATUS_OK, ClusterId: s.cluster, Role: s.looked()}, nil
	}
	return &pb.StatusResponse{Status: pb.Status_STATUS_OK, ClusterId: s.cluster, Role: s.role, Primary: &pb.Primary{Client: s.names}, Gateway: s.gateway, Cells: s.cells, Cell: s.own}, nil
}

func (s *server) ForgetClient(_ context.Context, q *pb.ForgetClientRequest) (*pb.Answer, error) {
	s.forgotten = append(s.forgotten, q.GetClientId())
	return &pb.Answer{Status: pb.Status_STATUS_OK}, nil
}

func (s *server) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	if meant := metadata.ValueFromIncomingContext(ctx, wire.ClusterKey); len(meant) > 0 && meant[0] != s.cluster && !s.older {
		return nil, status.Error(codes.FailedPrecondition, "this server belongs to another cluster")
	}
	s.mu.Lock()
	s.seen = append(s.seen, q.GetRequestId())
	n := len(s.seen)
	s.mu.Unlock()
	return s.reply(n)
}

// asked is how many requests came, of which some may still be under way.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func start(t *testing.T, reply func(n int) (*pb.Answer, error)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String(), reply: reply}
	g := grpc.NewServer()
	pb.RegisterLockServiceServer(g, s)
	go g.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(g.Stop)
	return s
}

func release(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
	return s.Release(ctx, &pb.ReleaseRequest{ClientId: "c", RequestId: 5})
}

func caller(t *testing.T, endpoints ...string) *remote.Caller {
	t.Helper()
	c, err := remote.New(remote.Options{Endpoints: endpoints, Budget: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // nothing is in flight
	return c
}

func done() *pb.Answer { return &pb.Answer{Status: pb.Status_STATUS_OK, Token: 9} }

func TestFollowsTheWordOfAReplica(t *testing.T) {
	primary := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	replica := start(t, func(int) (*pb.Answer, error) {
		return nil, &wire.Error{Status: cluster.StatusSecondaryMode, Primary: &wire.Primary{ID: 1, Client: primary.addr}}
	})
	// Nobody listens on port 1.
	r, err := remote.Write(t.Context(), caller(t, "127.0.0.1:1", replica.addr), release)
	if err != nil || r.GetToken() != 9 {
		t.Fatalf("got %v, %v", r, err)
	}
}

// TestSaysOnceWhatAllSay: the servers are named, and what they say is said once; else each with its own.
func TestSaysOnceWhatAllSay(t *testing.T) {
	refuse := func(s cluster.Status, message string) string {
		return start(t, func(int) (*pb.Answer, error) { return nil, &wire.Error{Status: s, Message: message} }).addr
	}
	one, two := refuse(cluster.StatusSecondaryMode, "this server is not the primary"), refuse(cluster.StatusSecondaryMode, "")
	other := refuse(cluster.StatusSecondaryMode, "it takes over")
	for _, x := range []struct{ addrs, want []string }{
		{[]string{one, two}, []string{"^this server is not the primary \\(said by ", one, two}},
		{[]string{one, other}, []string{one + ": this server is not the primary", other + ": this server is not the primary: it takes over"}},
	} {
		c, err := remote.New(remote.Options{Endpoints: x.addrs, Budget: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		_, err = remote.Write(t.Context(), c, release)
		for _, want := range x.want {
			if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStaysWithItsCluster: a request that one cluster may have executed goes to no other, whose
// servers have its addresses by now, or are named by mistake.
func TestStaysWithItsCluster(t *testing.T) {
	for _, older := range []bool{false, true} {
		stranger := start(t, func(int) (*pb.Answer, error) { return done(), nil })
		stranger.cluster, stranger.older, stranger.role = "bb", older, pb.Role_ROLE_PRIMARY
		failing := func(names string) *server {
			s := start(t, func(n int) (*pb.Answer, error) {
				switch {
				case n == 1 && names == "":
					return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
				case n == 1:
					return nil, &wire.Error{Status: cluster.StatusSecondaryMode, Primary: &wire.Primary{ID: 2, Client: names}}
				}
				return done(), nil
			})
			s.cluster, s.role = "aa", pb.Role_ROLE_PRIMARY
			return s
		}
		lost, mistaken := failing(""), failing(stranger.addr)
		for what, endpoints := range map[string][]string{"in doubt": {lost.addr, stranger.addr}, "sent on": {mistaken.addr}} {
			if _, err := remote.Write(t.Context(), caller(t, endpoints...), release); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if n := stranger.asked(); n > 0 {
				t.Errorf("%s: another cluster executed it %d times (older: %v)", what, n, older)
			}
		}
		if lost.asked() != 2 || mistaken.asked() != 2 {
			t.Errorf("its own was asked %d and %d times, want twice", lost.asked(), mistaken.asked())
		}
	}
}

func TestRepeatsUnderTheSameID(t *testing.T) {
	s := start(t, func(n int) (*pb.Answer, error) {
		switch n {
		case 1:
			return &pb.Answer{Status: pb.Status_STATUS_UNKNOWN}, nil
		case 2:
			return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
		case 3:
			return nil, &wire.Error{Status: cluster.StatusServerFencing, RetryAfter: time.Millisecond}
		default:
			return done(), nil
		}
	})
	if _, err := remote.Write(t.Context(), caller(t, s.addr), release); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.seen, []uint64{5, 5, 5, 5}) {
		t.Errorf("requests %v", s.seen)
	}
}

func TestRefusalIsFinal(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) {
		return &pb.Answer{Status: pb.Status_STATUS_HELD, Holder: &pb.LockHolder{ClientId: "x"}}, nil
	})
	_, err := remote.Write(t.Context(), caller(t, s.addr), release)
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Holder == nil || e.Holder.Client != "x" || len(s.seen) != 1 {
		t.Errorf("got %v after %d tries", err, len(s.seen))
	}
}

func TestStorageThatRefusesIsToldSoon(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) {
		return nil, &wire.Error{Status: cluster.StatusStorageUnavailable, Message: "no space left on the volume", RetryAfter: time.Second}
	})
	began := time.Now()
	_, err := remote.Write(t.Context(), caller(t, s.addr), release)
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Status != cluster.StatusStorageUnavailable || e.Message != "no space left on the volume" {
		t.Errorf("told %v", err)
	}
	if took := time.Since(began); took > 1900*time.Millisecond || len(s.seen) < 2 {
		t.Errorf("told after %v and %d tries", took, len(s.seen))
	}
}

// What is committed is no doubt, whatever else is told of it.
func TestCommittedIsNotAskedAgain(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) {
		return &pb.Answer{Status: pb.Status_STATUS_UNKNOWN, Committed: true, Message: "not in the file yet"}, nil
	})
	_, err := remote.Write(t.Context(), caller(t, s.addr), release)
	if e, ok := errors.AsType[*wire.Error](err); !ok || !e.Committed || len(s.seen) != 1 {
		t.Errorf("told %v after %d tries", err, len(s.seen))
	}
}

func TestOnceIsNotRepeated(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) {
		return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
	})
	_, err := remote.Once(t.Context(), caller(t, s.addr), release)
	if !errors.Is(err, wire.ErrUnknown) || len(s.seen) != 1 {
		t.Errorf("got %v after %d tries, want UNKNOWN after one", err, len(s.seen))
	}
}

func TestBudget(t *testing.T) {
	c, err := remote.New(remote.Options{Endpoints: []string{"127.0.0.1:1"}, Budget: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	if _, err := remote.Write(t.Context(), c, release); !errors.Is(err, remote.ErrNoServer) {
		t.Errorf("got %v, want %v", err, remote.ErrNoServer)
	}
}

// What no server can have seen was not executed, whatever kept it from being sent.
func TestWhatWasNeverSentIsNotUnknown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // ends who accepts
	go func() {     // it speaks something else
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("INVALID_FORMAT\r\nINVALID_FORMAT\r\n")) //nolint:errcheck // its client's loss
			c.Close()                                               //nolint:errcheck // all is said
		}
	}()
	for _, endpoint := range []string{"127.0.0.1:1", "passthrough:///no port", "dns:///host.invalid:7601", l.Addr().String()} {
		c, err := remote.New(remote.Options{Endpoints: []string{endpoint}, Budget: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Write(t.Context(), c, release); !errors.Is(err, remote.ErrNoServer) || errors.Is(err, wire.ErrUnknown) {
			t.Errorf("%s: got %v, want %v", endpoint, err, remote.ErrNoServer)
		}
		c.Close() //nolint:errcheck // nothing is in flight
	}
}

// No server would understand it, so none is asked, and nobody waits for one.
func TestTextThatIsNotUTF8(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	_, err := remote.Write(t.Context(), caller(t, s.addr), func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return s.Release(ctx, &pb.ReleaseRequest{ClientId: "c", RequestId: 5, Lock: "caf\xe9"})
	})
	if !errors.Is(err, wire.ErrInvalidArgument) || len(s.seen) != 0 {
		t.Errorf("got %v after %d requests", err, len(s.seen))
	}
}

func TestAddressOfSomethingElse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer() // as that for the other servers is
	go g.Serve(l)         //nolint:errcheck // ends with Stop
	defer g.Stop()
	_, err = remote.Write(t.Context(), caller(t, l.Addr().String()), release)
	if !errors.Is(err, remote.ErrNoServer) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

// TestUnknownIsNotForgotten where the next server to ask is none.
func TestUnknownIsNotForgotten(t *testing.T) {
	addresses := make([]string, 2)
	for i, options := range [][]grpc.ServerOption{
		{grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unavailable, "it died") })}, nil,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer(options...)
		go g.Serve(l) //nolint:errcheck // ends with Stop
		defer g.Stop()
		addresses[i] = l.Addr().String()
	}
	_, err := remote.Write(t.Context(), caller(t, addresses...), release)
	if !errors.Is(err, wire.ErrUnknown) || !strings.Contains(err.Error(), "it died") || !strings.Contains(err.Error(), addresses[1]) {
		t.Errorf("got %v", err)
	}
}

// An attempt whose answer is lost may have been executed, whatever a server says to those that
// follow, unless that holds for all of them.
func TestDoubtOutlivesLaterRefusals(t *testing.T) {
	noQuorum := &wire.Error{Status: cluster.StatusNoQuorum, RetryAfter: 100 * time.Millisecond}
	for _, first := range []error{status.Error(codes.Unavailable, "it died"), &wire.Error{Status: cluster.StatusUnknown}} {
		for _, then := range []struct {
			answer  *pb.Answer
			err     error
			settled bool
		}{
			{err: noQuorum},
			{answer: &pb.Answer{Status: pb.Status_STATUS_HELD}},
			{answer: &pb.Answer{Status: pb.Status_STATUS_FILE_QUARANTINED}},
			{answer: &pb.Answer{Status: pb.Status_STATUS_FILE_QUARANTINED, Committed: true}, settled: true},
			{answer: &pb.Answer{Status: pb.Status_STATUS_INVALID_TOKEN}, settled: true},
			{answer: done(), settled: true},
		} {
			s := start(t, func(n int) (*pb.Answer, error) {
				if n == 1 {
					return nil, first
				}
				return then.answer, then.err
			})
			_, err := remote.Write(t.Context(), caller(t, s.addr), release)
			if unknown := errors.Is(err, wire.ErrUnknown); unknown == then.settled {
				t.Errorf("behind %v, then %v %v: got %v after %d tries", first, then.answer, then.err, err, len(s.seen))
			}
		}
	}
}

// A break that names no token may meet another holder with its first attempt than with its second.
func TestARefusedBreakSpeaksForItself(t *testing.T) {
	s := start(t, func(n int) (*pb.Answer, error) {
		if n == 1 {
			return nil, status.Error(codes.Unavailable, "it died")
		}
		return &pb.Answer{Status: pb.Status_STATUS_INVALID_TOKEN}, nil
	})
	if _, err := remote.Break(t.Context(), caller(t, s.addr), release); !errors.Is(err, wire.ErrUnknown) {
		t.Errorf("got %v after %d tries", err, len(s.seen))
	}
}

// Who says when to come again is not asked before.
func TestAdvisedPauseIsKept(t *testing.T) {
	const after = 300 * time.Millisecond
	s := start(t, func(n int) (*pb.Answer, error) {
		if n == 1 {
			return nil, &wire.Error{Status: cluster.StatusStorageUnavailable, RetryAfter: after}
		}
		return done(), nil
	})
	began := time.Now()
	if _, err := remote.Write(t.Context(), caller(t, s.addr), release); err != nil || time.Since(began) < after {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// Who is too fast asks the same server again in time, and is told if the budget ends before.
func TestTooFast(t *testing.T) {
	limited := func(after time.Duration, times int) func(int) (*pb.Answer, error) {
		return func(n int) (*pb.Answer, error) {
			if n <= times {
				return nil, &wire.Error{Status: cluster.StatusLimited, Message: "quota", RetryAfter: after}
			}
			return done(), nil
		}
	}
	other := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	other.role = pb.Role_ROLE_REPLICA
	began := time.Now()
	s := start(t, limited(100*time.Millisecond, 3))
	if _, err := remote.Write(t.Context(), caller(t, s.addr, other.addr), release); err != nil || time.Since(began) < 300*time.Millisecond || s.asked() != 4 || other.asked() > 0 {
		t.Errorf("%v after %v: the server was asked %d times, the other one %d times", err, time.Since(began), s.asked(), other.asked())
	}
	s = start(t, limited(100*time.Millisecond, 1<<30))
	if _, err := remote.Write(t.Context(), caller(t, s.addr), release); !errors.Is(err, wire.ErrLimited) || errors.Is(err, remote.ErrNoServer) || s.asked() < 5 {
		t.Errorf("%v after %d tries", err, s.asked())
	}
	s = start(t, limited(0, 1))
	if _, err := remote.Write(t.Context(), caller(t, s.addr), release); !errors.Is(err, wire.ErrLimited) || s.asked() != 1 {
		t.Errorf("%v after %d tries", err, s.asked())
	}
}

// A wait goes on elsewhere when the server that it waits at is no longer primary.
func TestWaitLeavesAFormerPrimary(t *testing.T) {
	next := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	end := make(chan struct{})
	var looks atomic.Int64
	t.Cleanup(func() { close(end) })
	left := start(t, func(int) (*pb.Answer, error) { <-end; return nil, status.Error(codes.Unavailable, "it ended") })
	left.looked = func() pb.Role {
		if looks.Add(1) == 1 {
			return pb.Role_ROLE_PRIMARY
		}
		return pb.Role_ROLE_REPLICA
	}
	c, err := remote.New(remote.Options{Endpoints: []string{left.addr, next.addr}, Budget: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	if r, err := remote.Wait(ctx, c, release); err != nil || r.GetToken() != 9 || time.Since(began) > 10*time.Second {
		t.Errorf("%v, %v after %v: it was asked %d times", r, err, time.Since(began), left.asked())
	}
	if n := left.asked(); n != 1 {
		t.Errorf("the one that is no longer primary was asked %d times", n)
	}
}

// Through a gateway, a call stays there, whatever server an answer names: servers may be out of reach.
func TestStaysWithAGateway(t *testing.T) {
	for _, several := range []bool{false, true} {
		other := start(t, func(int) (*pb.Answer, error) { t.Error("the call went around the gateway"); return done(), nil })
		gateway := start(t, func(n int) (*pb.Answer, error) {
			if n == 1 {
				return nil, &wire.Error{Status: cluster.StatusSecondaryMode, Primary: &wire.Primary{ID: 1, Client: other.addr}}
			}
			return done(), nil
		})
		gateway.gateway, gateway.names, other.role = true, other.addr, pb.Role_ROLE_PRIMARY
		endpoints := []string{gateway.addr}
		if several {
			endpoints = append(endpoints, gateway.addr)
		}
		r, err := remote.Write(t.Context(), caller(t, endpoints...), release)
		if err != nil || r.GetToken() != 9 || gateway.asked() != 2 {
			t.Errorf("several %v: %v, %v after %d requests", several, r, err, gateway.asked())
		}
	}
}
