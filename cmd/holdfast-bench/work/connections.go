// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
)

const (
	// connectLimit is how long all clients may take to connect, and confirmLimit to be served by
	// the next primary.
	connectLimit = 10 * time.Minute
	confirmLimit = time.Minute
	// memoryWorkers work so that the servers' heaps are collected.
	memoryWorkers = 16
	// heardPoll is how often the next primary is asked whether it has heard all holders.
	heardPoll = 20 * time.Millisecond
)

// connected is the workload connections while it runs.
type connected struct {
	*Env
	crowd *fleet.Crowd
	// asker is a client that holds nothing.
	asker *Holdfast
	rows  []bench.Row
}

// prepareConnections raises the limits for the connections, which servers inherit.
func prepareConnections(o Options) error {
	l, err := readLimits(o.Connections)
	if err != nil {
		return err
	}
	_, err = l.processes("connections", o.Connections, o.Processes)
	return err
}

// connections connects very many clients that hold one lock each, looks at what that costs, and kills
// the primary.
func connections(ctx context.Context, e *Env) (_ []bench.Row, err error) {
	l, err := readLimits(e.Connections)
	if err != nil {
		return nil, err
	}
	processes, err := l.processes("connections", e.Connections, e.Processes)
	if err != nil {
		return nil, err
	}
	e.Say("connections: %d clients in %d processes; %d open files for a process and %d local ports allow %d", e.Connections, processes, l.files, l.ports, l.possible())
	c := &connected{Env: e}
	if c.asker, err = NewHoldfast(e.Endpoints, 1, nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.asker.Close()) }()
	if c.crowd, err = fleet.StartCrowd(e.Connections, processes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.crowd.Close()) }()
	if err := c.connect(ctx); err != nil {
		return c.rows, err
	}
	if err := c.observe(ctx); err != nil {
		return c.rows, err
	}
	return c.rows, c.failovers(ctx)
}

// regain has the clients acquire again what they lost, and returns how many locks that were.
func (c *connected) regain(ctx context.Context) (lost int64, err error) {
	r, err := c.crowd.Regain(ctx, connectLimit)
	for why, n := range r.Lost {
		c.Say("connections: %d locks were lost (%s) and acquired again", n, why)
		lost += n
	}
	return lost, err
}

// during tells the progress of an order each second, until the caller calls the function.
func (c *connected) during(doing string) (stop func()) {
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				c.Say("connections, %s: %d", doing, c.crowd.Done())
			}
		}
	})
	return func() {
		close(ended)
		telling.Wait()
	}
}

// readCPU is the time of these servers, and that of the processes of the clients in the place of this program.
func (c *connected) readCPU(servers []int) (bench.CPU, error) {
	all, err := bench.ReadCPU(servers)
	if err != nil {
		return all, err
	}
	clients, err := bench.ReadCPU(c.crowd.PIDs())
	all.Client = clients.Servers
	return all, err
}

// newRow is a row of all clients.
func (c *connected) newRow(workload, unit string) bench.Row {
	row := c.row(workload, unit, c.Connections)
	row.Clients = c.Connections
	return row
}

// connect makes the row of connecting, with the memory that it costs.
func (c *connected) connect(ctx context.Context) error {
	m := &memoryCost{Env: c.Env}
	if err := m.look(ctx, c.asker, memoryWorkers, 0); err != nil {
		return err
	}
	before, err := c.readCPU(c.pids())
	if err != nil {
		return err
	}
	began := time.Now()
	stop := c.during("connected")
	h, err := c.crowd.Hold(ctx, fleet.Plan{Endpoints: c.Endpoints, Prefix: prefix("connections"), Lease: c.Lease, Limit: connectLimit})
	took := time.Since(began)
	stop()
	if err != nil {
		return fmt.Errorf("connect %d clients: %w", c.Connections, err)
	}
	after, err := c.readCPU(c.pids())
	if err != nil {
		return err
	}
	run := bench.NewRun(int64(len(h.Times)), took, after.Since(before))
	run.Latency = latency(h.Times)
	if err := m.look(ctx, c.asker, memoryWorkers, 1); err != nil {
		return err
	}
	row := c.newRow("connections, connect", "clients")
	row.Add(run)
	row.Figures = append(m.figures("connected client", float64(c.Connections)),
		bench.Figure{Name: "all clients connected and holding after", Value: took.Seconds(), Unit: "s"},
		bench.Figure{Name: "calls that failed and were made again", Value: float64(h.Retried)})
	c.rows = append(c.rows, row)
	return nil
}

// observe makes the row of keep-alives: for a lease at least, so that each client sends some.
func (c *connected) observe(ctx context.Context) error {
	window := max(c.Duration, c.Lease)
	stop := c.during("acquired again")
	lost, err := c.regain(ctx)
	stop()
	if err != nil {
		return err
	}
	known, err := c.Servers.LateKeepAlives()
	if err != nil {
		return err
	}
	before, err := c.readCPU(c.pids())
	if err != nil {
		return err
	}
	stop = c.during(fmt.Sprintf("keep-alives within %v", window))
	o, err := c.crowd.Observe(ctx, window)
	stop()
	if err != nil {
		return err
	}
	after, err := c.readCPU(c.pids())
	if err != nil {
		return err
	}
	late, err := c.Servers.LateKeepAlives()
	if err != nil {
		return err
	}
	row := c.newRow("connections, keep-alives", "renewals")
	row.Add(bench.NewRun(o.Renewals, window, after.Since(before)))
	row.Figures = []bench.Figure{
		{Name: "locks lost while others connected", Value: float64(lost)},
		{Name: "half a lease without an answered renewal", Value: float64(o.Late), Unit: "times"},
		{Name: "keep-alives that came after the end of a lease", Value: float64(late - known)},
		{Name: "locks lost while nothing happened", Value: float64(o.Lost)},
	}
	c.rows = append(c.rows, row)
	return nil
}

// failovers kills the primary again and again, and makes the row of that.
func (c *connected) failovers(ctx context.Context) error {
	row := c.newRow("connections, failover", "locks")
	lost, open := int64(0), int64(0)
	var heard []float64
	for i := range c.Repeat {
		x, err := c.failover(ctx)
		if err != nil {
			return fmt.Errorf("connections, failover %d of %d: %w", i+1, c.Repeat, err)
		}
		lost, open, heard = lost+x.Lost, open+x.Open, append(heard, x.heard.Seconds()*1000)
		run := bench.NewRun(int64(len(x.Times)), x.took, x.used)
		run.Latency = latency(x.Times)
		row.Add(run)
		if l := run.Latency; l != nil {
			c.Say("connections, failover %d of %d: confirmed p50 %.0f ms, p99 %.0f ms, all %.0f ms; %d lost; processors: clients %.2f s, servers %.2f s",
				i+1, c.Repeat, l.P50/1000, l.P99/1000, l.Max/1000, x.Lost, x.used.Client.Seconds(), x.used.Servers.Seconds())
		}
	}
	row.Figures = []bench.Figure{
		{Name: "until the next primary had heard all holders, median", Value: bench.Median(heard), Unit: "ms"},
		{Name: "locks lost by the kills", Value: float64(lost), Unit: fmt.Sprintf("of %d", c.Repeat*c.Connections)},
		{Name: fmt.Sprintf("locks not confirmed within %v", confirmLimit), Value: float64(open)},
	}
	c.rows = append(c.rows, row)
	return nil
}

// struck is what followed when the primary was killed.
type struck struct {
	fleet.Confirmed
	// heard is when the next primary had heard all holders.
	heard time.Duration
	// took is how long it was until each lock was confirmed or lost, and used the processor time of that, without the killed server.
	took time.Duration
	used bench.CPU
}

// failover kills the primary when the others have its table, and waits until each lock was confirmed
// by a renewal, which the library sends by itself.
func (c *connected) failover(ctx context.Context) (x struck, err error) {
	if err := c.Servers.AwaitTables(ctx); err != nil {
		return x, err
	}
	if _, err := c.regain(ctx); err != nil {
		return x, err
	}
	primary, err := c.Servers.AwaitHealthy(ctx)
	if err != nil {
		return x, err
	}
	others := slices.Delete(c.pids(), int(primary-1), int(primary))
	before, err := c.readCPU(others)
	if err != nil {
		return x, err
	}
	since, err := fleet.Monotonic()
	if err != nil {
		return x, err
	}
	began := time.Now()
	if err := c.Servers.Signal(primary, syscall.SIGKILL); err != nil {
		return x, err
	}
	asking, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() { x.heard = c.heard(asking, began) })
	stop := c.during("confirmed")
	x.Confirmed, err = c.crowd.Confirm(ctx, since, confirmLimit)
	stop()
	x.took = time.Since(began)
	after, readErr := c.readCPU(others)
	x.used = after.Since(before)
	if err != nil {
		cancel()
	}
	waiting.Wait()
	return x, errors.Join(err, readErr, c.Servers.Kill(primary), c.Servers.Restart(primary))
}

// heard waits until a primary has heard all holders, and returns how long that took since began.
func (c *connected) heard(ctx context.Context, began time.Time) time.Duration {
	for {
		s, err := c.asker.client(0).Status(ctx)
		if err == nil && s.Role == "primary" && s.Table != nil && s.Table.Unheard == 0 {
			return time.Since(began)
		}
		if bench.Rest(ctx, heardPoll) != nil {
			return time.Since(began)
		}
	}
}

// latency returns the percentiles of some times; nil of none.
func latency(times []time.Duration) *bench.Latency {
	h := bench.NewHistogram()
	for _, t := range times {
		h.Record(t)
	}
	return h.Latency()
}
