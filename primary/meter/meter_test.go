// SPDX-License-Identifier: Apache-2.0

package meter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// TestBuckets compares the buckets with their definition: bucket i ends at 2^(i/8), which it has.
func TestBuckets(t *testing.T) {
	for v := meter.Least * 1.01; v < 1<<25; v *= 1.0173 {
		var h meter.Histogram
		h.Observe(v)
		for i, n := range h.Buckets() {
			if n != 1 || v > math.Exp2(float64(i)/8) || v <= math.Exp2(float64(i-1)/8) {
				t.Errorf("%v: %d in bucket %d", v, n, i)
			}
		}
		if h.Count() != 1 || h.Sum != v {
			t.Errorf("%v: count %d, sum %v", v, h.Count(), h.Sum)
		}
	}
}

func TestBucketsOfBounds(t *testing.T) {
	for v, want := range map[float64]int{1: 0, 2: 8, 3: 13, 4: 16, 0.25: -16, 1000: 80} {
		var h meter.Histogram
		h.Observe(v)
		for i := range h.Buckets() {
			if i != want {
				t.Errorf("%v is in bucket %d, want %d", v, i, want)
			}
		}
	}
}

func TestUpTo(t *testing.T) {
	var h meter.Histogram
	for _, v := range []float64{0, -1, meter.Least, 0.2, 0.25, 0.2501, 1, 5, 1e300} {
		h.Observe(v)
	}
	for exponent, want := range map[int]uint64{-60: 3, -24: 3, -2: 5, -1: 6, 0: 7, 3: 8, 60: 9} {
		if got := h.UpTo(exponent); got != want {
			t.Errorf("%d up to 2^%d, want %d", got, exponent, want)
		}
	}
	if h.Count() != 9 || h.Zero != 3 {
		t.Errorf("count %d, zero %d", h.Count(), h.Zero)
	}
}

// TestEveryOperationHasItsPlace: the operations of the lock table and the others share one row of numbers.
func TestEveryOperationHasItsPlace(t *testing.T) {
	for op := locktable.Op(0); op < 64; op++ {
		if known := !strings.HasPrefix(op.String(), "op("); known && meter.Op(op) >= meter.OpRenew {
			t.Errorf("%v has the number %d, and those from %d on are others'", op, op, meter.OpRenew)
		}
	}
	for _, s := range cluster.Statuses() {
		var m meter.Meter
		m.Answer(meter.OpFile, s, time.Second)
		m.Answer(meter.OpFile+1, s, time.Second) // there is none
		m.Answer(0, s, time.Second)
		c := m.Snapshot()
		if c.Requests[meter.OpFile][s] != 1 || c.Seconds[meter.OpFile].Count() != 1 || c.Seconds[0].Count() != 0 {
			t.Errorf("%v: counted %d", s, c.Requests[meter.OpFile][s])
		}
	}
}

func TestTally(t *testing.T) {
	x := meter.Tally{Expired: 1, Broken: 2, Appended: 3, Waits: []time.Duration{time.Second}, Holds: []int64{2000, -5}}
	var m meter.Meter
	c := m.Begin()
	c.Add(&x)
	x.Reset()
	c.Add(&x)
	m.End()
	m.Work(time.Minute)
	m.CountEnd(meter.EndFenced)
	s := m.Snapshot()
	if s.Expired != 1 || s.Broken != 2 || s.Appended != 3 || s.Wait.Sum != 1 || s.Hold.Sum != 2 || s.Hold.Zero != 1 || s.Ended[meter.EndFenced] != 1 {
		t.Errorf("counted %+v", s.Ended)
	}
	if m.Busy() != time.Minute {
		t.Errorf("busy for %v", m.Busy())
	}
	for _, e := range meter.Ends() {
		if e.String() == "" {
			t.Errorf("end %d has no name", e)
		}
	}
}

// BenchmarkAnswer is what counting one answer costs.
func BenchmarkAnswer(b *testing.B) {
	var m meter.Meter
	c := m.Begin()
	defer m.End()
	v := 0.0001
	for b.Loop() {
		c.Answer(meter.Op(locktable.OpAcquire), cluster.StatusOK, v)
		if v *= 1.01; v > 1 {
			v = 0.0001
		}
	}
}
