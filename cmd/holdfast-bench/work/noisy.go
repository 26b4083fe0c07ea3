// SPDX-License-Identifier: Apache-2.0

package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
)

const (
	// noisyWorkers is how many clients are measured, and noisyRate the pairs per second of all of them.
	noisyWorkers = 10
	noisyRate    = 100
	// noisyTimes is how many times as much as one of them their neighbour asks for.
	noisyTimes = 100
	// noisyTick is how often the neighbour asks, and noisyInFlight how many pairs of it are in flight at most.
	noisyTick     = 10 * time.Millisecond
	noisyInFlight = 256
	// noisyKey is the variable with the neighbour's credential.
	noisyKey = "HOLDFAST_NOISY_KEY"
	// noisyEndpoints is the variable with the servers that the neighbour asks, if they are others: what then is slower is the machine.
	noisyEndpoints = "HOLDFAST_NOISY_ENDPOINTS"
)

// neighbour asks for far more than its share, over HTTP, and takes no word for it: it neither waits nor repeats.
type neighbour struct {
	*strangers
	done, refused, skipped atomic.Int64
}

func newNeighbour(endpoints []string, key string) (*neighbour, error) {
	s, err := newStrangers(endpoints)
	if err != nil {
		return nil, err
	}
	s.key, s.lease, s.budget = key, strangerLeave, 0
	return &neighbour{strangers: s}, nil
}

// run asks for so many pairs per second until ctx ends.
func (n *neighbour) run(ctx context.Context, name string, rate float64) {
	var pairs sync.WaitGroup
	defer pairs.Wait()
	places := make(chan struct{}, noisyInFlight)
	tick := time.NewTicker(noisyTick)
	defer tick.Stop()
	began, asked := time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int64(rate * time.Since(began).Seconds()); asked < due; asked++ {
			lock := clientlib.LockName(fmt.Sprint(name, asked%(2*noisyInFlight))) // nobody has it yet
			select {
			case places <- struct{}{}:
				pairs.Go(func() { n.pair(ctx, lock); <-places })
			default:
				n.skipped.Add(1)
			}
		}
	}
}

// pair acquires and releases, if it may.
func (n *neighbour) pair(ctx context.Context, name clientlib.LockName) {
	if _, err := n.strangers.pair(ctx, name); err != nil {
		n.refused.Add(1)
	} else {
		n.done.Add(1)
	}
}

// noisy measures clients alone, and then beside a neighbour that asks for a hundred times as much as each of them. With servers that
// have access rules, the neighbour is whom HOLDFAST_NOISY_KEY proves, and the others are whom HOLDFAST_KEY does. With HOLDFAST_NOISY_ENDPOINTS it
// asks other servers on the same machine: the control.
func noisy(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	polite := *e
	polite.Rate = cmp.Or(e.Rate, noisyRate)
	if e = &polite; e.Clients == nil {
		e.Clients = fleet.Shapes{fleet.Each}
	}
	for _, workers := range e.workers(noisyWorkers) {
		t, err := e.connect(ctx, e.clients(workers))
		if err != nil {
			return rows, err
		}
		two, err := e.beside(ctx, t, workers)
		rows = append(rows, two...)
		if err = errors.Join(err, t.Close()); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// beside measures so many workers without and with the neighbour.
func (e *Env) beside(ctx context.Context, t target, workers int) (rows []bench.Row, err error) {
	load := func() bench.Load {
		l := bench.Pairs(t, bench.Alone, prefix("polite"), workers)
		l.Rate = e.Rate
		return l
	}
	row := e.row("noisy, alone", "pairs", workers)
	row.Offered = e.Rate
	alone, err := e.repeat(ctx, row, load)
	if err != nil {
		return nil, err
	}
	asked := e.Endpoints
	if others := os.Getenv(noisyEndpoints); others != "" {
		asked = join.Split(others)
	}
	n, err := newNeighbour(asked, os.Getenv(noisyKey))
	if err != nil {
		return nil, err
	}
	defer n.close()
	loud, end := context.WithCancel(ctx)
	began := time.Now()
	var asking sync.WaitGroup
	asking.Go(func() { n.run(loud, prefix("noisy")+"/", noisyTimes*e.Rate/float64(workers)) })
	row.Workload = "noisy, beside the neighbour"
	with, err := e.repeat(ctx, row, load)
	end()
	asking.Wait()
	took := time.Since(began).Seconds()
	with.Figures = []bench.Figure{
		{Name: "p99 beside the neighbour to alone", Value: with.Median.Latency.P99 / alone.Median.Latency.P99, Unit: "times"},
		{Name: "neighbour, executed", Value: float64(n.done.Load()) / took, Unit: "pairs/s"},
		{Name: "neighbour, refused", Value: float64(n.refused.Load()) / took, Unit: "pairs/s"},
		{Name: "neighbour, not asked, too many in flight", Value: float64(n.skipped.Load()) / took, Unit: "pairs/s"},
	}
	return []bench.Row{alone, with}, err
}
