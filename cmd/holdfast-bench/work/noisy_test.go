// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The neighbour shows its own credential, and goes on where it is refused.
func TestNeighbour(t *testing.T) {
	var asked, refused atomic.Int64
	var n *neighbour // before anything is asked
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hfk_noisy" {
			t.Errorf("%v", r.Header)
		}
		if r.URL.Path == "/v1/acquire" && asked.Add(1)%4 == 0 {
			refused.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
		}
		w.Write([]byte(`{"token":7}`)) //nolint:errcheck // the client would say so
		if n.done.Load() > 3 && n.refused.Load() > 0 {
			end()
		}
	}))
	defer s.Close()
	var err error
	n, err = newNeighbour([]string{strings.TrimPrefix(s.URL, "http://")}, "hfk_noisy")
	if err != nil {
		t.Fatal(err)
	}
	n.run(ctx, "l/", 1000)
	if n.refused.Load() < refused.Load() || n.done.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d were refused, %d counted, %d done", refused.Load(), n.refused.Load(), n.done.Load())
	}
}
