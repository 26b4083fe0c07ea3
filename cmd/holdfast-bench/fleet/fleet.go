// SPDX-License-Identifier: Apache-2.0

// Package fleet makes the clients that the workers of a load use: one client that all of them share,
// as goroutines of one process do, or a client with a connection of its own for each, as separate
// processes have. It connects and closes them several at a time.
package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

// parallel is how many clients connect or close at a time. It is above what the servers of one
// machine accept at once, and far below what would fill their queues of new connections.
const parallel = 64

// Fleet is a number of clients. The zero value has none.
type Fleet struct {
	clients []*clientlib.Client
}

// New makes n clients, the i-th of which knows the addresses that endpoints returns for i. It does
// not use the network.
func New(n int, endpoints func(i int) []string) (*Fleet, error) {
	f := &Fleet{}
	for i := range n {
		c, err := clientlib.New(clientlib.Options{Endpoints: endpoints(i), Credential: clientlib.FromEnvironment})
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.clients = append(f.clients, c)
	}
	return f, nil
}

// Connect connects all clients. It returns the first error, with what to look at.
func (f *Fleet) Connect(ctx context.Context) error {
	return bench.Each(f.Len(), parallel, func(i int) error {
		if _, err := f.clients[i].ID(ctx); err != nil {
			return fmt.Errorf("connect client %d of %d: %w", i+1, f.Len(), err)
		}
		return nil
	})
}

// Len returns the number of clients.
func (f *Fleet) Len() int { return len(f.clients) }

// Client returns the client of a worker: workers share the clients evenly.
func (f *Fleet) Client(worker int) *clientlib.Client { return f.clients[worker%len(f.clients)] }

// Close closes all clients. It may be called again.
func (f *Fleet) Close() error {
	return bench.Each(f.Len(), parallel, func(i int) error { return f.clients[i].Close() })
}
