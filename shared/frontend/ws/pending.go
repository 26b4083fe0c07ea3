// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// kind is how an operation is counted while it has no answer.
type kind int

const (
	working kind = iota
	waiting      // for a lock, maybe for hours
)

// pending counts the operations of a connection that have no answer.
type pending struct {
	mu struct {
		sync.Mutex
		n     [2]int // by kind
		bytes int64  // of their messages
		idle  chan struct{}
	}
}

// kindOf returns waiting for acquires that may wait in a queue, else working.
func kindOf(m *message) kind {
	if o := ops.Named(m.op); o != nil && o.Waits() && m.has("wait") {
		return waiting
	}
	return working
}

// begin counts an operation. It returns a *wire.Error if there is no room for it.
func (f *pending) begin(k kind, bytes int, l *Limits) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	full := func(format string, n any) error {
		return &wire.Error{Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf(format, n)}
	}
	switch {
	case k == waiting && f.mu.n[waiting] >= l.Waiting:
		return full("the connection has %d acquires that wait", l.Waiting)
	case k == working && f.mu.n[working] >= l.InFlight:
		return full("the connection has %d operations in flight", l.InFlight)
	case f.mu.bytes+int64(bytes) > l.Bytes:
		return full("the connection has messages of %d bytes in flight", f.mu.bytes)
	}
	f.mu.n[k]++
	f.mu.bytes += int64(bytes)
	return nil
}

func (f *pending) end(k kind, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.n[k]--
	f.mu.bytes -= int64(bytes)
	if f.mu.n[working] == 0 && f.mu.idle != nil {
		close(f.mu.idle)
		f.mu.idle = nil
	}
}

// quiet returns a channel that is closed when there are only acquires that wait.
func (f *pending) quiet() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.idle == nil {
		f.mu.idle = make(chan struct{})
	}
	idle := f.mu.idle
	if f.mu.n[working] == 0 {
		close(f.mu.idle)
		f.mu.idle = nil
	}
	return idle
}
