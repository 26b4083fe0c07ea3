// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-lock/holdfast/primary/meter"
)

// TestExemplar wants a traced call at its bucket, and nothing where none was traced.
func TestExemplar(t *testing.T) {
	var h meter.Histogram
	h.Observe(0.3)
	write := func(e meter.Exemplar) *dto.Histogram {
		var m dto.Metric
		x := exemplified(newHistogram(describe()["request_seconds"], &h, classic{-14, 4, 2}, time.Now(), "acquire"), e)
		if err := x.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetHistogram()
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	found := 0
	for _, b := range write(meter.Exemplar{Trace: id, Seconds: 0.3, At: time.Now()}).GetBucket() {
		if e := b.GetExemplar(); e != nil {
			found++
			if b.GetUpperBound() != 1 || e.GetValue() != 0.3 || e.GetLabel()[0].GetName() != "trace_id" || e.GetLabel()[0].GetValue() != id {
				t.Errorf("the bucket up to %v has %v", b.GetUpperBound(), e)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d buckets have an exemplar", found)
	}
	for _, b := range write(meter.Exemplar{}).GetBucket() {
		if b.GetExemplar() != nil {
			t.Errorf("nothing was traced, and the bucket up to %v has an exemplar", b.GetUpperBound())
		}
	}
}
