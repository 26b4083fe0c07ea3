// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

const (
	// acquirers is how many locks are requested at a time when many are needed.
	acquirers = 64
	// holdersClients share the locks where nothing else is asked for: one client
	// with a million leases would be measured instead of the service.
	holdersClients = 64
	// probers is how many workers acquire other locks while the locks are held.
	probers = 16
	// checkpointWait is how many times the duration longer they do until a checkpoint
	// was written.
	checkpointWait = 12
	// holdPoll is how often it is looked whether that is over.
	holdPoll = 100 * time.Millisecond
)

// sample is one acquire.
type sample struct {
	at   time.Time
	took time.Duration
}

// split counts samples by whether they overlap one of the intervals.
func split(all []sample, during []servers.Interval) (outside, inside bench.Run) {
	out, in := bench.NewHistogram(), bench.NewHistogram()
	for _, s := range all {
		end := s.at.Add(s.took)
		if slices.ContainsFunc(during, func(i servers.Interval) bool { return s.at.Before(i.To) && end.After(i.From) }) {
			in.Record(s.took)
		} else {
			out.Record(s.took)
		}
	}
	return bench.Run{Operations: out.Count(), Latency: out.Latency()}, bench.Run{Operations: in.Count(), Latency: in.Latency()}
}

// crowd is the locks that are held, and what was seen of it.
type crowd struct {
	*Env
	target  *Holdfast
	primary clientlib.ServerID // 0 = the servers are not ours
	names   []clientlib.LockName
	locks   []*clientlib.Lock
	rows    []bench.Row
	figures []bench.Figure
}

func holders(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	many := *e
	if e = &many; e.Clients == nil {
		e.Clients = fleet.Shapes{holdersClients}
	}
	t, err := e.target(acquirers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	c := &crowd{Env: e, target: t, locks: make([]*clientlib.Lock, e.Holders)}
	name := prefix("holders")
	for i := range e.Holders {
		c.names = append(c.names, clientlib.LockName(fmt.Sprintf("%s/%d", name, i)))
	}
	if err := c.failovers(ctx, "failover, few locks held"); err != nil {
		return nil, err
	}
	before, err := c.memory("before")
	if err != nil {
		return nil, err
	}
	if err := c.fill(ctx); err != nil {
		return nil, err
	}
	height, err := c.memory("with the holders")
	if err != nil {
		return nil, err
	}
	for i := range height {
		c.figures = append(c.figures, bench.Figure{
			Name: "memory per holder, " + c.server(i), Value: float64(height[i]-before[i]) / float64(e.Holders), Unit: "bytes",
		})
	}
	if err := c.hold(ctx); err != nil {
		return nil, err
	}
	if _, err := c.memory("after holding"); err != nil {
		return nil, err
	}
	if err := c.failovers(ctx, fmt.Sprintf("failover, %d locks held", e.Holders)); err != nil {
		return nil, err
	}
	if err := c.release(ctx); err != nil {
		return nil, err
	}
	if _, err := c.memory("after the release"); err != nil {
		return nil, err
	}
	filled := slices.IndexFunc(c.rows, func(r bench.Row) bool { return r.Workload == "holders" })
	c.rows[filled].Figures = c.figures
	return c.rows, nil
}

func (c *crowd) server(i int) string { return serverName(i, c.primary) }

// memory notes how much memory each own server has.
func (c *crowd) memory(when string) (all []int64, err error) {
	for i, pid := range c.pids() {
		rss, err := bench.ResidentBytes(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, rss)
		c.figures = append(c.figures, bench.Figure{Name: fmt.Sprintf("resident memory %s, %s", when, c.server(i)), Value: float64(rss) / (1 << 20), Unit: "MiB"})
	}
	return all, nil
}

// failovers kills the primary as often as was asked for, each time when both replicas
// have its whole table.
func (c *crowd) failovers(ctx context.Context, name string) error {
	if c.Servers == nil {
		return nil
	}
	if c.HoldersKills > 0 {
		o, err := c.outages(ctx, name, c.HoldersKills, func(ctx context.Context, t *Holdfast, say string) (bench.Outage, error) {
			if err := c.Servers.AwaitTables(ctx); err != nil {
				return bench.Outage{}, err
			}
			return c.strikeOnce(ctx, t, "holders-failover", say, c.kill())
		})
		if err != nil {
			return err
		}
		c.rows = append(c.rows, c.outageRows(name, o)...)
	}
	var err error
	c.primary, err = c.Servers.AwaitHealthy(ctx)
	return err
}

// checkpoints are those written so far; of servers that are not ours nothing is known.
func (c *crowd) checkpoints() ([]servers.Interval, error) {
	if c.Servers == nil {
		return nil, nil
	}
	return c.Servers.Checkpoints()
}

// report tells how far a phase is, until stop is closed.
func (c *crowd) report(phase string, done *atomic.Int64, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := int64(0); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
			n := done.Load()
			c.Say("holders: %s %d, %d/s", phase, n, n-last)
			last = n
		}
	}
}

// acquire takes lock i and notes how long that took.
func (c *crowd) acquire(ctx context.Context, i int, key clientlib.LockName) (*clientlib.Lock, sample, error) {
	s := sample{at: time.Now()}
	l, err := c.target.client(i).Acquire(ctx, key, clientlib.AcquireOptions{TTL: c.HoldersTTL})
	s.took = time.Since(s.at)
	return l, s, err
}

// fill acquires all of them.
func (c *crowd) fill(ctx context.Context) error {
	samples := make([]sample, c.Holders)
	return c.phase("holders", "acquires", acquirers, "acquired", func(done *atomic.Int64) ([]sample, error) {
		err := bench.Each(c.Holders, acquirers, func(i int) (err error) {
			if c.locks[i], samples[i], err = c.acquire(ctx, i, c.names[i]); err != nil {
				return err
			}
			done.Add(1)
			return nil
		})
		return samples, err
	})
}

// hold acquires other locks, for the duration and until a checkpoint was written.
func (c *crowd) hold(ctx context.Context) error {
	known, err := c.checkpoints()
	if err != nil {
		return err
	}
	end := time.Now().Add(c.Duration)
	over := func() bool {
		now := time.Now()
		if now.Before(end) || c.Servers == nil {
			return !now.Before(end)
		}
		written, err := c.checkpoints()
		return err != nil || len(written) > len(known) || now.After(end.Add(checkpointWait*c.Duration))
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var stop atomic.Bool
	go func() {
		for !over() && bench.Rest(watching, holdPoll) == nil {
		}
		stop.Store(true)
	}()
	samples := make([][]sample, probers)
	name := prefix("holders-probe")
	return c.phase("holders, while held", "pairs", probers, "pairs beside the holders", func(done *atomic.Int64) ([]sample, error) {
		err := bench.Each(probers, probers, func(w int) error {
			key := clientlib.LockName(fmt.Sprintf("%s/%d", name, w))
			for !stop.Load() {
				l, s, err := c.acquire(ctx, w, key)
				if err == nil {
					err = l.Release(ctx)
				}
				if err != nil {
					return err
				}
				samples[w] = append(samples[w], s)
				done.Add(1)
			}
			return nil
		})
		return slices.Concat(samples...), err
	})
}

// release gives all back. One that was lost is an error: they were to be kept alive.
func (c *crowd) release(ctx context.Context) error {
	return c.phase("holders, release", "releases", acquirers, "released", func(done *atomic.Int64) ([]sample, error) {
		samples := make([]sample, c.Holders)
		err := bench.Each(c.Holders, acquirers, func(i int) error {
			samples[i].at = time.Now()
			if err := c.locks[i].Release(ctx); err != nil {
				return err
			}
			samples[i].took = time.Since(samples[i].at)
			done.Add(1)
			return nil
		})
		return samples, err
	})
}

// phase runs a part of the workload and makes its rows: one of all, and one of what
// was under way during a checkpoint.
func (c *crowd) phase(name, unit string, workers int, doing string, run func(done *atomic.Int64) ([]sample, error)) error {
	var done atomic.Int64
	stop := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { c.report(doing, &done, stop) })
	before, err := bench.ReadCPU(c.pids())
	began := time.Now()
	var samples []sample
	if err == nil {
		samples, err = run(&done)
	}
	took := time.Since(began)
	close(stop)
	telling.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	after, err := bench.ReadCPU(c.pids())
	if err != nil {
		return err
	}
	during, err := c.checkpoints()
	if err != nil {
		return err
	}
	outside, inside := split(samples, during)
	all := bench.NewRun(int64(len(samples)), took, after.Since(before))
	all.Latency = outside.Latency
	row := c.row(name, unit, workers)
	row.Add(all)
	c.rows = append(c.rows, row)
	if inside.Operations > 0 {
		row := c.row(name+", checkpoint", unit, workers)
		row.Add(inside)
		c.rows = append(c.rows, row)
	}
	return nil
}
