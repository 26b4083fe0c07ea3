// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

const (
	// WatchWorkers is how many workers make the events of watch.
	WatchWorkers = 64
	// connectionWatchers is how many watchers share a connection at most.
	connectionWatchers = 500
)

// Watch watches one key or all keys with a prefix. A single watcher uses the
// first client, and the library chooses the server, a replica rather than the
// primary. Many watchers are spread over all servers, see Crowd.
func (h *Holdfast) Watch(ctx context.Context, v bench.View, seen func(bench.Seen)) (func() error, error) {
	o := clientlib.WatchOptions{Lock: clientlib.LockName(v.Key), Kinds: []clientlib.EventKind{clientlib.EventGrant, clientlib.EventRelease}}
	if v.Key == "" {
		o.Prefix = v.Prefix + "/"
	}
	c := h.client(0)
	if h.watching.Len() > 0 {
		c = h.watching.Client(v.Watcher)
	}
	stands, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- see(ctx, c, o, stands, seen) }()
	wait := func() error { return <-ended }
	select {
	case <-stands:
		return wait, nil
	case err := <-ended:
		return nil, fmt.Errorf("watch: %w", errors.Join(err, context.Cause(ctx)))
	}
}

// see closes stands when the watch stands. A later reset is an error: events before it
// may be missing.
func see(ctx context.Context, c *clientlib.Client, o clientlib.WatchOptions, stands chan<- struct{}, seen func(bench.Seen)) error {
	standing := false
	for e, err := range c.Watch(ctx, o) {
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case e.Kind == clientlib.EventGrant || e.Kind == clientlib.EventRelease:
			seen(bench.Seen{Key: string(e.Lock), At: now, Order: uint64(e.LSN), Mark: bench.Mark(uint64(e.Token), e.Kind == clientlib.EventRelease)})
		case e.Kind != clientlib.EventReset:
		case standing:
			return fmt.Errorf("the watch began anew in the middle: %s", e.Reset.Reason)
		case e.LSN > 0: // its last piece
			standing = true
			close(stands)
		}
	}
	return nil
}

// Crowd makes the clients for many watchers, at most share of which use one connection: in turn to
// each server, so that watcher i is at the server i modulo their number.
func (h *Holdfast) Crowd(watchers, share int) error {
	if watchers == 1 {
		return nil
	}
	n := len(h.endpoints)
	clients := n * ((watchers + n*share - 1) / (n * share))
	all, err := fleet.New(clients, func(i int) []string { return h.endpoints[i%n : i%n+1] })
	if err != nil {
		return err
	}
	h.watching = all
	return nil
}

// usualWatchers is how many watchers watch has unless something else was asked for.
const usualWatchers = 1

func watch(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	x := bench.Watchers{N: e.watchers(usualWatchers), Own: e.WatchOwn}
	return e.watchRates(ctx, "watch", x, connectionWatchers, e.WatchRates)
}

// watchRates measures watchers, at most share of which use one connection, at several rates of events.
func (e *Env) watchRates(ctx context.Context, name string, x bench.Watchers, share int, rates []int) (rows []bench.Row, err error) {
	t, err := e.target(e.workers(WatchWorkers)[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := t.Crowd(x.N, share); err != nil {
		return nil, err
	}
	for _, rate := range rates {
		some, err := e.watchRate(ctx, name, t, x, rate, len(rows) == 0)
		rows = append(rows, some...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// watchRate are the rows of one rate, with the runs until one failed. Memory is looked at
// in the first run of fresh servers: later what was before is that of watchers who went.
func (e *Env) watchRate(ctx context.Context, what string, t *Holdfast, x bench.Watchers, rate int, fresh bool) ([]bench.Row, error) {
	n := e.workers(WatchWorkers)[0]
	called, answered := bench.WatchRow(what, t, n, rate, x), bench.WatchRow(what+", from the answer", t, n, rate, x)
	for i := range e.Repeat {
		name := fmt.Sprintf("%s, %d events/s, run %d of %d", called.Workload, rate, i+1, e.Repeat)
		m := &memoryCost{Env: e}
		x.AtEnd = nil
		if i == 0 && fresh && x.N > 1 {
			if err := memoryBefore(ctx, m, t, n); err != nil {
				return ran(called, answered), err
			}
			x.AtEnd = func() error { return m.look(ctx, t, n, 1) }
		}
		w, err := bench.Watch(ctx, t, prefix("watch"), bench.Load{
			Name: name, Workers: n, Rate: float64(rate), Warmup: e.Warmup, Duration: e.Duration,
		}, x, e.Say)
		if err != nil {
			return ran(called, answered), fmt.Errorf("%s: %w", name, err)
		}
		called.Add(w.Called)
		answered.Add(w.Answered)
		e.Say("%s: %d events were seen, each by whom it concerned", name, w.Told)
		called.Figures = append(called.Figures, m.figures("watcher", float64(x.N)/float64(max(1, len(e.pids()))))...)
	}
	for i, cores := range called.Median.ServerCores {
		called.Figures = append(called.Figures, bench.Figure{Name: fmt.Sprintf("processors used at %d events/s, server %d", rate, i+1), Value: cores})
	}
	return ran(called, answered), nil
}

// ran leaves out rows without a run.
func ran(rows ...bench.Row) []bench.Row {
	return slices.DeleteFunc(rows, func(r bench.Row) bool { return len(r.Runs) == 0 })
}

// memoryBefore looks while there is one watcher at each server: the first one has a price of its own.
func memoryBefore(ctx context.Context, m *memoryCost, t *Holdfast, workers int) error {
	ctx, cancel := context.WithCancel(ctx)
	var waits []func() error
	for i := range min(len(t.endpoints), t.watching.Len()) {
		wait, err := t.Watch(ctx, bench.View{Watcher: i, Key: prefix("nobody")}, func(bench.Seen) {})
		if err != nil {
			cancel()
			return err
		}
		waits = append(waits, wait)
	}
	err := m.look(ctx, t, workers, 0)
	cancel()
	for _, wait := range waits {
		err = errors.Join(err, wait())
	}
	return err
}

// watchServers tell of their heap.
func watchServers() servers.Options {
	return servers.Options{Collections: true, Flags: []string{"--max-connections", "1000000"}} // descriptors are what bounds them
}
