// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
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

// site is one HTTP front end that listens.
type site struct {
	t    *testing.T
	addr string
	url  string
	stop func()
}

func serveHTTP(t *testing.T, b serving.Backend) *site {
	t.Helper()
	return serveHTTPWith(t, b, httpapi.Options{Log: zerolog.New(t.Output())})
}

func serveHTTPWith(t *testing.T, b serving.Backend, o httpapi.Options) *site {
	t.Helper()
	return serveFront(t, httpapi.New(service.New(b, service.Options{}), o))
}

func serveFront(t *testing.T, front *httpapi.Handler) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := front.Server()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop := sync.OnceFunc(func() {
		s.Close()
		<-done // closed
	})
	t.Cleanup(stop)
	return &site{t: t, addr: l.Addr().String(), url: "http://" + l.Addr().String(), stop: stop}
}

// call sends a request and decodes the answer into body, refusing fields that body lacks.
func (s *site) call(method, path, data string, body any) (int, http.Header) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(body); err != nil {
		s.t.Fatalf("%s %s: %d with a body that is not %T: %v", method, path, resp.StatusCode, body, err)
	}
	return resp.StatusCode, resp.Header
}

// post is a call that is answered with the one body.
func (s *site) post(path, data string) (int, wire.Body) {
	s.t.Helper()
	var b wire.Body
	code, _ := s.call("POST", path, data, &b)
	return code, b
}

func (s *site) ok(path, data string) wire.Body {
	s.t.Helper()
	code, b := s.post(path, data)
	if code != 200 || b.Status != "OK" {
		s.t.Fatalf("POST %s %s: %d %+v", path, data, code, b)
	}
	return b
}

func TestHTTPStatuses(t *testing.T) {
	codes := map[cluster.Status]int{
		cluster.StatusOK: 200, cluster.StatusError: 500, cluster.StatusInvalidToken: 412, cluster.StatusPermissionDenied: 403,
		cluster.StatusSecondaryMode: 503, cluster.StatusServerFencing: 503, cluster.StatusHeld: 423, cluster.StatusWaitTimeout: 423,
		cluster.StatusLeaseExpired: 410, cluster.StatusCancelled: 409, cluster.StatusNoQuorum: 503, cluster.StatusStaleRequest: 409,
		cluster.StatusInvalidArgument: 400, cluster.StatusTooLarge: 413, cluster.StatusStorageUnavailable: 503,
		cluster.StatusFileQuarantined: 409, cluster.StatusUnknown: 504, cluster.StatusOffsetMismatch: 412, cluster.StatusFileSealed: 409,
		cluster.StatusUnauthenticated: 401, cluster.StatusLimited: 429, cluster.StatusLockChanged: 412, cluster.StatusAlreadyDone: 409,
		cluster.StatusOtherLimit: 409, cluster.StatusWrongCell: 421,
	}
	for _, s := range cluster.Statuses() {
		t.Run(s.String(), func(t *testing.T) {
			b := answering(locktable.Outcome{Status: s, Client: "c1", Request: 5, LSN: 9, Epoch: 2, Lock: "l"})
			b.elect(0, 0) // nobody to forward to
			h := serveHTTP(t, b)
			code, body := h.post("/v1/acquire", `{"lock":"l","ttl":"30s","client_id":"c1","request_id":5}`)
			if code != codes[s] || body.Status != s.String() || body.ClientID != "c1" || body.RequestID != 5 || body.Lock != "l" || !body.Protected {
				t.Errorf("%d %+v, want %d", code, body, codes[s])
			}
			if s != cluster.StatusOK && body.Message == "" {
				t.Error("no message for people")
			}
			for _, path := range []string{"/v1/renew", "/v1/keepalive"} {
				args := map[string]string{"/v1/renew": `{"lock":"l","token":3}`, "/v1/keepalive": `{"client_id":"c1"}`}
				if code, body := h.post(path, args[path]); code != codes[s] || body.Status != s.String() {
					t.Errorf("%s: %d %+v", path, code, body)
				}
			}
			var lock wire.LockBody
			if code, _ := h.call("GET", "/v1/locks/l", "", &lock); code != codes[s] || lock.Status != s.String() || lock.Lock != "l" {
				t.Errorf("lock: %d %+v", code, lock)
			}
		})
	}
}

// TestAnswersAreLean sees that answers have a status, and else only what concerns them.
func TestAnswersAreLean(t *testing.T) {
	h := serveHTTP(t, startPrimary(t))
	for _, x := range []struct{ method, path, data, want string }{
		{"POST", "/v1/acquire", `{"lock":"l","ttl":"30s"}`, "client_id epoch lock lsn mode request_id status token ttl"},
		{"POST", "/v1/acquire", `{"lock":"l","ttl":"30s"}`, "client_id holder lock message queue_length request_id status"}, // held
		{"POST", "/v1/acquire", `{`, "message status"},
		{"POST", "/v1/keepalive", `{"client_id":"x"}`, "client_id epoch lsn status"},
		{"POST", "/v1/keepalive", `{"client_id":"x","held":1}`, "client_id differs epoch grants lsn status"}, // it holds nothing
		{"GET", "/v1/acquire", ``, "message status"},
		{"GET", "/nowhere", ``, "message status"},
		{"GET", "/healthz", ``, "message status"},
		{"GET", "/readyz", ``, "message status"},
	} {
		var fields map[string]any
		h.call(x.method, x.path, x.data, &fields)
		if got := strings.Join(slices.Sorted(maps.Keys(fields)), " "); got != x.want {
			t.Errorf("%s %s %s: %s, want %s", x.method, x.path, x.data, got, x.want)
		}
	}
}

func TestHTTPOverAPrimary(t *testing.T) {
	b := startPrimary(t)
	h := serveHTTP(t, b)
	opened := h.ok("/v1/open", `{"nonce":77}`)
	if !strings.HasPrefix(opened.ClientID, "@") || h.ok("/v1/open", `{"nonce":77}`).ClientID != opened.ClientID {
		t.Errorf("open: %+v", opened)
	}
	if other := h.ok("/v1/open", `{}`); other.ClientID == opened.ClientID {
		t.Error("two clients are one")
	}
	got := h.ok("/v1/acquire", `{"lock":"billing/job","ttl":"30s","wait":"5s","client_id":"c1","request_id":1,"holder":{"host":"h","pid":3,"command":"x"}}`)
	if got.Token == 0 || got.TTL != "30s" || !got.Protected || got.Epoch == 0 || got.LSN == 0 {
		t.Errorf("grant: %+v", got)
	}
	query := func(id int, file string) string {
		return fmt.Sprintf("/v1/append?lock=billing%%2Fjob&token=%d&file=%s&client_id=c1&request_id=%d", got.Token, file, id)
	}
	r := h.ok(query(2, "logs/a.txt"), "one\n")
	if again := h.ok(query(2, "logs/a.txt"), "one\n"); !again.Repeat || again.Offset != r.Offset || again.LSN != r.LSN || r.Length != 4 {
		t.Errorf("receipts: %+v, %+v", r, again)
	}
	h.ok("/v1/bind", fmt.Sprintf(`{"lock":"billing/job","token":%d,"file":"b","client_id":"c1","request_id":3}`, got.Token))
	h.ok("/v1/unbind", fmt.Sprintf(`{"lock":"billing/job","token":%d,"file":"b"}`, got.Token))
	h.ok("/v1/renew", fmt.Sprintf(`{"lock":"billing/job","token":%d}`, got.Token))
	if k := h.ok("/v1/keepalive", `{"client_id":"c1","held":2}`); !k.Differs || len(k.Grants) != 1 || k.Grants[0].Token != got.Token {
		t.Errorf("keepalive: %+v", k)
	}
	var o wire.OutcomeBody
	if code, _ := h.call("POST", "/v1/outcome", `{"client_id":"c1","request_id":2}`, &o); code != 200 || o.State != "executed" || o.Outcome.LSN != r.LSN {
		t.Errorf("outcome: %d %+v", code, o)
	}
	var lock wire.LockBody
	if code, _ := h.call("GET", "/v1/locks/billing/job", "", &lock); code != 200 || lock.Token != got.Token || lock.FileCount != 1 || lock.Holder.PID != 3 || lock.Age != "0s" {
		t.Errorf("lock: %d %+v", code, lock)
	}
	var locks wire.LocksBody
	if code, _ := h.call("GET", "/v1/locks?prefix=bill&limit=1", "", &locks); code != 200 || len(locks.Locks) != 1 || locks.Next != "" {
		t.Errorf("locks: %d %+v", code, locks)
	}
	var status wire.StatusBody
	if code, _ := h.call("GET", "/v1/status", "", &status); code != 200 || status.Role != "primary" || len(status.Servers) != 3 ||
		status.Servers[0].PID != 4711 || status.Servers[2].Role != "unreachable" || status.Table == nil || status.Table.Held != 1 {
		t.Errorf("status: %d %+v", code, status)
	}
	if code, body := h.post("/v1/cancel", `{"client_id":"c1","request_id":1}`); code != 200 || body.Token != got.Token {
		t.Errorf("cancel of a granted request: %d %+v", code, body)
	}
	h.ok("/v1/release", fmt.Sprintf(`{"lock":"billing/job","token":%d,"client_id":"c1","request_id":9}`, got.Token))
	h.ok("/v1/acquire", `{"lock":"x","ttl":"30s"}`)
	h.ok("/v1/break", `{"lock":"x","actor":"me","reason":"test"}`)
	if code, body := h.post("/v1/handover", `{}`); code != 500 || !strings.Contains(body.Message, "able") {
		t.Errorf("handover: %d %+v", code, body)
	}
}

func TestHTTPBadInput(t *testing.T) {
	h := serveHTTP(t, startPrimary(t))
	token := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s","client_id":"c1","request_id":7}`).Token
	add := func(query string) string { return fmt.Sprintf("/v1/append?lock=l&token=%d&%s", token, query) }
	for name, x := range map[string]struct {
		method, path, data string
		code               int
		status             string
	}{
		"no JSON":                {"POST", "/v1/acquire", "lock=l", 400, "INVALID_ARGUMENT"},
		"empty body":             {"POST", "/v1/acquire", "", 400, "INVALID_ARGUMENT"},
		"unknown field":          {"POST", "/v1/acquire", `{"lock":"l","ttl":"30s","tll":"3s"}`, 400, "INVALID_ARGUMENT"},
		"number as string":       {"POST", "/v1/release", `{"lock":"l","token":"7"}`, 400, "INVALID_ARGUMENT"},
		"two objects":            {"POST", "/v1/acquire", `{"lock":"l","ttl":"30s"}{}`, 400, "INVALID_ARGUMENT"},
		"ttl without unit":       {"POST", "/v1/acquire", `{"lock":"l","ttl":30}`, 400, "INVALID_ARGUMENT"},
		"ttl out of range":       {"POST", "/v1/acquire", `{"lock":"l","ttl":"1h"}`, 400, "INVALID_ARGUMENT"},
		"empty name":             {"POST", "/v1/acquire", `{"lock":"","ttl":"30s"}`, 400, "INVALID_ARGUMENT"},
		"long name":              {"POST", "/v1/acquire", `{"lock":"` + strings.Repeat("x", 513) + `","ttl":"30s"}`, 400, "INVALID_ARGUMENT"},
		"half an ID":             {"POST", "/v1/acquire", `{"lock":"x","ttl":"30s","client_id":"c"}`, 400, "INVALID_ARGUMENT"},
		"reused ID":              {"POST", "/v1/acquire", `{"lock":"y","ttl":"30s","client_id":"c1","request_id":7}`, 400, "INVALID_ARGUMENT"},
		"held":                   {"POST", "/v1/acquire", `{"lock":"l","ttl":"30s"}`, 423, "HELD"},
		"wait timeout":           {"POST", "/v1/acquire", `{"lock":"l","ttl":"30s","wait":"10ms"}`, 423, "WAIT_TIMEOUT"},
		"wrong token":            {"POST", "/v1/release", `{"lock":"l","token":1}`, 412, "INVALID_TOKEN"},
		"large JSON":             {"POST", "/v1/acquire", `{"lock":"` + strings.Repeat("x", 70000) + `"}`, 413, "TOO_LARGE"},
		"no data":                {"POST", add("file=f"), "", 400, "INVALID_ARGUMENT"},
		"large append":           {"POST", add("file=f"), strings.Repeat("x", cluster.MaxAppend+1), 413, "TOO_LARGE"},
		"traversal":              {"POST", add("file=../CLUSTER"), "x", 400, "INVALID_ARGUMENT"},
		"encoded traversal":      {"POST", add("file=a%2F..%2F..%2Fb"), "x", 400, "INVALID_ARGUMENT"},
		"no file":                {"POST", add(""), "x", 400, "INVALID_ARGUMENT"},
		"unknown parameter":      {"POST", add("file=f&files=g"), "x", 400, "INVALID_ARGUMENT"},
		"parameter twice":        {"POST", add("file=f&file=g"), "x", 400, "INVALID_ARGUMENT"},
		"bad query":              {"POST", add("file=%zz"), "x", 400, "INVALID_ARGUMENT"},
		"append without lock":    {"POST", "/v1/append?token=1&file=f", "x", 400, "INVALID_ARGUMENT"},
		"bad adopt":              {"POST", add("file=f&adopt_existing=1"), "x", 400, "INVALID_ARGUMENT"},
		"stale append token":     {"POST", "/v1/append?lock=l&token=1&file=f", "x", 412, "INVALID_TOKEN"},
		"keepalive of nobody":    {"POST", "/v1/keepalive", `{}`, 400, "INVALID_ARGUMENT"},
		"outcome of nothing":     {"POST", "/v1/outcome", `{}`, 400, "INVALID_ARGUMENT"},
		"wrong method":           {"GET", "/v1/acquire", "", 405, "INVALID_ARGUMENT"},
		"wrong method of append": {"PUT", add("file=f"), "x", 405, "INVALID_ARGUMENT"},
		"wrong method of read":   {"POST", "/v1/status", "{}", 405, "INVALID_ARGUMENT"},
		"delete of a lock":       {"DELETE", "/v1/locks/l", "", 405, "INVALID_ARGUMENT"},
		"unknown path":           {"POST", "/v1/acquired", "{}", 404, "INVALID_ARGUMENT"},
		"root":                   {"GET", "/page", "", 404, "INVALID_ARGUMENT"},
		"bad limit":              {"GET", "/v1/locks?limit=-1", "", 400, "INVALID_ARGUMENT"},
		"unknown read parameter": {"GET", "/v1/locks?prefixx=", "", 400, "INVALID_ARGUMENT"},
		"no lock name":           {"GET", "/v1/locks/", "", 400, "INVALID_ARGUMENT"},
		"control character":      {"GET", "/v1/locks/a%00b", "", 400, "INVALID_ARGUMENT"},
	} {
		t.Run(name, func(t *testing.T) {
			var b struct {
				Status, Message string
				Rest            map[string]any `json:"-"`
			}
			var all map[string]any
			code, header := (&site{t: t, url: h.url}).call(x.method, x.path, x.data, &all)
			b.Status, _ = all["status"].(string)
			b.Message, _ = all["message"].(string)
			if code != x.code || b.Status != x.status || b.Message == "" {
				t.Errorf("%d %q %q, want %d %s", code, b.Status, b.Message, x.code, x.status)
			}
			if code == 405 && header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if header.Get("Content-Type") != "application/json" {
				t.Errorf("content type %q", header.Get("Content-Type"))
			}
		})
	}
}

// endless is a body that must not be read to its end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) { e.read += len(p); return len(p), nil }

func TestLargeBodiesAreNotRead(t *testing.T) {
	h := httpapi.New(service.New(startPrimary(t), service.Options{}), httpapi.Options{})
	for name, length := range map[string]int64{"said": 1 << 30, "not said": -1} {
		t.Run(name, func(t *testing.T) {
			body := &endless{}
			r := httptest.NewRequest("POST", "/v1/append?lock=l&token=1&file=f", body)
			r.ContentLength = length
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 413 || body.read > 4<<20 || length > 0 && body.read > 0 {
				t.Errorf("%d after reading %d bytes: %s", w.Code, body.read, w.Body)
			}
		})
	}
}

func garbage() []string {
	return []string{
		"", "\x00\x01\x02\xff\xfe\n\n", "\x16\x03\x01\x02\x00\x01\x00", "GET\r\n\r\n", strings.Repeat("A", 1<<16) + "\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff", "POST /v1/acquire HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
	}
}

// talk says something and listens until the other side has enough of it.
func talk(t *testing.T, c net.Conn, words string) {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, words) // it may be cut off
	_ = c.(*net.TCPConn).CloseWrite()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.20q leaves a connection behind", words)
	}
}

func TestGarbageOnThePort(t *testing.T) {
	h := serveHTTP(t, startPrimary(t))
	for _, garbage := range garbage() {
		c, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		talk(t, c, garbage)
	}
	if code, _ := h.post("/v1/renew", `{"lock":"l","token":1}`); code != 412 {
		t.Errorf("after garbage: %d", code)
	}
}

func TestOtherSitesCannotUseABrowser(t *testing.T) {
	h := httpapi.New(service.New(startPrimary(t), service.Options{}), httpapi.Options{})
	r := httptest.NewRequest("POST", "/v1/break", strings.NewReader(`{"lock":"l"}`))
	r.Header.Set("Origin", "https://elsewhere.example")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 403 || !bytes.Contains(w.Body.Bytes(), []byte("PERMISSION_DENIED")) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	// Unless their origin is permitted: the browser asks first, and lets the page read what was answered.
	h = httpapi.New(service.New(startPrimary(t), service.Options{}), httpapi.Options{Pages: origins.New([]string{"https://elsewhere.example"})})
	for method, code := range map[string]int{"OPTIONS": 204, "POST": 200} {
		r := httptest.NewRequest(method, "/v1/acquire", strings.NewReader(`{"lock":"l","ttl":"30s"}`))
		r.Header.Set("Origin", "https://elsewhere.example")
		if method == "OPTIONS" {
			r.Header.Set("Access-Control-Request-Method", "POST")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code || w.Header().Get("Access-Control-Allow-Origin") != "https://elsewhere.example" {
			t.Errorf("%s: %d %s %v", method, w.Code, w.Body, w.Header())
		}
	}
}

func TestHealthAndReadiness(t *testing.T) {
	replica := &backend{self: 2, members: primarytest.Members(), term: 1, epoch: 1}
	limit := primarytest.Timing().StorageTimeout
	slow, cut := startPrimary(t), startPrimary(t)
	slow.storage, cut.storage = limit, limit+2*time.Second
	for name, x := range map[string]struct {
		b      serving.Backend
		health int
		ready  int
		words  string
	}{
		"primary":                 {startPrimary(t), 200, 200, "primary"},
		"replica without a table": {replica, 200, 503, "no table"},
		"volume that is slow":     {slow, 200, 200, "primary"},
		"volume that is gone":     {cut, 200, 503, fmt.Sprintf("the volume has taken no write for %v", cut.storage)},
	} {
		t.Run(name, func(t *testing.T) {
			h := serveHTTP(t, x.b)
			var b wire.Body
			if code, _ := h.call("GET", "/healthz", "", &b); code != x.health {
				t.Errorf("healthz: %d %+v", code, b)
			}
			if code, _ := h.call("GET", "/readyz", "", &b); code != x.ready || !strings.Contains(b.Message, x.words) {
				t.Errorf("readyz: %d %+v", code, b)
			}
		})
	}
}

func TestHTTPCallWithoutIDsLeavesNoWaiter(t *testing.T) {
	b := startPrimary(t)
	h := serveHTTP(t, b)
	first := h.ok("/v1/acquire", `{"lock":"l","ttl":"60s"}`)
	if first.Protected || !strings.HasPrefix(first.ClientID, "~") || first.RequestID == 0 {
		t.Errorf("acquire without IDs: %+v", first)
	}
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"lock":"l","ttl":"60s","wait":"forever"}`
	fmt.Fprintf(c, "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	eventually(t, "it waits", func() bool { return b.lockAt(t, "l").QueueLength == 1 })
	c.Close()
	eventually(t, "the queue is empty", func() bool { return b.lockAt(t, "l").QueueLength == 0 })
}

// slow lets an acquire be granted while nobody hears of it.
type slow struct {
	*backend
	decided chan struct{}
}

func (s *slow) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	out, err := s.backend.Do(ctx, q)
	if q.Op == locktable.OpAcquire {
		close(s.decided)
		<-ctx.Done()
		return locktable.Outcome{}, context.Cause(ctx)
	}
	return out, err
}

func TestGrantThatNobodyHearsOfIsReleased(t *testing.T) {
	b := startPrimary(t)
	s := &slow{backend: b, decided: make(chan struct{})}
	h := httpapi.New(service.New(s, service.Options{}), httpapi.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.decided
		cancel()
	}()
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/acquire", strings.NewReader(`{"lock":"l","ttl":"60s"}`))
	h.ServeHTTP(httptest.NewRecorder(), r)
	if l := b.lockAt(t, "l"); l.Grant.Token != 0 {
		t.Errorf("still held: %+v", l.Grant)
	}
}

func FuzzHTTPBodies(f *testing.F) {
	for _, s := range []string{`{"lock":"a","ttl":"30s"}`, `{}`, `[]`, `{"a":1`, `{"lock":"\ud800","ttl":"1s"}`, "\xff", `{"holder":{"pid":1}}`, `null`} {
		for _, path := range []string{"acquire", "release", "keepalive", "outcome", "open", "append?lock=a&token=1&file=f"} {
			f.Add(path, []byte(s))
		}
	}
	h := httpapi.New(service.New(answering(locktable.Outcome{Status: cluster.StatusHeld}), service.Options{}), httpapi.Options{})
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		r, err := http.NewRequest("POST", "http://h/v1/"+path, bytes.NewReader(body))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 300 && w.Code < 400 {
			return // the mux cleans paths
		}
		var b struct{ Status string }
		if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
			t.Fatalf("%d %q: %v", w.Code, w.Body, err)
		}
		if _, ok := cluster.ParseStatus(b.Status); !ok {
			t.Fatalf("%d with status %q", w.Code, b.Status)
		}
	})
}

// An acquire says how the lock is held, and a refusal how long it is at least.
func TestAcquireSaysModeAndHowLong(t *testing.T) {
	for _, h := range func() []*site { _, p, r, _ := pair(t); return []*site{p, r} }() {
		if got := h.ok("/v1/acquire", `{"lock":"s","ttl":"30s","mode":"shared","client_id":"m","request_id":1}`); got.Mode != "shared" && !got.Repeat {
			t.Errorf("shared: %+v", got)
		}
		got := h.ok("/v1/acquire", `{"lock":"x","ttl":"30s"}`)
		if got.Mode != "exclusive" {
			t.Errorf("exclusive: %+v", got)
		}
		if _, held := h.post("/v1/acquire", `{"lock":"x","ttl":"30s"}`); held.Status != "HELD" || !strings.Contains(held.Message, "ends in 30s") && !strings.Contains(held.Message, "ends in 29.") {
			t.Errorf("held: %+v", held)
		}
		h.ok("/v1/release", fmt.Sprintf(`{"lock":"x","token":%d}`, got.Token))
	}
}

// TestHTTPForAnotherClusterIsRefused: every answer says of which cluster it is, and a request that is
// meant for another one does nothing and reads nothing.
func TestHTTPForAnotherClusterIsRefused(t *testing.T) {
	b := startPrimary(t)
	s, mine := serveHTTP(t, b), b.Status().ClusterID
	ask := func(method, path, meant string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(`{"lock":"l","ttl":"30s","client_id":"c","request_id":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if meant != "" {
			r.Header.Set("Holdfast-Cluster", meant)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		body, err := io.ReadAll(resp.Body)
		if got := resp.Header.Values("Holdfast-Cluster"); err != nil || len(got) != 1 || got[0] != mine {
			t.Errorf("%s %s is answered by cluster %q, want %s: %v", method, path, got, mine, err)
		}
		return resp.StatusCode, string(body)
	}
	for _, path := range []string{"POST /v1/acquire", "GET /v1/locks/l", "GET /nowhere"} {
		method, path, _ := strings.Cut(path, " ")
		if code, body := ask(method, path, "ffff"); code != 412 || !strings.Contains(body, `"status":"INVALID_ARGUMENT"`) || !strings.Contains(body, "belongs to cluster "+mine) {
			t.Errorf("%s %s for another cluster: %d %s", method, path, code, body)
		}
	}
	for _, path := range []string{"/v1/status", "/healthz", "/readyz"} {
		if code, body := ask("GET", path, "ffff"); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for i, meant := range []string{mine, ""} {
		if code, body := ask("POST", "/v1/acquire", meant); code != 200 || strings.Contains(body, `"repeat":true`) != (i > 0) {
			t.Errorf("meant for %q: %d %s", meant, code, body)
		}
	}
}
