// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/ceiling"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/work"
)

// service is one of the compared services. It runs until Close.
type service interface {
	bench.Target
	Close() error
}

// replicated is a service that continues without its leading server.
type replicated interface {
	service
	// Kill waits until all servers are healthy. It returns a function that kills the leading server,
	// and one that starts it again.
	Kill(ctx context.Context) (bench.Strike, func() error, error)
	// Handover waits until all servers are healthy. It returns a function that makes another server
	// the leader.
	Handover(ctx context.Context) (bench.Strike, error)
}

// shaped is a service whose workers may share a client or have one each. The others give each worker a
// connection of its own.
type shaped interface {
	service
	// Clients returns the service as a load uses it, with n clients that were made for it. wait is how
	// long an acquire may wait. Close closes the clients only.
	Clients(ctx context.Context, n int, wait time.Duration) (service, error)
}

// peerKind is how to start a peer.
type peerKind struct {
	name  string
	start func(ctx context.Context, o *options, dir string) (service, string, error)
}

func peers() []peerKind {
	return []peerKind{{"etcd", startEtcd}, {"redis", startRedis}, {"postgres", startPostgres}, {ceiling.Name, startCeiling}}
}

func peerNames() (names []string) {
	for _, p := range peers() {
		names = append(names, p.name)
	}
	return names
}

// errNoLocks: the ceiling bounds loads of own keys.
var errNoLocks = errors.New("the ceiling has no locks: compare it with own and append")

// missingError reports that a peer is left out because its binary was not found.
type missingError struct{ what, advice string }

func (e *missingError) Error() string { return e.what + " was not found: " + e.advice }

// comparison is the services that run, ours first, and what they did.
type comparison struct {
	*options
	dir      string
	report   *bench.Report
	say      bench.Progress
	services []service
}

// start starts ours and every peer whose binary is there.
func (c *comparison) start(ctx context.Context) error {
	kinds := []peerKind{{work.Name, startOurs}}
	for _, k := range peers() {
		for _, name := range c.peers {
			if name == k.name {
				kinds = append(kinds, k)
			}
		}
	}
	for _, k := range kinds {
		s, version, err := k.start(ctx, c.options, c.dir)
		if missing, ok := errors.AsType[*missingError](err); ok {
			c.report.Skipped = append(c.report.Skipped, k.name+": "+missing.Error())
			c.say("%s is left out: %v", k.name, missing)
			continue
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", k.name, err)
		}
		c.report.Versions[k.name] = version
		c.services = append(c.services, s)
		c.say("%s runs: %s", k.name, version)
	}
	return nil
}

func (c *comparison) stop() error {
	var errs []error
	for _, s := range c.services {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// workload is what is compared.
type workload struct {
	name string
	run  func(ctx context.Context, c *comparison) error
}

func workloads() []workload {
	return []workload{
		{"own", own}, {"contended", contended}, {"append", appends}, {"failover", failover}, {"handover", handover}, {"watch", watch},
	}
}

func workloadNames() (names []string) {
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

func find(names []string) (found []workload, err error) {
	if len(names) == 0 {
		return workloads(), nil
	}
	for _, n := range names {
		known := false
		for _, w := range workloads() {
			if w.name == n {
				found, known = append(found, w), true
			}
		}
		if !known {
			return nil, fmt.Errorf("workload %q: see --help for their names", n)
		}
	}
	return found, nil
}

// kind is one row of every service.
type kind struct {
	workload, unit string
	workers, size  int
	// clients is how many clients the workers of a shaped service have; only where first is set do
	// the other services take part, so that they have one row for a number of workers.
	clients int
	first   bool
	// locks is true if the load is one for lock services only, and not for the ceiling.
	locks bool
	load  func(s service, prefix string) bench.Load
}

// shapes returns k once for each number of clients that was asked for.
func (c *comparison) shapes(k kind) (all []kind) {
	shapes := c.Options.Clients
	if len(shapes) == 0 {
		shapes = work.UsualClients()
	}
	for i, n := range shapes.Numbers(k.workers) {
		k.clients, k.first = n, i == 0
		all = append(all, k)
	}
	return all
}

// row runs one row of a service once more. A service that has no such row gets none.
func (c *comparison) row(ctx context.Context, s service, k kind, row *bench.Row, repetition int) (err error) {
	if s.Name() == ceiling.Name && k.locks {
		return nil
	}
	clients, t := k.workers, s
	if x, ok := s.(shaped); ok {
		if t, err = x.Clients(ctx, k.clients, c.Wait); err != nil {
			return fmt.Errorf("%s: connect %d clients: %w", s.Name(), k.clients, err)
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		clients = k.clients
	} else if !k.first {
		return nil
	}
	l := k.load(t, fmt.Sprintf("%s/%d", k.workload, time.Now().UnixNano()))
	l.Name = fmt.Sprintf("%s, %s, %d workers, %d clients, run %d of %d", k.workload, s.Name(), k.workers, clients, repetition+1, c.Repeat)
	l.Warmup, l.Duration = c.Warmup, c.Duration
	run, err := l.Run(ctx, c.say)
	if err != nil {
		return err
	}
	row.Workload, row.Target, row.Unit, row.Workers, row.Clients, row.Size = k.workload, s.Name(), k.unit, k.workers, clients, k.size
	row.Offered = l.Rate
	row.Add(run)
	return nil
}

// alternate runs the rows: in each repetition each row, and of each row ours and then
// each peer.
func (c *comparison) alternate(ctx context.Context, kinds []kind) error {
	rows := make([][]bench.Row, len(kinds))
	for repetition := range c.Repeat {
		for k, kind := range kinds {
			if rows[k] == nil {
				rows[k] = make([]bench.Row, len(c.services))
			}
			for i, s := range c.services {
				if err := c.row(ctx, s, kind, &rows[k][i], repetition); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range rows {
		r = slices.DeleteFunc(r, func(x bench.Row) bool { return len(x.Runs) == 0 })
		c.report.Rows = append(c.report.Rows, r...)
	}
	return nil
}

// numbers are those of workers to try.
func (c *comparison) numbers(usual ...int) []int {
	if len(c.Workers) > 0 {
		return c.Workers
	}
	return usual
}

func own(ctx context.Context, c *comparison) error {
	return c.pairs(ctx, "own", bench.Alone, 1, 16, 256)
}

func contended(ctx context.Context, c *comparison) error {
	return c.pairs(ctx, "contended", bench.Queue, 16, 64, 256)
}

func (c *comparison) pairs(ctx context.Context, name string, mode bench.Mode, usual ...int) error {
	var kinds []kind
	for _, n := range c.numbers(usual...) {
		kinds = append(kinds, c.shapes(kind{workload: name, unit: "pairs", workers: n, locks: mode == bench.Queue, load: func(s service, prefix string) bench.Load {
			l := bench.Pairs(s, mode, prefix, n)
			l.Rate = c.Rate
			return l
		}})...)
	}
	return c.alternate(ctx, kinds)
}

func appends(ctx context.Context, c *comparison) error {
	var kinds []kind
	for _, size := range c.Sizes {
		for _, n := range c.numbers(64) {
			kinds = append(kinds, c.shapes(kind{workload: "append", unit: "appends", workers: n, size: size, load: func(s service, prefix string) bench.Load {
				var verify func(context.Context, bench.Appended) error
				if o, ok := s.(*ourClients); ok {
					verify = o.verify
				}
				l := bench.Appends(s, prefix, n, size, verify)
				l.Rate = c.Rate
				return l
			}})...)
		}
	}
	return c.alternate(ctx, kinds)
}

// watch compares those that can be watched, in turns like alternate.
func watch(ctx context.Context, c *comparison) error {
	var all []bench.Watchable
	for _, s := range c.services {
		if w, ok := s.(bench.Watchable); ok {
			all = append(all, w)
		}
	}
	n, watchers := c.numbers(work.WatchWorkers)[0], bench.Watchers{N: max(1, c.Watchers), Own: c.WatchOwn}
	var called, answered []bench.Row
	for _, rate := range c.WatchRates {
		for _, s := range all {
			called = append(called, bench.WatchRow("watch", s, n, rate, watchers))
			answered = append(answered, bench.WatchRow("watch, from the answer", s, n, rate, watchers))
		}
	}
	for repetition := range c.Repeat {
		for i := range called {
			s, rate := all[i%len(all)], called[i].Offered
			w, err := bench.Watch(ctx, s, fmt.Sprintf("watch/%d", time.Now().UnixNano()), bench.Load{
				Name:    fmt.Sprintf("watch, %s, %.0f events/s, run %d of %d", s.Name(), rate, repetition+1, c.Repeat),
				Workers: n, Rate: rate, Warmup: c.Warmup, Duration: c.Duration,
			}, watchers, c.say)
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name(), err)
			}
			called[i].Add(w.Called)
			answered[i].Add(w.Answered)
		}
	}
	c.report.Rows = append(append(c.report.Rows, called...), answered...)
	return nil
}

// replicas are the services that survive the loss of a server.
func (c *comparison) replicas() (all []replicated) {
	for _, s := range c.services {
		r, ok := s.(replicated)
		if !ok {
			continue
		}
		all = append(all, r)
	}
	return all
}

func failover(ctx context.Context, c *comparison) error {
	all := c.replicas()
	for _, r := range all {
		if e, ok := r.(*etcd); ok {
			all = append(all, e.hasty())
		}
	}
	outages := make([][]bench.Outage, len(all))
	for n := range c.Failovers {
		for i, s := range all {
			strike, mend, err := s.Kill(ctx)
			if err != nil {
				return err
			}
			o, err := bench.MeasureOutage(ctx, s, fmt.Sprintf("failover/%d", time.Now().UnixNano()), work.LightWorkers, work.LightPause, strike)
			if err := errors.Join(err, mend()); err != nil {
				return fmt.Errorf("%s: %w", s.Name(), err)
			}
			c.say("failover %d of %d, %s: next grant after %v, every worker after %v, %d errors", n+1, c.Failovers, s.Name(), o.Next.Round(time.Millisecond), o.Every.Round(time.Millisecond), o.Errors)
			outages[i] = append(outages[i], o)
		}
	}
	c.outageRows("failover", all, outages, func(o bench.Outage) time.Duration { return o.Next })
	c.outageRows("failover, all", all, outages, func(o bench.Outage) time.Duration { return o.Every })
	return nil
}

func handover(ctx context.Context, c *comparison) error {
	all := c.replicas()
	outages := make([][]bench.Outage, len(all))
	for n := range c.Handovers {
		for i, s := range all {
			strike, err := s.Handover(ctx)
			if err != nil {
				return err
			}
			o, err := bench.MeasureOutage(ctx, s, fmt.Sprintf("handover/%d", time.Now().UnixNano()), work.LightWorkers, work.HandoverPause, strike)
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name(), err)
			}
			c.say("handover %d of %d, %s: longest gap %v", n+1, c.Handovers, s.Name(), o.Gap.Round(100*time.Microsecond))
			outages[i] = append(outages[i], o)
		}
	}
	c.outageRows("handover", all, outages, func(o bench.Outage) time.Duration { return o.Gap })
	return nil
}

// outageRows makes a row of each service.
func (c *comparison) outageRows(name string, all []replicated, outages [][]bench.Outage, of func(bench.Outage) time.Duration) {
	for i, s := range all {
		var times []time.Duration
		for _, o := range outages[i] {
			times = append(times, of(o))
		}
		row := bench.Row{Workload: name, Target: s.Name(), Workers: work.LightWorkers}
		row.Add(bench.SampleRun(times))
		c.report.Rows = append(c.report.Rows, row)
	}
}
