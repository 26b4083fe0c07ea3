// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
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

// counts are what the gateways of a process have counted since they began, and the connections that they have now.
type counts struct {
	open                  atomic.Int64
	taken, cut, failovers atomic.Uint64
	toServer, toClient    atomic.Uint64
	refused               [refusals]atomic.Uint64
}

func (c *counts) refuse(why refused) { c.refused[why].Add(1) }

// health returns what serves the probes and the metrics. From the end of ctx on, the gateway is not ready.
func (c *cells) health(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, cluster.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case ctx.Err() != nil:
			answer(w, cluster.StatusSecondaryMode, "the gateway ends")
		case !c.primaryKnown():
			answer(w, cluster.StatusSecondaryMode, "no server is known to be primary")
		default:
			answer(w, cluster.StatusOK, "the primary answers")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.registry(), promhttp.HandlerOpts{MaxRequestsInFlight: scrapes, EnableOpenMetrics: true}))
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
func (c *cells) registry() *prometheus.Registry {
	r, n := prometheus.NewRegistry(), c.counts
	gauge := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_gateway_" + name, Help: help}, f))
	}
	counter := func(name, help string, of *atomic.Uint64, labels prometheus.Labels) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_gateway_" + name, Help: help, ConstLabels: labels}, func() float64 { return float64(of.Load()) }))
	}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge("connections", "Connections of clients that are open.", func() float64 { return float64(n.open.Load()) })
	r.MustRegister(primariesKnown{c})
	counter("connections_total", "Connections of clients that were taken.", &n.taken, nil)
	counter("failovers_total", "How often connections went from one primary to another.", &n.failovers, nil)
	counter("connections_cut_total", "Connections that ended because their server was not the primary any more.", &n.cut, nil)
	for why, word := range []string{tooMany: "too_many", noServer: "no_server", plainText: "plain_text"} {
		counter("refused_total", "Connections that were not passed on.", &n.refused[why], prometheus.Labels{"reason": word})
	}
	counter("bytes_total", "Bytes that were passed on.", &n.toServer, prometheus.Labels{"to": "server"})
	counter("bytes_total", "Bytes that were passed on.", &n.toClient, prometheus.Labels{"to": "client"})
	return r
}

// primariesKnown is the metric of which primaries are known, by cell where there are several.
type primariesKnown struct{ cells *cells }

// Describe implements prometheus.Collector. Which cells there are turns out later.
func (p primariesKnown) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (p primariesKnown) Collect(to chan<- prometheus.Metric) {
	for id, g := range p.cells.all {
		cell, known := prometheus.Labels{}, 0.0
		if id != nil {
			cell["cell"] = strconv.Itoa(int(*id))
		}
		if g != nil && g.site.target().primary {
			known = 1
		}
		desc := prometheus.NewDesc("holdfast_gateway_primary_known", "1 while the gateway knows the primary, else 0.", nil, cell)
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, known)
	}
}
