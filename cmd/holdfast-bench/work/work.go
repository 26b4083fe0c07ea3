// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Options are what a user may choose.
type Options struct {
	// Workers are the numbers of workers to try; empty = those of the workload.
	Workers []int
	// Clients is how many clientlib.Clients the workers share; 0 = what the workload is
	// usually done with.
	Clients          int
	Warmup, Duration time.Duration
	Repeat           int
	// Rate is for all workers of own and append, per second; 0 = closed loops.
	Rate float64
	// Sizes are of the records of append, in bytes.
	Sizes []int
	// Holders is how many locks the workload holders holds, each with a lease of HoldersTTL.
	Holders    int
	HoldersTTL time.Duration
	// HoldersKills is how often the primary is killed before, and while they are held.
	HoldersKills int
	// WatchRates are of events per second, for Watchers watchers.
	WatchRates []int
	Watchers   int
	// WatchOwn: each watches a key of its own, instead of the keys of all workers.
	WatchOwn bool
	// ChurnRate is pairs per second of churn, and ChurnAppends are appends.
	ChurnRate, ChurnAppends float64
	// Failovers is how often failover and pause strike, and Handovers handover.
	Failovers, Handovers int
}

// DefaultOptions are the ones to take figures with.
func DefaultOptions() Options {
	return Options{
		Warmup: time.Second, Duration: 5 * time.Second, Repeat: 3, Sizes: []int{100, 4096},
		WatchRates: []int{1000, 10_000}, Watchers: 1, Holders: 1_000_000, HoldersTTL: time.Minute, Failovers: 20, Handovers: 10,
		ChurnRate: 200, ChurnAppends: 100,
	}
}

const (
	// minLoad is the shortest warm-up plus duration that measures anything.
	minLoad = 100 * time.Millisecond
	// maxRecord is what an append may have, see cluster.MaxAppend.
	maxRecord = 1 << 20
)

// Validate says what is wrong, and what to write instead.
func (o Options) Validate() error {
	for _, w := range o.Workers {
		if w < 1 {
			return fmt.Errorf("--workers %d: use 1 or more", w)
		}
	}
	for _, s := range o.Sizes {
		if s < 1 || s > maxRecord {
			return fmt.Errorf("--size %d: use 1 to %d bytes", s, maxRecord)
		}
	}
	for _, r := range o.WatchRates {
		if r < 1 {
			return fmt.Errorf("--watch-rate %d: use 1 or more events per second", r)
		}
	}
	for _, x := range []struct {
		flag string
		n    int
	}{{"repeat", o.Repeat}, {"holders", o.Holders}, {"watchers", o.Watchers}, {"failovers", o.Failovers}, {"handovers", o.Handovers}} {
		if x.n < 1 {
			return fmt.Errorf("--%s %d: use 1 or more", x.flag, x.n)
		}
	}
	switch {
	case o.Clients < 0:
		return fmt.Errorf("--clients %d: use 1 or more, or 0 for what is usual", o.Clients)
	case o.Warmup < 0:
		return fmt.Errorf("--warmup %v: use 0 or more", o.Warmup)
	case o.Duration < minLoad:
		return fmt.Errorf("--duration %v: use %v or more", o.Duration, minLoad)
	case o.Rate < 0:
		return fmt.Errorf("--rate %v: use 0 for as fast as it goes, or operations per second", o.Rate)
	case o.ChurnRate <= 0:
		return fmt.Errorf("--churn-rate %v: use more than 0 pairs per second", o.ChurnRate)
	case o.ChurnAppends <= 0:
		return fmt.Errorf("--churn-appends %v: use more than 0 appends per second", o.ChurnAppends)
	case o.HoldersKills < 0:
		return fmt.Errorf("--holders-kills %d: use 1 or more, or 0 for none", o.HoldersKills)
	case o.HoldersTTL < time.Second || o.HoldersTTL%time.Millisecond != 0:
		return fmt.Errorf("--holders-ttl %v: use whole milliseconds, 1s or more", o.HoldersTTL)
	}
	return nil
}

// workers are the numbers of workers to try.
func (o Options) workers(usual ...int) []int {
	if len(o.Workers) > 0 {
		return o.Workers
	}
	return usual
}

// Env is what a workload works with.
type Env struct {
	Options
	Endpoints []string
	// Servers are our own; nil = somebody else's.
	Servers *servers.Cluster
	Say     bench.Progress
}

func (e *Env) pids() []int {
	if e.Servers == nil {
		return nil
	}
	return e.Servers.PIDs()
}

// serverName is what the i-th process is.
func serverName(i int, primary cluster.ServerID) string {
	if cluster.ServerID(i+1) == primary {
		return fmt.Sprintf("server %d (primary)", i+1)
	}
	return fmt.Sprintf("server %d (replica)", i+1)
}

// target is our service with the clients that were asked for.
func (e *Env) target() (*Holdfast, error) { return NewHoldfast(e.Endpoints, e.clients(), e.pids()) }

// clients is one for the process, unless something else was asked for.
func (e *Env) clients() int { return max(1, e.Clients) }

// prefix is the beginning of names that nobody used before, also not in an earlier run
// against the same servers.
func prefix(workload string) string {
	return fmt.Sprintf("bench/%s/%d", workload, time.Now().UnixNano())
}

// Workload is one kind of work.
type Workload struct {
	Name, About string
	// OwnServers says that it does to servers what one does not do to somebody else's.
	OwnServers bool
	// Servers says how these run.
	Servers servers.Options
	// Alone: it runs only where it is named, because it takes long to mean anything.
	Alone bool
	Run   func(ctx context.Context, e *Env) ([]bench.Row, error)
}

// All are the workloads, in the order in which they run.
func All() []Workload {
	return []Workload{
		{Name: "own", About: "acquire and release, each worker its own key", Run: own},
		{Name: "contended", About: "all workers wait for one key", Run: contended},
		{Name: "append", About: "appends under held locks", Run: appends},
		{Name: "keepalive", About: "clients that hold one lock each", Run: keepalive},
		{Name: "watch", About: "from a call to its event at a watcher, or many", Servers: watchServers(), Run: watch},
		{Name: "failover", About: "kill -9 of the primary, to the next grant", OwnServers: true, Run: failover},
		{Name: "pause", About: "SIGSTOP of the primary, to the next grant", OwnServers: true, Run: pause},
		{Name: "handover", About: "longest gap between grants while the reign is handed over", Run: handover},
		{Name: "holders", About: "very many locks held at once", Run: holders},
		{
			Name: "churn", About: "ever-new locks and clients for long: does something grow? (only where it is named)",
			OwnServers: true, Servers: churnServers(), Alone: true, Run: churnLong,
		},
	}
}

// Find are the workloads with these names; without names all that do not run alone.
func Find(names []string) ([]Workload, error) {
	all := All()
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(w Workload) bool { return w.Alone }), nil
	}
	var found []Workload
	for _, n := range names {
		i := 0
		for i < len(all) && all[i].Name != n {
			i++
		}
		if i == len(all) {
			return nil, fmt.Errorf("workload %q: see --help for their names", n)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// row is an empty one of ours.
func (e *Env) row(workload, unit string, workers int) bench.Row {
	return bench.Row{Workload: workload, Target: Name, Unit: unit, Workers: workers, Clients: e.clients()}
}

// repeat runs a load so often that a median means something.
func (e *Env) repeat(ctx context.Context, row bench.Row, load func() bench.Load) (bench.Row, error) {
	for i := range e.Repeat {
		l := load()
		l.Name = fmt.Sprintf("%s, %d workers, run %d of %d", row.Workload, row.Workers, i+1, e.Repeat)
		l.Warmup, l.Duration = e.Warmup, e.Duration
		run, err := l.Run(ctx, e.Say)
		if err != nil {
			return row, err
		}
		row.Add(run)
	}
	return row, nil
}

func own(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	t, err := e.target()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for _, n := range e.workers(1, 16, 64, 256) {
		row := e.row("own", "pairs", n)
		row.Offered = e.Rate
		row, err := e.repeat(ctx, row, func() bench.Load {
			l := bench.Pairs(t, bench.Alone, prefix("own"), n)
			l.Rate = e.Rate
			return l
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func contended(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	t, err := e.target()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for _, n := range e.workers(16, 64, 256) {
		row, err := e.repeat(ctx, e.row("contended", "pairs", n), func() bench.Load {
			return bench.Pairs(t, bench.Queue, prefix("contended"), n)
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
