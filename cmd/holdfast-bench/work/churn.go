// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

const (
	// churnTTL is the longest lease, and churnRetention how long the servers remember a
	// silent client: short, so that clients are forgotten all the time.
	churnTTL       = time.Minute
	churnRetention = 2 * time.Minute
	// churnLook is how often it is looked whether something grew, and churnLooks how often at
	// least: a short run looks more often.
	churnLook  = 30 * time.Second
	churnLooks = 30
	// churnFiles is how many files are appended to, and churnRecord the bytes of a record.
	churnFiles  = 4
	churnRecord = 100
	// churnWorkers is how many workers come and go, and churnClients the clients that live from the
	// beginning to the end.
	churnWorkers = 16
	churnClients = 4
	// churnWatch is how long a watcher watches before it goes and the next one comes.
	churnWatch = 5 * time.Second
	// churnErrors is how many errors are listed one by one.
	churnErrors = 10
)

// churnServers are servers that forget soon and tell of themselves.
func churnServers() servers.Options {
	return servers.Options{
		Flags:       []string{"--max-ttl", churnTTL.String(), "--client-retention", churnRetention.String()},
		Collections: true, Goroutines: churnLook,
	}
}

// churn is the workload while it runs.
type churn struct {
	*Env
	target *Holdfast
	prefix string
	// strangers have IDs of their own choice, and speak HTTP.
	strangers *strangers
	opened    atomic.Int64 // clients of the library that came
	watches   atomic.Int64
	errors    atomic.Int64
	mu        sync.Mutex
	first     []error // of the errors
}

// churnLong uses ever new locks and clients and checks whether memory or disk usage grows.
func churnLong(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	many := *e
	if e = &many; e.Clients == nil {
		e.Clients = fleet.Shapes{churnClients}
	}
	t, err := e.target(e.workers(churnWorkers)[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	c := &churn{Env: e, target: t, prefix: prefix("churn")}
	if c.strangers, err = newStrangers(e.Servers.Endpoints()); err != nil {
		return nil, err
	}
	defer c.strangers.close()
	for _, n := range e.workers(churnWorkers) {
		r, err := c.run(ctx, n)
		rows = append(rows, r...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// run runs both loads and the looks beside them.
func (c *churn) run(ctx context.Context, workers int) ([]bench.Row, error) {
	every := min(churnLook, c.Duration/churnLooks)
	pairs, appends := c.row("churn", "pairs", workers), c.row("churn, appends", "appends", churnFiles)
	pairs.Offered, appends.Offered, appends.Size = c.ChurnRate, c.ChurnAppends, churnRecord
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	var appended bench.Run
	running.Go(func() {
		l := bench.Appends(c.target, c.prefix+"/files", churnFiles, churnRecord, c.Verify(c.target))
		l.Name, l.PIDs = "churn, appends", nil // the servers' time is in the row of the pairs
		l.Rate, l.Warmup, l.Duration, l.Tell = c.ChurnAppends, c.Warmup, c.Duration, every
		var err error
		if appended, err = l.Run(ctx, c.Say); err != nil {
			cancel(err)
		}
	})
	looks := &looks{churn: c, began: time.Now()}
	looking, looked := context.WithCancel(ctx)
	running.Go(func() {
		if err := looks.run(looking, every); err != nil {
			cancel(err)
		}
	})
	running.Go(func() { c.comeAndWatch(looking) })
	l := bench.Load{
		Name: "churn", Unit: "pairs", Workers: workers, Rate: c.ChurnRate, Warmup: c.Warmup, Duration: c.Duration,
		Open: c.open, PIDs: c.pids(), Tell: every,
	}
	r, err := l.Run(ctx, c.Say)
	if err != nil {
		cancel(err) // the appends would continue to the end
	}
	looked()
	running.Wait()
	err = errors.Join(err, c.failed())
	pairs.Add(r)
	appends.Add(appended)
	pairs.Series = looks.judged()
	pairs.Figures = []bench.Figure{
		{Name: "clients of the library", Value: float64(c.opened.Load()), Unit: "came and went"},
		{Name: "self-chosen client IDs", Value: float64(c.strangers.came.Load()), Unit: "used once"},
		{Name: "watchers", Value: float64(c.watches.Load()), Unit: "came and went"},
		{Name: "errors", Value: float64(c.errors.Load()), Unit: ""},
	}
	return []bench.Row{pairs, appends}, err
}

// failed is the first errors, if there were any.
func (c *churn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.first) == 0 {
		return nil
	}
	return fmt.Errorf("churn: %d operations failed, of these first: %w", c.errors.Load(), errors.Join(c.first...))
}

// note counts an error: one must not end an hour, but the hour has failed.
func (c *churn) note(what string, err error) {
	n := c.errors.Add(1)
	if n > churnErrors {
		return
	}
	c.Say("churn: %s: %v", what, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = append(c.first, fmt.Errorf("%s: %w", what, err))
}

// comeAndWatch watches everything for a moment, again and again.
func (c *churn) comeAndWatch(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		watching, stop := context.WithTimeout(ctx, churnWatch)
		for _, err := range c.target.client(i).Watch(watching, clientlib.WatchOptions{Prefix: c.prefix}) {
			if err != nil && watching.Err() == nil {
				c.note("watch", err)
			}
		}
		stop()
		c.watches.Add(1)
	}
}

// open makes a worker.
func (c *churn) open(_ context.Context, i int) (bench.Worker, error) {
	return &churner{churn: c, id: i}, nil
}

// churner is one worker. It never uses a name twice.
type churner struct {
	*churn
	id     int
	step   int
	client *clientlib.Client
	ended  sync.WaitGroup // of clients that were left
}

const (
	// churnCycle is how many steps repeat themselves, see Step.
	churnCycle = 20
	// churnLife is after how many steps a worker takes a new client.
	churnLife = 50
	// churnHold is how long a lock is held while another worker waits.
	churnHold = 5 * time.Millisecond
)

// Step does what is next in the cycle: mostly a pair on a name of its own.
func (w *churner) Step(ctx context.Context) (bench.Timing, error) {
	if err := w.renew(); err != nil {
		return bench.Timing{}, err
	}
	w.step++
	name := clientlib.LockName(fmt.Sprintf("%s/%d/%d", w.prefix, w.id, w.step))
	var t bench.Timing
	var err error
	what := "pair"
	switch (w.step + w.id) % churnCycle {
	case 0, 1:
		what = "pair of a stranger"
		t, err = w.strangers.pair(ctx, name)
	case 2:
		what = "stranger who goes without a word"
		t, err = w.strangers.leave(ctx, name)
	case 3, 4:
		what = "pair that somebody waits for"
		t, err = w.contended(ctx, name)
	case 5:
		what = "wait that takes too long"
		t, err = w.inVain(ctx, name, churnHold, 0)
	case 6:
		what = "wait that is given up"
		t, err = w.inVain(ctx, name, clientlib.Forever, churnHold)
	default:
		t, err = w.pair(ctx, name, func() error { return nil })
	}
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	if err != nil {
		w.note(what, err)
	}
	return t, nil
}

// renew takes a new client now and then.
func (w *churner) renew() (err error) {
	if w.client != nil && (w.step+w.id)%churnLife != 0 {
		return nil
	}
	if old := w.client; old != nil {
		w.ended.Go(func() {
			if err := old.Close(); err != nil {
				w.note("close a client", err)
			}
		})
	}
	w.opened.Add(1)
	w.client, err = clientlib.New(clientlib.Options{Endpoints: w.Endpoints, Credential: clientlib.FromEnvironment})
	return err
}

// pair acquires, does something and releases.
func (w *churner) pair(ctx context.Context, name clientlib.LockName, held func() error) (bench.Timing, error) {
	began := time.Now()
	l, err := w.client.Acquire(ctx, name, clientlib.AcquireOptions{})
	if err != nil {
		return bench.Timing{}, err
	}
	t := bench.Timing{Op: time.Since(began)}
	err = held()
	began = time.Now()
	err = errors.Join(err, l.Release(ctx))
	t.Release = time.Since(began)
	return t, err
}

// contended has one of those that stay wait for the lock, and get it.
func (w *churner) contended(ctx context.Context, name clientlib.LockName) (bench.Timing, error) {
	got := make(chan error, 1)
	t, err := w.pair(ctx, name, func() error {
		go func() {
			l, err := w.target.client(w.id).Acquire(ctx, name, clientlib.AcquireOptions{Wait: clientlib.Forever})
			if err == nil {
				err = l.Release(ctx)
			}
			got <- err
		}()
		return bench.Rest(ctx, churnHold)
	})
	if t.Op == 0 { // no worker waits
		return t, err
	}
	return t, errors.Join(err, <-got)
}

// inVain lets a caller wait without success: the wait ends, or the caller gives up.
func (w *churner) inVain(ctx context.Context, name clientlib.LockName, wait, patience time.Duration) (bench.Timing, error) {
	return w.pair(ctx, name, func() error {
		waiting, stop := ctx, context.CancelFunc(func() {})
		if patience > 0 {
			waiting, stop = context.WithTimeout(ctx, patience)
		}
		defer stop()
		l, err := w.target.client(w.id).Acquire(waiting, name, clientlib.AcquireOptions{Wait: wait})
		switch {
		case err == nil:
			return errors.Join(errors.New("somebody got a lock that is held"), l.Release(ctx))
		case patience > 0 && errors.Is(err, context.DeadlineExceeded), patience == 0 && errors.Is(err, clientlib.ErrWaitTimeout):
			return nil
		}
		return err
	})
}

// Close ends the client.
func (w *churner) Close() error {
	w.ended.Wait()
	if w.client == nil {
		return nil
	}
	return w.client.Close()
}
