// SPDX-License-Identifier: Apache-2.0

package bench

import "context"

// Mode is how workers use their locks.
type Mode int

const (
	// Alone means that no other worker uses the key.
	Alone Mode = iota
	// Queue means that other workers do, and each waits for its turn.
	Queue
)

// Target is a lock service under load.
type Target interface {
	// Name returns its name in the rows.
	Name() string
	// Locker returns the access of one worker.
	Locker(ctx context.Context, worker int, mode Mode) (Locker, error)
	// PIDs returns the processes of the service, for its processor time; nil if they are not known.
	PIDs() []int
}

// Locker is one worker's access to a service. It holds at most one lock at a
// time and is for one goroutine.
type Locker interface {
	// Acquire returns when the lock is held.
	Acquire(ctx context.Context, key string) error
	// Release releases the lock of Acquire.
	Release(ctx context.Context) error
	Close() error
}

// Appender is a Locker whose service can also append under the held lock:
// durably, and not after the lock is lost.
type Appender interface {
	Locker
	Append(ctx context.Context, file string, data []byte) error
}
