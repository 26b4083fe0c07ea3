// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

const (
	// LightWorkers and LightPause are the light load: how many workers, and how long
	// each one rests between two locks.
	LightWorkers = 4
	LightPause   = 5 * time.Millisecond
	// HandoverPause is shorter, for what is looked for is shorter, too.
	HandoverPause = time.Millisecond
)

// stroke is what is done to the primary, and how the servers are made whole again.
type stroke struct {
	do   func(primary clientlib.ServerID) error
	mend func(primary clientlib.ServerID) error
}

func failover(ctx context.Context, e *Env) ([]bench.Row, error) {
	return e.strike(ctx, "failover", e.kill())
}

// kill is kill -9, and the server is started again.
func (e *Env) kill() stroke {
	return stroke{
		do:   func(id clientlib.ServerID) error { return e.Servers.Signal(id, syscall.SIGKILL) },
		mend: func(id clientlib.ServerID) error { return errors.Join(e.Servers.Kill(id), e.Servers.Restart(id)) },
	}
}

func pause(ctx context.Context, e *Env) ([]bench.Row, error) {
	return e.strike(ctx, "pause", stroke{
		do:   func(id clientlib.ServerID) error { return e.Servers.Signal(id, syscall.SIGSTOP) },
		mend: func(id clientlib.ServerID) error { return e.Servers.Signal(id, syscall.SIGCONT) },
	})
}

// strike strikes the primary again and again.
func (e *Env) strike(ctx context.Context, name string, s stroke) ([]bench.Row, error) {
	o, err := e.outages(ctx, name, e.Failovers, func(ctx context.Context, t *Holdfast, say string) (bench.Outage, error) {
		return e.strikeOnce(ctx, t, name, say, s)
	})
	if err != nil {
		return nil, err
	}
	return e.outageRows(name, o), nil
}

// strikeOnce strikes the primary when all servers are well, and mends it.
func (e *Env) strikeOnce(ctx context.Context, t *Holdfast, name, say string, s stroke) (bench.Outage, error) {
	primary, err := e.Servers.AwaitHealthy(ctx)
	if err != nil {
		return bench.Outage{}, err
	}
	o, err := bench.MeasureOutage(ctx, t, prefix(name), e.lightWorkers(), LightPause, func(context.Context) (time.Time, error) {
		return time.Now(), s.do(primary)
	})
	if err := errors.Join(err, s.mend(primary)); err != nil {
		return o, err
	}
	e.Say("%s: next grant after %v, every worker served after %v", say, o.Next.Round(time.Millisecond), o.Every.Round(time.Millisecond))
	return o, nil
}

// outageRows are one row of the next grant, and one of all workers served.
func (e *Env) outageRows(name string, all []bench.Outage) []bench.Row {
	next, every := e.row(name, "", e.lightWorkers()), e.row(name+", all", "", e.lightWorkers())
	next.Add(bench.SampleRun(field(all, func(o bench.Outage) time.Duration { return o.Next })))
	every.Add(bench.SampleRun(field(all, func(o bench.Outage) time.Duration { return o.Every })))
	return []bench.Row{next, every}
}

func handover(ctx context.Context, e *Env) ([]bench.Row, error) {
	o, err := e.outages(ctx, "handover", e.Handovers, func(ctx context.Context, t *Holdfast, say string) (bench.Outage, error) {
		if e.Servers != nil {
			if _, err := e.Servers.AwaitHealthy(ctx); err != nil {
				return bench.Outage{}, err
			}
		}
		o, err := bench.MeasureOutage(ctx, t, prefix("handover"), e.lightWorkers(), HandoverPause, func(ctx context.Context) (time.Time, error) {
			began := time.Now()
			_, err := t.client(0).Handover(ctx, 0)
			return began, err
		})
		e.Say("%s: longest gap %v", say, o.Gap.Round(100*time.Microsecond))
		return o, err
	})
	if err != nil {
		return nil, err
	}
	row := e.row("handover", "", e.lightWorkers())
	row.Add(bench.SampleRun(field(o, func(o bench.Outage) time.Duration { return o.Gap })))
	return []bench.Row{row}, nil
}

// lightWorkers is how many workers the light load has.
func (e *Env) lightWorkers() int { return e.workers(LightWorkers)[0] }

// outages measures n outages, one after the other.
func (e *Env) outages(
	ctx context.Context, name string, n int, one func(ctx context.Context, t *Holdfast, say string) (bench.Outage, error),
) (all []bench.Outage, err error) {
	t, err := e.target(e.lightWorkers())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for i := range n {
		o, err := one(ctx, t, fmt.Sprintf("%s %d of %d", name, i+1, n))
		if err != nil {
			return nil, fmt.Errorf("%s %d of %d: %w", name, i+1, n, err)
		}
		all = append(all, o)
	}
	return all, nil
}

func field(all []bench.Outage, of func(bench.Outage) time.Duration) (times []time.Duration) {
	for _, o := range all {
		times = append(times, of(o))
	}
	return times
}
