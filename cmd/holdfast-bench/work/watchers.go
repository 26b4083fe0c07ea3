// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

const (
	// manyWatchers is how many watchers the workload watchers has, and manyRate how many events per
	// second, unless something else was asked for.
	manyWatchers = 5000
	manyRate     = 1000
)

// prepareWatchers raises the limits for the connections.
func prepareWatchers(o Options) error {
	l, err := readLimits(o.watchers(manyWatchers))
	if err != nil {
		return err
	}
	_, err = l.processes("watchers", o.watchers(manyWatchers), 0)
	return err
}

// watchers is watch with a connection for each watcher, which watches a key of its own.
func watchers(ctx context.Context, e *Env) ([]bench.Row, error) {
	rate := manyRate
	if e.Rate > 0 {
		rate = int(max(1, e.Rate))
	}
	return e.watchRates(ctx, "watchers, a connection each", bench.Watchers{N: e.watchers(manyWatchers), Own: true}, 1, []int{rate})
}

// watchers is how many there are.
func (o Options) watchers(usual int) int {
	if o.Watchers > 0 {
		return o.Watchers
	}
	return usual
}
