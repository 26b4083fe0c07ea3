// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/text"
	"github.com/holdfast-lock/holdfast/shared/frontend/ws"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// credentials takes the word before a colon for who it is.
type credentials struct {
	callers map[string]*access.Caller
	rules   atomic.Pointer[access.Rules]
	passed  atomic.Int32
}

func (g *credentials) Authenticate(credential string) (*access.Caller, error) {
	if c := g.callers[credential]; c != nil {
		return c, nil
	}
	return nil, errors.New("no such credential")
}

func (g *credentials) PassOn(c *access.Caller) string {
	g.passed.Add(1)
	for credential, known := range g.callers {
		if known == c {
			return credential
		}
	}
	return ""
}

func (g *credentials) Rules() *access.Rules { return g.rules.Load() }

// newCredentials returns credentials whose callers are: alice, who may do all but administrate; bob, who may do that with other
// names; late, who is alice with a ticket that expired; root, an operator; and fired, whose key is not among the keys.
func newCredentials(t *testing.T) *credentials {
	all := []access.Verb{access.Acquire, access.Read, access.Append, access.Break}
	g := &credentials{callers: map[string]*access.Caller{
		"alice": {Identity: "user:alice", Via: "ticket", Issued: time.Now().Add(-time.Minute)},
		"bob":   {Identity: "user:bob", Via: "ticket"},
		"late":  {Identity: "user:alice", Via: "ticket", Expires: time.Unix(1, 0)},
		"root":  {Identity: "user:root", Operator: true},
		"fired": {Identity: "service:fired", Via: "key", Key: "fired"},
	}}
	g.set(t, &access.File{
		Admins: []access.AdminRule{{Who: []string{"user:admin"}}},
		Rules: []access.Rule{
			{Who: []string{"user:alice", "service:fired"}, May: all, Locks: []string{"l", "f"}},
			{Who: []string{"user:bob"}, May: all, Locks: []string{"other"}},
		},
	})
	return g
}

func (g *credentials) set(t *testing.T, f *access.File) {
	t.Helper()
	r, err := access.Compile(f, g.Rules().Version()+1)
	if err != nil {
		t.Fatal(err)
	}
	g.rules.Store(r)
}

// expected returns what a caller is told who does an operation with the lock l and the file f: OK, UNAUTHENTICATED or
// PERMISSION_DENIED; OK stands for everything else.
func expected(who string, o *ops.Operation) cluster.Status {
	list := o.Name == "locks" || o.Name == "files" // of what one may read
	switch {
	case (o.Name == "whoami" || o.Name == "login") && who == "fired":
		return cluster.StatusUnauthenticated
	case o.Verb == access.Open, who == "root":
		return cluster.StatusOK
	case who == "", who == "fired", who == "late" && o.Verb != access.Keep:
		return cluster.StatusUnauthenticated
	case o.Verb == access.Admin:
		return cluster.StatusPermissionDenied
	case o.Verb == access.Keep, list, who != "bob":
		return cluster.StatusOK
	}
	return cluster.StatusPermissionDenied
}

// expectedOfLine is expected for the line protocol, which has one word for both refusals. UNLOCK and RENEW look first under
// which token the client holds the lock, and that is to read.
func expectedOfLine(who string, o *ops.Operation) cluster.Status {
	if o.Verb == access.Keep {
		o = ops.Named("verify")
	}
	if expected(who, o) == cluster.StatusOK {
		return cluster.StatusOK
	}
	return cluster.StatusPermissionDenied
}

// verdict returns what a status says about the door.
func verdict(s cluster.Status) cluster.Status {
	if s == cluster.StatusUnauthenticated || s == cluster.StatusPermissionDenied {
		return s
	}
	return cluster.StatusOK
}

// asked returns a request of an operation, of a client that nobody else uses.
func asked(o *ops.Operation, n int) proto.Message {
	m := filled(o.New())
	x := m.ProtoReflect()
	for name, value := range map[protoreflect.Name]any{"client_id": fmt.Sprintf("c%d", n), "reason": "r", "actor": "a", "prefix": "", "nonce": uint64(n)} {
		if f := x.Descriptor().Fields().ByName(name); f != nil && (name != "prefix" || f.ContainingOneof() == nil) {
			x.Set(f, protoreflect.ValueOf(value))
		}
	}
	return m
}

// fieldsOf returns the request of an operation as fields of JSON.
func fieldsOf(o *ops.Operation, n int) map[string]any {
	all := map[string]any{}
	if o.Message == nil {
		return all
	}
	x := asked(o, n).ProtoReflect()
	x.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		all[string(f.Name())] = v.Interface()
		return true
	})
	if _, ok := all["ttl_ms"]; ok {
		delete(all, "ttl_ms")
		all["ttl"] = "1s"
	}
	return all
}

// doors are the front ends of one server. Each returns what an operation of a caller was answered, and false where that
// front end does not have it.
type doors struct {
	t    *testing.T
	g    *credentials
	b    *backend
	s    *service.Service
	c    client
	http *httptest.Server
	text net.Listener
	n    int // clients so far
	// sockets counts the WebSockets of socketIsCut.
	sockets atomic.Int32
}

func newDoors(t *testing.T) *doors {
	d := &doors{t: t, g: newCredentials(t), b: startPrimary(t)}
	d.s = service.New(d.b, service.Options{Authenticator: d.g})
	d.c = dialService(t, d.s)
	h := httpapi.New(d.s, httpapi.Options{Log: zerolog.Nop()})
	sockets := ws.New(h.Door(), ws.Options{Log: zerolog.Nop()})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle(ws.Path, h.Authenticated(sockets))
	d.http = httptest.NewServer(mux)
	t.Cleanup(d.http.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.text = l
	lines := text.New(h.Door())
	go lines.Serve(l) //nolint:errcheck // it ends with Stop
	t.Cleanup(func() { lines.Stop(context.Background()) })
	return d
}

func (d *doors) gRPC(who string, o *ops.Operation) (cluster.Status, bool) {
	if o.Method == "" || !o.Unary() {
		return 0, false
	}
	ctx := d.t.Context()
	if who != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+who)
	}
	out := reflect.ValueOf(d.c.LockServiceClient).MethodByName(o.Method).Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(asked(o, d.n))})
	err, _ := out[1].Interface().(error)
	return statusOf(out[0].Interface().(ops.Response).GetStatus(), err), true
}

// streams asks for the operations that are streams over gRPC.
func (d *doors) streams(who string, o *ops.Operation) (cluster.Status, bool) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer cancel()
	if who != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+who)
	}
	switch o.Name {
	case "watch":
		s, err := d.c.Watch(ctx, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}})
		if err != nil {
			d.t.Fatal(err)
		}
		r, err := s.Recv()
		return statusOf(r.GetStatus(), err), true
	case "follow":
		s, err := d.c.FollowFile(ctx, &pb.FollowFileRequest{File: "f"})
		if err != nil {
			d.t.Fatal(err)
		}
		r, err := s.Recv()
		return statusOf(r.GetStatus(), err), true
	}
	return 0, false
}

// calls asks over a connection of the client library, as a call.
func (d *doors) calls(who string, o *ops.Operation) (cluster.Status, bool) {
	if o.Method == "" || !o.Unary() {
		return 0, false
	}
	b, _ := proto.Marshal(asked(o, d.n)) // cannot fail
	s := connectAs(d.t, d.c, who)
	defer s.Close()
	if err := s.Send(&pb.SessionRequest{Calls: []*pb.Call{{Correlation: 1, Method: o.Method, Request: b}}}); err != nil {
		d.t.Fatal(err)
	}
	r := next(d.t, s, func(r *pb.SessionResponse) bool { return len(r.Returns) > 0 }).Returns[0]
	if err := wire.ReturnError(r); err != nil {
		return statusOf(0, err), true
	}
	out := answerMessage(o)
	if err := proto.Unmarshal(r.Response, out); err != nil {
		d.t.Fatal(err)
	}
	return wire.FromStatus(out.GetStatus()), true
}

// answerMessage returns an empty answer to an operation.
func answerMessage(o *ops.Operation) ops.Response {
	m, _ := reflect.TypeFor[pb.LockServiceClient]().MethodByName(o.Method)
	return reflect.New(m.Type.Out(0).Elem()).Interface().(ops.Response)
}

// session asks within a session.
func (d *doors) session(who string, o *ops.Operation) (cluster.Status, bool) {
	op := &pb.Operation{Correlation: 7}
	x, found := op.ProtoReflect(), false
	fields := x.Descriptor().Oneofs().ByName("request").Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); o.Message != nil && f.Message() == o.Message.ProtoReflect().Descriptor() {
			x.Set(f, protoreflect.ValueOf(asked(o, d.n).ProtoReflect()))
			found = true
		}
	}
	m := &pb.SessionRequest{Hello: &pb.SessionHello{ClientId: fmt.Sprintf("c%d", d.n)}}
	switch {
	case found:
		m.Operations = []*pb.Operation{op}
	case o.Name == "watch":
		m.Watches = []*pb.SessionWatch{{WatchId: 7, Request: &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}}}}
	case o.Name == "keepalive":
		m.KeepAlives = []*pb.KeepAliveRequest{{ClientId: fmt.Sprintf("c%d", d.n)}}
	default:
		return 0, false
	}
	s := connectAs(d.t, d.c, who)
	defer s.Close()
	if err := s.Send(m); err != nil {
		d.t.Fatal(err)
	}
	for {
		r, err := s.Recv()
		switch {
		case err != nil:
			d.t.Fatal(err)
		case r.GetRefused() != nil:
			return wire.FromStatus(r.GetRefused().GetStatus()), true
		case len(r.Answers) > 0:
			return wire.FromStatus(r.Answers[0].GetStatus()), true
		case len(r.Outcomes) > 0:
			return wire.FromStatus(r.Outcomes[0].GetStatus()), true
		case len(r.KeepAlives) > 0:
			return wire.FromStatus(r.KeepAlives[0].GetStatus()), true
		case len(r.Events) > 0:
			return wire.FromStatus(r.Events[0].GetResponse().GetStatus()), true
		}
	}
}

func (d *doors) web(who string, o *ops.Operation) (cluster.Status, bool) {
	if o.Route == "" {
		return 0, false
	}
	method, path, _ := strings.Cut(o.Route, " ")
	name := "l"
	if o.Name == "file" || o.Name == "blame" {
		name = "f"
	}
	path = strings.ReplaceAll(path, "{name...}", name)
	body := ""
	switch fields := fieldsOf(o, d.n); {
	case o.Name == "watch" || o.Name == "history":
		path += "?lock=l"
	case o.Data:
		delete(fields, "data")
		path += "?"
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			path += fmt.Sprintf("%s=%v&", k, fields[k])
		}
		path, body = strings.TrimSuffix(path, "&"), "x"
	case method == http.MethodPost:
		b, _ := json.Marshal(fields) // cannot fail
		body = string(b)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.http.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if who != "" {
		r.Header.Set("Authorization", "bearer "+who)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return cluster.StatusUnauthenticated, true
	case http.StatusForbidden:
		return cluster.StatusPermissionDenied, true
	}
	return cluster.StatusOK, true
}

func (d *doors) socket(who string, o *ops.Operation) (cluster.Status, bool) {
	if !o.Posted() || o.Data {
		return 0, false
	}
	opt := &websocket.DialOptions{}
	if who != "" { // as a page does
		opt.Subprotocols = []string{ws.Protocol, "holdfast.bearer." + who}
	}
	c, refused, err := websocket.Dial(d.t.Context(), "ws"+strings.TrimPrefix(d.http.URL, "http")+ws.Path, opt)
	if err != nil && refused.StatusCode == http.StatusUnauthorized {
		return cluster.StatusUnauthenticated, true
	}
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.CloseNow() //nolint:errcheck // it has ended
	fields := fieldsOf(o, d.n)
	fields["id"], fields["op"] = 1, o.Name
	b, _ := json.Marshal(fields) // cannot fail
	if err := c.Write(d.t.Context(), websocket.MessageText, b); err != nil {
		d.t.Fatal(err)
	}
	_, b, err = c.Read(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var said struct{ Status string }
	if err := json.Unmarshal(b, &said); err != nil {
		d.t.Fatal(err)
	}
	s, _ := cluster.ParseStatus(said.Status)
	return s, true
}

func (d *doors) line(who string, o *ops.Operation) (cluster.Status, bool) {
	if o.Line.Verb == "" {
		return 0, false
	}
	c, err := net.Dial("tcp", d.text.Addr().String())
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(line string) string {
		if _, err := fmt.Fprintf(c, "%s\n", line); err != nil {
			d.t.Fatal(err)
		}
		answer, err := r.ReadString('\n')
		if err != nil {
			d.t.Fatal(err)
		}
		return strings.TrimSpace(answer)
	}
	if who != "" && (say("AUTH,"+who) == "SUCCESS") != (who != "fired") {
		d.t.Fatalf("%s is let in, or not", who)
	}
	if say(fmt.Sprintf("%s,l,me%d", o.Line.Verb, d.n)) == "DENIED" {
		return cluster.StatusPermissionDenied, true // one word for both
	}
	return cluster.StatusOK, true
}

// Every operation is refused, or not, by the same rules through every front end that has it. A new operation whose front
// end forgets the caller fails here.
func TestEveryDoorRefusesTheSame(t *testing.T) {
	d := newDoors(t)
	for name, ask := range map[string]func(string, *ops.Operation) (cluster.Status, bool){
		"gRPC": d.gRPC, "streams": d.streams, "calls": d.calls, "session": d.session, "HTTP": d.web, "WebSocket": d.socket, "lines": d.line,
	} {
		seen := 0
		for _, o := range ops.All() {
			for _, who := range []string{"", "alice", "bob", "late", "fired", "root"} {
				d.n++
				if o.Name == "handover" && who == "root" {
					continue // that would end the term, if there were another server
				}
				got, has := ask(who, o)
				if !has {
					continue
				}
				seen++
				want := expected(who, o)
				if name == "lines" {
					want = expectedOfLine(who, o)
				}
				if verdict(got) != want {
					t.Errorf("%s, %s by %q: %v, want %v", name, o.Name, who, got, want)
				}
			}
		}
		if seen < 6 {
			t.Errorf("%s was asked %d times only", name, seen)
		}
	}
}

// revoke ends the tickets of alice.
func (d *doors) revoke() {
	all := []access.Verb{access.Acquire, access.Read, access.Append}
	d.g.set(d.t, &access.File{
		Admins: []access.AdminRule{{Who: []string{"user:admin"}}},
		Rules:  []access.Rule{{Who: []string{"user:alice", "user:bob"}, May: all, Locks: []string{"**"}}},
		Ended:  []access.Revocation{{Who: []string{"user:alice"}, Before: time.Now()}},
	})
	d.s.RulesChanged()
}

// socketIsCut waits until a WebSocket of a caller is closed because of who he is.
func (d *doors) socketIsCut(who string) {
	c, _, err := websocket.Dial(d.t.Context(), "ws"+strings.TrimPrefix(d.http.URL, "http")+ws.Path, &websocket.DialOptions{Subprotocols: []string{ws.Protocol, "holdfast.bearer." + who}})
	if err != nil {
		d.t.Error(err)
		return
	}
	defer c.CloseNow() //nolint:errcheck // it has ended
	d.sockets.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		d.t.Errorf("the WebSocket ends with %v", err)
	}
}

// What is under way ends when its credential is revoked: a session, a watch, a wait, a WebSocket. Others' go on.
func TestRevokedCredentialIsCut(t *testing.T) {
	d := newDoors(t)
	begin := func(who, lock string) *stream {
		s := connectAs(t, d.c, who)
		t.Cleanup(func() { s.Close() })
		if err := s.Send(&pb.SessionRequest{
			Hello:      &pb.SessionHello{ClientId: who},
			Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 1, Lock: lock, TtlMs: 60000}}}},
		}); err != nil {
			t.Fatal(err)
		}
		if a := next(t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 }).Answers[0]; a.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(a)
		}
		return s
	}
	alice, bob := begin("alice", "l"), begin("bob", "other")
	ended := make(chan string, 3)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer alice")
	w, err := d.c.Watch(ctx, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}})
	if err == nil {
		_, err = w.Recv() // the reset
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		r, err := w.Recv()
		for err == nil && r.GetStatus() == pb.Status_STATUS_OK {
			r, err = w.Recv()
		}
		if r.GetStatus() != pb.Status_STATUS_UNAUTHENTICATED {
			t.Errorf("the watch ends with %v, %v", r, err)
		}
		ended <- "watch"
	}()
	go func() {
		a, err := d.c.Acquire(ctx, &pb.AcquireRequest{ClientId: "waits", RequestId: 1, Lock: "l", TtlMs: 60000, WaitMs: proto.Int64(-1)})
		if got := statusOf(a.GetStatus(), err); got != cluster.StatusUnauthenticated {
			t.Errorf("whoever waits is told %v, %v", got, err)
		}
		ended <- "wait"
	}()
	go func() {
		d.socketIsCut("alice")
		ended <- "WebSocket"
	}()
	eventually(t, "alice waits", func() bool { return d.b.lockAt(t, "l").QueueLength == 1 && d.sockets.Load() == 1 })
	d.revoke()
	for range 3 {
		<-ended
	}
	if r := next(t, alice, func(r *pb.SessionResponse) bool { return r.GetEnd() != nil }); r.GetEnd().GetStatus() != pb.Status_STATUS_UNAUTHENTICATED {
		t.Errorf("the session ends with %v", r.GetEnd())
	}
	if err := bob.Send(&pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{{ClientId: "bob", Held: 1}}}); err != nil {
		t.Fatal(err)
	}
	if r := next(t, bob, func(r *pb.SessionResponse) bool { return len(r.KeepAlives) > 0 }).KeepAlives[0]; r.GetStatus() != pb.Status_STATUS_OK {
		t.Errorf("another one's session: %v", r)
	}
	for who, want := range map[string]cluster.Status{"alice": cluster.StatusUnauthenticated, "bob": cluster.StatusOK} {
		if got, _ := d.gRPC(who, ops.Named("lock")); got != want {
			t.Errorf("%s is told %v afterwards", who, got)
		}
	}
}

// A watch ends when the rules do not permit it any more, and an operation is refused, though the credential is good.
func TestNewRulesHoldForWhatIsUnderWay(t *testing.T) {
	d := newDoors(t)
	s := connectAs(t, d.c, "alice")
	defer s.Close()
	acquire := func(n uint64) *pb.Operation {
		return &pb.Operation{Correlation: n, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: n, Lock: "l", TtlMs: 60000}}}
	}
	if err := s.Send(&pb.SessionRequest{
		Hello: &pb.SessionHello{ClientId: "c"}, Operations: []*pb.Operation{acquire(1)},
		Watches: []*pb.SessionWatch{{WatchId: 7, Request: &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	token := next(t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 }).Answers[0].GetToken()
	d.g.set(t, &access.File{
		Admins: []access.AdminRule{{Who: []string{"user:admin"}}},
		Rules:  []access.Rule{{Who: []string{"user:alice"}, May: []access.Verb{access.Acquire}, Locks: []string{"elsewhere"}}},
	})
	d.s.RulesChanged()
	release := &pb.Operation{Correlation: 3, Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{RequestId: 3, Lock: "l", Token: token}}}
	if err := s.Send(&pb.SessionRequest{Operations: []*pb.Operation{acquire(2), release}}); err != nil {
		t.Fatal(err)
	}
	told, over := map[uint64]cluster.Status{}, false
	for len(told) < 2 || !over {
		r, err := s.Recv()
		if err != nil {
			t.Fatalf("%v, %v, %v", told, over, err)
		}
		for _, a := range r.Answers {
			told[a.GetCorrelation()] = wire.FromStatus(a.GetStatus())
		}
		for _, e := range r.Events {
			over = over || e.GetResponse().GetStatus() == pb.Status_STATUS_PERMISSION_DENIED
		}
	}
	if told[2] != cluster.StatusPermissionDenied || told[3] != cluster.StatusOK {
		t.Errorf("to acquire: %v; to release what one has: %v", told[2], told[3])
	}
}

// A connection takes another credential of its identity, and none of another.
func TestCredentialIsRenewedInTheSession(t *testing.T) {
	d := newDoors(t)
	for credential, good := range map[string]bool{"alice": true, "bob": false, "nobody": false, "fired": false} {
		s := connectAs(t, d.c, "late")
		if err := s.Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c"}}); err != nil {
			t.Fatal(err)
		}
		next(t, s, func(r *pb.SessionResponse) bool { return r.GetWelcome() != nil })
		if err := s.Send(&pb.SessionRequest{
			Credential: credential, Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}}}},
		}); err != nil {
			t.Fatal(err)
		}
		r := next(t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 || r.GetEnd() != nil })
		if (r.GetEnd() == nil) != good || good && r.Answers[0].GetStatus() != pb.Status_STATUS_OK {
			t.Errorf("%s: %v", credential, r)
		}
		s.Close()
	}
}

// A replica that forwards passes on whose request it is: the primary decides.
func TestForwardKeepsItsCaller(t *testing.T) {
	g := newCredentials(t)
	front := func(b serving.Backend) *site {
		return serveFront(t, httpapi.New(service.New(b, service.Options{Authenticator: g}), httpapi.Options{Log: zerolog.Nop()}))
	}
	primary := front(startPrimary(t))
	replica := front(follower(primary.addr))
	for who, want := range map[string]int{"alice": 200, "bob": 403, "": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, replica.url+"/v1/acquire", strings.NewReader(`{"lock":"l","ttl":"30s","client_id":"c1","request_id":5}`))
		if err != nil {
			t.Fatal(err)
		}
		if who != "" {
			r.Header.Set("Authorization", "Bearer "+who)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q is answered %d, want %d", who, resp.StatusCode, want)
		}
	}
	if n := g.passed.Load(); n != 1 {
		t.Errorf("%d requests were passed on, want alice's", n)
	}
}

// Lists leave out what the caller may not read, and a prefix has to be allowed as a whole.
func TestReadersSeeTheirOwnOnly(t *testing.T) {
	d := newDoors(t)
	as := func(who string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+who)
	}
	for i, lock := range []string{"l", "other", "third"} {
		q := &pb.AcquireRequest{ClientId: "root", RequestId: uint64(i + 1), Lock: lock, TtlMs: 60000}
		if a, err := d.c.Acquire(as("root"), q); err != nil || a.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(a, err)
		}
		if a, err := d.c.BindFile(as("root"), &pb.BindFileRequest{ClientId: "root", RequestId: uint64(i + 11), Lock: lock, Token: uint64(d.b.lockAt(t, cluster.LockName(lock)).Grant.Token), File: lock}); err != nil || a.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(a, err)
		}
	}
	for who, want := range map[string]string{"alice": "l", "bob": "other", "root": "l other third"} {
		var locks, files []string
		r, err := d.c.ListLocks(as(who), &pb.ListLocksRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.GetLocks() {
			locks = append(locks, l.GetName())
		}
		f, err := d.c.ListFiles(as(who), &pb.ListFilesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range f.GetFiles() {
			files = append(files, x.GetName())
		}
		if got := strings.Join(locks, " "); got != want || strings.Join(files, " ") != want {
			t.Errorf("%s sees the locks %v and files %v, want %s", who, locks, files, want)
		}
		h, err := d.c.History(as(who), &pb.HistoryRequest{Target: &pb.HistoryRequest_Prefix{Prefix: ""}})
		if got := statusOf(h.GetStatus(), err); (got == cluster.StatusOK) != (who == "root") {
			t.Errorf("%s asks for the history of all: %v", who, got)
		}
		w, err := d.c.Watch(as(who), &pb.WatchRequest{Target: &pb.WatchRequest_Prefix{Prefix: ""}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := w.Recv()
		if got := statusOf(e.GetStatus(), err); (got == cluster.StatusOK) != (who == "root") {
			t.Errorf("%s watches all: %v", who, got)
		}
	}
}

// What a client loses is told to its own identity only, over sessions and WebSockets.
func TestLossesAreToldToTheOwnIdentity(t *testing.T) {
	d := newDoors(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer alice")
	a, err := d.c.Acquire(ctx, &pb.AcquireRequest{ClientId: "hers", RequestId: 1, Lock: "l", TtlMs: 60000})
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(a, err)
	}
	own, other := connectAs(t, d.c, "alice"), connectAs(t, d.c, "bob")
	defer own.Close()
	defer other.Close()
	for _, s := range []*stream{own, other} {
		if err := s.Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "hers"}}); err != nil {
			t.Fatal(err)
		}
		next(t, s, func(r *pb.SessionResponse) bool { return r.GetWelcome() != nil })
		// Behind it the subscription is made, or not.
		if err := s.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Outcome{Outcome: &pb.OutcomeRequest{ClientId: "hers", RequestId: 1}}}}}); err != nil {
			t.Fatal(err)
		}
		next(t, s, func(r *pb.SessionResponse) bool { return len(r.Outcomes) > 0 })
	}
	if status, why := d.hello("bob", "hers"); status != cluster.StatusPermissionDenied {
		t.Errorf("a WebSocket of another one: %v, %s", status, why)
	}
	if status, why := d.hello("alice", "hers"); status != cluster.StatusOK {
		t.Errorf("a WebSocket of the own identity: %v, %s", status, why)
	}
	root := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer root")
	if b, err := d.c.BreakLock(root, &pb.BreakLockRequest{ClientId: "root", RequestId: 1, Lock: "l", Token: a.GetToken(), Reason: "test", Actor: "root"}); err != nil || b.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(b, err)
	}
	next(t, own, func(r *pb.SessionResponse) bool { return len(r.Losses) > 0 })
	// What was to be told to the other one would have been put into his connection before.
	if err := other.Send(&pb.SessionRequest{Calls: []*pb.Call{statusCall(9)}}); err != nil {
		t.Fatal(err)
	}
	next(t, other, func(r *pb.SessionResponse) bool {
		if len(r.Losses) > 0 {
			t.Errorf("another one is told %v", r.Losses)
		}
		return len(r.Returns) > 0
	})
}

// hello says over a WebSocket which client it is, and returns the answer.
func (d *doors) hello(who, client string) (cluster.Status, string) {
	c, _, err := websocket.Dial(d.t.Context(), "ws"+strings.TrimPrefix(d.http.URL, "http")+ws.Path, &websocket.DialOptions{Subprotocols: []string{ws.Protocol, "holdfast.bearer." + who}})
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.CloseNow() //nolint:errcheck // it has ended
	if err := c.Write(d.t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"id":1,"op":"hello","client_id":%q}`, client)); err != nil {
		d.t.Fatal(err)
	}
	_, b, err := c.Read(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var said struct{ Status, Message string }
	if err := json.Unmarshal(b, &said); err != nil {
		d.t.Fatal(err)
	}
	s, _ := cluster.ParseStatus(said.Status)
	return s, said.Message
}

// stalled is a backend whose table cannot be read: its volume hangs.
type stalled struct{ *backend }

func (stalled) Read(ctx context.Context, _ func(serving.View)) (serving.Reading, error) {
	<-ctx.Done()
	return serving.Reading{}, context.Cause(ctx)
}

// A session begins although the table cannot be asked whose its client ID is: it is told no losses, and its keep-alives
// find them out.
func TestSessionBeginsWhileTheTableIsStuck(t *testing.T) {
	b := stalled{startPrimary(t)}
	s := connectAs(t, dialService(t, service.New(b, service.Options{Authenticator: newCredentials(t)})), "alice")
	defer s.Close()
	if err := s.Send(&pb.SessionRequest{
		Hello:      &pb.SessionHello{ClientId: "c"},
		Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}}}},
	}); err != nil {
		t.Fatal(err)
	}
	if a := next(t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 }).Answers[0]; a.GetStatus() != pb.Status_STATUS_OK {
		t.Error(a)
	}
}
