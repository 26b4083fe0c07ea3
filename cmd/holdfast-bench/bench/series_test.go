// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

// looks are n values, one a minute.
func looks(n int, value func(i int) float64) *Series {
	s := &Series{Name: "s"}
	for i := range n {
		s.Add(time.Duration(i)*time.Minute, value(i))
	}
	s.Judge()
	return s
}

func TestSeries(t *testing.T) {
	for _, tt := range []struct {
		name    string
		floor   float64
		value   func(i int) float64
		flat    bool
		perHour float64
	}{
		{"the same for ever", 0, func(int) float64 { return 100 }, true, 0},
		{"none for ever", 0, func(int) float64 { return 0 }, true, 0},
		{"grows", 0, func(i int) float64 { return 100 + float64(i) }, false, 60},
		{"grows, but by less than matters", 30, func(i int) float64 { return 100 + float64(i) }, true, 60},
		{"grows by less than a twentieth", 0, func(i int) float64 { return 1000 + float64(i) }, true, 60},
		{"shrinks", 0, func(i int) float64 { return 100 - float64(i) }, true, -60},
		{"grows only at the start", 0, func(i int) float64 { return float64(min(i, 20)) }, true, 0},
		{"grows only in the end", 0, func(i int) float64 { return float64(max(i, 45)) }, false, 0},
		{"one value far outside", 0, func(i int) float64 { return 100 + 1e6*float64(max(0, i-58)) }, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := looks(60, tt.value)
			s.Floor = tt.floor
			s.Judge()
			if s.Flat != tt.flat || tt.name != "grows only in the end" && math.Abs(s.PerHour-tt.perHour) > 1e-6 {
				t.Errorf("flat %v, %v per hour, thirds %v %v %v", s.Flat, s.PerHour, s.First, s.Middle, s.Last)
			}
		})
	}
	if s := looks(60, func(i int) float64 { return float64(i) }); s.First != 9.5 || s.Middle != 29.5 || s.Last != 49.5 {
		t.Errorf("thirds %v %v %v", s.First, s.Middle, s.Last)
	}
	for n := range 3 {
		if looks(n, func(int) float64 { return 1 }).Flat {
			t.Errorf("%d looks are enough to call something flat", n)
		}
	}
}

func TestWriteSeries(t *testing.T) {
	flat := looks(3, func(int) float64 { return 7 })
	grows := looks(3, func(i int) float64 { return float64(i) })
	grows.Name = "queue"
	var b bytes.Buffer
	if err := WriteTable(&b, &Report{Rows: []Row{{Workload: "churn", Series: []*Series{flat, {Name: "never looked at"}, grows}}}}); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{"churn, ", "flat", "GROWS", "+60.0"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "never") {
		t.Errorf("a series without values is told:\n%s", out)
	}
}
