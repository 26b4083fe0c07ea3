// SPDX-License-Identifier: Apache-2.0

package bench

import "context"

// Mode is how a worker wants its locks.
type Mode int

const (
	// Alone: nobody else wants the key.
	Alone Mode = iota
	// Queue: others do, and the worker waits for its turn.
	Queue
)

// Target is a lock service under load.
type Target interface {
	// Name is what the rows call it.
	Name() string
	// Locker is the access of one worker.
	Locker(ctx context.Context, worker int, mode Mode) (Locker, error)
	// PIDs are the processes whose processor time is the service's; nil if it is not known.
	PIDs() []int
}

// Locker is one worker's access to a service. It holds at most one lock at a
// time and is for one goroutine.
type Locker interface {
	// Acquire returns when the lock is held.
	Acquire(ctx context.Context, key string) error
	// Release gives back what Acquire got.
	Release(ctx context.Context) error
	Close() error
}

// Appender is a Locker whose service also appends under the lock that is held:
// durably, and not when the lock is lost.
type Appender interface {
	Locker
	Append(ctx context.Context, file string, data []byte) error
}
