// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// sampled writes what was read of locks, on one line.
func sampled(read *pb.ListLocksResponse, holders bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, l := range read.GetLocks() {
			fmt.Fprintf(w, "%s:%d ", l.GetName(), l.GetHolders())
		}
		fmt.Fprintf(w, "more=%t holders=%t", read.GetNext() != "", holders)
	})
}

// A scrape has the locks that it names, and those of a prefix that its caller may read; a named lock that the caller may not read has it
// refused. The port for metrics, where nobody is known, has none.
func TestLockMetricsAreForWhoMayReadTheLocks(t *testing.T) {
	d := newDoors(t)
	h := httpapi.New(d.s, httpapi.Options{Log: zerolog.New(t.Output()), LockMetrics: sampled})
	ask := func(h http.Handler, method, who, path, body string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if who != "" {
			r.Header.Set("Authorization", "Bearer "+who)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		b, _ := io.ReadAll(w.Body) // of a buffer
		return w.Code, string(b)
	}
	for _, lock := range []string{"l", "other", "secret"} {
		if code, body := ask(h, "POST", "root", "/v1/acquire", `{"lock":"`+lock+`","ttl":"60s"}`); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	for _, x := range []struct {
		who, query string
		code       int
		want       string
	}{
		{"alice", "lock=l", 200, "l:1 more=false holders=false"},
		{"alice", "lock=l&lock=f&lock=l&holders=true", 200, "f:0 l:1 more=false holders=true"},
		{"alice", "prefix=", 200, "l:1 more=false holders=false"},
		{"alice", "lock=f&lock=l&prefix=", 200, "f:0 l:1 more=false holders=false"},
		{"bob", "prefix=", 200, "other:1 more=false holders=false"},
		{"alice", "prefix=o", 200, "more=false holders=false"},
		{"alice", "lock=secret", 403, "PERMISSION_DENIED"},
		{"alice", "lock=l&lock=secret", 403, "secret"},
		{"", "lock=l", 401, "UNAUTHENTICATED"},
		{"", "prefix=", 401, "UNAUTHENTICATED"},
		{"late", "lock=l", 401, "expired"},
		{"alice", "", 400, "name locks, with lock=NAME or prefix=PREFIX"},
		{"alice", "lock=", 400, "INVALID_ARGUMENT"},
		{"alice", "lock=l&holders=1", 400, "use true or false"},
		{"alice", "lock=l&prefix=a&prefix=b", 400, "given 2 times"},
		{"root", "lock=" + strings.Join(strings.Fields(strings.Repeat("l ", 200)), "&lock="), 200, "l:1 more=false holders=false"},
	} {
		if code, body := ask(h, "GET", x.who, "/metrics/locks?"+x.query, ""); code != x.code || !strings.Contains(body, x.want) {
			t.Errorf("%s, %s: %d %s, want %d %s", x.who, x.query, code, body, x.code, x.want)
		}
	}
	if code, body := ask(h.Probes(), "GET", "root", "/metrics/locks?lock=l", ""); code != 404 {
		t.Errorf("on the port for metrics: %d %s", code, body)
	}
	if code, body := ask(httpapi.New(d.s, httpapi.Options{}), "GET", "root", "/metrics/locks?lock=l", ""); code != 404 {
		t.Errorf("of a server without metrics: %d %s", code, body)
	}
}

// A scrape has at most 100 locks: each is several time series for whoever keeps them.
func TestLockMetricsAreBounded(t *testing.T) {
	b := startPrimary(t)
	h := serveHTTPWith(t, b, httpapi.Options{Log: zerolog.New(t.Output()), LockMetrics: sampled})
	for i := range service.MaxSampled + 1 {
		h.ok("/v1/acquire", fmt.Sprintf(`{"lock":"p/%03d","ttl":"60s"}`, i))
	}
	ask := func(query string) (int, string) {
		r, err := http.Get(h.url + "/metrics/locks?" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close() //nolint:errcheck // it was only read
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	for query, has := range map[string]bool{"prefix=p/": true, "prefix=p/&lock=p/100": true, "prefix=p/&lock=q": true, "prefix=p/0&lock=q": true, "prefix=p/00": false, "prefix=p/00&lock=p/005": false} {
		code, text := ask(query)
		locks := strings.Count(text, ":")
		if most := service.MaxSampled; code != 200 || strings.Contains(text, "more=true") != has || has && locks != most || !has && locks != 10 {
			t.Errorf("%s: %d, %d locks, %s", query, code, locks, text)
		}
	}
	var named []string
	for i := range service.MaxSampled + 1 {
		named = append(named, fmt.Sprintf("lock=n%d", i))
	}
	if code, text := ask(strings.Join(named[1:], "&")); code != 200 || strings.Count(text, ":0 ") != service.MaxSampled {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask(strings.Join(named, "&")); code != 400 || !strings.Contains(text, "at most 100") {
		t.Errorf("%d %s", code, text)
	}
}
