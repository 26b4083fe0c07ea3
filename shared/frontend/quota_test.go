// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// quota has all callers but operators have a quota with these limits, beside the rules of newCredentials.
func (d *doors) quota(limits map[string]any) {
	d.t.Helper()
	all := []access.Verb{access.Acquire, access.Read, access.Append, access.Break}
	f := &access.File{Rules: []access.Rule{{Who: []string{"user:alice", "user:bob"}, May: all, Locks: []string{"**"}}}}
	if limits != nil {
		f.Quotas = []access.Quota{{Who: []string{"*"}, Limits: limits}}
	}
	d.g.set(d.t, f)
}

// exhaust has alice use up her rate.
func (d *doors) exhaust() {
	p := d.s.Permission(d.g.callers["alice"], nil)
	p.Take(make([]int, 1<<10), &service.Held{Proceed: func(int, int) {}, Refuse: func(int, error) {}})
}

// limited reports whether an operation counts against rates: what keeps or ends something does not, nor what everybody may ask.
func limited(o *ops.Operation) bool {
	return (o.Verb != access.Keep || o.Name == "open") && o.Verb != access.Open && o.Verb != access.Admin && o.Name != "verify"
}

// TestEveryDoorLimitsTheSame: who is too fast is refused by every front end, and may keep and release what it has by each. A new
// operation whose front end forgets the quotas fails here.
func TestEveryDoorLimitsTheSame(t *testing.T) {
	d := newDoorsThat(t, service.Options{MaxHold: -1})
	d.quota(map[string]any{"requests_per_s": int64(1)})
	for name, ask := range map[string]func(string, *ops.Operation) (cluster.Status, bool){
		"gRPC": d.gRPC, "streams": d.streams, "calls": d.calls, "session": d.session, "HTTP": d.web, "WebSocket": d.socket, "lines": d.line,
	} {
		for _, o := range ops.All() {
			if o.Verb == access.Admin {
				continue
			}
			for _, who := range []string{"alice", "bob", "root"} {
				want := cluster.StatusOK
				if who == "alice" && limited(o) {
					want = cluster.StatusLimited
				}
				got, has := cluster.StatusOK, true
				for range 10 { // a request may come free while this one is under way; bob has his own
					d.n++
					d.exhaust()
					if got, has = ask(who, o); !has || verdict(got) == want {
						break
					}
				}
				if want == cluster.StatusOK && who != "alice" {
					continue // that may be too fast by itself
				}
				if has && verdict(got) != want {
					t.Errorf("%s, %s by %s: %v, want %v", name, o.Name, who, got, want)
				}
			}
		}
	}
}

// TestRetryAfter: who is too fast is told when to come again, by the answer and by the header; who has as much as he may is not.
func TestRetryAfter(t *testing.T) {
	d := newDoorsThat(t, service.Options{MaxHold: -1})
	post := func(path, body string) (*http.Response, wire.Body) {
		t.Helper()
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		r, err := http.NewRequestWithContext(t.Context(), method, d.http.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "bearer alice")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b wire.Body
		if err := json.NewDecoder(resp.Body).Decode(&b); err != nil {
			t.Fatal(err)
		}
		return resp, b
	}
	d.quota(map[string]any{"append_bytes_per_s": int64(1), "requests_per_s": int64(1)})
	d.exhaust()
	resp, b := post("/v1/acquire", `{"lock":"l","ttl":"1m"}`)
	after, err := time.ParseDuration(b.RetryAfter)
	if resp.StatusCode != 429 || b.Status != "LIMITED" || err != nil || after <= 0 || after > time.Second || resp.Header.Get("Retry-After") != "1" ||
		!strings.Contains(b.Message, "user:alice is too fast: quotas of access version 2 allow 1 requests and 1 bytes of appends a second") {
		t.Errorf("%d, %q: %+v", resp.StatusCode, resp.Header, b)
	}
	if got, _ := d.web("bob", ops.Named("lock")); got != cluster.StatusOK {
		t.Errorf("another identity: %v", got)
	}
	if resp, b = post("/v1/locks/l", ""); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d, %q: %+v", resp.StatusCode, resp.Header, b)
	}
	d.quota(map[string]any{"locks": int64(1)})
	post("/v1/acquire", `{"lock":"l","ttl":"1m"}`)
	if resp, b = post("/v1/acquire", `{"lock":"m","ttl":"1m"}`); resp.StatusCode != 429 || b.RetryAfter != "0s" || resp.Header.Get("Retry-After") != "" {
		t.Errorf("%d, %q: %+v", resp.StatusCode, resp.Header, b)
	}
	d.quota(nil)
	if resp, b = post("/v1/acquire", `{"lock":"m","ttl":"1m"}`); resp.StatusCode != 200 {
		t.Errorf("without quotas: %d: %+v", resp.StatusCode, b)
	}
}

// TestMessageBeyondTheRate: of one message goes on what the rate leaves room for within a second, from its first operation on, and what is never
// limited, at once. The others are told when to come again, one after the other.
func TestMessageBeyondTheRate(t *testing.T) {
	d := newDoors(t)
	d.quota(map[string]any{"requests_per_s": int64(10)})
	s := connectAs(t, d.c, "alice")
	m := &pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c1"}}
	for i := range uint64(40) {
		op := &pb.Operation{Correlation: i, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: i + 1, Lock: fmt.Sprint("l", i), TtlMs: 60000}}}
		if i%4 == 3 {
			op.Request = &pb.Operation_Release{Release: &pb.ReleaseRequest{RequestId: i + 1, Lock: "l0", Token: 1 << 40}}
		}
		m.Operations = append(m.Operations, op)
	}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	answers, place := map[uint64]*pb.Answer{}, map[uint64]int{}
	for len(answers) < 40 {
		for _, a := range next(t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 }).Answers {
			answers[a.Correlation], place[a.Correlation] = a, len(answers)
		}
	}
	acquires, last := 0, int64(0)
	for i := range uint64(40) {
		a := answers[i]
		switch {
		case i%4 == 3:
			if a.Status != pb.Status_STATUS_INVALID_TOKEN || place[i] > 40-9 {
				t.Errorf("release %d, which was the %dth answer: %v", i, place[i], a)
			}
		case acquires < 19: // the last 9 of them are held
			if acquires++; a.Status != pb.Status_STATUS_OK {
				t.Errorf("acquire %d: %v", i, a)
			}
		default:
			if acquires++; a.Status != pb.Status_STATUS_LIMITED || a.RetryAfterMs < last || acquires > 21 && a.RetryAfterMs < 1000 || a.RetryAfterMs > 5000 {
				t.Errorf("acquire %d: %v", i, a)
			}
			last = a.RetryAfterMs
		}
	}
	if last < 1500 { // twenty more, at ten a second
		t.Errorf("the last one may come again after %d ms", last)
	}
}

// acquireIn begins a session of a client, if n is 1, acquires a lock in it, and returns its status.
func (d *doors) acquireIn(s *stream, client, lock string, n uint64) pb.Status {
	d.t.Helper()
	m := &pb.SessionRequest{Operations: []*pb.Operation{{
		Correlation: n, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: n, Lock: lock, TtlMs: 60000}},
	}}}
	if n == 1 {
		m.Hello = &pb.SessionHello{ClientId: client}
	}
	if err := s.Send(m); err != nil {
		d.t.Fatal(err)
	}
	a := next(d.t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 }).Answers[0]
	if a.RetryAfterMs != 0 {
		d.t.Errorf("a number passes by itself: %v", a)
	}
	return a.Status
}

// TestSessionsAreCounted: one more session than quotas allow may keep what its client has, and acquires nothing, until another one has
// ended. A client that comes back is no other session.
func TestSessionsAreCounted(t *testing.T) {
	d := newDoors(t)
	d.quota(map[string]any{"sessions": int64(1)})
	first, again, second := connectAs(t, d.c, "alice"), connectAs(t, d.c, "alice"), connectAs(t, d.c, "alice")
	bobs := connectAs(t, d.c, "bob")
	if got := d.acquireIn(first, "c1", "a", 1); got != pb.Status_STATUS_OK {
		t.Error(got)
	}
	if got := d.acquireIn(again, "c1", "a", 1); got != pb.Status_STATUS_OK {
		t.Errorf("the same client: %v", got)
	}
	if got := d.acquireIn(bobs, "c3", "c", 1); got != pb.Status_STATUS_OK {
		t.Errorf("another identity: %v", got)
	}
	if got := d.acquireIn(second, "c2", "b", 1); got != pb.Status_STATUS_LIMITED {
		t.Errorf("a second session: %v", got)
	}
	if err := second.Send(&pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{{ClientId: "c2"}}}); err != nil {
		t.Fatal(err)
	}
	if r := next(t, second, func(r *pb.SessionResponse) bool { return len(r.KeepAlives) > 0 }).KeepAlives[0]; r.Status != pb.Status_STATUS_OK {
		t.Errorf("a keep-alive: %v", r)
	}
	// A WebSocket that comes back while its old connection is not known to be broken has leases to renew.
	socket, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(d.http.URL, "http")+"/v1/ws", &websocket.DialOptions{Subprotocols: []string{"holdfast.v1", "holdfast.bearer.alice"}})
	if err != nil {
		t.Errorf("a WebSocket: %v", err)
	} else {
		socket.CloseNow() //nolint:errcheck // nothing was said on it
	}
	first.Close()
	again.Close()
	n := uint64(1)
	eventually(t, "the first session has ended", func() bool {
		n++
		return d.acquireIn(second, "c2", "b", n) == pb.Status_STATUS_OK
	})
	third := connectAs(t, d.c, "alice")
	if got := d.acquireIn(third, "c4", "d", 1); got != pb.Status_STATUS_LIMITED {
		t.Errorf("beside the second session: %v", got)
	}
	d.quota(nil)
	if got := d.acquireIn(third, "c4", "d", 2); got != pb.Status_STATUS_OK {
		t.Errorf("without quotas: %v", got)
	}
}

// TestWatchesAreCounted for each identity, over all front ends, with those who follow files.
func TestWatchesAreCounted(t *testing.T) {
	d := newDoors(t)
	d.quota(map[string]any{"watches": int64(2)})
	ctx, cancel := context.WithCancel(t.Context())
	as := func(who string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+who)
	}
	watch := func(who string) pb.Status {
		t.Helper()
		s, err := d.c.Watch(as(who), &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.Status == pb.Status_STATUS_LIMITED && (r.RetryAfterMs != 0 || !strings.Contains(r.Message, "2 watches at this server")) {
			t.Error(r)
		}
		return r.Status
	}
	for range 2 {
		if got := watch("alice"); got != pb.Status_STATUS_OK {
			t.Fatal(got)
		}
	}
	if got := watch("alice"); got != pb.Status_STATUS_LIMITED {
		t.Errorf("a third watch: %v", got)
	}
	f, err := d.c.FollowFile(as("alice"), &pb.FollowFileRequest{File: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := f.Recv(); err != nil || r.Status != pb.Status_STATUS_LIMITED {
		t.Errorf("a follow: %v, %v", r, err)
	}
	for name, ask := range map[string]func(string, *ops.Operation) (cluster.Status, bool){"HTTP": d.web, "session": d.session, "streams": d.streams} {
		if got, _ := ask("alice", ops.Named("watch")); got != cluster.StatusLimited {
			t.Errorf("%s: %v", name, got)
		}
		if got, _ := ask("root", ops.Named("watch")); got != cluster.StatusOK {
			t.Errorf("%s, an operator: %v", name, got)
		}
	}
	if got := watch("bob"); got != pb.Status_STATUS_OK {
		t.Errorf("another identity: %v", got)
	}
	cancel()
	ctx = t.Context()
	eventually(t, "the watches have ended", func() bool { return watch("alice") == pb.Status_STATUS_OK })
}
