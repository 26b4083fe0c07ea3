// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper is a worker whose n-th operation takes a known time.
type sleeper struct {
	n      int
	takes  func(n int) time.Duration
	fail   error
	closed *int
}

func (s *sleeper) Step(ctx context.Context) (Timing, error) {
	if s.fail != nil && s.n == 3 {
		return Timing{}, s.fail
	}
	began := time.Now()
	err := Rest(ctx, s.takes(s.n))
	s.n++
	return Timing{Op: time.Since(began)}, err
}

func (s *sleeper) Close() error {
	if s.closed != nil {
		*s.closed++
	}
	return nil
}

func quiet(string, ...any) {}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		l := Load{
			Name: "sleep", Unit: "naps", Workers: 4, Warmup: 105 * time.Millisecond, Duration: 2 * time.Second,
			Open: func(context.Context, int) (Worker, error) { return &sleeper{takes: always(10 * time.Millisecond)}, nil },
		}
		r, err := l.Run(t.Context(), func(format string, _ ...any) { lines = append(lines, format) })
		if err != nil {
			t.Fatal(err)
		}
		if r.Rate != 400 || r.WorkerMin != 200 || r.WorkerMax != 200 || r.Latency.P50 < 10_000 || r.Latency.Max > 10_010 {
			t.Errorf("4 workers with operations of 10 ms: %+v, %+v", r, r.Latency)
		}
		if len(lines) != 2 {
			t.Errorf("%d lines of progress in 2 s", len(lines))
		}
	})
}

// A service that stalls once makes the operations late that were due meanwhile,
// and a closed loop does not see them.
func TestOpenLoopCountsFromWhenItWasDue(t *testing.T) {
	stall := func(n int) time.Duration {
		if n == 10 {
			return 500 * time.Millisecond
		}
		return time.Millisecond
	}
	for _, tt := range []struct {
		name string
		rate float64
		late bool // p99 shows the stall
	}{{"open", 100, true}, {"closed", 0, false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := Load{
					Workers: 1, Rate: tt.rate, Duration: 2 * time.Second,
					Open: func(context.Context, int) (Worker, error) { return &sleeper{takes: stall}, nil },
				}
				r, err := l.Run(t.Context(), quiet)
				if err != nil {
					t.Fatal(err)
				}
				if late := r.Latency.P99 > 400_000; late != tt.late {
					t.Errorf("p99 %v us of %d operations", r.Latency.P99, r.Operations)
				}
				if tt.rate > 0 && (r.Operations < 199 || r.Operations > 200) {
					t.Errorf("%d operations in 2 s, 200 were due", r.Operations)
				}
			})
		})
	}
}

// What is due after the end is not waited for, however long that takes.
func TestOpenLoopEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Load{Workers: 3, Rate: 0.01, Duration: time.Second, Open: func(context.Context, int) (Worker, error) {
			return &sleeper{takes: always(time.Millisecond)}, nil
		}}
		began := time.Now()
		if r, err := l.Run(t.Context(), quiet); err != nil || r.Operations != 1 || time.Since(began) > 2*time.Second {
			t.Errorf("%d operations in %v, %v", r.Operations, time.Since(began), err)
		}
	})
}

func TestLoadEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		load Load
		want string
	}{
		{"an operation fails", Load{Open: func(_ context.Context, i int) (Worker, error) {
			s := &sleeper{takes: always(time.Millisecond)}
			if i == 1 {
				s.fail = broken
			}
			return s, nil
		}}, "worker 1: broken"},
		{"a worker cannot be made", Load{Open: func(context.Context, int) (Worker, error) { return nil, broken }}, "open the workers: broken"},
		{"an operation hangs", Load{Open: func(context.Context, int) (Worker, error) {
			return &sleeper{takes: always(time.Hour)}, nil
		}}, "still unanswered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.load.Name, tt.load.Workers, tt.load.Duration = "load", 3, time.Second
				if _, err := tt.load.Run(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
		})
	}
}

func TestWorkersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		l := Load{Workers: 1, Duration: time.Second, Open: func(context.Context, int) (Worker, error) {
			return &sleeper{takes: always(time.Millisecond), closed: &closed}, nil
		}}
		if _, err := l.Run(t.Context(), quiet); err != nil || closed != 1 {
			t.Errorf("closed %d times, %v", closed, err)
		}
	})
}

// BenchmarkDriver is the cost of the driver itself: the service does nothing.
func BenchmarkDriver(b *testing.B) {
	l := Load{Workers: 16, Duration: 100 * time.Millisecond, Open: func(context.Context, int) (Worker, error) {
		return &sleeper{takes: always(0)}, nil
	}}
	var all []float64
	for b.Loop() {
		r, err := l.Run(b.Context(), quiet)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, *r.ClientCPU*1000)
	}
	b.ReportMetric(Median(all), "CPU-ns/operation")
}
