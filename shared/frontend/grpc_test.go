// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/session"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// client makes calls by gRPC, and connections for sessions.
type client struct {
	pb.LockServiceClient
	sessions *session.Server
}

// dialGRPC serves b and connects to it.
func dialGRPC(t *testing.T, b serving.Backend) client {
	t.Helper()
	return dialService(t, service.New(b, service.Options{}))
}

func dialService(t *testing.T, x *service.Service) client {
	t.Helper()
	sessions := session.New(x, zerolog.Nop())
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer(grpcapi.Options()...)
	grpcapi.Register(s, x)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Stop()
		sessions.Close()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // or it had not begun
			t.Errorf("serve: %v", err)
		}
	})
	return client{pb.NewLockServiceClient(c), sessions}
}

func TestGRPCStatuses(t *testing.T) {
	unavailable := map[cluster.Status]bool{
		cluster.StatusSecondaryMode: true, cluster.StatusServerFencing: true,
		cluster.StatusNoQuorum: true, cluster.StatusStorageUnavailable: true,
	}
	for _, s := range cluster.Statuses() {
		t.Run(s.String(), func(t *testing.T) {
			c := dialGRPC(t, answering(locktable.Outcome{Status: s, Message: "words"}))
			a, err := c.Acquire(t.Context(), &pb.AcquireRequest{ClientId: "c1", RequestId: 5, Lock: "l", TtlMs: 30000})
			_, kerr := c.KeepAlive(t.Context(), &pb.KeepAliveRequest{ClientId: "c1"})
			_, gerr := c.GetLock(t.Context(), &pb.GetLockRequest{Lock: "l"})
			if s == cluster.StatusUnauthenticated { // as users of gRPC expect
				for _, err := range []error{err, kerr, gerr} {
					if status.Code(err) != codes.Unauthenticated || !errors.Is(wire.FromGRPC(err), wire.ErrUnauthenticated) {
						t.Errorf("error: %v", err)
					}
				}
				return
			}
			if s == cluster.StatusLimited { // as well, with its detail
				for _, err := range []error{err, kerr, gerr} {
					if status.Code(err) != codes.ResourceExhausted || !errors.Is(wire.FromGRPC(err), wire.ErrLimited) {
						t.Errorf("error: %v", err)
					}
				}
				return
			}
			if !unavailable[s] {
				if err != nil || kerr != nil || gerr != nil {
					t.Fatalf("errors: %v, %v, %v", err, kerr, gerr)
				}
				if a.Status != pb.Status(s) || a.Message != "words" || a.ClientId != "c1" || a.RequestId != 5 || !a.Protected || a.Lock != "l" {
					t.Errorf("answer: %v", a)
				}
				return
			}
			for _, err := range []error{err, kerr, gerr} {
				if status.Code(err) != codes.Unavailable {
					t.Errorf("code of %v", err)
				}
				e, ok := wire.FromGRPC(err).(*wire.Error)
				if !ok || e.Status != s {
					t.Fatalf("detail: %v", err)
				}
				if s == cluster.StatusSecondaryMode {
					if e.Primary == nil || *e.Primary != (wire.Primary{ID: 2, Client: "h2:1"}) {
						t.Errorf("primary: %+v", e.Primary)
					}
				} else if e.RetryAfter <= 0 {
					t.Errorf("no retry after")
				}
			}
			if e := wire.FromGRPC(err).(*wire.Error); e.Client != "c1" || e.Request != 5 {
				t.Errorf("IDs in the detail: %+v", e)
			}
		})
	}
}

func TestGRPCOverAPrimary(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	ctx := t.Context()
	must := func(a *pb.Answer, err error) *pb.Answer {
		t.Helper()
		if err != nil || a.Status != pb.Status_STATUS_OK {
			t.Fatalf("%v %v", a, err)
		}
		return a
	}
	id := must(c.OpenClient(ctx, &pb.OpenClientRequest{Nonce: 1 << 63})).ClientId
	if again := must(c.OpenClient(ctx, &pb.OpenClientRequest{Nonce: 1 << 63})); again.ClientId != id || !again.Repeat {
		t.Errorf("second open: %v", again)
	}
	got := must(c.Acquire(ctx, &pb.AcquireRequest{ClientId: id, RequestId: 1, Lock: "a/b", TtlMs: 30000, Holder: &pb.Holder{Host: "h", Pid: 7}}))
	if got.Token == 0 || got.TtlMs != 30000 || !got.Protected || got.Repeat {
		t.Errorf("grant: %v", got)
	}
	if again := must(c.Acquire(ctx, &pb.AcquireRequest{ClientId: id, RequestId: 1, Lock: "a/b", TtlMs: 30000})); again.Token != got.Token || !again.Repeat {
		t.Errorf("repeat: %v", again)
	}
	data := []byte("line\n")
	r := must(c.FileAppend(ctx, &pb.FileAppendRequest{ClientId: id, RequestId: 2, Lock: "a/b", Token: got.Token, File: "f", Data: data})).Receipt
	if r.GetFile() != "f" || r.GetLength() != 5 || r.GetGeneration() == 0 || r.GetToken() != got.Token {
		t.Errorf("receipt: %v", r)
	}
	must(c.BindFile(ctx, &pb.BindFileRequest{ClientId: id, RequestId: 3, Lock: "a/b", Token: got.Token, File: "g"}))
	// The old file is in the way, which only its owner may change.
	if a, err := c.RotateFile(ctx, &pb.RotateFileRequest{ClientId: id, RequestId: 4, Lock: "a/b", Token: got.Token, File: "f"}); err != nil || a.Status != pb.Status_STATUS_INVALID_ARGUMENT {
		t.Errorf("rotate: %v %v", a, err)
	}
	must(c.UnbindFile(ctx, &pb.UnbindFileRequest{ClientId: id, RequestId: 5, Lock: "a/b", Token: got.Token, File: "g"}))
	must(c.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: "a/b", Token: got.Token}))
	if v := must(c.Verify(ctx, &pb.VerifyRequest{Lock: "a/b", Token: got.Token})); v.TtlMs <= 0 || v.ClientId != id || v.Lsn < got.Token {
		t.Errorf("verified: %v", v)
	}
	if v, err := c.Verify(ctx, &pb.VerifyRequest{Lock: "a/b", Token: got.Token - 1}); err != nil || v.Status != pb.Status_STATUS_INVALID_TOKEN || v.Holder.GetToken() != got.Token {
		t.Errorf("an old token: %v, %v", v, err)
	}
	if v, err := c.Verify(ctx, &pb.VerifyRequest{Lock: "free", Token: got.Token}); err != nil || v.Status != pb.Status_STATUS_INVALID_TOKEN || v.Holder != nil {
		t.Errorf("a token of a free lock: %v, %v", v, err)
	}
	if l, err := c.GetLock(ctx, &pb.GetLockRequest{Lock: "a/b"}); err != nil || l.Lock.Grant.Token != got.Token ||
		l.Lock.Grant.Holder.GetPid() != 7 || len(l.Lock.Files) != 1 || l.Lock.Grant.RemainingMs <= 0 || l.Lsn == 0 {
		t.Errorf("lock: %v %v", l, err)
	}
	held := must(c.Acquire(ctx, &pb.AcquireRequest{ClientId: id, RequestId: 6, Lock: "c", TtlMs: 30000}))
	cancelled, err := c.Cancel(ctx, &pb.CancelRequest{ClientId: id, RequestId: 9})
	if err != nil || cancelled.Status != pb.Status_STATUS_CANCELLED && cancelled.Status != pb.Status_STATUS_OK {
		t.Errorf("cancel: %v %v", cancelled, err)
	}
	if o, err := c.Outcome(ctx, &pb.OutcomeRequest{ClientId: id, RequestId: 2}); err != nil ||
		o.State != pb.RequestState_REQUEST_STATE_EXECUTED || o.Outcome.Receipt.GetLength() != 5 {
		t.Errorf("outcome: %v %v", o, err)
	}
	must(c.BreakLock(ctx, &pb.BreakLockRequest{ClientId: id, RequestId: 10, Lock: "c", Token: held.Token, Actor: "me", Reason: "test"}))
	if a, err := c.Release(ctx, &pb.ReleaseRequest{ClientId: id, RequestId: 11, Lock: "c", Token: held.Token}); err != nil || a.Status != pb.Status_STATUS_INVALID_TOKEN {
		t.Errorf("release under a broken token: %v %v", a, err)
	}
	if a, err := c.Handover(ctx, &pb.HandoverRequest{}); err != nil || a.Status != pb.Status_STATUS_ERROR || !strings.Contains(a.Message, "able") {
		t.Errorf("handover without a successor: %v %v", a, err)
	}
	s, err := c.Status(ctx, &pb.StatusRequest{})
	if err != nil || s.Role != pb.Role_ROLE_PRIMARY || len(s.Servers) != 3 || s.Servers[1].HeardAgoMs != -1 || s.Table.GetHeld() != 1 || s.Table.GetFiles() != 1 {
		t.Errorf("status: %v %v", s, err)
	}
}

// A call that is meant for another cluster does nothing, and reads nothing.
func TestCallsMeantForAnotherClusterAreRefused(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	mine := b.Status().ClusterID
	meant := func(id string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), wire.ClusterKey, id)
	}
	q := &pb.AcquireRequest{ClientId: "c1", RequestId: 1, Lock: "x", TtlMs: 30000}
	a, err := c.Acquire(meant("ffff"), q)
	if e := status.Convert(err); e.Code() != codes.FailedPrecondition || !strings.Contains(e.Message(), "belongs to cluster "+mine) {
		t.Errorf("acquire: %v %v", a, err)
	}
	s := connect(t, c)
	s.Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c1", ClusterId: "ffff"}, Operations: []*pb.Operation{{Request: &pb.Operation_Acquire{Acquire: q}}}}) //nolint:errcheck // it is refused
	if r, err := s.Recv(); err != nil || r.Refused == nil || s.settings.ClusterId != mine {
		t.Errorf("session: %v %v, settings %v", r, err, s.settings)
	}
	if r, err := c.Status(meant("ffff"), &pb.StatusRequest{}); err != nil || r.ClusterId != mine {
		t.Errorf("status: %v %v", r, err)
	}
	if a, err := c.Acquire(meant(mine), q); err != nil || a.Status != pb.Status_STATUS_OK || a.Repeat {
		t.Errorf("its own: %v %v", a, err)
	}
	if r, err := c.KeepAlive(meant(mine), &pb.KeepAliveRequest{ClientId: "c1"}); err != nil || r.ClusterId != mine {
		t.Errorf("keep-alive: %v %v", r, err)
	}
	if a, err := c.RenewLease(meant(mine), &pb.RenewLeaseRequest{Lock: "x", Token: 9}); err != nil || a.ClusterId != mine {
		t.Errorf("renew: %v %v", a, err)
	}
}

func TestKeepAliveListsWhatDiffers(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	for i, lock := range []string{"x", "y"} {
		if _, err := c.Acquire(t.Context(), &pb.AcquireRequest{ClientId: "c1", RequestId: uint64(i + 1), Lock: lock, TtlMs: 30000}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		client  string
		held    uint32
		differs bool
		grants  int
	}{{"c1", 2, false, 0}, {"c1", 1, true, 2}, {"c1", 0, true, 2}, {"nobody", 1, true, 0}, {"nobody", 0, false, 0}} {
		r, err := c.KeepAlive(t.Context(), &pb.KeepAliveRequest{ClientId: x.client, Held: x.held, Correlation: 8})
		if err != nil || r.Status != pb.Status_STATUS_OK || r.Differs != x.differs || len(r.Grants) != x.grants || r.Correlation != 8 {
			t.Errorf("%+v: %v %v", x, r, err)
		}
	}
}

func TestListLocksPages(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	for _, lock := range []string{"p/a", "p/b", "p/c", "q"} {
		if _, err := c.Acquire(t.Context(), &pb.AcquireRequest{Lock: lock, TtlMs: 30000}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	q := &pb.ListLocksRequest{Prefix: "p/", Limit: 2}
	for {
		r, err := c.ListLocks(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Locks {
			names = append(names, l.Name)
		}
		if q.After = r.Next; r.Next == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "p/a p/b p/c" {
		t.Errorf("locks: %s", got)
	}
	if _, err := c.ListLocks(t.Context(), &pb.ListLocksRequest{MinLsn: 1 << 50}); status.Code(err) != codes.Unavailable {
		t.Errorf("a state of the future: %v", err)
	}
}

func TestGRPCBadInput(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	ctx := t.Context()
	ok, err := c.Acquire(ctx, &pb.AcquireRequest{ClientId: "c1", RequestId: 70, Lock: "l", TtlMs: 30000})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(q *pb.AcquireRequest) func() (*pb.Answer, error) {
		return func() (*pb.Answer, error) { return c.Acquire(ctx, q) }
	}
	add := func(client string, id uint64, token uint64, file string, data []byte) func() (*pb.Answer, error) {
		return func() (*pb.Answer, error) {
			return c.FileAppend(ctx, &pb.FileAppendRequest{ClientId: client, RequestId: id, Lock: "l", Token: token, File: file, Data: data})
		}
	}
	const bad, token, large, stale = pb.Status_STATUS_INVALID_ARGUMENT, pb.Status_STATUS_INVALID_TOKEN, pb.Status_STATUS_TOO_LARGE, pb.Status_STATUS_STALE_REQUEST
	for name, x := range map[string]struct {
		want pb.Status
		call func() (*pb.Answer, error)
	}{
		"empty lock":         {bad, acquire(&pb.AcquireRequest{TtlMs: 30000})},
		"long lock":          {bad, acquire(&pb.AcquireRequest{Lock: strings.Repeat("x", 513), TtlMs: 30000})},
		"unclean lock":       {bad, acquire(&pb.AcquireRequest{Lock: "a//b", TtlMs: 30000})},
		"no ttl":             {bad, acquire(&pb.AcquireRequest{Lock: "x"})},
		"short ttl":          {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 1})},
		"long ttl":           {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 1 << 62})},
		"negative ttl":       {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: -5})},
		"negative wait":      {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, WaitMs: proto.Int64(-2)})},
		"unknown mode":       {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, Mode: 300})},
		"half an ID":         {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, ClientId: "c"})},
		"the other half":     {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, RequestId: 1})},
		"bad client":         {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, ClientId: "a b", RequestId: 1})},
		"unopened client":    {stale, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, ClientId: "@99999", RequestId: 1})},
		"reused ID":          {bad, acquire(&pb.AcquireRequest{Lock: "other", TtlMs: 30000, ClientId: "c1", RequestId: 70})},
		"mark above ID":      {bad, acquire(&pb.AcquireRequest{Lock: "x", TtlMs: 30000, ClientId: "c1", RequestId: 1, LowWater: 2})},
		"wrong token":        {token, add("", 0, ok.Token+1, "f", []byte("x"))},
		"no token":           {bad, add("", 0, 0, "f", []byte("x"))},
		"no data":            {bad, add("", 0, ok.Token, "f", nil)},
		"traversal":          {bad, add("", 0, ok.Token, "../CLUSTER", []byte("x"))},
		"inner traversal":    {bad, add("", 0, ok.Token, "a/../../b", []byte("x"))},
		"absolute file":      {bad, add("", 0, ok.Token, "/etc/passwd", []byte("x"))},
		"too much data":      {large, add("", 0, ok.Token, "f", make([]byte, cluster.MaxAppend+1))},
		"open without nonce": {bad, func() (*pb.Answer, error) { return c.OpenClient(ctx, &pb.OpenClientRequest{}) }},
		"cancel of nothing":  {bad, func() (*pb.Answer, error) { return c.Cancel(ctx, &pb.CancelRequest{}) }},
		"renew of nothing":   {bad, func() (*pb.Answer, error) { return c.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: "l"}) }},
		"renew wrong token":  {token, func() (*pb.Answer, error) { return c.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: "l", Token: 1 << 60}) }},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := x.call()
			if err != nil || a.Status != x.want || a.Message == "" {
				t.Errorf("got %v, %v, want %v", a, err, x.want)
			}
		})
	}
	raised, err := c.Release(ctx, &pb.ReleaseRequest{ClientId: "c1", RequestId: 71, LowWater: 71, Lock: "l", Token: ok.Token})
	if err != nil || raised.Status != pb.Status_STATUS_OK {
		t.Fatalf("release: %v %v", raised, err)
	}
	if a, err := c.Acquire(ctx, &pb.AcquireRequest{ClientId: "c1", RequestId: 70, Lock: "l", TtlMs: 30000}); err != nil || a.Status != stale {
		t.Errorf("a request below the mark: %v %v", a, err)
	}
	if _, err := c.FileAppend(ctx, &pb.FileAppendRequest{Lock: "l", Token: 1, File: "f", Data: make([]byte, 3<<20)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message beyond the limit: %v", err)
	}
}

func TestGarbageOnTheGRPCPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpcapi.Options()...)
	grpcapi.Register(s, service.New(startPrimary(t), service.Options{}))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	for _, garbage := range garbage() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		talk(t, c, garbage)
	}
	c, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a, err := pb.NewLockServiceClient(c).Acquire(t.Context(), &pb.AcquireRequest{Lock: "l", TtlMs: 30000}); err != nil || a.Token == 0 {
		t.Errorf("after garbage: %v %v", a, err)
	}
	s.Stop()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestCallWithoutIDsLeavesNoWaiter(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	first, err := c.Acquire(t.Context(), &pb.AcquireRequest{Lock: "l", TtlMs: 60000})
	if err != nil || first.Protected || !strings.HasPrefix(first.ClientId, "~") || first.RequestId == 0 {
		t.Fatalf("acquire without IDs: %v %v", first, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, &pb.AcquireRequest{Lock: "l", TtlMs: 60000, WaitMs: proto.Int64(-1)})
		done <- err
	}()
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("the cancelled call: %v", err)
	}
	eventually(t, "the queue is empty", func() bool { return b.lockAt(t, "l").QueueLength == 0 })
}

// TestEndedCallKeepsThePlaceOfItsIDs shows why a call that brought IDs is not
// cancelled when it ends: its client may have come back over another connection.
func TestEndedCallKeepsThePlaceOfItsIDs(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	first, err := c.Acquire(t.Context(), &pb.AcquireRequest{Lock: "l", TtlMs: 60000})
	if err != nil {
		t.Fatal(err)
	}
	q := func() *pb.AcquireRequest {
		return &pb.AcquireRequest{ClientId: "c1", RequestId: 1, Lock: "l", TtlMs: 60000, WaitMs: proto.Int64(-1)}
	}
	broken, breakIt := context.WithCancel(t.Context())
	lost := make(chan error, 1)
	go func() { _, err := c.Acquire(broken, q()); lost <- err }()
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	type result struct {
		a   *pb.Answer
		err error
	}
	again := make(chan result, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { a, err := c.Acquire(ctx, q()); again <- result{a, err} }()
	breakIt()
	<-lost // cancelled
	if _, err := c.Release(ctx, &pb.ReleaseRequest{Lock: "l", Token: first.Token}); err != nil {
		t.Fatal(err)
	}
	if r := <-again; r.err != nil || r.a.Status != pb.Status_STATUS_OK {
		t.Fatalf("the repeat: %v %v", r.a, r.err)
	} else if g := b.lockAt(t, "l").Grant; uint64(g.Token) != r.a.Token {
		t.Errorf("told token %d, and the lock has %d", r.a.Token, g.Token)
	}
}

// Who asks for a successor that there can never be is told so, and not that something failed.
func TestHandoverToWhoCanNeverTakeOver(t *testing.T) {
	c, ctx := dialGRPC(t, startPrimary(t)), t.Context()
	for to, want := range map[uint32]string{1: "is primary already", 9: "there is no server 9: use one of [1 2 3]"} {
		if a, err := c.Handover(ctx, &pb.HandoverRequest{To: to}); err != nil || a.Status != pb.Status_STATUS_INVALID_ARGUMENT || !strings.Contains(a.Message, want) {
			t.Errorf("handover to server %d: %v %v", to, a, err)
		}
	}
}

// unreadable is a backend whose table nobody may ask for.
type unreadable struct {
	serving.Backend
	t *testing.T
}

func (u unreadable) Read(context.Context, func(serving.View)) (serving.Reading, error) {
	u.t.Error("the table was asked for")
	return serving.Reading{}, nil
}

// Who looks for a primary does not wait for its table, which waits for the volume.
func TestLocalStatusAsksNoTable(t *testing.T) {
	c := dialGRPC(t, unreadable{startPrimary(t), t})
	r, err := c.Status(t.Context(), &pb.StatusRequest{Local: true})
	if err != nil || r.GetRole() != pb.Role_ROLE_PRIMARY || len(r.GetServers()) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
