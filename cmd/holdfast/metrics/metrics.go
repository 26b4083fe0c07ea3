// SPDX-License-Identifier: Apache-2.0

// Package metrics shows what a server knows of itself to Prometheus.
//
// Everything is collected when somebody asks, from what the server has in memory anyway: a scrape waits neither for the volume
// nor for the core loop, and costs the same however many locks there are. Labels are numbers of servers and words of this
// program; there are no names of locks, files, clients or callers, so that the metrics may be read without a credential. The metrics of
// single locks, which have to name them, are another handler, for callers that may read the locks (Locks).
//
// A server has a registry of its own, so that several servers may share a process. docs/operate.md says what to watch.
package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// scrapes is how many may be under way.
const scrapes = 4

// Node is the server as the metrics see it.
type Node interface {
	Status() serving.ClusterStatus
	Measures(now time.Time) node.Measures
	Meter() *meter.Meter
}

// Fronts is what the front ends have.
type Fronts struct {
	Connections map[string]int // by front end
	Sessions    int
	Watches     int
	Tallies     map[service.Tally]uint64
	// AuditDropped counts the events that the audit could not keep.
	AuditDropped uint64
	// Traces is what the traces of this server have counted.
	Traces trace.Counts
	// RulesVersion is that of the access rules in force, 0 for none.
	RulesVersion uint64
	// Certificates are when those end that clients are shown, by use; without those that there are not.
	Certificates map[string]time.Time
}

// Handler returns what serves the metrics of a server. Fronts must not wait.
func Handler(n Node, fronts func() Fronts) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{n: n, fronts: fronts, began: time.Now(), d: describe()},
	)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes, EnableOpenMetrics: true})
}

// collector implements prometheus.Collector.
type collector struct {
	n      Node
	fronts func() Fronts
	began  time.Time
	d      map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.d {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	x := sink{c, to}
	now := time.Now()
	x.status(c.n.Status())
	x.measures(c.n.Measures(now))
	x.counts(c.n.Meter())
	x.fronts(c.fronts())
}

// sink takes the metrics of one scrape.
type sink struct {
	*collector
	to chan<- prometheus.Metric
}

func (x sink) gauge(name string, v float64, labels ...string) {
	x.to <- prometheus.MustNewConstMetric(x.d[name], prometheus.GaugeValue, v, labels...)
}

func (x sink) counter(name string, v float64, labels ...string) {
	x.to <- prometheus.MustNewConstMetric(x.d[name], prometheus.CounterValue, v, labels...)
}

func (x sink) histogram(name string, h *meter.Histogram, by classic, labels ...string) {
	x.to <- newHistogram(x.d[name], h, by, x.began, labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// status shows what this server tells of itself and of the others.
func (x sink) status(s serving.ClusterStatus) {
	var me serving.ServerStatus
	for i := range s.Servers {
		if s.Servers[i].Member.ID == s.Server {
			me = s.Servers[i]
		}
	}
	x.gauge("build_info", 1, me.Version, runtime.Version())
	for _, role := range []string{"primary", "fencing", "candidate", "replica"} {
		x.gauge("server_role", number(me.Role == role), role)
	}
	x.gauge("epoch", float64(s.Epoch))
	x.gauge("feature_level", float64(s.Level), "cluster")
	x.gauge("feature_level", float64(me.FeatureLevel), "server")
	x.gauge("lsn", float64(me.LSN))
	x.gauge("volume_check_age_seconds", me.Storage.Seconds())
	x.gauge("volume_full", number(me.Full))
	x.gauge("volume_free_bytes", float64(me.FreeBytes))
	x.gauge("warnings", float64(len(me.Warnings)))
	x.gauge("config_pending_restart", float64(len(me.Restart)))
	x.counter("canary_stale_reads_total", float64(me.Canary.StaleReads), "plain")
	x.counter("canary_stale_reads_total", float64(me.Canary.StaleDirectReads), "direct")
	for i := range s.Servers {
		if p := &s.Servers[i]; p.Member.ID != s.Server && !p.Member.Joining { // one that joins is expected not to answer yet
			x.peer(&me, p)
		}
	}
}

// peer shows what this server knows of another one.
func (x sink) peer(me, p *serving.ServerStatus) {
	id := strconv.FormatUint(uint64(p.Member.ID), 10)
	reached := p.Role != "unreachable"
	x.gauge("peer_reachable", number(reached), id)
	x.gauge("peer_able", number(p.Able), id)
	if p.Heard >= 0 {
		x.gauge("peer_heard_age_seconds", p.Heard.Seconds(), id)
	}
	if me.Role != "primary" {
		return
	}
	x.gauge("replica_unwaited", number(p.Unwaited), id)
	if reached && p.LSN > 0 {
		x.gauge("replica_lag_records", float64(max(me.LSN, p.LSN)-p.LSN), id)
	}
}

// measures shows what this server measures now.
func (x sink) measures(m node.Measures) {
	x.gauge("quorum", number(m.Quorum))
	x.gauge("canary_lag_seconds", m.CanaryLag.Seconds())
	if m.Primary == nil {
		return
	}
	p := m.Primary
	x.gauge("core_progress_age_seconds", m.Progress.Seconds())
	x.gauge("log_bytes", float64(p.LogBytes))
	x.gauge("log_limit_bytes", float64(p.LogLimit))
	x.gauge("checkpoint_age_seconds", p.CheckpointAge.Seconds())
	x.gauge("queue_calls", float64(p.Calls))
	x.gauge("grants", float64(p.Grants))
	x.gauge("waiters", float64(p.Waiters))
	x.gauge("clients", float64(p.Clients))
	x.gauge("receipts", float64(p.Receipts))
	x.gauge("oldest_grant_age_seconds", p.OldestGrant.Seconds())
	x.gauge("file_pending_bytes", float64(p.PendingBytes))
	for _, state := range []string{"open", "sealed", "quarantined"} {
		x.gauge("files", float64(p.Files[state]), state)
	}
}

// counts shows what the terms of this server have counted.
func (x sink) counts(m *meter.Meter) {
	c := m.Snapshot()
	brief, long, size := classic{-16, 4, 1}, classic{-10, 22, 2}, classic{0, 16, 1}
	for op := range c.Requests {
		name := meter.Op(op).String()
		for _, s := range cluster.Statuses() {
			if n := c.Requests[op][s]; n > 0 {
				x.counter("requests_total", float64(n), name, s.String())
			}
		}
		if c.Seconds[op].Count() > 0 {
			h := newHistogram(x.d["request_seconds"], &c.Seconds[op], classic{-14, 4, 2}, x.began, name)
			x.to <- exemplified(h, c.Exemplars[op])
		}
	}
	x.histogram("batch_requests", &c.Batch, size)
	x.histogram("volume_sync_seconds", &c.Sync, brief)
	x.histogram("volume_check_seconds", &c.Check, brief)
	x.histogram("wait_seconds", &c.Wait, long)
	x.histogram("hold_seconds", &c.Hold, long)
	x.histogram("takeover_seconds", &c.Takeover, classic{-8, 8, 1})
	for _, e := range meter.Ends() {
		x.counter("reigns_total", float64(c.Ended[e]), e.String())
	}
	x.counter("core_busy_seconds_total", m.Busy().Seconds())
	x.counter("leases_expired_total", float64(c.Expired))
	x.counter("breaks_total", float64(c.Broken))
	x.counter("append_bytes_total", float64(c.Appended))
}

// fronts shows what the front ends have and count.
func (x sink) fronts(f Fronts) {
	for name, n := range f.Connections {
		x.gauge("connections", float64(n), name)
	}
	x.gauge("sessions", float64(f.Sessions))
	x.gauge("watches", float64(f.Watches))
	x.counter("audit_dropped_total", float64(f.AuditDropped))
	x.counter("traces_total", float64(f.Traces.Taken), "taken")
	x.counter("traces_total", float64(f.Traces.Dropped), "dropped")
	x.counter("trace_spans_total", float64(f.Traces.Exported), "exported")
	x.counter("trace_spans_total", float64(f.Traces.Failed), "failed")
	x.gauge("access_version", float64(f.RulesVersion))
	for use, end := range f.Certificates {
		x.gauge("certificate_expiry_timestamp_seconds", float64(end.Unix()), use)
	}
	for t, n := range f.Tallies {
		switch t.Kind {
		case service.TallyAuth:
			x.counter("auth_total", float64(n), t.First, t.Second)
		case service.TallyDenied:
			x.counter("denied_total", float64(n), t.First)
		case service.TallyLimited:
			x.counter("limited_total", float64(n), t.First)
		case service.TallyReset:
			x.counter("watch_resets_total", float64(n), t.First)
		}
	}
}
