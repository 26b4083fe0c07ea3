// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/ceiling"
)

// bound is the ceiling of this machine in the place of a service.
type bound struct{ *ceiling.Server }

func startCeiling(ctx context.Context, _ *options, dir string) (service, string, error) {
	s, err := ceiling.Start(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	return bound{s}, "transport and a synced log alone", nil
}

func (bound) Name() string { return ceiling.Name }

// Locker is for a load without clients of its own, of which the ceiling does none.
func (bound) Locker(context.Context, int, bench.Mode) (bench.Locker, error) {
	return nil, errNoLocks
}

// Clients makes connections; nothing waits there.
func (b bound) Clients(ctx context.Context, n int, _ time.Duration) (service, error) {
	return b.Connect(ctx, n)
}
