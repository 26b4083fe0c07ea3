// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Locks returns what serves the metrics of locks as one read has described them. They name the locks, so they are for callers that may
// read these. An identity is a label only where holders are asked for: each new holder is a time series of its own.
func Locks(read *pb.ListLocksResponse, holders bool) http.Handler {
	r := prometheus.NewRegistry()
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "holdfast_" + name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	held := gauge("lock_held", "1 if the lock is held, else 0.", "lock")
	count := gauge("lock_holders", "How many hold the lock; more than 1 share it.", "lock")
	waiters := gauge("lock_waiters", "How many wait for the lock.", "lock")
	since := gauge("lock_held_since_timestamp_seconds", "When the oldest holder got the lock, by the clock of the primary. Only where it is held.", "lock")
	gauge("locks_age_seconds", "How old the table is that this server has read: 0 at the primary.").WithLabelValues().Set((time.Duration(read.GetAgeMs()) * time.Millisecond).Seconds())
	gauge("locks_left_out", "1 if there are more locks under the prefix than a scrape may have, else 0.").WithLabelValues().Set(number(read.GetNext() != ""))
	var who *prometheus.GaugeVec
	if holders {
		who = gauge("lock_holder_info", "A constant 1, with the identity of the oldest holder, empty for none. Only where the lock is held.", "lock", "identity")
	}
	for _, l := range read.GetLocks() {
		g := l.GetGrant()
		held.WithLabelValues(l.GetName()).Set(number(g.GetToken() != 0))
		count.WithLabelValues(l.GetName()).Set(float64(l.GetHolders()))
		waiters.WithLabelValues(l.GetName()).Set(float64(l.GetQueueLength()))
		if at := g.GetSinceUnixMs(); g.GetToken() != 0 && at > 0 {
			since.WithLabelValues(l.GetName()).Set(float64(at) / 1000)
		}
		if holders && g.GetToken() != 0 {
			who.WithLabelValues(l.GetName(), g.GetHolder().GetIdentity()).Set(1)
		}
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
