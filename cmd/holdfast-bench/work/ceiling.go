// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/ceiling"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/starve"
)

// Helpers are what this package runs in processes of their own.
func Helpers() map[string]helper.Func {
	return map[string]helper.Func{
		ceiling.Kind: ceiling.Help, fleet.Kind: fleet.Help, starve.KindLoops: starve.Loops, starve.KindDisk: starve.Disk,
	}
}

// ceilings measures pairs without a lock service, with the shapes and numbers of workers of own.
func ceilings(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	s, err := ceiling.Start(ctx, e.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	row := bench.Row{Workload: "ceiling", Target: ceiling.Name, Unit: "pairs", Offered: e.Rate}
	connect := func(ctx context.Context, n int) (target, error) { return s.Connect(ctx, n) }
	return e.shapedRows(ctx, row, e.workers(ownWorkers()...), connect, func(t target, n int) bench.Load {
		l := bench.Pairs(t, bench.Alone, prefix("ceiling"), n)
		l.Rate = e.Rate
		return l
	})
}
