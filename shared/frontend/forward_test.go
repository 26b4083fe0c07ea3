// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// pair is a primary, server 1, and a replica, server 2, that knows where it listens.
func pair(t *testing.T) (b *backend, primary, replica *site, r *backend) {
	t.Helper()
	b = startPrimary(t)
	primary = serveHTTP(t, b)
	r = follower(primary.addr)
	return b, primary, serveHTTP(t, r), r
}

// follower is server 2, which takes server 1 at addr for the primary.
func follower(addr string) *backend {
	m := primarytest.Members()
	m[0].Client = addr
	return &backend{self: 2, members: m, term: 1, epoch: 1}
}

func TestReplicaForwardsWrites(t *testing.T) {
	b, _, h, _ := pair(t)
	got := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s","client_id":"c1","request_id":1}`)
	if again := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s","client_id":"c1","request_id":1}`); again.Token != got.Token || !again.Repeat {
		t.Errorf("repeat: %+v", again)
	}
	r := h.ok(fmt.Sprintf("/v1/append?lock=l&token=%d&file=a+b&adopt_existing=true", got.Token), "data&x=y")
	if r.Length != 8 || r.File != "a b" || r.Protected || !strings.HasPrefix(r.ClientID, "~") {
		t.Errorf("append without IDs: %+v", r)
	}
	h.ok("/v1/renew", fmt.Sprintf(`{"lock":"l","token":%d}`, got.Token))
	if k := h.ok("/v1/keepalive", `{"client_id":"c1"}`); !k.Differs {
		t.Errorf("keepalive: %+v", k)
	}
	var o wire.OutcomeBody
	if code, _ := h.call("POST", "/v1/outcome", `{"client_id":"c1","request_id":1}`, &o); code != 200 || o.State != "executed" {
		t.Errorf("outcome: %d %+v", code, o)
	}
	if code, body := h.post("/v1/acquire", `{"lock":"l","ttl":"30s"}`); code != 423 || body.Status != "HELD" || body.Holder.Token != cluster.Token(got.Token) {
		t.Errorf("a held lock: %d %+v", code, body)
	}
	if anonymous := h.ok("/v1/acquire", `{"lock":"m","ttl":"30s"}`); anonymous.Protected || anonymous.Token == 0 {
		t.Errorf("acquire without IDs: %+v", anonymous)
	}
	if opened := h.ok("/v1/open", `{}`); !strings.HasPrefix(opened.ClientID, "@") {
		t.Errorf("open: %+v", opened)
	}
	if b.lockAt(t, "l").Grant.Client != "c1" {
		t.Error("the primary knows nothing of it")
	}
	var lock wire.LockBody
	if code, _ := h.call("GET", "/v1/locks/l", "", &lock); code != 503 || lock.Status != "SECONDARY_MODE" {
		t.Errorf("a read at a replica without a table: %d %+v", code, lock)
	}
}

// TestForwardForAPage: the server that the page asks decides, and says once that the page may read the answer.
func TestForwardForAPage(t *testing.T) {
	const origin = "https://elsewhere.example"
	_, primary, _, replica := pair(t)
	h := serveHTTPWith(t, replica, httpapi.Options{Log: zerolog.New(t.Output()), Pages: origins.New([]string{origin})})
	token := primary.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`).Token
	primary.ok(fmt.Sprintf("/v1/append?lock=l&token=%d&file=f", token), "data")
	for route, body := range map[string]string{"POST /v1/renew": fmt.Sprintf(`{"lock":"l","token":%d}`, token), "GET /v1/files/f": ""} {
		method, path, _ := strings.Cut(route, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close() //nolint:errcheck // it is not read
		if may := answer.Header.Values("Access-Control-Allow-Origin"); answer.StatusCode != http.StatusOK || len(may) != 1 || may[0] != origin {
			t.Errorf("%s: %d, read by %q", route, answer.StatusCode, may)
		}
	}
}

func TestForwardMakesOneHop(t *testing.T) {
	// Two replicas, each of which takes the other for the primary.
	first := follower("127.0.0.1:1")
	second := &backend{self: 1, members: primarytest.Members(), term: 2, epoch: 1}
	a, b := serveHTTP(t, first), serveHTTP(t, second)
	first.members[0].Client, second.members[1].Client = b.addr, a.addr
	code, body := a.post("/v1/acquire", `{"lock":"l","ttl":"30s"}`)
	if code != 503 || body.Status != "SECONDARY_MODE" {
		t.Errorf("%d %+v", code, body)
	}
}

func TestForwardToNobody(t *testing.T) {
	r := follower("127.0.0.1:1")
	r.elect(0, 0)
	h := serveHTTP(t, r)
	code, body := h.post("/v1/acquire", `{"lock":"l","ttl":"30s","client_id":"c","request_id":3}`)
	if code != 503 || body.Status != "SECONDARY_MODE" || body.Primary != nil || body.RetryAfter == "" || body.RequestID != 3 {
		t.Errorf("no primary: %d %+v", code, body)
	}
	r.elect(1, 1)
	if code, body = h.post("/v1/acquire", `{"lock":"l","ttl":"30s"}`); code != 503 || body.Status != "SECONDARY_MODE" {
		t.Errorf("a primary that refuses connections: %d %+v", code, body)
	}
}

func TestForwardFollowsTheElection(t *testing.T) {
	b := startPrimary(t)
	h := serveHTTP(t, b)
	r := follower("127.0.0.1:1") // server 1 is dead; server 3 will be elected
	r.members[2].Client = h.addr
	calls := 0
	counted := &counting{Backend: r, primary: func() {
		if calls++; calls == 3 {
			r.elect(3, 2)
		}
	}}
	f := serveHTTP(t, counted)
	if got := f.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`); got.Token == 0 {
		t.Errorf("%+v", got)
	}
}

// counting tells when it is asked which server is primary.
type counting struct {
	serving.Backend
	primary func()
}

func (c *counting) Primary() (cluster.Member, cluster.Epoch, bool) {
	c.primary()
	return c.Backend.Primary()
}

// losing is a primary whose first answers are lost after the request was executed.
func losing(t *testing.T, b serving.Backend, answers int) (addr string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	front := httpapi.New(service.New(b, service.Options{}), httpapi.Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if int(asked.Add(1)) > answers {
			front.ServeHTTP(w, r)
			return
		}
		front.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), asked
}

func TestForwardWhoseAnswerIsLostIsARepeat(t *testing.T) {
	b := startPrimary(t)
	addr, asked := losing(t, b, 1)
	h := serveHTTP(t, follower(addr))
	got := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`)
	if !got.Repeat || asked.Load() != 2 {
		t.Errorf("after %d attempts: %+v", asked.Load(), got)
	}
	token := got.Token

	asked.Store(0)
	path := fmt.Sprintf("/v1/append?lock=l&token=%d&file=f", token)
	if r := h.ok(path+"&client_id=c&request_id=1", "one\n"); !r.Repeat || r.Offset != 0 {
		t.Errorf("append: %+v", r)
	}
	// Without IDs it would not be a repeat, and the line would be there twice.
	asked.Store(0)
	code, body := h.post(path, "two\n")
	if code != 504 || body.Status != "UNKNOWN" || asked.Load() != 1 || body.Protected || body.ClientID == "" {
		t.Errorf("append without IDs, after %d attempts: %d %+v", asked.Load(), code, body)
	}
	asked.Store(0)
	if r := h.ok(path+"&client_id=c&request_id=2", "three\n"); r.Offset != int64(len("one\ntwo\n")) {
		t.Errorf("the file is not as it should be: %+v", r)
	}
}

func TestForwardThatStaysUnknown(t *testing.T) {
	addr, asked := losing(t, startPrimary(t), 100)
	h := serveHTTP(t, follower(addr))
	code, body := h.post("/v1/acquire", `{"lock":"l","ttl":"30s","client_id":"c","request_id":8}`)
	if code != 504 || body.Status != "UNKNOWN" || body.ClientID != "c" || body.RequestID != 8 || asked.Load() != 4 {
		t.Errorf("after %d attempts: %d %+v", asked.Load(), code, body)
	}
}

// forgetful is a primary that executes the first request and loses its answer, and answers
// every later one with a status word.
func forgetful(t *testing.T, b serving.Backend, then string) string {
	t.Helper()
	front, first := httpapi.New(service.New(b, service.Options{}), httpapi.Options{}), new(atomic.Bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first.CompareAndSwap(false, true) {
			front.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		word, committed := strings.CutSuffix(then, " committed")
		status, _ := cluster.ParseStatus(word)
		w.WriteHeader(wire.HTTPCode(status))
		_ = json.NewEncoder(w).Encode(map[string]any{"status": word, "committed": committed})
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// What may have been executed is told as refused only where the refusal holds for all attempts.
func TestForwardKeepsItsDoubt(t *testing.T) {
	token := map[string]bool{"INVALID_TOKEN": true}
	every := map[string]bool{"OK": true, "WAIT_TIMEOUT": true, "CANCELLED": true, "LEASE_EXPIRED": true, "FILE_QUARANTINED committed": true}
	words := []string{"FILE_QUARANTINED committed"}
	for _, s := range cluster.Statuses() {
		words = append(words, s.String())
	}
	for _, word := range words {
		for path, body := range map[string]string{
			"release":          `{"lock":"l","token":1,"client_id":"c","request_id":1}`,
			"break":            `{"lock":"l","client_id":"c","request_id":1}`,
			"terraform/l?ID=x": `{"serial":1}`,
		} {
			t.Run(word+" to "+path, func(t *testing.T) {
				t.Parallel()
				h := serveHTTP(t, follower(forgetful(t, startPrimary(t), word)))
				_, got := h.post("/v1/"+path, body)
				want := "UNKNOWN"
				if every[word] || token[word] && path != "break" {
					want, _, _ = strings.Cut(word, " ")
				}
				if got.Status != want {
					t.Errorf("told %s, want %s: %s", got.Status, want, got.Message)
				}
			})
		}
	}
}

// An append that was executed, and whose answer was lost, while the primary has no quorum when
// the replica asks again, or was under way when this server's own term ended.
func TestNoQuorumIsNoAnswerToWhatMayBeDone(t *testing.T) {
	h := serveHTTP(t, follower(forgetful(t, startPrimary(t), "NO_QUORUM")))
	code, body := h.post("/v1/append?lock=l&token=1&file=f&client_id=c&request_id=1", "one\n")
	if code != 504 || body.Status != "UNKNOWN" || !strings.Contains(body.Message, "NO_QUORUM") || body.RequestID != 1 {
		t.Errorf("told %d %+v", code, body)
	}
	b := startPrimary(t)
	b.p.SetQuorum(false)
	own := follower(serveHTTP(t, b).addr)
	own.elect(2, 1)
	code, body = serveHTTP(t, deposed{own}).post("/v1/append?lock=l&token=1&file=f&client_id=c&request_id=1", "one\n")
	if code != 504 || body.Status != "UNKNOWN" {
		t.Errorf("behind the end of its own term: told %d %+v", code, body)
	}
}

// An acquire without IDs that ends UNKNOWN is known to nobody: what it got is let go.
func TestForwardLetsGoWhatNobodyKnowsOf(t *testing.T) {
	b := startPrimary(t)
	front, asked := httpapi.New(service.New(b, service.Options{}), httpapi.Options{}), new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/acquire") {
			front.ServeHTTP(w, r)
			return
		}
		asked.Add(1)
		front.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	h := serveHTTP(t, follower(s.Listener.Addr().String()))
	if code, body := h.post("/v1/acquire", `{"lock":"l","ttl":"60s"}`); code != 504 || asked.Load() < 2 {
		t.Errorf("after %d attempts: %d %+v", asked.Load(), code, body)
	}
	if l := b.lockAt(t, "l"); l.Grant.Token != 0 {
		t.Errorf("left behind: %+v", l.Grant)
	}
	if code, body := h.post("/v1/acquire", `{"lock":"l","ttl":"60s","client_id":"c","request_id":1}`); code != 504 {
		t.Errorf("%d %+v", code, body)
	}
	if l := b.lockAt(t, "l"); l.Grant.Token == 0 {
		t.Error("who has IDs can ask again, and was cleaned up behind")
	}
}

// A client may hold so much that the answer to its keep-alive has many megabytes.
func TestForwardPassesOnALargeAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		grants := make([]wire.HeldLock, 100_000)
		for i := range grants {
			grants[i] = wire.HeldLock{Lock: strings.Repeat("l", 30), Token: uint64(i)}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "OK", "differs": true, "grants": grants})
	}))
	t.Cleanup(s.Close)
	h := serveHTTP(t, follower(s.Listener.Addr().String()))
	var k struct {
		Status  string
		Differs bool
		Grants  []wire.HeldLock
	}
	if code, _ := h.call("POST", "/v1/keepalive", `{"client_id":"c"}`, &k); code != 200 || len(k.Grants) != 100_000 || k.Grants[99_999].Token != 99_999 {
		t.Errorf("%d, %d grants", code, len(k.Grants))
	}
}

func TestForwardLeavesAPausedPrimary(t *testing.T) {
	// Server 1 takes connections and says nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := startPrimary(t)
	h := serveHTTP(t, b)
	r := follower(l.Addr().String())
	r.members[2].Client = h.addr
	f := serveHTTP(t, r)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
		r.elect(3, 2)
		<-t.Context().Done()
	}()
	if got := f.ok("/v1/acquire", `{"lock":"l","ttl":"30s","wait":"forever"}`); got.Token == 0 {
		t.Errorf("%+v", got)
	}
}

func TestForwardedWaitSurvivesALateFailover(t *testing.T) {
	// Server 1 lets it wait for longer than a forward looks for a primary, and
	// then dies; its successor comes later still.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := startPrimary(t)
	h := serveHTTP(t, b)
	r := follower(l.Addr().String())
	r.members[2].Client = h.addr
	f := serveHTTP(t, r)
	timing := r.Timing()
	patience := 4*timing.Suspicion + timing.FencingPeriod
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 1))
		<-time.After(2 * patience)
		r.elect(0, 0)
		c.Close()
		<-time.After(patience / 2)
		r.elect(3, 2)
	}()
	if got := f.ok("/v1/acquire", `{"lock":"l","ttl":"30s","wait":"forever","client_id":"c1","request_id":1}`); got.Token == 0 {
		t.Errorf("%+v", got)
	}
}

func TestForwardedCallWithoutIDsLeavesNoWaiter(t *testing.T) {
	b, _, h, _ := pair(t)
	h.ok("/v1/acquire", `{"lock":"l","ttl":"60s"}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := http.NewRequestWithContext(ctx, "POST", h.url+"/v1/acquire", strings.NewReader(`{"lock":"l","ttl":"60s","wait":"forever"}`))
		if err == nil {
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		}
	}()
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	cancel()
	<-done
	eventually(t, "the queue is empty", func() bool { return b.lockAt(t, "l").QueueLength == 0 })
}

// deposed is a primary that is told of its end while a request is under way.
type deposed struct{ *backend }

func (d deposed) Do(_ context.Context, q *locktable.Request) (locktable.Outcome, error) {
	d.elect(1, 2)
	return locktable.Outcome{Status: cluster.StatusUnknown}, nil
}

// becoming is a primary that first answers so many calls as a server in its own takeover.
type becoming struct {
	*backend
	early atomic.Int32
}

func (b *becoming) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if b.early.Add(-1) >= 0 {
		return locktable.Outcome{Status: cluster.StatusServerFencing}, nil
	}
	return b.backend.Do(ctx, q)
}

// A call that comes to a server in its own takeover waits for the end of that, over HTTP as over the doors of WebSocket and lines,
// also where the server does not yet know that it is the primary.
func TestACallWaitsForTheOwnTakeover(t *testing.T) {
	b := &becoming{backend: startPrimary(t)}
	front := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: zerolog.New(t.Output())})
	h := serveFront(t, front)
	b.early.Store(2)
	if got := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`); got.Token == 0 || b.early.Load() >= 0 {
		t.Errorf("over HTTP: %+v", got)
	}
	b.early.Store(2)
	if got := front.Door().Call(t.Context(), "acquire", []byte(`{"lock":"m","ttl":"30s"}`)); got.Status != cluster.StatusOK {
		t.Errorf("over a door: %v %s", got.Status, got.Body)
	}
	b.early.Store(1)
	b.elect(0, 0)
	elected := &counting{Backend: b, primary: func() { b.elect(1, 1) }}
	if got := serveHTTP(t, elected).ok("/v1/acquire", `{"lock":"n","ttl":"30s"}`); got.Token == 0 {
		t.Errorf("before the election has ended: %+v", got)
	}
}

// unwritten is a primary whose files cannot be written.
type unwritten struct{ *backend }

func (u unwritten) Do(_ context.Context, q *locktable.Request) (locktable.Outcome, error) {
	out := locktable.Outcome{Client: q.Client, Request: q.ID, LSN: 7, File: q.File}
	return out.Unwritten("no space left on the volume"), nil
}

// An append that is committed and not in its file yet is an answer, here and through a
// replica: it is not asked for again and again until nobody knows what came of it.
func TestCommittedAppendIsAnAnswer(t *testing.T) {
	primary := serveHTTP(t, unwritten{startPrimary(t)})
	for name, h := range map[string]*site{"primary": primary, "replica": serveHTTP(t, follower(primary.addr))} {
		began := time.Now()
		code, body := h.post("/v1/append?lock=l&token=5&file=f&client_id=c1&request_id=1", "data")
		if code != 504 || !body.Committed || body.LSN != 7 || !strings.Contains(body.Message, "no space left on the volume") || time.Since(began) > 2*time.Second {
			t.Errorf("%s, after %v: %d %+v", name, time.Since(began), code, body)
		}
	}
}

func TestCallUnderWayGoesOnAtTheNextPrimary(t *testing.T) {
	_, primary, _, _ := pair(t)
	d := follower(primary.addr)
	d.elect(2, 1)
	h := serveHTTP(t, deposed{d})
	if got := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`); got.Token == 0 {
		t.Errorf("%+v", got)
	}
	if code, body := h.post("/v1/break", `{"lock":"l"}`); code != 504 || body.Status != "UNKNOWN" {
		t.Errorf("what cannot be repeated: %d %+v", code, body)
	}
}

// What a primary would refuse for certain is refused by who has it, so that it is no matter
// of what the way there takes.
func TestReplicaRefusesWhatIsWrong(t *testing.T) {
	b := startPrimary(t)
	asked := new(atomic.Int32)
	front := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: zerolog.New(t.Output())}).Server()
	served := front.Handler
	front.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		served.ServeHTTP(w, r)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go front.Serve(l) //nolint:errcheck // it is closed
	defer front.Close()
	f := follower(l.Addr().String())
	h := serveHTTP(t, f)
	door := httpapi.New(service.New(f, service.Options{}), httpapi.Options{}).Door()
	values := func(more ...string) url.Values {
		v := url.Values{"lock": {"l"}, "token": {"1"}, "file": {"f"}}
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	for what, v := range map[string]url.Values{
		"a long lock":  values("lock", strings.Repeat("l", 20<<10)),
		"a long file":  values("file", strings.Repeat("f", 20<<10)),
		"a long token": values("token", strings.Repeat("0", 20<<10)+"1"),
		"IDs":          values("lock", strings.Repeat("l", 20<<10), "client_id", "c", "request_id", "1"),
	} {
		if r := door.Append(t.Context(), v, []byte("x")); r.Status != cluster.StatusInvalidArgument {
			t.Errorf("%s: %v %.200s", what, r.Status, r.Body)
		}
	}
	if r := door.Call(t.Context(), "acquire", []byte(`{"lock":"../l","ttl":"30s"}`)); r.Status != cluster.StatusInvalidArgument {
		t.Errorf("a name that is none: %v %s", r.Status, r.Body)
	}
	// Commas take three bytes each on the way on.
	code, body := h.post("/v1/append?token=1&file=f&client_id=c&request_id=7&lock="+strings.Repeat(",", 9000), "x")
	if code != 400 || body.Status != "INVALID_ARGUMENT" || body.ClientID != "c" || body.RequestID != 7 || !strings.Contains(body.Message, "lock name has") {
		t.Errorf("over HTTP: %d %+v", code, body)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the primary was asked %d times", n)
	}
	if r := door.Append(t.Context(), values("lock", "none"), []byte("x")); r.Status == cluster.StatusInvalidArgument || asked.Load() != 1 {
		t.Errorf("what is right: %v, the primary was asked %d times", r.Status, asked.Load())
	}
}
