// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutageOf(t *testing.T) {
	base := time.Now()
	at := func(ms ...int) (all []grant) {
		for _, x := range ms {
			all = append(all, grant{at: base.Add(time.Duration(x) * time.Millisecond)})
		}
		return all
	}
	for _, tt := range []struct {
		name      string
		grants    []grant
		struck    int
		next, gap int
	}{
		{"nothing happened", at(0, 10, 20, 30, 40), 25, 5, 10},
		{"a plain outage", at(0, 10, 20, 270, 280), 21, 249, 250},
		{"an answer was on its way", at(0, 10, 23, 270, 280), 21, 249, 247},
		{"a gap before does not count", at(0, 400, 410, 500), 405, 95, 90},
		{"a stall just before it", at(0, 500, 520, 620, 630), 499, 121, 500},
		{"out of order", at(280, 0, 270, 20, 10), 21, 249, 250},
		{"no grants", nil, 5, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := outageOf(tt.grants, base.Add(time.Duration(tt.struck)*time.Millisecond))
			if o.Next != time.Duration(tt.next)*time.Millisecond || o.Gap != time.Duration(tt.gap)*time.Millisecond {
				t.Errorf("next %v gap %v, want %d and %d ms", o.Next, o.Gap, tt.next, tt.gap)
			}
		})
	}
}

// failing is a service that refuses for a while after a stroke.
type failing struct {
	mu     sync.Mutex
	downTo time.Time
}

func (f *failing) Name() string                                      { return "failing" }
func (f *failing) PIDs() []int                                       { return nil }
func (f *failing) Locker(context.Context, int, Mode) (Locker, error) { return f, nil }
func (f *failing) Release(context.Context) error                     { return nil }
func (f *failing) Close() error                                      { return nil }
func (f *failing) strike(down time.Duration) Strike {
	return func(context.Context) (time.Time, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		now := time.Now()
		f.downTo = now.Add(down)
		return now, nil
	}
}

func (f *failing) Acquire(ctx context.Context, _ string) error {
	f.mu.Lock()
	down := time.Now().Before(f.downTo)
	f.mu.Unlock()
	if down {
		return errors.New("down")
	}
	return Rest(ctx, time.Millisecond)
}

func TestMeasureOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{}
		o, err := MeasureOutage(t.Context(), f, "x", 4, 5*time.Millisecond, f.strike(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if o.Next < 300*time.Millisecond || o.Next > 310*time.Millisecond || o.Every < o.Next || o.Errors == 0 {
			t.Errorf("down for 300 ms: %+v", o)
		}
	})
}

func TestMeasureOutageThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{}
		if _, err := MeasureOutage(t.Context(), f, "x", 1, time.Second, f.strike(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a deadline", err)
		}
	})
}
