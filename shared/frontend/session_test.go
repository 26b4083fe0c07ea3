// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// stream is a connection to a server, seen by a client.
type stream struct {
	net.Conn
	r        *frames.Reader
	settings *pb.Settings
}

// connect connects to a server over TCP and exchanges settings. Whoever waits for a word that does
// not come hears of a deadline.
func connect(t *testing.T, c client) *stream {
	t.Helper()
	return connectAs(t, c, "")
}

// connectAs is connect with a credential.
func connectAs(t *testing.T, c client, credential string) *stream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// The kernel keeps little, so that a client that does not read is noticed.
	if err := errors.Join(conn.(*net.TCPConn).SetReadBuffer(64<<10), there.(*net.TCPConn).SetWriteBuffer(64<<10)); err != nil {
		t.Fatal(err)
	}
	c.sessions.ServeConn(there)
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	ours, err := proto.Marshal(&pb.Settings{Version: 1, Credential: credential})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(frames.Append([]byte(frames.Preface), frames.Settings, ours)); err != nil {
		t.Fatal(err)
	}
	s := &stream{Conn: conn, r: frames.NewReader(conn, 64<<20), settings: &pb.Settings{}}
	kind, b, _, err := s.r.Next()
	if err != nil || kind != frames.Settings || proto.Unmarshal(b, s.settings) != nil || s.settings.Version != frames.Version {
		t.Fatalf("settings: kind %d, %v, %v", kind, s.settings, err)
	}
	return s
}

// Send sends a message.
func (s *stream) Send(m *pb.SessionRequest) error {
	b, err := proto.Marshal(m)
	if err == nil {
		_, err = s.Write(frames.Append(nil, frames.Message, b))
	}
	return err
}

// Recv returns the next message.
func (s *stream) Recv() (*pb.SessionResponse, error) {
	for {
		kind, b, _, err := s.r.Next()
		if err != nil {
			return nil, err
		}
		if kind != frames.Message {
			continue
		}
		m := &pb.SessionResponse{}
		return m, proto.Unmarshal(b, m)
	}
}

// sessionOf opens a session and says hello.
func sessionOf(t *testing.T, c client, id string) *stream {
	t.Helper()
	s := connect(t, c)
	hello := &pb.SessionRequest{Hello: &pb.SessionHello{ClientId: id, Holder: &pb.Holder{Host: "here", Pid: 7, Command: "test"}}}
	if err := s.Send(hello); err != nil {
		t.Fatal(err)
	}
	return s
}

// welcomed is sessionOf at a primary.
func welcomed(t *testing.T, c client, id string) *stream {
	t.Helper()
	s := sessionOf(t, c, id)
	m, err := s.Recv()
	if err != nil || m.Welcome == nil || m.Welcome.ClientId != id || m.Welcome.ServerId != 1 || m.Welcome.MaxInFlight == 0 {
		t.Fatalf("welcome: %v, %v", m, err)
	}
	return s
}

func operation(n uint64, q any) *pb.Operation {
	op := &pb.Operation{Correlation: n}
	switch q := q.(type) {
	case *pb.AcquireRequest:
		op.Request = &pb.Operation_Acquire{Acquire: q}
	case *pb.ReleaseRequest:
		op.Request = &pb.Operation_Release{Release: q}
	case *pb.RenewLeaseRequest:
		op.Request = &pb.Operation_Renew{Renew: q}
	case *pb.CancelRequest:
		op.Request = &pb.Operation_Cancel{Cancel: q}
	case *pb.OutcomeRequest:
		op.Request = &pb.Operation_Outcome{Outcome: q}
	}
	return op
}

func ask(t *testing.T, s *stream, ops ...*pb.Operation) {
	t.Helper()
	if err := s.Send(&pb.SessionRequest{Operations: ops}); err != nil {
		t.Fatal(err)
	}
}

// answers reads until n operations are answered.
func answers(t *testing.T, s *stream, n int) map[uint64]*pb.Answer {
	t.Helper()
	got := map[uint64]*pb.Answer{}
	for len(got) < n {
		m, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d answers: %v", len(got), err)
		}
		if m.End != nil {
			t.Fatalf("the session ended: %v", m.End)
		}
		for _, a := range m.Answers {
			if got[a.Correlation] != nil {
				t.Errorf("operation %d is answered twice", a.Correlation)
			}
			got[a.Correlation] = a
		}
	}
	return got
}

func TestSessionCarriesOperations(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	s := welcomed(t, c, "c1")
	ask(t, s,
		operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "a", TtlMs: 60000}),
		operation(2, &pb.AcquireRequest{RequestId: 2, Lock: "b", TtlMs: 60000}),
		operation(3, &pb.AcquireRequest{RequestId: 3, Lock: "b", TtlMs: 60000}),
		operation(4, &pb.AcquireRequest{RequestId: 4, Lock: "c", TtlMs: 1}),
		operation(5, &pb.AcquireRequest{ClientId: "c2", RequestId: 1, Lock: "d", TtlMs: 60000}),
		operation(6, nil))
	got := answers(t, s, 6)
	want := map[uint64]pb.Status{
		1: pb.Status_STATUS_OK, 2: pb.Status_STATUS_OK, 3: pb.Status_STATUS_HELD, 4: pb.Status_STATUS_INVALID_ARGUMENT,
		5: pb.Status_STATUS_OK, 6: pb.Status_STATUS_INVALID_ARGUMENT,
	}
	for n, status := range want {
		if got[n].Status != status {
			t.Errorf("operation %d: %v, want %v", n, got[n], status)
		}
	}
	if h := got[3].GetHolder(); h.GetClientId() != "c1" || h.GetHost() != "here" || h.GetPid() != 7 {
		t.Errorf("the holder is the one of the hello: %v", h)
	}
	if g := b.lockAt(t, "d").Grant; g.Client != "c2" {
		t.Errorf("an operation may have a client of its own: %v", g)
	}
	ask(t, s, operation(7, &pb.RenewLeaseRequest{Lock: "a", Token: got[1].Token}))
	if a := answers(t, s, 1)[7]; a.Status != pb.Status_STATUS_OK || a.TtlMs != 60000 {
		t.Errorf("renew: %v", a)
	}
	ask(t, s, operation(8, &pb.ReleaseRequest{RequestId: 5, Lock: "a", Token: got[1].Token}))
	if a := answers(t, s, 1)[8]; a.Status != pb.Status_STATUS_OK || a.ClientId != "" || a.Lock != "" {
		t.Errorf("release: %v", a)
	}
	// A repeat on another stream has the same answer.
	again := welcomed(t, c, "c1")
	ask(t, again, operation(1, &pb.AcquireRequest{RequestId: 2, Lock: "b", TtlMs: 60000}))
	if a := answers(t, again, 1)[1]; !a.Repeat || a.Token != got[2].Token {
		t.Errorf("repeat: %v", a)
	}
}

func TestSessionKeepsAliveAndTellsOutcomes(t *testing.T) {
	s := welcomed(t, dialGRPC(t, startPrimary(t)), "c1")
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "a", TtlMs: 60000}))
	token := answers(t, s, 1)[1].Token
	if err := s.Send(&pb.SessionRequest{
		KeepAlives: []*pb.KeepAliveRequest{{Correlation: 2, Held: 1}, {Correlation: 3}, {Correlation: 5, Held: wire.HeldNotReported}},
		Operations: []*pb.Operation{operation(4, &pb.OutcomeRequest{ClientId: "c1", RequestId: 1})},
	}); err != nil {
		t.Fatal(err)
	}
	kept := map[uint64]*pb.KeepAliveResponse{}
	var outcomes []*pb.OutcomeResponse
	for len(kept) < 3 || len(outcomes) < 1 {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range m.KeepAlives {
			kept[k.Correlation] = k
		}
		outcomes = slices.Concat(outcomes, m.Outcomes)
	}
	if k := kept[2]; k.Status != pb.Status_STATUS_OK || k.Differs || k.ClientId != "c1" {
		t.Errorf("keep-alive: %v", k)
	}
	if k := kept[3]; !k.Differs || len(k.Grants) != 1 || k.Grants[0].Token != token {
		t.Errorf("keep-alive that believes in nothing: %v", k)
	}
	if k := kept[5]; k.Status != pb.Status_STATUS_OK || k.Differs || len(k.Grants) != 0 {
		t.Errorf("keep-alive that says nothing: %v", k)
	}
	if o := outcomes[0]; o.Correlation != 4 || o.State != pb.RequestState_REQUEST_STATE_EXECUTED || o.Outcome.Token != token {
		t.Errorf("outcome: %v", o)
	}
}

// A place in a queue outlives the stream for the TTL; a later stream finds it again.
func TestSessionPlaceOutlivesTheStream(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	holder := welcomed(t, c, "c1")
	ask(t, holder, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}))
	token := answers(t, holder, 1)[1].Token
	wait := &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000, WaitMs: new(int64(-1))}

	first := welcomed(t, c, "c2")
	ask(t, first, operation(1, wait))
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	first.Close()
	second := welcomed(t, c, "c2")
	ask(t, second, operation(9, wait))
	ask(t, holder, operation(2, &pb.ReleaseRequest{RequestId: 2, Lock: "l", Token: token}))
	if a := answers(t, second, 1)[9]; a.Status != pb.Status_STATUS_OK || a.Token <= token {
		t.Errorf("grant on the second stream: %v", a)
	}
}

// Nobody stands behind a place whose stream has ended and whose client is silent.
func TestSessionPlaceEndsBehindTheStream(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	holder := welcomed(t, c, "c1")
	ask(t, holder, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}))
	answers(t, holder, 1)
	s := welcomed(t, c, "c2")
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 1000, WaitMs: new(int64(-1))}))
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	s.Close()
	eventually(t, "nobody waits", func() bool { return b.lockAt(t, "l").QueueLength == 0 })
}

// What an acquire without IDs is granted goes back when its stream has ended.
func TestSessionCleansUpBehindAnonymous(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	holder := welcomed(t, c, "c1")
	ask(t, holder, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}))
	answers(t, holder, 1)
	s := sessionOf(t, c, "")
	ask(t, s, operation(1, &pb.AcquireRequest{Lock: "l", TtlMs: 60000, WaitMs: new(int64(-1))}))
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	s.Close()
	eventually(t, "nobody waits", func() bool { return b.lockAt(t, "l").QueueLength == 0 })
}

func TestSessionTellsTheLockOfACancelledRequest(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	s := welcomed(t, c, "c1")
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}))
	token := answers(t, s, 1)[1].Token
	ask(t, s, operation(2, &pb.CancelRequest{RequestId: 1}))
	if a := answers(t, s, 1)[2]; a.Lock != "l" || a.Token != token || a.Status != pb.Status_STATUS_OK {
		t.Errorf("cancel of what was granted: %v", a)
	}
}

// A message that is no protobuf ends the session with the reason.
func TestSessionEndsAtGarbage(t *testing.T) {
	s := welcomed(t, dialGRPC(t, startPrimary(t)), "c1")
	if _, err := s.Write(frames.Append(nil, frames.Message, []byte{0x12, 0x7f, 0x01})); err != nil {
		t.Fatal(err)
	}
	if m := next(t, s, func(m *pb.SessionResponse) bool { return m.End != nil }); m.End.Status != pb.Status_STATUS_INVALID_ARGUMENT {
		t.Errorf("garbage: %v", m)
	}
}

func TestSessionEndsWithTheTerm(t *testing.T) {
	b := startPrimary(t)
	s := welcomed(t, dialGRPC(t, b), "c1")
	b.p.End(errors.New("the test ends it"))
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatalf("no word of the end: %v", err)
		}
		if m.End != nil {
			if m.End.Status != pb.Status_STATUS_SECONDARY_MODE {
				t.Errorf("end: %v", m.End)
			}
			break
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A session tells nothing of a term that somebody has fenced, whatever is asked: what
// needs no record least of all.
func TestSessionOfAFencedTermTellsNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		ask  func(token uint64) *pb.SessionRequest
	}{
		{"a grant", func(uint64) *pb.SessionRequest {
			return &pb.SessionRequest{Operations: []*pb.Operation{operation(2, &pb.AcquireRequest{RequestId: 2, Lock: "free", TtlMs: 60000})}}
		}},
		{"a refusal", func(uint64) *pb.SessionRequest {
			return &pb.SessionRequest{Operations: []*pb.Operation{operation(2, &pb.AcquireRequest{RequestId: 2, Lock: "a", TtlMs: 60000})}}
		}},
		{"a grant without IDs", func(uint64) *pb.SessionRequest {
			return &pb.SessionRequest{Operations: []*pb.Operation{operation(2, &pb.AcquireRequest{Lock: "free", TtlMs: 60000})}}
		}},
		{"a renewal", func(token uint64) *pb.SessionRequest {
			return &pb.SessionRequest{Operations: []*pb.Operation{operation(2, &pb.RenewLeaseRequest{Lock: "a", Token: token})}}
		}},
		{"a keep-alive", func(uint64) *pb.SessionRequest {
			return &pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{{Correlation: 2, Held: 1}}}
		}},
		{"an outcome", func(uint64) *pb.SessionRequest {
			return &pb.SessionRequest{Operations: []*pb.Operation{operation(2, &pb.OutcomeRequest{ClientId: "c1", RequestId: 1})}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := startPrimary(t)
			s := welcomed(t, dialGRPC(t, b), "c1")
			ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "a", TtlMs: 60000}))
			token := answers(t, s, 1)[1].Token
			if err := b.disk.Write("epochs/0000000001/fence", 0, []byte("HFFENCE1")); err != nil {
				t.Fatal(err)
			}
			if err := s.Send(test.ask(token)); err != nil {
				t.Fatal(err)
			}
			told := []pb.Status{}
			m := next(t, s, func(m *pb.SessionResponse) bool {
				for _, a := range m.Answers {
					told = append(told, a.Status)
				}
				for _, k := range m.KeepAlives {
					told = append(told, k.Status)
				}
				for _, o := range m.Outcomes {
					told = append(told, o.Status)
				}
				return m.End != nil
			})
			if m.End.Status != pb.Status_STATUS_SECONDARY_MODE {
				t.Errorf("the end: %v", m.End)
			}
			for _, status := range told { // or it has noticed before it was asked
				if status != pb.Status_STATUS_UNKNOWN && status != pb.Status_STATUS_SECONDARY_MODE {
					t.Errorf("told %v", status)
				}
			}
		})
	}
}

func TestSessionRefused(t *testing.T) {
	replica := &backend{self: 3, members: primarytest.Members()}
	replica.elect(2, 7)
	b := startPrimary(t)
	for _, c := range []struct {
		name   string
		b      *backend
		hello  *pb.SessionHello
		status pb.Status
	}{
		{"at a replica", replica, &pb.SessionHello{ClientId: "c1"}, pb.Status_STATUS_SECONDARY_MODE},
		{"without a hello", b, nil, pb.Status_STATUS_INVALID_ARGUMENT},
		{"a bad name", b, &pb.SessionHello{ClientId: "no spaces"}, pb.Status_STATUS_INVALID_ARGUMENT},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := connect(t, dialGRPC(t, c.b))
			if err := s.Send(&pb.SessionRequest{Hello: c.hello, Operations: []*pb.Operation{operation(1, nil)}}); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv()
			d := m.GetRefused()
			if c.hello == nil { // that is no client
				d = m.GetEnd()
			}
			if err != nil || d.GetStatus() != c.status || m.Welcome != nil {
				t.Fatalf("%v, %v", m, err)
			}
			if c.b == replica && cluster.ServerID(d.GetPrimary().GetId()) != 2 {
				t.Errorf("where to go: %v", d)
			}
			if c.hello == nil {
				return
			}
			// The connection goes on, and nothing of what came with the hello is answered.
			q := statusCall(7)
			if err := s.Send(&pb.SessionRequest{Operations: []*pb.Operation{operation(2, nil)}, Calls: []*pb.Call{q}}); err != nil {
				t.Fatal(err)
			}
			if m := next(t, s, func(m *pb.SessionResponse) bool { return len(m.Returns)+len(m.Answers) > 0 }); len(m.Answers) > 0 {
				t.Errorf("answered: %v", m.Answers)
			}
		})
	}
}

func statusCall(n uint64) *pb.Call {
	b, _ := proto.Marshal(&pb.StatusRequest{Local: true}) // cannot fail
	return &pb.Call{Correlation: n, Method: "Status", Request: b}
}

// next reads until a message has what is wanted.
func next(t *testing.T, s *stream, wanted func(*pb.SessionResponse) bool) *pb.SessionResponse {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if wanted(m) {
			return m
		}
	}
}

func TestSessionTellsLosses(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	s := welcomed(t, c, "c1")
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "a", TtlMs: 60000}), operation(2, &pb.AcquireRequest{RequestId: 2, Lock: "b", TtlMs: 60000}))
	got := answers(t, s, 2)
	if _, err := c.BreakLock(t.Context(), &pb.BreakLockRequest{ClientId: "op", RequestId: 1, Lock: "b", Actor: "ann", Reason: "it hangs"}); err != nil {
		t.Fatal(err)
	}
	lost := next(t, s, func(m *pb.SessionResponse) bool { return len(m.Losses) > 0 }).Losses[0]
	if lost.Lock != "b" || lost.Token != got[2].Token || lost.Reason != pb.LossReason_LOSS_REASON_BROKEN || lost.Actor != "ann" || lost.RequestId != 2 {
		t.Errorf("loss: %v", lost)
	}
	// A later session is told again of what came after an LSN.
	again := connect(t, c)
	if err := again.Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c1", LossesAfterLsn: got[2].Lsn}}); err != nil {
		t.Fatal(err)
	}
	if m := next(t, again, func(m *pb.SessionResponse) bool { return len(m.Losses) > 0 }); m.Losses[0].Token != got[2].Token {
		t.Errorf("told again: %v", m.Losses)
	}
}

// Of each client that is kept alive on a session the losses are told that it asks for, also
// those from before that session.
func TestSessionTellsLossesOfEveryRegistration(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	var token uint64
	for _, lock := range []string{"old", "new"} { // what ended before the oldest that is held does not matter
		a, err := c.Acquire(t.Context(), &pb.AcquireRequest{ClientId: "registration", RequestId: token + 1, Lock: lock, TtlMs: 30000})
		if err != nil || a.Status != pb.Status_STATUS_OK {
			t.Fatalf("%v %v", a, err)
		}
		token = a.Token
		if a, err := c.BreakLock(t.Context(), &pb.BreakLockRequest{Lock: lock, Actor: "ann"}); err != nil || a.Status != pb.Status_STATUS_OK {
			t.Fatalf("%v %v", a, err)
		}
	}
	s := welcomed(t, c, "main")
	if err := s.Send(&pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{{ClientId: "registration", LossesAfterLsn: token, Correlation: 1}}}); err != nil {
		t.Fatal(err)
	}
	var l []*pb.Loss
	next(t, s, func(m *pb.SessionResponse) bool { // they come first
		l = append(l, m.Losses...)
		return len(m.KeepAlives) > 0
	})
	if len(l) != 1 || l[0].Lock != "new" || l[0].Token != token || l[0].Reason != pb.LossReason_LOSS_REASON_BROKEN {
		t.Errorf("told %v", l)
	}
}

func TestSessionWatches(t *testing.T) {
	s := welcomed(t, dialGRPC(t, startPrimary(t)), "c1")
	watch := &pb.SessionWatch{WatchId: 7, Request: &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "a"}}}
	if err := s.Send(&pb.SessionRequest{Watches: []*pb.SessionWatch{watch, watch}}); err != nil {
		t.Fatal(err)
	}
	refused, reset := false, false
	for !refused || !reset {
		for _, e := range next(t, s, func(m *pb.SessionResponse) bool { return len(m.Events) > 0 }).Events {
			refused = refused || e.Response.Status == pb.Status_STATUS_INVALID_ARGUMENT
			reset = reset || e.Response.Reset_.GetLast()
		}
	}
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "a", TtlMs: 60000}))
	m := next(t, s, func(m *pb.SessionResponse) bool { return len(m.Events) > 0 && len(m.Events[0].Response.Events) > 0 })
	if e := m.Events[0].Response.Events[0]; m.Events[0].WatchId != 7 || e.Kind != pb.EventKind_EVENT_KIND_GRANT || e.Lock != "a" {
		t.Errorf("event: %v", m.Events)
	}
	if err := s.Send(&pb.SessionRequest{Unwatch: []uint64{7}, Watches: []*pb.SessionWatch{watch}}); err != nil {
		t.Fatal(err)
	}
}

// A call needs no session, and what it answers is what gRPC would.
func TestCallsOverAConnection(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	s := connect(t, c)
	call := func(method, meant string, q proto.Message, answer proto.Message) *pb.Return {
		t.Helper()
		request, err := proto.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.SessionRequest{Calls: []*pb.Call{{Correlation: 7, Method: method, Request: request, ClusterId: meant}}}); err != nil {
			t.Fatal(err)
		}
		r := next(t, s, func(m *pb.SessionResponse) bool { return len(m.Returns) > 0 }).Returns[0]
		if r.Correlation != 7 {
			t.Errorf("%s is answered as %d", method, r.Correlation)
		}
		if answer != nil {
			if err := proto.Unmarshal(r.Response, answer); err != nil || r.Code != 0 {
				t.Fatalf("%s: %v %v", method, r, err)
			}
		}
		return r
	}
	status, opened := &pb.StatusResponse{}, &pb.Answer{}
	if call("Status", "ffff", &pb.StatusRequest{Local: true}, status); status.Role != pb.Role_ROLE_PRIMARY || status.ClusterId != s.settings.ClusterId {
		t.Errorf("status: %v", status)
	}
	if call("OpenClient", s.settings.ClusterId, &pb.OpenClientRequest{Nonce: 5}, opened); opened.ClientId == "" || opened.ClusterId == "" {
		t.Errorf("open: %v", opened)
	}
	for name, want := range map[string]codes.Code{"Watch": codes.Unimplemented, "": codes.Unimplemented, "Verify": codes.FailedPrecondition} {
		if r := call(name, "ffff", &pb.VerifyRequest{Lock: "l", Token: 1}, nil); r.Code != uint32(want) || r.Message == "" {
			t.Errorf("%q meant for another cluster: %v", name, r)
		}
	}
	b.p.End(errors.New("the test ends it"))
	eventually(t, "it is over", func() bool {
		r := call("Verify", "", &pb.VerifyRequest{Lock: "l", Token: 1}, nil)
		return r.Code == uint32(codes.Unavailable) && r.Detail.GetStatus() == pb.Status_STATUS_SECONDARY_MODE
	})
	if call("Status", "", &pb.StatusRequest{Local: true}, status); status.Role == pb.Role_ROLE_UNREACHABLE {
		t.Errorf("status without a term: %v", status)
	}
}

// A ping is answered, and what nobody knows is skipped.
func TestPingsAndUnknownFrames(t *testing.T) {
	s := connect(t, dialGRPC(t, startPrimary(t)))
	b := frames.Append(nil, 200, []byte("from the future"))
	b = frames.Append(b, frames.Pong, nil)
	b = frames.Append(b, frames.Ping, []byte("are you there"))
	if _, err := s.Write(b); err != nil {
		t.Fatal(err)
	}
	if kind, b, _, err := s.r.Next(); kind != frames.Pong || string(b) != "are you there" || err != nil {
		t.Errorf("kind %d, %q, %v", kind, b, err)
	}
}

// Nothing but a client of this service is listened to.
func TestConnectionsOfStrangers(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	settings := frames.Append(nil, frames.Settings, nil)
	for name, said := range map[string]string{
		"no preface":        "GET / HTTP/1.1\r\n\r\n",
		"no settings":       frames.Preface + string(frames.Append(nil, frames.Message, nil)),
		"bad settings":      frames.Preface + string(frames.Append(nil, frames.Settings, []byte{0xff})),
		"without a version": frames.Preface + string(settings),
		"too long":          frames.Preface + "\xff\xff\xff\xff\x01",
	} {
		here, there := net.Pipe()
		c.sessions.ServeConn(there)
		go here.Write([]byte(said)) //nolint:errcheck // not all of it is read
		if _, err := io.Copy(io.Discard, here); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		here.Close()
	}
}

// Operations without a session end the connection.
func TestOperationsNeedAHello(t *testing.T) {
	for _, m := range []*pb.SessionRequest{
		{Operations: []*pb.Operation{operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "a", TtlMs: 60000})}},
		{KeepAlives: []*pb.KeepAliveRequest{{ClientId: "c"}}},
		{Watches: []*pb.SessionWatch{{WatchId: 1}}},
	} {
		s := connect(t, dialGRPC(t, startPrimary(t)))
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recv(); r.GetEnd().GetStatus() != pb.Status_STATUS_INVALID_ARGUMENT {
			t.Errorf("%v: %v, %v", m, r, err)
		}
	}
}

// The data of an append is the session's no more when it is handed in: later frames do not change it.
func TestDataOfAppendsStays(t *testing.T) {
	b := startPrimary(t)
	s := welcomed(t, dialGRPC(t, b), "c1")
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 600_000}))
	token := answers(t, s, 1)[1].Token
	gate := volumetest.NewGate()
	b.host.SetHook(func(x volumetest.Call) volumetest.Action {
		if x.Op == volumetest.OpDatasync {
			return volumetest.Pause(gate)
		}
		return volumetest.Proceed()
	})
	const n = 40
	want := ""
	began := b.orders.Load()
	for i := range uint64(n) {
		line := fmt.Sprintf("line %02d %s\n", i, strings.Repeat(string(rune('a'+i%26)), 90))
		want += line
		op := &pb.Operation{Correlation: i + 2, Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{RequestId: i + 2, Lock: "l", Token: token, File: "f", Data: []byte(line)}}}
		ask(t, s, op)
	}
	eventually(t, "all are handed in", func() bool { return b.orders.Load()-began >= n })
	b.host.SetHook(nil)
	gate.Resume()
	for n, a := range answers(t, s, n) {
		if a.Status != pb.Status_STATUS_OK {
			t.Fatalf("append %d: %v", n, a)
		}
	}
	c := dialGRPC(t, b)
	r, err := c.ReadFile(t.Context(), &pb.ReadFileRequest{File: "f"})
	if err != nil || string(r.GetData()) != want {
		t.Errorf("%v, the file has %q", err, r.GetData())
	}
}

// A client that still sends when its session ends reads the end all the same.
func TestTheEndIsReadByWhoSends(t *testing.T) {
	b := startPrimary(t)
	s := welcomed(t, dialGRPC(t, b), "c1")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range uint64(100_000) { // until the server has closed
			if s.Send(&pb.SessionRequest{Operations: []*pb.Operation{operation(i, &pb.RenewLeaseRequest{Lock: "a", Token: 9})}}) != nil {
				return
			}
		}
	}()
	next(t, s, func(m *pb.SessionResponse) bool { return len(m.Answers) > 0 })
	b.p.End(errors.New("the test ends it"))
	next(t, s, func(m *pb.SessionResponse) bool { return m.End != nil })
	s.Close()
	<-sent
}

// Another hello ends a session: what was sent with it would belong to either.
func TestOneSessionToAConnection(t *testing.T) {
	s := welcomed(t, dialGRPC(t, startPrimary(t)), "c1")
	if err := s.Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c2"}}); err != nil {
		t.Fatal(err)
	}
	if m := next(t, s, func(m *pb.SessionResponse) bool { return m.End != nil }); m.End.Status != pb.Status_STATUS_INVALID_ARGUMENT {
		t.Errorf("told %v", m)
	}
}
