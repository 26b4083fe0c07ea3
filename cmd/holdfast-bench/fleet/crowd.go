// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
)

// Crowd is very many clients in some processes, each of which holds one lock.
type Crowd struct {
	helpers []*helper.Process
	clients []int // of each helper
	// done is how far an order is, of each helper.
	done []atomic.Int64
}

// Plan describes the clients of a Crowd.
type Plan struct {
	Endpoints []string `json:"endpoints"`
	// Prefix is the beginning of the names of the locks.
	Prefix string        `json:"prefix"`
	Lease  time.Duration `json:"lease"`
	// Limit is how long all of them may take to connect.
	Limit time.Duration `json:"limit"`
}

// order is what a helper is asked to do: with the fields of one of these, the others nil.
type order struct {
	Hold    *holdOrder    `json:"hold,omitempty"`
	Regain  *regainOrder  `json:"regain,omitempty"`
	Observe *observeOrder `json:"observe,omitempty"`
	Confirm *confirmOrder `json:"confirm,omitempty"`
}

// holdOrder is to connect the clients first to first+n-1, at most parallel at a time.
type holdOrder struct {
	Plan
	First    int `json:"first"`
	N        int `json:"n"`
	Parallel int `json:"parallel"`
}

// regainOrder is to acquire again what was lost.
type regainOrder struct {
	Limit    time.Duration `json:"limit"`
	Parallel int           `json:"parallel"`
}

// observeOrder is to watch the leases for a time.
type observeOrder struct {
	For time.Duration `json:"for"`
}

// confirmOrder is to wait until each lease was renewed once more.
type confirmOrder struct {
	// Since is when the primary was killed, see Monotonic.
	Since time.Duration `json:"since"`
	Limit time.Duration `json:"limit"`
}

// report is a message of a helper: how far it is, or the result at the end of the order.
type report struct {
	Done   int64           `json:"done"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Held is the result of Hold.
type Held struct {
	// Times are how long each client needed to connect and to get its lock.
	Times []time.Duration `json:"times"`
	// Retried counts calls that failed and were made again.
	Retried int64 `json:"retried"`
}

// Regained is the result of Regain.
type Regained struct {
	// Lost counts the locks that had been lost, by the reason.
	Lost map[string]int64 `json:"lost"`
}

// Observed is the result of Observe.
type Observed struct {
	// Renewals counts answered keep-alives. Late counts locks of which for half a lease none was
	// answered, each time, and Lost those that were lost.
	Renewals int64 `json:"renewals"`
	Late     int64 `json:"late"`
	Lost     int64 `json:"lost"`
}

// Confirmed is the result of Confirm.
type Confirmed struct {
	// Times are how long after the kill each lock was confirmed.
	Times []time.Duration `json:"times"`
	// Lost counts locks that were lost, Open those that were neither lost nor confirmed at the limit.
	Lost int64 `json:"lost"`
	Open int64 `json:"open"`
}

// StartCrowd starts the processes for n clients, evenly. The caller closes the Crowd.
func StartCrowd(n, processes int) (*Crowd, error) {
	c := &Crowd{done: make([]atomic.Int64, processes)}
	for i := range processes {
		p, err := helper.Start(Kind)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.helpers = append(c.helpers, p)
		c.clients = append(c.clients, (i+1)*n/processes-i*n/processes)
	}
	return c, nil
}

// PIDs returns the processes of the clients.
func (c *Crowd) PIDs() (all []int) {
	for _, p := range c.helpers {
		all = append(all, p.PID())
	}
	return all
}

// Close ends the clients as their processes' end does: they release nothing.
func (c *Crowd) Close() error { return helper.CloseAll(c.helpers) }

// Done returns for how many clients the present order is done.
func (c *Crowd) Done() (n int64) {
	for i := range c.done {
		n += c.done[i].Load()
	}
	return n
}

// Hold connects all clients and acquires their locks.
func (c *Crowd) Hold(ctx context.Context, p Plan) (h Held, err error) {
	first := 0
	all, err := ask[Held](ctx, c, func(i int) order {
		o := &holdOrder{p, first, c.clients[i], c.share()}
		first += c.clients[i]
		return order{Hold: o}
	})
	for _, x := range all {
		h.Times, h.Retried = append(h.Times, x.Times...), h.Retried+x.Retried
	}
	return h, err
}

// Regain has the clients that lost their locks acquire them again, within limit.
func (c *Crowd) Regain(ctx context.Context, limit time.Duration) (r Regained, err error) {
	all, err := ask[Regained](ctx, c, func(int) order { return order{Regain: &regainOrder{limit, c.share()}} })
	r.Lost = map[string]int64{}
	for _, x := range all {
		for why, n := range x.Lost {
			r.Lost[why] += n
		}
	}
	return r, err
}

// share is how many clients of one process connect at a time.
func (c *Crowd) share() int { return max(1, parallel/len(c.helpers)) }

// Observe watches the leases of all locks for a time.
func (c *Crowd) Observe(ctx context.Context, d time.Duration) (o Observed, err error) {
	all, err := ask[Observed](ctx, c, func(int) order { return order{Observe: &observeOrder{d}} })
	for _, x := range all {
		o.Renewals, o.Late, o.Lost = o.Renewals+x.Renewals, o.Late+x.Late, o.Lost+x.Lost
	}
	return o, err
}

// Confirm waits until each lock that is held has been confirmed by a renewal that was answered after
// now, by the library's own doing, within limit. since is when the primary was killed, see Monotonic.
func (c *Crowd) Confirm(ctx context.Context, since, limit time.Duration) (x Confirmed, err error) {
	all, err := ask[Confirmed](ctx, c, func(int) order { return order{Confirm: &confirmOrder{since, limit}} })
	for _, one := range all {
		x.Times, x.Lost, x.Open = append(x.Times, one.Times...), x.Lost+one.Lost, x.Open+one.Open
	}
	slices.Sort(x.Times)
	return x, err
}

// ask gives each helper its order and waits for all results.
func ask[T any](ctx context.Context, c *Crowd, orderOf func(i int) order) ([]T, error) {
	results, errs := make([]T, len(c.helpers)), make([]error, len(c.helpers))
	for i, p := range c.helpers {
		c.done[i].Store(0)
		errs[i] = p.Tell(orderOf(i))
	}
	var hearing sync.WaitGroup
	for i, p := range c.helpers {
		hearing.Go(func() {
			for errs[i] == nil {
				var r report
				if errs[i] = p.Hear(ctx, &r); errs[i] != nil {
					return
				}
				c.done[i].Store(r.Done)
				if r.Result != nil {
					errs[i] = json.Unmarshal(r.Result, &results[i])
					return
				}
			}
		})
	}
	hearing.Wait()
	return results, errors.Join(errs...)
}

// Monotonic returns the time on a clock that all processes of the machine share, and nobody sets.
func Monotonic() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
