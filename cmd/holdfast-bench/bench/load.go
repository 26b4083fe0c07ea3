// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// drainLimit is how long the last operations may take after the window.
	drainLimit = time.Minute
	// openers is how many workers are made at a time.
	openers = 64
)

// Progress prints a line for people.
type Progress func(format string, args ...any)

// Timing is how long the parts of one operation took.
type Timing struct {
	// Op is the part whose percentiles are reported.
	Op time.Duration
	// Release is the rest; 0 if there is none.
	Release time.Duration
}

// Worker executes one operation after the other, in one goroutine.
type Worker interface {
	Step(ctx context.Context) (Timing, error)
	Close() error
}

// Load is a number of workers that run for a time.
type Load struct {
	// Name is used in the progress; Unit is the name of the counted operation.
	Name, Unit string
	Workers    int
	// Rate is how many operations are due per second, of all workers; 0 = a closed loop.
	Rate             float64
	Warmup, Duration time.Duration
	// Open makes a worker. It is called for several at a time.
	Open func(ctx context.Context, worker int) (Worker, error)
	// PIDs are the servers, for their processor time; nil = unknown.
	PIDs []int
	// Tell is how often the progress is printed; 0 = every second.
	Tell time.Duration
}

// window is the time that counts.
type window struct{ begin, from, to time.Time }

// loop is one worker with what it counted.
type loop struct {
	Worker
	id            int
	all           atomic.Int64 // operations from the beginning on, for the progress
	counted       int64
	first, second *Histogram
}

// Run runs the workers and returns their counts. It ends with the first error of a worker.
func (l Load) Run(ctx context.Context, say Progress) (r Run, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	loops, err := l.open(ctx)
	defer func() { err = errors.Join(err, closeAll(loops)) }()
	if err != nil {
		return Run{}, fmt.Errorf("%s: open the workers: %w", l.Name, err)
	}
	w := window{begin: time.Now()}
	w.from = w.begin.Add(l.Warmup)
	w.to = w.from.Add(l.Duration)
	stop := time.AfterFunc(time.Until(w.to)+drainLimit, func() {
		cancel(fmt.Errorf("operations still unanswered %v after the end", drainLimit))
	})
	defer stop.Stop()
	var running sync.WaitGroup
	for _, x := range loops {
		running.Go(func() {
			if err := l.work(ctx, x, w); err != nil {
				cancel(fmt.Errorf("worker %d: %w", x.id, err))
			}
		})
	}
	used, err := l.observe(ctx, w, loops, say)
	if err != nil {
		cancel(err)
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return Run{}, fmt.Errorf("%s: %w", l.Name, err)
	}
	return l.sum(loops, used), nil
}

func (l Load) open(ctx context.Context) ([]*loop, error) {
	loops := make([]*loop, l.Workers)
	errs := make([]error, l.Workers)
	var next atomic.Int64
	var opening sync.WaitGroup
	for range min(openers, l.Workers) {
		opening.Go(func() {
			for i := int(next.Add(1)) - 1; i < l.Workers; i = int(next.Add(1)) - 1 {
				w, err := l.Open(ctx, i)
				if err != nil {
					errs[i] = err
					return
				}
				loops[i] = &loop{Worker: w, id: i, first: NewHistogram()}
			}
		})
	}
	opening.Wait()
	return loops, errors.Join(errs...)
}

// closeAll closes several workers at a time: each may have to ask its service.
func closeAll(loops []*loop) error {
	errs := make([]error, len(loops))
	var next atomic.Int64
	var closing sync.WaitGroup
	for range min(openers, len(loops)) {
		closing.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(loops); i = int(next.Add(1)) - 1 {
				if loops[i] != nil {
					errs[i] = loops[i].Close()
				}
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}

// work is a worker's life. An operation that began in the window is finished, so
// that no worker is left in a queue, but counts only if it ended there.
func (l Load) work(ctx context.Context, x *loop, w window) error {
	p := pacer{begin: w.begin, end: w.to}
	if l.Rate > 0 {
		p.every = time.Duration(float64(l.Workers) / l.Rate * float64(time.Second))
		p.begin = w.begin.Add(p.every * time.Duration(x.id) / time.Duration(l.Workers))
	}
	for {
		late, err := p.next(ctx)
		if err != nil {
			return err
		}
		if !time.Now().Before(w.to) {
			return nil
		}
		t, err := x.Step(ctx)
		if err != nil {
			return err
		}
		x.all.Add(1)
		if now := time.Now(); now.Before(w.from) || !now.Before(w.to) {
			continue
		}
		x.counted++
		x.first.Record(t.Op + late)
		if t.Release > 0 {
			if x.second == nil {
				x.second = NewHistogram()
			}
			x.second.Record(t.Release)
		}
	}
}

// pacer says when the operations of one worker are due.
type pacer struct {
	begin, end time.Time
	every      time.Duration // 0 = at once
	n          int64
}

// next waits until the next operation is due, or the end has come, and says how late it
// begins because the one before took so long.
func (p *pacer) next(ctx context.Context) (late time.Duration, err error) {
	if err := context.Cause(ctx); err != nil || p.every == 0 {
		return 0, err
	}
	due := p.begin.Add(p.every * time.Duration(p.n))
	p.n++
	if late := time.Since(due); late >= 0 {
		return late, nil
	}
	if p.end.Before(due) {
		due = p.end
	}
	return 0, Rest(ctx, time.Until(due))
}

// observe tells the progress and returns the processor time used in the window.
func (l Load) observe(ctx context.Context, w window, loops []*loop, say Progress) (CPU, error) {
	if err := Rest(ctx, time.Until(w.from)); err != nil {
		return CPU{}, err
	}
	before, err := ReadCPU(l.PIDs)
	if err != nil {
		return CPU{}, err
	}
	tell := l.Tell
	if tell == 0 {
		tell = time.Second
	}
	last, at := int64(0), time.Now()
	for _, x := range loops {
		last += x.all.Load()
	}
	for {
		left := time.Until(w.to)
		if left <= 0 {
			break
		}
		if err := Rest(ctx, min(left, tell)); err != nil {
			return CPU{}, err
		}
		sum := int64(0)
		for _, x := range loops {
			sum += x.all.Load()
		}
		now := time.Now()
		say("%s: %.0f of %.0f s, %.0f %s/s", l.Name, now.Sub(w.from).Seconds(), l.Duration.Seconds(),
			float64(sum-last)/now.Sub(at).Seconds(), l.Unit)
		last, at = sum, now
	}
	after, err := ReadCPU(l.PIDs)
	return after.Since(before), err
}

// sum merges what the workers counted.
func (l Load) sum(loops []*loop, used CPU) Run {
	first, second := NewHistogram(), NewHistogram()
	r := Run{Seconds: l.Duration.Seconds(), WorkerMin: math.MaxInt64}
	for _, x := range loops {
		first.Merge(x.first)
		if x.second != nil {
			second.Merge(x.second)
		}
		r.Operations += x.counted
		r.WorkerMin, r.WorkerMax = min(r.WorkerMin, x.counted), max(r.WorkerMax, x.counted)
	}
	r.Rate = float64(r.Operations) / r.Seconds
	r.Latency, r.Release = first.Latency(), second.Latency()
	r.charge(used)
	return r
}

// Rest waits for d. If ctx ends before, it returns the cause.
func Rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CollectRarely lets the heap of this program grow to five times the live heap before
// it is collected, because the driver shares the processors with the measured service. It is the
// same for all services. The environment variable GOGC overrides it.
func CollectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Each calls do with 0 to n-1, at most parallel at a time. After the first error it starts no more
// calls. It returns all errors.
func Each(n, parallel int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	errs := make([]error, min(parallel, n))
	var working sync.WaitGroup
	for w := range errs {
		working.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[w] = do(i); errs[w] != nil {
					failed.Store(true)
				}
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}
