// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-lock/holdfast/primary/meter"
)

// classic are the buckets of a classic histogram: powers of two from 2^From to 2^To, each Step. They are buckets of the
// native one, too, so both count the same.
type classic struct{ from, to, step int }

// histogram is both kinds in one metric: a scraper that knows native histograms takes that, others the classic one.
type histogram struct {
	prometheus.Metric
	classic prometheus.Metric
}

// Write implements prometheus.Metric.
func (h histogram) Write(to *dto.Metric) error {
	if err := h.Metric.Write(to); err != nil {
		return err
	}
	var c dto.Metric
	if err := h.classic.Write(&c); err != nil {
		return err
	}
	to.Histogram.Bucket = c.Histogram.Bucket
	return nil
}

// exemplified returns a histogram with a traced call as its exemplar, or as it is where there is none. It is shown to scrapers that
// understand OpenMetrics.
func exemplified(h prometheus.Metric, e meter.Exemplar) prometheus.Metric {
	if e.Trace == "" {
		return h
	}
	return prometheus.MustNewMetricWithExemplars(h, prometheus.Exemplar{
		Value: e.Seconds, Labels: prometheus.Labels{"trace_id": e.Trace}, Timestamp: e.At,
	})
}

// newHistogram returns the metric of what was counted since began.
func newHistogram(d *prometheus.Desc, h *meter.Histogram, by classic, began time.Time, labels ...string) prometheus.Metric {
	native, bounded := map[int]int64{}, map[float64]uint64{}
	for i, n := range h.Buckets() {
		native[i] = int64(n)
	}
	for e := by.from; e <= by.to; e += by.step {
		bounded[math.Exp2(float64(e))] = h.UpTo(e)
	}
	count := h.Count()
	return histogram{
		prometheus.MustNewConstNativeHistogram(d, count, h.Sum, native, nil, h.Zero, meter.Schema, meter.Least, began, labels...),
		prometheus.MustNewConstHistogram(d, count, h.Sum, bounded, labels...),
	}
}
