// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

const (
	// pollLeast and pollMost bound the pause before a worker retries to take a lock of a
	// service without a queue.
	pollLeast = 2 * time.Millisecond
	pollMost  = 8 * time.Millisecond
)

// poll repeats ask, with random pauses, until it got the lock or failed.
func poll(ctx context.Context, ask func() (got bool, err error)) error {
	for {
		got, err := ask()
		if got || err != nil {
			return err
		}
		if err := bench.Rest(ctx, pollLeast+rand.N(pollMost-pollLeast)); err != nil {
			return err
		}
	}
}

// await repeats ask until a service that was just started answers.
func await(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if bench.Rest(ctx, startPoll) != nil {
			return err
		}
	}
}
