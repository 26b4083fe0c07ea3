// SPDX-License-Identifier: Apache-2.0

package fencing_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

// lockOfPath takes a path for the name of a lock; reading needs none.
func lockOfPath(r *http.Request) string {
	if r.Method == http.MethodGet {
		return ""
	}
	return r.URL.Path[1:]
}

// served sends a request through a Middleware to a handler that echoes, and returns the answer.
func served(m *fencing.Middleware, method, lock, header, shown, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/"+lock, strings.NewReader(body))
	if shown != "" {
		r.Header.Set(header, shown)
	}
	w := httptest.NewRecorder()
	m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := fencing.Admitted(r.Context())
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "served %v %d %q %v", ok, p.Token, b, err)
	})).ServeHTTP(w, r)
	return w
}

// Only the proof of the latest holder is admitted; all else is refused before the handler.
func TestMiddleware(t *testing.T) {
	m := &fencing.Middleware{Guard: open(t, t.TempDir()), Keys: openKeys(t, keySet(1)), Lock: lockOfPath, MaxBody: 10}
	tok := func(n string) string { return good(t, jwt.MapClaims{"tok": n}) }
	for _, x := range []struct {
		name, method, lock, proof, body string
		code                            int
		says                            string
	}{
		{"reads need no proof", "GET", jobs, "", "", 200, `served false 0 "" <nil>`},
		{"no proof", "PUT", jobs, "", "x", 401, "Holdfast-Proof"},
		{"a number", "PUT", jobs, "9000000000000000000", "x", 403, "no proof"},
		{"a good one", "PUT", jobs, tok("17"), "first", 200, `served true 17 "first" <nil>`},
		{"the same again", "PUT", jobs, tok("17"), "again", 200, "served true 17"},
		{"a later one", "PUT", jobs, tok("18"), "x", 200, "served true 18"},
		{"the former holder", "PUT", jobs, tok("17"), "x", 412, "is old"},
		{"of another lock", "PUT", "other", tok("19"), "x", 403, "another lock"},
		{"expired", "PUT", jobs, good(t, jwt.MapClaims{"tok": "20", "exp": time.Now().Add(-time.Minute).Unix()}), "x", 403, "expired"},
		{"shared", "PUT", jobs, good(t, jwt.MapClaims{"tok": "20", "mode": "shared"}), "x", 403, "shared"},
		{"too long", "PUT", jobs, tok("20"), "12345678901", 413, "too large"},
		{"still the latest", "PUT", jobs, tok("18"), "x", 200, "served true 18"},
	} {
		if w := served(m, x.method, x.lock, fencing.ProofHeader, x.proof, x.body); w.Code != x.code || !strings.Contains(w.Body.String(), x.says) {
			t.Errorf("%s: %d %s, want %d %s", x.name, w.Code, w.Body, x.code, x.says)
		}
	}
	if err := m.Guard.Close(); err != nil {
		t.Fatal(err)
	}
	if w := served(m, "PUT", jobs, fencing.ProofHeader, tok("30"), ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a closed guard: %d %s", w.Code, w.Body)
	}
}

// Without keys, tokens count as they are.
func TestMiddlewareBelievesTokens(t *testing.T) {
	m := &fencing.Middleware{Guard: open(t, t.TempDir()), Lock: lockOfPath}
	for _, x := range []struct {
		token string
		code  int
	}{{"", 401}, {"x", 403}, {"0", 403}, {"-1", 403}, {"7", 200}, {"6", 412}, {"7", 200}, {"8", 200}} {
		w := served(m, "PUT", jobs, fencing.TokenHeader, x.token, "")
		if w.Code != x.code || x.code == 200 && !strings.Contains(w.Body.String(), "served true "+x.token) {
			t.Errorf("token %q: %d %s", x.token, w.Code, w.Body)
		}
	}
}

// A request of an old holder that is being served delays the first one of a new holder.
func TestMiddlewareServesOneAtATime(t *testing.T) {
	m := &fencing.Middleware{Guard: open(t, t.TempDir()), Lock: lockOfPath}
	begun, end := make(chan struct{}), make(chan struct{})
	var order []string
	h := m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(fencing.TokenHeader)
		if token == "1" {
			close(begun)
			<-end
		}
		order = append(order, token) // the race detector sees whether two are served at a time
	}))
	var all sync.WaitGroup
	send := func(token string) {
		r := httptest.NewRequest(http.MethodPut, "/"+jobs, http.NoBody)
		r.Header.Set(fencing.TokenHeader, token)
		all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
	}
	send("1")
	<-begun
	send("2")
	close(end)
	all.Wait()
	if strings.Join(order, " ") != "1 2" {
		t.Errorf("served in the order %v", order)
	}
}
