// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// flatShare is by which share the last third of a flat series may exceed the middle one.
const flatShare = 0.05

// Series is one quantity, sampled repeatedly.
type Series struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Seconds are the times of the samples, from the beginning on, and Values the samples.
	Seconds []float64 `json:"seconds"`
	Values  []float64 `json:"values"`
	// First, Middle and Last are the medians of the thirds: the first one includes the start;
	// the other two show whether the quantity grows.
	First  float64 `json:"first_third"`
	Middle float64 `json:"middle_third"`
	Last   float64 `json:"last_third"`
	// PerHour is the median slope of the last two thirds.
	PerHour float64 `json:"slope_per_hour"`
	// Floor is the absolute growth that still counts as flat.
	Floor float64 `json:"floor"`
	// Flat is true if Last exceeds Middle by no more than a twentieth or the floor.
	Flat bool `json:"flat"`
}

// Add adds a sample.
func (s *Series) Add(at time.Duration, value float64) {
	s.Seconds = append(s.Seconds, at.Seconds())
	s.Values = append(s.Values, value)
}

// Judge computes the medians, the slope and Flat from the samples.
func (s *Series) Judge() {
	third := len(s.Values) / 3
	middle, last := third, len(s.Values)-third
	s.First, s.Middle, s.Last = Median(s.Values[:middle]), Median(s.Values[middle:last]), Median(s.Values[last:])
	s.PerHour = slope(s.Seconds[middle:], s.Values[middle:]) * time.Hour.Seconds()
	s.Flat = third > 0 && s.Last-s.Middle <= max(s.Middle*flatShare, s.Floor)
}

// slope is the median of the slopes between all pairs of points (Theil and Sen): some
// that lie far outside do not change it.
func slope(x, y []float64) float64 {
	var all []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				all = append(all, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	return Median(all)
}

// WriteSeries writes the verdicts for people.
func WriteSeries(w io.Writer, all []*Series) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	wide := len("medians of the thirds")
	for _, s := range all {
		wide = max(wide, len(s.Name))
	}
	fmt.Fprintln(t, pad("medians of the thirds", wide)+"\tunit\tlooks\tfirst\tmiddle\tlast\tleast\tmost\tper hour\t\t")
	for _, s := range all {
		if len(s.Values) == 0 {
			continue
		}
		verdict := "flat"
		if !s.Flat {
			verdict = "GROWS"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", pad(s.Name, wide), s.Unit, len(s.Values), number(s.First), number(s.Middle),
			number(s.Last), number(slices.Min(s.Values)), number(slices.Max(s.Values)), signed(s.PerHour), verdict)
	}
	return t.Flush()
}

func signed(x float64) string {
	if x < 0 {
		return "-" + number(-x)
	}
	return "+" + number(x)
}
