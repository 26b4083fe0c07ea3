// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/starve"
)

const (
	// starvedWorkers is how many clients work beside the load, and starvedPause how long each rests
	// between two locks.
	starvedWorkers = 16
	starvedPause   = 20 * time.Millisecond
	// loopsPerCPU is how many busy loops there are for each processor: with the servers, the disk load
	// and the clients that is a load average above 20 on two.
	loopsPerCPU = 10
	// starvedLead is how long the clients run before the load begins, starvedTail how long after its
	// end it is watched whether all is normal; both at most six times the duration.
	starvedLead = 5 * time.Second
	starvedTail = 15 * time.Second
	// starvedLook is how often the servers are asked how they are.
	starvedLook = 250 * time.Millisecond
	// primaryLimit is how long there may be no primary when one is looked for.
	primaryLimit = time.Minute
	// normalFactor is how many times as long as the slowest when all was quiet, and normalLeast how
	// long, a lock may take where all is normal.
	normalFactor = 2
	normalLeast  = 250 * time.Millisecond
)

// phase is a part of the workload.
type phase int

const (
	quiet   phase = iota // before the load
	starved              // under it
	killing              // under it, with the kill
	after                // when it has ended
	phases
)

func (p phase) String() string {
	return [...]string{"starved, quiet before", "starved, under load", "starved, under load with the kill", "starved, after the load"}[p]
}

// starving is the workload starved while it runs.
type starving struct {
	*Env
	target *Holdfast
	loops  int
	now    atomic.Int32 // the phase
	pairs  atomic.Int64 // of all phases
	failed atomic.Int64 // of all phases
	slow   atomic.Int64 // nanoseconds, from which on a pair is not normal; 0 = not known yet

	mu struct {
		sync.Mutex
		pairs, errors [phases]int64
		latencies     [phases]*bench.Histogram
		spent         [phases]time.Duration
		// abnormal is when something was not normal the last time.
		abnormal time.Time
		why      string
	}
}

// starvedRun takes the machine away from the servers and looks what they make of it.
func starvedRun(ctx context.Context, e *Env) (_ []bench.Row, err error) {
	s := &starving{Env: e, loops: e.StarveLoops}
	if s.loops == 0 {
		s.loops = loopsPerCPU * runtime.NumCPU()
	}
	for p := range s.mu.latencies {
		s.mu.latencies[p] = bench.NewHistogram()
	}
	n := e.workers(starvedWorkers)[0]
	clients := n
	if len(e.Clients) > 0 {
		clients = e.Clients[0].Clients(n)
	}
	if s.target, err = NewHoldfast(e.Endpoints, clients, e.pids()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.target.Close()) }()
	s.target.Wait = e.Wait
	if err := s.target.Connect(ctx); err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	keys := prefix("starved")
	for i := range n {
		running.Go(func() { s.work(working, i, fmt.Sprintf("%s/%d", keys, i)) })
	}
	running.Go(func() { s.look(working) })
	figures, err := s.course(ctx)
	stop()
	running.Wait()
	if err != nil {
		return nil, err
	}
	return s.rows(n, clients, figures), nil
}

// work is one client that acquires and releases its key, and goes on after errors.
func (s *starving) work(ctx context.Context, worker int, key string) {
	l, err := s.target.Locker(ctx, worker, bench.Alone)
	if err != nil {
		s.abnormal(err.Error())
		return
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := l.Acquire(ctx, key)
		took := time.Since(began)
		if err == nil {
			err = l.Release(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		s.note(took, err)
		if bench.Rest(ctx, starvedPause) != nil {
			return
		}
	}
}

// note counts a pair, in the phase in which it ended.
func (s *starving) note(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.now.Load()
	if err != nil {
		s.failed.Add(1)
		s.mu.errors[p]++
		s.abnormalLocked(err.Error())
		return
	}
	s.pairs.Add(1)
	s.mu.pairs[p]++
	s.mu.latencies[p].Record(took)
	if limit := s.slow.Load(); limit > 0 && int64(took) > limit {
		s.abnormalLocked(fmt.Sprintf("an acquire took %v", took.Round(time.Millisecond)))
	}
}

// abnormal notes that something is not normal now.
func (s *starving) abnormal(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abnormalLocked(why)
}

func (s *starving) abnormalLocked(why string) { s.mu.abnormal, s.mu.why = time.Now(), why }

// look asks the servers how they are until ctx ends.
func (s *starving) look(ctx context.Context) {
	for last := clientlib.Epoch(0); bench.Rest(ctx, starvedLook) == nil; {
		h, err := s.Servers.Health(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.abnormal("no server answers: " + err.Error())
		case !h.Well:
			s.abnormal("not every server is well")
		case last != 0 && h.Epoch != last:
			s.abnormal("another term has begun")
		}
		if err == nil {
			last = h.Epoch
		}
	}
}

// course goes through the phases, and returns what only this workload has.
func (s *starving) course(ctx context.Context) (figures []bench.Figure, err error) {
	lead, tail := min(starvedLead, 6*s.Duration), min(starvedTail, 6*s.Duration)
	if err := s.spend(ctx, quiet, s.Warmup+lead); err != nil {
		return nil, err
	}
	s.mu.Lock()
	most := time.Duration(0)
	if l := s.mu.latencies[quiet].Latency(); l != nil {
		most = time.Duration(l.Max) * time.Microsecond
	}
	s.mu.Unlock()
	before, err := s.primary(ctx)
	if err != nil {
		return nil, err
	}
	load, err := starve.Start(s.loops, s.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, load.Close()) }()
	if err := s.spend(ctx, starved, s.Duration); err != nil {
		return nil, err
	}
	now, err := s.primary(ctx)
	if err != nil {
		return nil, err
	}
	figures = []bench.Figure{
		{Name: "busy loops", Value: float64(s.loops)},
		{Name: fmt.Sprintf("terms that began without a cause within %v", s.Duration), Value: float64(now.Epoch - before.Epoch)},
	}
	killed, err := s.kill(ctx, now.Primary)
	figures = append(figures, killed...)
	if err != nil {
		return figures, err
	}
	limit := max(normalLeast, normalFactor*most)
	s.slow.Store(int64(limit))
	if err := load.Close(); err != nil {
		return figures, err
	}
	ended := time.Now()
	if err := s.spend(ctx, after, tail); err != nil {
		return figures, err
	}
	return append(figures, s.normal(ended, tail, limit)...), nil
}

// normal says after how long all was normal again.
func (s *starving) normal(ended time.Time, tail, limit time.Duration) []bench.Figure {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := max(0, s.mu.abnormal.Sub(ended))
	if took > 0 {
		s.Say("starved: last not normal %v after the load: %s", took.Round(time.Millisecond), s.mu.why)
	}
	name := fmt.Sprintf("from the end of the load until all was normal (no error, all servers well, no acquire above %v)", limit.Round(time.Millisecond))
	if tail-took < 2*starvedLook {
		name += ", at least: it was not normal at the end"
	}
	return []bench.Figure{{Name: name, Value: took.Seconds(), Unit: "s"}}
}

// spend lets a phase last for d, and tells how it goes.
func (s *starving) spend(ctx context.Context, p phase, d time.Duration) error {
	s.now.Store(int32(p))
	began := time.Now()
	defer func() {
		s.mu.Lock()
		s.mu.spent[p] += time.Since(began)
		s.mu.Unlock()
	}()
	every := max(time.Second, d/60)
	last := s.pairs.Load()
	for at := time.Duration(0); at < d; {
		if err := bench.Rest(ctx, min(every, d-at)); err != nil {
			return err
		}
		passed := time.Since(began) - at
		at += passed
		n := s.pairs.Load()
		s.Say("%v: %.0f of %.0f s, %.0f pairs/s, %d errors so far", p, at.Seconds(), d.Seconds(), float64(n-last)/passed.Seconds(), s.failed.Load())
		last = n
	}
	return nil
}

// primary waits until there is one.
func (s *starving) primary(ctx context.Context) (h servedBy, err error) {
	ctx, cancel := context.WithTimeout(ctx, primaryLimit)
	defer cancel()
	for {
		now, err := s.Servers.Health(ctx)
		if err == nil && now.Primary != 0 {
			return servedBy{now.Primary, now.Epoch}, nil
		}
		if bench.Rest(ctx, starvedLook) != nil {
			return h, fmt.Errorf("no primary within %v: %w", primaryLimit, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// servedBy is a primary in its term.
type servedBy struct {
	Primary clientlib.ServerID
	Epoch   clientlib.Epoch
}

// kill kills the primary under the load and starts it again.
func (s *starving) kill(ctx context.Context, primary clientlib.ServerID) (figures []bench.Figure, err error) {
	s.now.Store(int32(killing))
	began := time.Now()
	var struck time.Time
	o, err := bench.MeasureOutage(ctx, s.target, prefix("starved-kill"), LightWorkers, LightPause, func(context.Context) (time.Time, error) {
		struck = time.Now()
		return struck, s.Servers.Signal(primary, syscall.SIGKILL)
	})
	if err = errors.Join(err, s.Servers.Kill(primary), s.Servers.Restart(primary)); err != nil {
		return nil, fmt.Errorf("kill -9 under load: %w", err)
	}
	s.mu.Lock()
	s.mu.spent[killing] += time.Since(began)
	s.mu.Unlock()
	noticed, err := s.Servers.Noticed(primary, struck)
	if err != nil {
		return nil, err
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	if !noticed.IsZero() {
		figures = append(figures, bench.Figure{Name: "kill -9 under load, until another server noticed", Value: ms(noticed.Sub(struck)), Unit: "ms"})
	}
	return append(figures,
		bench.Figure{Name: "kill -9 under load, until the next grant", Value: ms(o.Next), Unit: "ms"},
		bench.Figure{Name: "kill -9 under load, until every client was served", Value: ms(o.Every), Unit: "ms"},
	), nil
}

// rows are one of each phase.
func (s *starving) rows(workers, clients int, figures []bench.Figure) (rows []bench.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range phases {
		row := bench.Row{Workload: p.String(), Target: Name, Unit: "pairs", Workers: workers, Clients: clients}
		row.Add(bench.Run{
			Seconds: s.mu.spent[p].Seconds(), Operations: s.mu.pairs[p], Rate: float64(s.mu.pairs[p]) / s.mu.spent[p].Seconds(),
			Latency: s.mu.latencies[p].Latency(),
		})
		row.Figures = []bench.Figure{{Name: "errors", Value: float64(s.mu.errors[p])}}
		if p == after {
			row.Figures = append(row.Figures, figures...)
		}
		rows = append(rows, row)
	}
	return rows
}
