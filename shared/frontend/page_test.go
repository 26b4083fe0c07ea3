// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/page"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/why"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// fetched is the answer to a GET with a credential, "" for none.
func (s *site) fetched(method, path, credential string) (code int, h http.Header, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if method == "GET" && path == "/" {
		r.Header.Set("Holdfast-Cluster", "another") // the page is no data of a cluster
	}
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// The page is for everybody, under its policy and without data. What it shows is for those whom the rules let read it.
func TestPageIsForEverybodyAndDataIsNot(t *testing.T) {
	g := newCredentials(t)
	s := serveFront(t, httpapi.New(service.New(startPrimary(t), service.Options{Authenticator: g}), httpapi.Options{Log: zerolog.Nop()}))
	_, _, asRoot := s.fetched("GET", "/", "root")
	for _, who := range []string{"", "nobody", "fired", "bob", "root"} {
		for _, path := range []string{"/", "/page/main.js", "/page/page.css"} {
			code, h, body := s.fetched("GET", path, who)
			if code != 200 || h.Get("Content-Security-Policy") != page.Policy || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s as %q: %d, %v", path, who, code, h)
			}
			if path == "/" && (body != asRoot || !strings.Contains(body, "<title>Holdfast</title>")) {
				t.Errorf("the page as %q is another one: %.80s", who, body)
			}
		}
		want := map[string]int{"": 401, "nobody": 401, "fired": 401, "bob": 403, "root": 200}[who]
		for _, path := range []string{"/v1/locks/l", "/v1/why/l", "/v1/history?lock=l", "/v1/watch?lock=l&after=x"} {
			if strings.Contains(path, "watch") && want != 401 {
				continue // the parameter is refused
			}
			if code, h, _ := s.fetched("GET", path, who); code != want || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s as %q: %d, want %d; %v", path, who, code, want, h)
			}
		}
	}
	for method, path := range map[string]string{"POST": "/", "DELETE": "/page/main.js", "GET": "/page/index.html"} {
		if code, _, _ := s.fetched(method, path, "root"); code != 404 {
			t.Errorf("%s %s: %d", method, path, code)
		}
	}
}

// Why is answered by the primary, also through a replica, which has no answer of its own here.
func TestWhyComesFromThePrimary(t *testing.T) {
	_, primary, replica, r := pair(t)
	got := primary.ok("/v1/acquire", `{"lock":"a b/c","ttl":"30s","client_id":"c1","request_id":1}`)
	for name, s := range map[string]*site{"primary": primary, "replica": replica} {
		var b why.Body
		code, _ := s.call("GET", "/v1/why/a%20b/c", "", &b)
		if code != 200 || b.Lock.Token != got.Token || b.Silent == "" || !strings.Contains(b.Advice, "'a b/c'") && !strings.Contains(b.Advice, "its holder is alive") {
			t.Errorf("%s: %d %+v", name, code, b)
		}
	}
	var free why.Body
	if code, _ := replica.call("GET", "/v1/why/free", "", &free); code != 200 || free.Lock.Token != 0 || free.Lock.Lock != "free" || free.Advice != "it is free: the next request gets it" {
		t.Errorf("free: %d %+v", code, free)
	}
	var refused wire.Body
	if code, _ := replica.call("GET", "/v1/why/free?x=1", "", &refused); code != 400 {
		t.Errorf("an unknown parameter: %d %+v", code, refused)
	}
	r.elect(0, 0)
	var none why.Body
	if code, _ := replica.call("GET", "/v1/why/free", "", &none); code != 503 || none.Status != "SECONDARY_MODE" {
		t.Errorf("without a primary and a table: %d %+v", code, none)
	}
}

// With each, a server tells what the others say of themselves; it asks nobody for strangers.
func TestStatusOfEach(t *testing.T) {
	g := newCredentials(t)
	front := func(b *backend) *site {
		return serveFront(t, httpapi.New(service.New(b, service.Options{Authenticator: g}), httpapi.Options{Log: zerolog.Nop()}))
	}
	primary := front(startPrimary(t))
	replica := front(follower(primary.addr))
	for path, want := range map[string]int64{"/v1/status": 0, "/v1/status?each=true": 4711, "/v1/status?each=true&local=true": -1} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", replica.url+path, nil)
		r.Header.Set("Authorization", "Bearer root")
		got := statusFor(t, r)
		if want < 0 {
			if len(got.Servers) != 1 {
				t.Errorf("%s: %+v", path, got.Servers)
			}
			continue
		}
		first := got.Servers[0]
		if first.ID != 1 || first.PID != want || (first.Role == "primary") != (want > 0) || (first.Volume.Filesystem == "tmpfs") != (want > 0) || first.HeardAgo != "" {
			t.Errorf("%s: %+v", path, first)
		}
		if third := got.Servers[2]; third.Role != "unreachable" || third.PID != 0 {
			t.Errorf("%s: a server that does not answer: %+v", path, third)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"status":"OK","cluster_id":"other","servers":[{"id":1,"role":"primary","pid":7}]}`)
	}))
	defer other.Close()
	misled, _ := http.NewRequestWithContext(t.Context(), "GET", front(follower(strings.TrimPrefix(other.URL, "http://"))).url+"/v1/status?each=true", nil)
	misled.Header.Set("Authorization", "Bearer root")
	if got := statusFor(t, misled).Servers[0]; got.PID == 7 || got.Role == "primary" {
		t.Errorf("a server of another cluster is taken for one of this: %+v", got)
	}
	passed := g.passed.Load()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", replica.url+"/v1/status?each=true", nil)
	if got := statusFor(t, r); got.Servers[0].Role != "unreachable" || g.passed.Load() != passed {
		t.Errorf("a stranger had others asked: %+v", got.Servers[0])
	}
}

// silent answers nothing until it is closed, and counts what it was asked.
type silent struct {
	closed chan struct{}
	asked  atomic.Int64
}

func (s *silent) RoundTrip(*http.Request) (*http.Response, error) {
	s.asked.Add(1)
	<-s.closed
	return nil, errors.New("closed")
}

// One question becomes several, so few may ask at a time: the next ones are answered with what the server knows.
func TestStatusOfEachIsBounded(t *testing.T) {
	const callers, others = 16, 2
	x := &silent{closed: make(chan struct{})}
	s := serveHTTPWith(t, startPrimary(t), httpapi.Options{Log: zerolog.Nop(), Transport: x})
	ask := func() {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/status?each=true", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if b := statusFor(t, r); b.Status != "OK" {
			t.Errorf("%+v", b)
		}
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(ask)
	}
	eventually(t, "all to be asked", func() bool { return x.asked.Load() == callers*others })
	var next atomic.Bool
	all.Go(func() { ask(); next.Store(true) })
	eventually(t, "the next one to be answered, or others to be asked", func() bool { return next.Load() || x.asked.Load() == (callers+1)*others })
	if n := x.asked.Load(); n != callers*others {
		t.Errorf("%d questions under way", n)
	}
	close(x.closed)
	all.Wait()
	ask()
	if n := x.asked.Load(); n != (callers+1)*others {
		t.Errorf("%d questions in all: none is asked any more", n)
	}
}

func statusFor(t *testing.T, r *http.Request) (b wire.StatusBody) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&b); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", r.URL, err))
	}
	return b
}
