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
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/audit"
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

func (g *credentials) Known(credential string) bool { return credential == "bob" }

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
			{Who: []string{"user:alice", "service:fired"}, May: all, Locks: []string{"l", "f", "terraform/*"}},
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
	case (o.Name == "whoami" || o.Name == "keys" || o.Name == "login") && who == "fired":
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
// which token the client holds the lock, and it holds none here: then that is to read.
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
	if s == cluster.StatusUnauthenticated || s == cluster.StatusPermissionDenied || s == cluster.StatusLimited {
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
	if q, ok := m.(*pb.BreakLockRequest); ok {
		q.Token = 0 // whoever holds it
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
	told *audited
	// sockets counts the WebSockets of socketIsCut.
	sockets atomic.Int32
}

func newDoors(t *testing.T) *doors { return newDoorsThat(t, service.Options{}) }

// newDoorsThat is newDoors with these options of their service.
func newDoorsThat(t *testing.T, opt service.Options) *doors {
	d := &doors{t: t, g: newCredentials(t), told: &audited{}}
	d.b = startPrimaryUnder(t, d.g.Rules)
	opt.Authenticator, opt.Auditor = d.g, d.told
	d.s = service.New(d.b, opt)
	d.c = dialService(t, d.s)
	h := httpapi.New(d.s, httpapi.Options{Log: zerolog.Nop()})
	sockets := ws.New(h.Door(), ws.Options{Log: zerolog.Nop()})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle(ws.Path, h.Authenticated(sockets))
	d.http = httptest.NewUnstartedServer(mux)
	d.http.Config.ConnContext = h.Server().ConnContext
	d.http.Start()
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
	case method == "LOCK" || method == "UNLOCK":
		body = fmt.Sprintf(`{"ID":"id%d"}`, d.n)
	case o.Name == "putstate" || o.Name == "deletestate":
		path, body = fmt.Sprintf("%s?ID=id%d", path, d.n), `{"serial":1}`
	case o.Name == "watch" || o.Name == "history" || o.Name == "lockmetrics":
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
	case http.StatusTooManyRequests:
		return cluster.StatusLimited, true
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
		return cluster.StatusUnauthenticated, who != "" || o.Verb != access.Open // strangers get no WebSocket for what everybody may ask
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
	switch say(fmt.Sprintf("%s,l,me%d", o.Line.Verb, d.n)) {
	case "DENIED":
		return cluster.StatusPermissionDenied, true // one word for both
	case "LIMITED":
		return cluster.StatusLimited, true
	}
	return cluster.StatusOK, true
}

// Every operation is refused, or not, by the same rules through every front end that has it. A new operation whose front
// end forgets the caller fails here.
func TestEveryDoorRefusesTheSame(t *testing.T) {
	d := newDoors(t)
	for name, ask := range map[string]func(string, *ops.Operation) (cluster.Status, bool){
		"gRPC": d.gRPC, "streams": d.streams, "calls": d.calls, "session": d.session, "HTTP": d.web, "WebSocket": d.socket, "lines": d.line,
	} { // TestEveryDoorLimitsTheSame has the same
		seen := 0
		for _, o := range ops.All() {
			for _, who := range []string{"", "alice", "bob", "late", "fired", "root"} {
				d.n++
				if o.Name == "handover" && who == "root" {
					continue // that would end the term, if there were another server
				}
				d.told.take()
				got, has := ask(who, o)
				told := d.told.take()
				if asksVerify := o.Name == "verify" || name == "lines" && o.Verb == access.Keep; !has || who == "late" && asksVerify {
					continue // late is told about alice's grant, if there is one: see TestLinesKeepWhatIsHeld
				}
				seen++
				want := expected(who, o)
				if name == "lines" {
					want = expectedOfLine(who, o)
				}
				if verdict(got) != want {
					t.Errorf("%s, %s by %q: %v, want %v", name, o.Name, who, got, want)
				}
				d.checkTold(fmt.Sprintf("%s, %s by %q", name, o.Name, who), who, want, told)
			}
		}
		if seen < 6 {
			t.Errorf("%s was asked %d times only", name, seen)
		}
	}
}

// checkTold compares what the auditor was told of an operation with its answer: of each refusal, and of nothing else, with who was
// refused, and from where.
func (d *doors) checkTold(what, who string, answered cluster.Status, told []audit.Event) {
	d.t.Helper()
	refused := false
	for i := range told {
		e := &told[i]
		if !e.Kind.Denied() {
			continue
		}
		refused = true
		if e.Kind == audit.KindDenied && (e.Identity != d.g.callers[who].Name() && who != "fired" || e.Verb == "") || e.From == "" || e.Status == "" || e.Message == "" {
			d.t.Errorf("%s: the audit has %+v", what, *e)
		}
	}
	if refused != (answered != cluster.StatusOK) && (who != "fired" || answered != cluster.StatusOK) {
		d.t.Errorf("%s: answered %v, and the audit has %+v", what, answered, told)
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
	d.s.EndForbidden()
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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

// revokesAtFirst revokes alice's tickets when the first bytes of an answer are written.
type revokesAtFirst struct {
	*httptest.ResponseRecorder
	d *doors
}

func (w revokesAtFirst) Write(b []byte) (int, error) {
	if w.Body.Len() == 0 {
		w.d.revoke()
	}
	return w.ResponseRecorder.Write(b)
}

// A download breaks off when its credential is revoked.
func TestDownloadEndsWithItsCredential(t *testing.T) {
	d := newDoors(t)
	root := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer root")
	a, err := d.c.Acquire(root, &pb.AcquireRequest{ClientId: "root", RequestId: 1, Lock: "l", TtlMs: 60000})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, cluster.MaxAppend)
	for i := range 3 {
		r, err := d.c.FileAppend(root, &pb.FileAppendRequest{ClientId: "root", RequestId: uint64(i + 2), Lock: "l", Token: a.GetToken(), File: "f", Data: data})
		if err != nil || r.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(r, err)
		}
	}
	for _, who := range []string{"alice", "root"} {
		whole := who == "root"
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/files/f", nil)
		r.Header.Set("Authorization", "Bearer "+who)
		w := revokesAtFirst{httptest.NewRecorder(), d}
		broken := func() (v any) {
			defer func() { v = recover() }()
			d.http.Config.Handler.ServeHTTP(w, r)
			return nil
		}()
		if n := w.Body.Len(); (broken == nil) != whole || (n == 3*len(data)) != whole || n == 0 {
			t.Errorf("%s is sent %d bytes of %d; panic %v", who, n, 3*len(data), broken)
		}
	}
}

// A watch ends when the credential of its caller has expired, unless he has shown a newer one.
func TestWatchEndsWithItsCredential(t *testing.T) {
	for _, renews := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newCredentials(t)
			s := service.New(startPrimary(t), service.Options{Authenticator: g})
			var caller atomic.Pointer[access.Caller]
			caller.Store(&access.Caller{Identity: "user:alice", Expires: time.Now().Add(time.Hour)})
			ctx, cancel := context.WithCancel(serving.WithCallers(t.Context(), caller.Load))
			defer cancel()
			last := make(chan pb.Status, 1)
			go func() {
				told := pb.Status_STATUS_NONE
				s.Watch(ctx, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}}, nil, func(r *pb.WatchResponse) error { //nolint:errcheck // its end is what counts
					told = r.GetStatus()
					return nil
				})
				last <- told
			}()
			time.Sleep(59 * time.Minute)
			s.EndForbidden()
			if renews {
				caller.Store(&access.Caller{Identity: "user:alice"})
			}
			time.Sleep(2 * time.Minute)
			s.EndForbidden()
			synctest.Wait()
			select {
			case got := <-last:
				if renews || got != pb.Status_STATUS_UNAUTHENTICATED {
					t.Errorf("renewed %v: it ends with %v", renews, got)
				}
			default:
				if !renews {
					t.Error("it goes on")
				}
			}
		})
	}
}

// What is under way on a connection is its caller's with the credential that he showed last.
func TestRenewedCredentialKeepsItsWatches(t *testing.T) {
	d := newDoors(t)
	d.g.callers["anew"] = &access.Caller{Identity: "user:alice", Via: "ticket", Issued: time.Now().Add(time.Hour)}
	s := connectAs(t, d.c, "alice")
	defer s.Close()
	if err := s.Send(&pb.SessionRequest{
		Hello:   &pb.SessionHello{ClientId: "c"},
		Watches: []*pb.SessionWatch{{WatchId: 7, Request: &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	next(t, s, func(r *pb.SessionResponse) bool { return len(r.Events) > 0 })
	if err := s.Send(&pb.SessionRequest{Credential: "anew", Calls: []*pb.Call{statusCall(1)}}); err != nil {
		t.Fatal(err)
	}
	next(t, s, func(r *pb.SessionResponse) bool { return len(r.Returns) > 0 })
	if err := s.Send(&pb.SessionRequest{Calls: []*pb.Call{statusCall(2)}}); err != nil { // behind the new credential
		t.Fatal(err)
	}
	next(t, s, func(r *pb.SessionResponse) bool { return len(r.Returns) > 0 })
	d.revoke() // tickets that were issued until now
	if err := s.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000}}}}}); err != nil {
		t.Fatal(err)
	}
	for seen := false; !seen; {
		r, err := s.Recv()
		if err != nil || r.GetEnd() != nil {
			t.Fatal(r, err)
		}
		for _, e := range r.Events {
			if got := e.GetResponse().GetStatus(); got != pb.Status_STATUS_OK {
				t.Fatalf("the watch ends with %v", got)
			}
			seen = seen || len(e.GetResponse().GetEvents()) > 0
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
	d.s.EndForbidden()
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

// A lock names only those of its files that the caller may read.
func TestLockHidesFilesThatOneMayNotRead(t *testing.T) {
	d := newDoors(t)
	d.g.set(t, &access.File{Rules: []access.Rule{{
		Who: []string{"user:bob"}, May: []access.Verb{access.Read}, Locks: []string{"l"}, Files: []string{"open"},
	}}})
	as := func(who string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+who)
	}
	a, err := d.c.Acquire(as("root"), &pb.AcquireRequest{ClientId: "root", RequestId: 1, Lock: "l", TtlMs: 60000})
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(a, err)
	}
	for i, file := range []string{"open", "secret"} {
		q := &pb.BindFileRequest{ClientId: "root", RequestId: uint64(i + 2), Lock: "l", Token: a.GetToken(), File: file}
		if b, err := d.c.BindFile(as("root"), q); err != nil || b.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(b, err)
		}
	}
	for who, want := range map[string]string{"bob": "open", "root": "open secret"} {
		r, err := d.c.GetLock(as(who), &pb.GetLockRequest{Lock: "l"})
		if err != nil || r.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(r, err)
		}
		var names []string
		for _, f := range r.GetLock().GetFiles() {
			names = append(names, f.GetName())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s sees the files %q of the lock, want %q", who, got, want)
		}
	}
}

// A list of what one may read is whole, page by page, and names nothing else: not as the next name either.
func TestListsAreOfWhatOneMayRead(t *testing.T) {
	d := newDoors(t)
	d.g.set(t, &access.File{Rules: []access.Rule{{
		Who: []string{"user:bob"}, May: []access.Verb{access.Read}, Locks: []string{"b/*/x", "a", "b/05/**"}, Files: []string{"b/*/x", "a", "b/05/**"},
	}}})
	root := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer root")
	bob := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer bob")
	var all, want []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("b/%02d/secret", i), fmt.Sprintf("c/%02d/x", i))
		want = append(want, fmt.Sprintf("b/%02d/x", i))
	}
	want = append(want, "a", "b/05/secret")
	n := uint64(0)
	names := slices.Concat(all, want)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		n += 2
		a, err := d.c.Acquire(root, &pb.AcquireRequest{ClientId: "root", RequestId: n, Lock: name, TtlMs: 60000})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := d.c.BindFile(root, &pb.BindFileRequest{ClientId: "root", RequestId: n + 1, Lock: name, Token: a.GetToken(), File: name}); err != nil || b.GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(b, err)
		}
	}
	slices.Sort(want)
	for _, limit := range []uint32{1, 2, 7, 100} {
		for what, list := range map[string]func(after string) (names []string, next string){
			"locks": func(after string) (names []string, next string) {
				r, err := d.c.ListLocks(bob, &pb.ListLocksRequest{Limit: limit, After: after})
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range r.GetLocks() {
					names = append(names, l.GetName())
				}
				return names, r.GetNext()
			},
			"files": func(after string) (names []string, next string) {
				r, err := d.c.ListFiles(bob, &pb.ListFilesRequest{Limit: limit, After: after})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range r.GetFiles() {
					names = append(names, f.GetName())
				}
				return names, r.GetNext()
			},
		} {
			var got []string
			for names, next := list(""); ; names, next = list(next) {
				got = append(got, names...)
				if next != "" && (len(names) != int(limit) || next != names[limit-1]) {
					t.Errorf("%s by %d: next is %q behind %q", what, limit, next, names)
				}
				if next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by %d: %q, want %q", what, limit, got, want)
			}
		}
	}
}

// lines returns a function that sends a line over one connection and returns the answer.
func (d *doors) lines() func(format string, args ...any) string {
	c, err := net.Dial("tcp", d.text.Addr().String())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	r := bufio.NewReader(c)
	return func(format string, args ...any) string {
		if _, err := fmt.Fprintf(c, format+"\n", args...); err != nil {
			d.t.Fatal(err)
		}
		a, err := r.ReadString('\n')
		if err != nil {
			d.t.Fatal(err)
		}
		return strings.TrimSpace(a)
	}
}

// What one holds one may renew and release over the line protocol, too: with a credential that has expired, and without the
// right to read. Others are told nothing about it.
func TestLinesKeepWhatIsHeld(t *testing.T) {
	d := newDoors(t)
	d.g.set(t, &access.File{Rules: []access.Rule{
		{Who: []string{"user:alice"}, May: []access.Verb{access.Acquire}, Locks: []string{"l"}},
		{Who: []string{"user:bob"}, May: []access.Verb{access.Acquire, access.Read}, Locks: []string{"other"}},
	}})
	say := d.lines()
	for _, x := range []struct{ line, want string }{
		{"AUTH,alice", "SUCCESS"}, {"LOCK,l,me,60", "SUCCESS"}, {"RENEW,l,me", "SUCCESS"},
		{"AUTH,late", "SUCCESS"}, {"RENEW,l,me", "SUCCESS"},
		{"AUTH,bob", "SUCCESS"}, {"RENEW,l,me", "DENIED"}, {"TOKEN,l,me", "DENIED"}, {"UNLOCK,l,me", "DENIED"},
		{"AUTH,late", "SUCCESS"}, {"LOCK,l,me,60", "DENIED"}, {"UNLOCK,l,me", "SUCCESS"}, {"UNLOCK,l,me", "DENIED"},
		{"AUTH,alice", "SUCCESS"}, {"UNLOCK,l,me", "FAIL"}, {"LOCK,l,me,60", "SUCCESS"}, {"UNLOCK,l,me", "SUCCESS"},
	} {
		if got := say("%s", x.line); got != x.want {
			t.Errorf("%s: %s, want %s", x.line, got, x.want)
		}
	}
}

// An administrator may ask what others may do, and nobody else.
func TestAdministratorsAskOfOthers(t *testing.T) {
	d := newDoors(t)
	d.g.set(t, &access.File{
		Rules: []access.Rule{
			{Who: []string{"user:alice"}, May: []access.Verb{access.Acquire}, Locks: []string{"l"}},
			{Who: []string{"group:robots"}, May: []access.Verb{access.Read}, Locks: []string{"r"}},
		},
		Keys: []access.Key{{Name: "ci", Groups: []string{"group:robots"}, SHA256: strings.Repeat("0f", 32)}},
	})
	for _, x := range []struct {
		who, verb, lock, as string
		groups              []string
		want                pb.Status
		allowed             bool
	}{
		{"root", "acquire", "l", "user:alice", nil, pb.Status_STATUS_OK, true},
		{"root", "acquire", "r", "user:alice", nil, pb.Status_STATUS_OK, false},
		{"root", "read", "r", "user:alice", []string{"group:robots"}, pb.Status_STATUS_OK, true},
		{"root", "read", "r", "service:ci", nil, pb.Status_STATUS_OK, true},
		{"root", "admin", "", "service:ci", nil, pb.Status_STATUS_OK, false},
		{"root", "read", "r", "service:*", nil, pb.Status_STATUS_INVALID_ARGUMENT, false},
		{"root", "read", "r", "ci", nil, pb.Status_STATUS_INVALID_ARGUMENT, false},
		{"alice", "acquire", "l", "user:alice", nil, pb.Status_STATUS_PERMISSION_DENIED, false},
		{"alice", "acquire", "l", "", nil, pb.Status_STATUS_OK, true},
	} {
		ctx := serving.WithCaller(t.Context(), d.g.callers[x.who])
		r, err := d.s.WhoAmI(ctx, &pb.WhoAmIRequest{Verb: x.verb, Lock: x.lock, As: x.as, AsGroups: x.groups})
		if err != nil || r.GetStatus() != x.want || r.GetAllowed() != x.allowed {
			t.Errorf("%+v: %v, %v", x, r, err)
		}
	}
}

// Who may read nothing learns by status where the servers are and whether they live, and no more.
func TestStatusForStrangers(t *testing.T) {
	d := newDoors(t)
	d.g.callers["blind"] = &access.Caller{Identity: "user:blind"}
	d.g.set(t, &access.File{Rules: []access.Rule{
		{Who: []string{"user:alice"}, May: []access.Verb{access.Acquire, access.Read}, Locks: []string{"l"}},
		{Who: []string{"user:blind"}, May: []access.Verb{access.Acquire, access.Append, access.Break}, Locks: []string{"**"}},
	}})
	for who, known := range map[string]bool{"": false, "fired": false, "blind": false, "alice": true, "late": true, "root": true} {
		ctx := serving.WithCaller(t.Context(), d.g.callers[who])
		for _, local := range []bool{false, true} {
			r, err := d.s.Status(ctx, &pb.StatusRequest{Local: local})
			if err != nil || r.GetPrimary().GetId() != 1 || len(r.GetServers()) == 0 {
				t.Fatal(who, r, err)
			}
			if (r.GetTable() != nil) != (known && !local) || (r.GetLsn() != 0) != (known && !local) {
				t.Errorf("%q, local %v: %v", who, local, r)
			}
			for _, x := range r.GetServers() {
				if tells := x.GetVolume() != nil || x.GetPid() != 0 || x.GetVersion() != "" || x.GetPeer() != ""; tells != known || x.GetClient() == "" {
					t.Errorf("%q, local %v: server %v", who, local, x)
				}
			}
		}
	}
}

// Losses are told to the identity that they belong to, also where another one named the client before. A session and a
// WebSocket of each listen.
func TestLossesAreToldToTheOwnIdentity(t *testing.T) {
	d := newDoors(t)
	sockets := map[string]*websocket.Conn{}
	sessions := map[string]*stream{}
	for _, who := range []string{"bob", "alice"} {
		c, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(d.http.URL, "http")+ws.Path, &websocket.DialOptions{Subprotocols: []string{ws.Protocol, "holdfast.bearer." + who}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseNow() //nolint:errcheck // it has ended
		sockets[who], sessions[who] = c, connectAs(t, d.c, who)
		defer sessions[who].Close()
		if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"id":1,"op":"hello","client_id":"hers"}`)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(t.Context()); err != nil || !strings.Contains(string(b), `"OK"`) {
			t.Fatalf("%s, %v", b, err)
		}
		if err := sessions[who].Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "hers"}}); err != nil {
			t.Fatal(err)
		}
		next(t, sessions[who], func(r *pb.SessionResponse) bool { return r.GetWelcome() != nil })
		// Its answer comes behind the subscription.
		if err := sessions[who].Send(&pb.SessionRequest{Calls: []*pb.Call{statusCall(1)}}); err != nil {
			t.Fatal(err)
		}
		next(t, sessions[who], func(r *pb.SessionResponse) bool { return len(r.Returns) > 0 })
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer alice")
	a, err := d.c.Acquire(ctx, &pb.AcquireRequest{ClientId: "hers", RequestId: 1, Lock: "l", TtlMs: 60000})
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(a, err)
	}
	root := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer root")
	if b, err := d.c.BreakLock(root, &pb.BreakLockRequest{ClientId: "root", RequestId: 1, Lock: "l", Token: a.GetToken(), Reason: "test", Actor: "root"}); err != nil || b.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(b, err)
	}
	if _, b, err := sockets["alice"].Read(t.Context()); err != nil || !strings.Contains(string(b), `"loss"`) {
		t.Errorf("the WebSocket of the own identity: %s, %v", b, err)
	}
	next(t, sessions["alice"], func(r *pb.SessionResponse) bool { return len(r.Losses) > 0 })
	// What was to be told to the other one would have been put into his connections before.
	if err := sockets["bob"].Write(t.Context(), websocket.MessageText, []byte(`{"id":2,"op":"hello","client_id":"his"}`)); err != nil {
		t.Fatal(err)
	}
	if _, b, err := sockets["bob"].Read(t.Context()); err != nil || strings.Contains(string(b), `"loss"`) {
		t.Errorf("a WebSocket of another one is told %s, %v", b, err)
	}
	if err := sessions["bob"].Send(&pb.SessionRequest{Calls: []*pb.Call{statusCall(9)}}); err != nil {
		t.Fatal(err)
	}
	next(t, sessions["bob"], func(r *pb.SessionResponse) bool {
		if len(r.Losses) > 0 {
			t.Errorf("another one is told %v", r.Losses)
		}
		return len(r.Returns) > 0
	})
}
