// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/starve"
)

// Options are the options of the workloads.
type Options struct {
	// Workers are the numbers of workers to try; empty = those of the workload.
	Workers []int
	// Clients is how many clientlib.Clients the workers share: own, contended and append run with
	// each of these shapes, the other workloads with the first. Empty = the usual ones for the
	// workload.
	Clients fleet.Shapes
	// Wait is how long the acquires of own and append may wait, as users' do; 0 = they try once.
	Wait             time.Duration
	Warmup, Duration time.Duration
	Repeat           int
	// Rate is the operations per second of all workers of own and append; 0 = closed loops.
	Rate float64
	// Sizes are the sizes of the records of append, in bytes.
	Sizes []int
	// Connections is how many clients the workload connections has, each with a lease of Lease, and Processes how many
	// processes they are spread over; 0 = as few as their file descriptors allow.
	Connections int
	Processes   int
	Lease       time.Duration
	// Holders is how many locks the workload holders holds, each with a lease of HoldersTTL.
	Holders    int
	HoldersTTL time.Duration
	// HoldersKills is how often the primary is killed before the locks are held, and again while
	// they are.
	HoldersKills int
	// WatchRates are the rates of watch, in events per second. Watchers is how many watchers watch and
	// watchers have; 0 = the usual number for the workload.
	WatchRates []int
	Watchers   int
	// WatchOwn is true if each watches a key of its own, instead of the keys of all workers.
	WatchOwn bool
	// ChurnRate is the pairs per second of churn, ChurnAppends its appends per second.
	ChurnRate, ChurnAppends float64
	// StarveLoops is how many busy loops starved runs; 0 = ten for each processor.
	StarveLoops int
	// Failovers is how often failover and pause strike, and Handovers handover.
	Failovers, Handovers int
}

// DefaultOptions returns the options for figures that are published.
func DefaultOptions() Options {
	return Options{
		Wait: time.Minute, Warmup: time.Second, Duration: 5 * time.Second, Repeat: 3, Sizes: []int{100, 4096},
		WatchRates: []int{1000, 10_000}, Connections: 5000, Lease: clientlib.DefaultTTL, Holders: 1_000_000, HoldersTTL: time.Minute, Failovers: 20, Handovers: 10,
		ChurnRate: 200, ChurnAppends: 100,
	}
}

const (
	// minLoad is the shortest warm-up plus duration that measures anything.
	minLoad = 100 * time.Millisecond
	// maxRecord is what an append may have, see clientlib.MaxAppend.
	maxRecord = 1 << 20
)

// Validate returns an error for the first wrong option, with what to write instead.
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
	}{{"repeat", o.Repeat}, {"holders", o.Holders}, {"connections", o.Connections}, {"failovers", o.Failovers}, {"handovers", o.Handovers}} {
		if x.n < 1 {
			return fmt.Errorf("--%s %d: use 1 or more", x.flag, x.n)
		}
	}
	switch {
	case o.StarveLoops < 0 || o.StarveLoops > starve.MaxLoops:
		return fmt.Errorf("--starve-loops %d: use 1 to %d, or 0 for what is usual", o.StarveLoops, starve.MaxLoops)
	case o.Watchers < 0:
		return fmt.Errorf("--watchers %d: use 1 or more, or 0 for what is usual", o.Watchers)
	case o.Processes < 0 || o.Processes > maxProcesses:
		return fmt.Errorf("--processes %d: use 1 to %d, or 0 for as few as may be", o.Processes, maxProcesses)
	case o.Lease < time.Second || o.Lease%time.Millisecond != 0:
		return fmt.Errorf("--lease %v: use whole milliseconds, 1s or more", o.Lease)
	case o.Wait < 0:
		return fmt.Errorf("--wait %v: use 0 to try once, or more", o.Wait)
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

// Env is the environment of a workload.
type Env struct {
	Options
	Endpoints []string
	// Dir is a directory on the filesystem in question, which is removed at the end.
	Dir string
	// Servers are those that this program started; nil = the servers at Endpoints run elsewhere.
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
func serverName(i int, primary clientlib.ServerID) string {
	if clientlib.ServerID(i+1) == primary {
		return fmt.Sprintf("server %d (primary)", i+1)
	}
	return fmt.Sprintf("server %d (replica)", i+1)
}

// target is our service with the clients that were asked for.
func (e *Env) target(workers int) (*Holdfast, error) {
	return NewHoldfast(e.Endpoints, e.clients(workers), e.pids())
}

// clients is one for the process, unless something else was asked for.
func (e *Env) clients(workers int) int {
	if len(e.Clients) == 0 {
		return 1
	}
	return e.Clients[0].Clients(workers)
}

// prefix returns the beginning of names that were never used before, not even in an earlier run
// against the same servers.
func prefix(workload string) string {
	return fmt.Sprintf("bench/%s/%d", workload, time.Now().UnixNano())
}

// Workload is one kind of work.
type Workload struct {
	Name, About string
	// OwnServers is true if the workload needs servers of its own, because it kills or stops them.
	OwnServers bool
	// Servers are the options of these servers.
	Servers servers.Options
	// NoServers is true if the workload uses no Holdfast server.
	NoServers bool
	// Alone is true if it runs only when named, because it needs a long time for a result.
	Alone bool
	// Prepare is called before any server starts; nil = there is nothing to prepare. It returns an
	// error if the machine does not allow the workload.
	Prepare func(o Options) error
	Run     func(ctx context.Context, e *Env) ([]bench.Row, error)
}

// All returns all workloads, in the order in which they run.
func All() []Workload {
	return []Workload{
		{Name: "own", About: "acquire and release, each worker its own key", Run: own},
		{Name: "contended", About: "all workers wait for one key", Run: contended},
		{Name: "append", About: "appends under held locks", Run: appends},
		{Name: "ceiling", About: "what this machine allows: transport and a synced log alone", NoServers: true, Run: ceilings},
		{Name: "keepalive", About: "clients that hold one lock each", Run: keepalive},
		{Name: "watch", About: "from a call to its event at a watcher, or many", Servers: watchServers(), Run: watch},
		{Name: "watchers", About: "the same with very many watchers, each with its own connection", Servers: watchServers(), Prepare: prepareWatchers, Run: watchers},
		{
			Name: "connections", About: "very many clients that hold one lock each, through a kill -9",
			OwnServers: true, Servers: watchServers(), Prepare: prepareConnections, Run: connections,
		},
		{Name: "failover", About: "kill -9 of the primary, to the next grant", OwnServers: true, Run: failover},
		{Name: "pause", About: "SIGSTOP of the primary, to the next grant", OwnServers: true, Run: pause},
		{Name: "handover", About: "longest gap between grants while the primary role is handed over", Run: handover},
		{Name: "holders", About: "very many locks held at once", Run: holders},
		{
			Name: "noisy", About: "clients beside one that asks for 100 times as much, HOLDFAST_NOISY_KEY (only where it is named)",
			Alone: true, Run: noisy,
		},
		{
			Name: "starved", About: "busy loops and a disk load beside the servers, and a kill -9 (only where it is named)",
			OwnServers: true, Alone: true, Run: starvedRun,
		},
		{
			Name: "churn", About: "ever-new locks and clients for long: does something grow? (only where it is named)",
			OwnServers: true, Servers: churnServers(), Alone: true, Run: churnLong,
		},
	}
}

// Find returns the workloads with these names; without names all that do not run alone. It returns
// an error for an unknown name.
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
	return bench.Row{Workload: workload, Target: Name, Unit: unit, Workers: workers, Clients: e.clients(workers)}
}

// repeat runs a load so often that a median means something.
func (e *Env) repeat(ctx context.Context, row bench.Row, load func() bench.Load) (bench.Row, error) {
	for i := range e.Repeat {
		l := load()
		l.Name = fmt.Sprintf("%s, %s, %d workers, %d clients, run %d of %d", row.Workload, row.Target, row.Workers, row.Clients, i+1, e.Repeat)
		l.Warmup, l.Duration = e.Warmup, e.Duration
		run, err := l.Run(ctx, e.Say)
		if err != nil {
			return row, err
		}
		row.Add(run)
	}
	return row, nil
}

// UsualClients are the shapes of loads that run with several: what users see first.
func UsualClients() fleet.Shapes { return fleet.Shapes{fleet.Each, fleet.One} }

// target is a service with the clients of one row.
type target interface {
	bench.Target
	Close() error
}

// connect connects clients that acquire with a wait.
func (e *Env) connect(ctx context.Context, n int) (target, error) {
	t, err := NewHoldfast(e.Endpoints, n, e.pids())
	if err != nil {
		return nil, err
	}
	t.Wait = e.Wait
	if err := t.Connect(ctx); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// shapedRows repeats a load with each number of workers and each number of clients for them. The rows
// begin as row; connect makes the clients of one row, and load the load of n workers with them.
func (e *Env) shapedRows(
	ctx context.Context, row bench.Row, workers []int,
	connect func(ctx context.Context, n int) (target, error), load func(t target, n int) bench.Load,
) (rows []bench.Row, err error) {
	shapes := e.Clients
	if len(shapes) == 0 {
		shapes = UsualClients()
	}
	for _, n := range workers {
		for _, clients := range shapes.Numbers(n) {
			row.Workers, row.Clients = n, clients
			t, err := connect(ctx, clients)
			if err != nil {
				return rows, fmt.Errorf("%s: connect %d clients: %w", row.Workload, clients, err)
			}
			done, err := e.repeat(ctx, row, func() bench.Load { return load(t, n) })
			if err = errors.Join(err, t.Close()); err != nil {
				return rows, err
			}
			rows = append(rows, done)
		}
	}
	return rows, nil
}

// ownWorkers are the usual numbers of workers of own.
func ownWorkers() []int { return []int{1, 16, 64, 256} }

func own(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	row := bench.Row{Workload: "own", Target: Name, Unit: "pairs", Offered: e.Rate}
	return e.shapedRows(ctx, row, e.workers(ownWorkers()...), e.connect, func(t target, n int) bench.Load {
		l := bench.Pairs(t, bench.Alone, prefix("own"), n)
		l.Rate = e.Rate
		return l
	})
}

func contended(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	row := bench.Row{Workload: "contended", Target: Name, Unit: "pairs"}
	return e.shapedRows(ctx, row, e.workers(16, 64, 256), e.connect, func(t target, n int) bench.Load {
		return bench.Pairs(t, bench.Queue, prefix("contended"), n)
	})
}

// Bind adds flags for all options, with the present values as defaults.
func (o *Options) Bind(fl *pflag.FlagSet) {
	o.BindLoads(fl)
	o.BindStrokes(fl)
	fl.IntVar(&o.StarveLoops, "starve-loops", o.StarveLoops, "busy loops of starved (0: ten for each processor)")
	fl.IntVar(&o.Connections, "connections", o.Connections, "clients of connections")
	fl.IntVar(&o.Processes, "processes", o.Processes, "processes that the clients of connections are spread over (0: as few as may be)")
	fl.DurationVar(&o.Lease, "lease", o.Lease, "lease of connections")
	fl.IntVar(&o.Holders, "holders", o.Holders, "locks of holders")
	fl.DurationVar(&o.HoldersTTL, "holders-ttl", o.HoldersTTL, "lease of holders")
	fl.IntVar(&o.HoldersKills, "holders-kills", o.HoldersKills, "how often holders kills the primary, of own servers, before the locks are held and again while they are")
	fl.Float64Var(&o.ChurnRate, "churn-rate", o.ChurnRate, "pairs per second of churn")
	fl.Float64Var(&o.ChurnAppends, "churn-appends", o.ChurnAppends, "appends per second of churn")
}

// BindLoads adds the flags of workloads that run for a time.
func (o *Options) BindLoads(fl *pflag.FlagSet) {
	fl.IntSliceVar(&o.Workers, "workers", o.Workers, "numbers of workers to try, with commas between (default: those of the workload)")
	fl.Var(&o.Clients, "clients", "clients of own, contended and append: one that all workers share, each worker its own, or a number;\nwith commas between for several (default each,one); other workloads take the first (default one; of holders 64)")
	fl.DurationVar(&o.Wait, "wait", o.Wait, "how long the acquires of own and append may wait for the lock, as users' do (0: they try once)")
	fl.DurationVar(&o.Warmup, "warmup", o.Warmup, "before it counts")
	fl.DurationVar(&o.Duration, "duration", o.Duration, "how long a run counts")
	fl.IntVar(&o.Repeat, "repeat", o.Repeat, "runs of each row; the medians are printed")
	fl.Float64Var(&o.Rate, "rate", o.Rate, "operations per second of own and append, of all workers (0: as fast as they are answered), and events per second of watchers (0: 1000)")
	fl.IntSliceVar(&o.WatchRates, "watch-rate", o.WatchRates, "events per second of watch, with commas between")
	fl.IntVar(&o.Watchers, "watchers", o.Watchers, "watchers of watch: one at a server that the library chooses, more in turn at each server; and of watchers (0: 1, of watchers 5000)")
	fl.BoolVar(&o.WatchOwn, "watch-own", o.WatchOwn, "each watcher watches a key of its own (default: all keys)")
	fl.IntSliceVar(&o.Sizes, "size", o.Sizes, "bytes of a record of append, with commas between")
}

// BindStrokes adds the flags of workloads that inject faults into the servers.
func (o *Options) BindStrokes(fl *pflag.FlagSet) {
	fl.IntVar(&o.Failovers, "failovers", o.Failovers, "strokes of failover, and of pause")
	fl.IntVar(&o.Handovers, "handovers", o.Handovers, "handovers of handover")
}
