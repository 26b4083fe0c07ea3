// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// histogramUnit is the resolution of a Histogram.
	histogramUnit = 100 * time.Nanosecond
	// histogramMax is its longest latency; longer ones count as this.
	histogramMax = 20 * time.Minute
	// histogramDigits is how exact it is.
	histogramDigits = 3
)

// Histogram counts latencies. It is for one goroutine.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty histogram. Its memory is touched only where it counts.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, int64(histogramMax/histogramUnit), histogramDigits)}
}

// Record counts one latency.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(d, 0), histogramMax)
	h.h.RecordValue(int64(d / histogramUnit)) //nolint:errcheck // it is within the bounds
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(o *Histogram) { h.h.Merge(o.h) }

// Count returns how many latencies were recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Latency returns the percentiles, nil if nothing was recorded.
func (h *Histogram) Latency() *Latency {
	if h.Count() == 0 {
		return nil
	}
	at := func(p float64) float64 { return micros(h.h.ValueAtPercentile(p)) }
	return &Latency{P50: at(50), P99: at(99), P999: at(99.9), Max: micros(h.h.Max())}
}

func micros(units int64) float64 {
	return float64(units) * float64(histogramUnit) / float64(time.Microsecond)
}

// Latency has percentiles in microseconds.
type Latency struct {
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

// medianLatency is the median of each percentile, and the highest maximum; nil of none.
func medianLatency(all []*Latency) *Latency {
	var p50, p99, p999 []float64
	most := math.Inf(-1)
	for _, l := range all {
		if l == nil {
			continue
		}
		p50, p99, p999 = append(p50, l.P50), append(p99, l.P99), append(p999, l.P999)
		most = max(most, l.Max)
	}
	if len(p50) == 0 {
		return nil
	}
	return &Latency{P50: Median(p50), P99: Median(p99), P999: Median(p999), Max: most}
}
