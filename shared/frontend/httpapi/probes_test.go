// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// probed is a server whose role, storage and feed a test sets. Whatever else is asked of it fails.
type probed struct {
	serving.Backend
	role    string
	storage time.Duration
	reading serving.Reading
	asked   int
}

func (p *probed) Status() serving.ClusterStatus {
	p.asked++
	return serving.ClusterStatus{Server: 2, Servers: []serving.ServerStatus{{Member: cluster.Member{ID: 2}, Role: p.role, Storage: p.storage}}}
}

func (p *probed) Timing() cluster.Timing { return cluster.DefaultTiming() }

func (p *probed) Read(context.Context, func(serving.View)) (serving.Reading, error) {
	return p.reading, nil
}

func probe(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestReadyz(t *testing.T) {
	fed := serving.Reading{Status: cluster.StatusOK, Local: true, Age: time.Second}
	for _, x := range []struct {
		name    string
		b       probed
		code    int
		text    string
		verbose string
	}{
		{"primary", probed{role: "primary"}, 200, `"message":"primary"`, "[+] role: primary"},
		{"fed", probed{role: "replica", reading: fed}, 200, `"message":"replica"`, "[+] table: the primary feeds it"},
		{"not fed", probed{role: "replica", reading: serving.Reading{Status: cluster.StatusOK, Local: true, Age: time.Hour}}, 503, "was not fed for 1h", "[-] table"},
		{"empty", probed{role: "replica", reading: serving.Reading{Status: cluster.StatusSecondaryMode}}, 503, "no table yet", "[-] table"},
		{"becomes primary", probed{role: "fencing"}, 503, `"message":"fencing"`, "[-] role: fencing"},
		{"no volume", probed{role: "replica", reading: fed, storage: time.Hour}, 503, "STORAGE_UNAVAILABLE", "[-] volume"},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := New(service.New(&x.b, service.Options{}), Options{Log: zerolog.Nop()})
			for _, h := range []http.Handler{h, h.Probes()} {
				if code, body := probe(t, h, "/readyz"); code != x.code || !strings.Contains(body, x.text) {
					t.Errorf("%d %s", code, body)
				}
				if code, body := probe(t, h, "/readyz?verbose"); code != x.code || !strings.Contains(body, x.verbose) {
					t.Errorf("verbose: %d %s", code, body)
				}
			}
		})
	}
}

// TestLivezAsksNobody: neither the volume nor another server makes a process look dead.
func TestLivezAsksNobody(t *testing.T) {
	b := &probed{role: "unreachable", storage: time.Hour}
	late := map[string]time.Duration{"election": 0, "core": 9 * time.Second}
	h := New(service.New(b, service.Options{}), Options{Log: zerolog.Nop(), Loops: func(time.Time) map[string]time.Duration { return late }})
	b.asked = 0
	for _, h := range []http.Handler{h, h.Probes()} {
		late["core"] = 9 * time.Second
		if code, body := probe(t, h, "/livez"); code != 200 || !strings.Contains(body, `"alive"`) {
			t.Errorf("%d %s", code, body)
		}
		late["core"] = 11 * time.Second
		if code, body := probe(t, h, "/livez"); code != 503 || !strings.Contains(body, "the core loop has not gone round for 11s") {
			t.Errorf("a loop is stuck: %d %s", code, body)
		}
		if code, body := probe(t, h, "/livez?verbose"); code != 503 || !strings.Contains(body, "[-] core") || !strings.Contains(body, "[+] election: alive") {
			t.Errorf("verbose: %d %s", code, body)
		}
	}
	if b.asked > 0 {
		t.Errorf("the server was asked %d times", b.asked)
	}
}

func TestMetricsPath(t *testing.T) {
	s := service.New(&probed{}, service.Options{})
	if code, _ := probe(t, New(s, Options{Log: zerolog.Nop()}), "/metrics"); code != 404 {
		t.Errorf("without metrics: %d", code)
	}
	m := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("up 1\n")) }) //nolint:errcheck // to a recorder
	h := New(s, Options{Log: zerolog.Nop(), Metrics: m})
	for _, h := range []http.Handler{h, h.Probes()} {
		if code, body := probe(t, h, "/metrics"); code != 200 || body != "up 1\n" {
			t.Errorf("%d %s", code, body)
		}
	}
	if code, _ := probe(t, h.Probes(), "/v1/status"); code != 404 {
		t.Errorf("beside the probes something else is served: %d", code)
	}
}

// slow is a scraper's connection that remembers until when it may be written to.
type slow struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (s *slow) SetWriteDeadline(until time.Time) error {
	s.until = until
	return nil
}

// TestAScrapeEnds: few scrapes may be under way at once, so one that is not read holds its place for bodyWait only.
func TestAScrapeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("up 1\n")) }) //nolint:errcheck // to a recorder
		h := New(service.New(&probed{}, service.Options{}), Options{Log: zerolog.Nop(), Metrics: m})
		for name, h := range map[string]http.Handler{"the port for clients": h, "the port for metrics": h.Probes()} {
			w := &slow{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			if want := time.Now().Add(bodyWait); !w.until.Equal(want) {
				t.Errorf("on %s a scrape may take until %v, want %v", name, w.until, want)
			}
		}
	})
}
