// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

// keepaliveTTL is the shortest lease that servers take by default.
const keepaliveTTL = time.Second

const (
	// keepaliveLook is how often the leases are looked at: several times between two
	// renewals, which are a third of a lease apart.
	keepaliveLook = keepaliveTTL / 8
	// keepaliveStep is by how much a renewal moves the end of a lease at least.
	keepaliveStep = keepaliveTTL / 20
)

// holding is a client with the lock that it holds.
type holding struct {
	client *clientlib.Client
	lock   *clientlib.Lock
	// expires is the end of the lease when it was last looked at.
	expires time.Time
}

// renewed reports whether the lease was renewed since the last call.
func (h *holding) renewed() bool {
	end := h.lock.Expires()
	if end.Sub(h.expires) < keepaliveStep {
		return false
	}
	h.expires = end
	return true
}

func keepalive(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	for _, n := range e.workers(100, 1000) {
		row := e.row("keepalive", "renewals", n)
		row.Clients = n
		for i := range e.Repeat {
			name := fmt.Sprintf("keepalive, %d clients, run %d of %d", n, i+1, e.Repeat)
			run, err := e.keepaliveRun(ctx, n, name)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", name, err)
			}
			row.Add(run)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// keepaliveRun makes clients that hold one lock each, and then does nothing.
func (e *Env) keepaliveRun(ctx context.Context, n int, name string) (_ bench.Run, err error) {
	all := make([]holding, n)
	defer func() { err = errors.Join(err, closeHoldings(all)) }()
	keys := prefix("keepalive")
	if err := bench.Each(n, acquirers, func(i int) error { return e.hold(ctx, &all[i], fmt.Sprintf("%s/%d", keys, i)) }); err != nil {
		return bench.Run{}, err
	}
	// Before the first look every lease was renewed.
	if _, err := watchLeases(ctx, all, e.Warmup+keepaliveTTL, func(time.Duration, int64) {}); err != nil {
		return bench.Run{}, err
	}
	before, err := bench.ReadCPU(e.pids())
	if err != nil {
		return bench.Run{}, err
	}
	began := time.Now()
	renewals, err := watchLeases(ctx, all, e.Duration, func(at time.Duration, n int64) {
		e.Say("%s: %.0f of %.0f s, %d renewals", name, at.Seconds(), e.Duration.Seconds(), n)
	})
	if err != nil {
		return bench.Run{}, err
	}
	took := time.Since(began)
	if renewals == 0 && took > keepaliveTTL {
		return bench.Run{}, errors.New("no lease was renewed: the clients cannot reach the service, or this program looks for renewals in a wrong way")
	}
	after, err := bench.ReadCPU(e.pids())
	if err != nil {
		return bench.Run{}, err
	}
	for _, h := range all {
		if err := context.Cause(h.lock.Context()); err != nil {
			return bench.Run{}, err
		}
	}
	return bench.NewRun(renewals, took, after.Since(before)), nil
}

// watchLeases counts the renewals for a while, and tells each second.
func watchLeases(ctx context.Context, all []holding, d time.Duration, say func(at time.Duration, n int64)) (n int64, err error) {
	began, told := time.Now(), time.Second
	for at := time.Duration(0); at < d; at = time.Since(began) {
		if at >= told {
			say(at, n)
			told += time.Second
		}
		if err := bench.Rest(ctx, min(keepaliveLook, d-at)); err != nil {
			return n, err
		}
		for i := range all {
			if all[i].renewed() {
				n++
			}
		}
	}
	return n, nil
}

// hold makes a client that takes a lock.
func (e *Env) hold(ctx context.Context, h *holding, key string) (err error) {
	if h.client, err = clientlib.New(clientlib.Options{Endpoints: e.Endpoints, Credential: clientlib.FromEnvironment}); err != nil {
		return err
	}
	h.lock, err = h.client.Acquire(ctx, clientlib.LockName(key), clientlib.AcquireOptions{TTL: keepaliveTTL})
	return err
}

// closeHoldings gives back what is held.
func closeHoldings(all []holding) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return bench.Each(len(all), acquirers, func(i int) error {
		h := all[i]
		if h.client == nil {
			return nil
		}
		var err error
		if h.lock != nil {
			err = h.lock.Release(ctx)
		}
		return errors.Join(err, h.client.Close())
	})
}
