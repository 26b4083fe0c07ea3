// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/fleet"
)

// Name is the name of Holdfast in the rows.
const Name = "holdfast"

// Holdfast is the bench.Target for Holdfast, used through some clients that the workers share.
type Holdfast struct {
	// Wait is how long an acquire of a key that no other worker uses may wait; 0 = it tries once.
	Wait time.Duration

	endpoints []string
	clients   *fleet.Fleet
	watching  *fleet.Fleet // each client knows one server
	pids      []int
}

// NewHoldfast returns a Target with this number of clients. pids are the server processes; nil if
// they are not known.
func NewHoldfast(endpoints []string, clients int, pids []int) (*Holdfast, error) {
	all, err := fleet.New(clients, func(int) []string { return endpoints })
	if err != nil {
		return nil, err
	}
	return &Holdfast{endpoints: endpoints, clients: all, watching: &fleet.Fleet{}, pids: pids}, nil
}

// Connect connects all clients, so that no measurement includes that.
func (h *Holdfast) Connect(ctx context.Context) error { return h.clients.Connect(ctx) }

// Close closes the clients.
func (h *Holdfast) Close() error { return errors.Join(h.clients.Close(), h.watching.Close()) }

// Name returns the constant Name.
func (h *Holdfast) Name() string { return Name }

// PIDs returns the server processes.
func (h *Holdfast) PIDs() []int { return h.pids }

// client is the one that a worker uses.
func (h *Holdfast) client(worker int) *clientlib.Client { return h.clients.Client(worker) }

// Locker returns the access of a worker.
func (h *Holdfast) Locker(_ context.Context, worker int, mode bench.Mode) (bench.Locker, error) {
	l := &locker{client: h.client(worker)}
	l.opt.Wait = h.Wait
	if mode == bench.Queue {
		l.opt.Wait = clientlib.Forever
	}
	return l, nil
}

type locker struct {
	client *clientlib.Client
	opt    clientlib.AcquireOptions
	lock   *clientlib.Lock // that is held
}

func (l *locker) Acquire(ctx context.Context, key string) (err error) {
	l.lock, err = l.client.Acquire(ctx, clientlib.LockName(key), l.opt)
	return err
}

// Token returns the token of the lock that is held, or was held last.
func (l *locker) Token() uint64 { return uint64(l.lock.Token()) }

func (l *locker) Release(ctx context.Context) error { return l.lock.Release(ctx) }

func (l *locker) Append(ctx context.Context, file string, data []byte) error {
	_, err := l.lock.Append(ctx, clientlib.FileName(file), data)
	return err
}

func (l *locker) Close() error { return nil }
