// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// probeWait is how long a request to the port for metrics may take, and mostProbes how many connections that has.
	probeWait  = 30 * time.Second
	mostProbes = 64
	// scrapes is how many may be under way.
	scrapes = 4
)

// refused is why a connection was not passed on.
type refused int

const (
	tooMany   refused = iota // there were too many
	noServer                 // no server took it
	plainText                // it was not over TLS
	refusals
)

// counts are what a gateway has counted since it began, and the connections that it has now.
type counts struct {
	open                  atomic.Int64
	taken, cut, failovers atomic.Uint64
	toServer, toClient    atomic.Uint64
	refused               [refusals]atomic.Uint64
}

func (c *counts) refuse(why refused) { c.refused[why].Add(1) }

// health returns what serves the probes and the metrics. From the end of ctx on, the gateway is not ready.
func (g *Gateway) health(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, cluster.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case ctx.Err() != nil:
			answer(w, cluster.StatusSecondaryMode, "the gateway ends")
		case !g.site.target().primary:
			answer(w, cluster.StatusSecondaryMode, "no server is known to be primary")
		default:
			answer(w, cluster.StatusOK, "the primary answers")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.registry(), promhttp.HandlerOpts{MaxRequestsInFlight: scrapes, EnableOpenMetrics: true}))
	return mux
}

// answer answers a probe as a server does.
func answer(w http.ResponseWriter, s cluster.Status, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(wire.HTTPCode(s))
	_ = json.NewEncoder(w).Encode(struct { // whoever has gone needs none
		Status  string `json:"status"`
		Message string `json:"message"`
	}{s.String(), message})
}

// registry returns the metrics.
func (g *Gateway) registry() *prometheus.Registry {
	r, c := prometheus.NewRegistry(), &g.counts
	gauge := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_gateway_" + name, Help: help}, f))
	}
	counter := func(name, help string, n *atomic.Uint64, labels prometheus.Labels) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_gateway_" + name, Help: help, ConstLabels: labels}, func() float64 { return float64(n.Load()) }))
	}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge("connections", "Connections of clients that are open.", func() float64 { return float64(c.open.Load()) })
	gauge("primary_known", "1 while the gateway knows the primary, else 0.", func() float64 {
		if g.site.target().primary {
			return 1
		}
		return 0
	})
	counter("connections_total", "Connections of clients that were taken.", &c.taken, nil)
	counter("failovers_total", "How often connections went from one primary to another.", &c.failovers, nil)
	counter("connections_cut_total", "Connections that ended because their server was not the primary any more.", &c.cut, nil)
	for why, word := range []string{tooMany: "too_many", noServer: "no_server", plainText: "plain_text"} {
		counter("refused_total", "Connections that were not passed on.", &c.refused[why], prometheus.Labels{"reason": word})
	}
	counter("bytes_total", "Bytes that were passed on.", &c.toServer, prometheus.Labels{"to": "server"})
	counter("bytes_total", "Bytes that were passed on.", &c.toClient, prometheus.Labels{"to": "client"})
	return r
}
