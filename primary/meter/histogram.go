// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"iter"
	"math"
)

const (
	// Schema is that of Prometheus' native histograms: eight buckets for each doubling.
	Schema = 3
	// Least is the upper bound of the lowest bucket, which also has everything below it, and of zero: 2^-24 of a second are 60 ns.
	Least = 1.0 / (1 << -leastExponent)

	leastExponent, mostExponent = -24, 26 // 2^26 seconds are two years
	perDoubling                 = 1 << Schema
	buckets                     = (mostExponent-leastExponent)*perDoubling + 1
)

// bounds are 2^(k/8) for k from 0 to 7, without the leading 1, as the fraction of a float64 has them: where the buckets
// of a doubling end.
var bounds = [perDoubling]uint64{
	0, 0x172b83c7d517b, 0x306fe0a31b715, 0x4bfdad5362a27, 0x6a09e667f3bcd, 0x8ace5422aa0db, 0xae89f995ad3ad, 0xd5818dcfba487,
}

// Histogram counts values in buckets: bucket i has those above 2^((i-1)/8) and up to 2^(i/8). The zero value is ready. It is for
// one goroutine at a time.
type Histogram struct {
	// Zero counts values up to Least.
	Zero uint64
	Sum  float64
	at   [buckets]uint64 // at[i] is the bucket leastExponent*8+i
}

// Observe counts a value.
func (h *Histogram) Observe(v float64) {
	h.Sum += v
	if v <= Least {
		h.Zero++
		return
	}
	h.at[min(bucketOf(v)-leastExponent*perDoubling, buckets-1)]++
}

// bucketOf returns the bucket of a value above Least.
func bucketOf(v float64) int {
	b := math.Float64bits(v)
	exponent, fraction := int(b>>52)-1023, b&(1<<52-1)
	k := 0
	for k < perDoubling && bounds[k] < fraction {
		k++
	}
	return exponent*perDoubling + k
}

// Count returns how many values were observed.
func (h *Histogram) Count() uint64 {
	n := h.Zero
	for _, c := range h.at {
		n += c
	}
	return n
}

// Buckets returns the buckets that are not empty, by number.
func (h *Histogram) Buckets() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for i, n := range h.at {
			if n > 0 && !yield(i+leastExponent*perDoubling, n) {
				return
			}
		}
	}
}

// UpTo returns how many values were at most 2^exponent.
func (h *Histogram) UpTo(exponent int) uint64 {
	n := h.Zero
	last := (exponent-leastExponent)*perDoubling + 1
	for _, c := range h.at[:max(0, min(last, buckets))] {
		n += c
	}
	return n
}
