// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/metrics"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// server is a primary that has a value for every metric.
type server struct{ meter meter.Meter }

func (s *server) Status() serving.ClusterStatus {
	return serving.ClusterStatus{Server: 1, Epoch: 3, Servers: []serving.ServerStatus{
		{Member: cluster.Member{ID: 1, Client: "secret.example:1"}, Role: "primary", LSN: 9, Version: "v1", Path: "/secret", Warnings: []string{"secret"}},
		{Member: cluster.Member{ID: 2}, Role: "replica", LSN: 7},
	}}
}

func (s *server) Measures(time.Time) node.Measures {
	return node.Measures{Primary: &primary.Sizes{Grants: 10_000}}
}

func (s *server) Meter() *meter.Meter { return &s.meter }

func full() http.Handler {
	s := &server{}
	s.meter.Answer(meter.OpRenew, cluster.StatusOK, 300*time.Millisecond)
	return metrics.Handler(s, func() metrics.Fronts {
		return metrics.Fronts{
			Connections: map[string]int{"http": 1}, Certificates: map[string]time.Time{"own": time.Now()},
			Tallies: map[service.Tally]uint64{
				{Kind: service.TallyAuth, First: "key", Second: "ok"}: 1, {Kind: service.TallyDenied, First: "break"}: 1,
				{Kind: service.TallyLimited, First: "watches"}: 1, {Kind: service.TallyReset, First: "begin"}: 1,
			},
		}
	})
}

func scrape(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

func TestScrape(t *testing.T) {
	text := scrape(full())
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	for _, want := range []string{
		`holdfast_requests_total{op="renew",status="OK"} 1`, `holdfast_request_seconds_bucket{op="renew",le="0.25"} 0`,
		`holdfast_request_seconds_bucket{op="renew",le="1"} 1`, `holdfast_replica_lag_records{peer="2"} 2`, "holdfast_grants 10000",
		`holdfast_server_role{role="primary"} 1`, `holdfast_auth_total{method="key",result="ok"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(text, "secret") {
		t.Error("the metrics name addresses, paths or texts")
	}
}

// BenchmarkScrape costs the same however many locks there are: what is counted is published before.
func BenchmarkScrape(b *testing.B) {
	h := full()
	for b.Loop() {
		scrape(h)
	}
}
