// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// kind is what an operation counts as while it has no answer.
type kind int

const (
	working kind = iota
	waiting      // for a lock, maybe for hours
)

// flight counts the operations of a connection that have no answer.
type flight struct {
	mu struct {
		sync.Mutex
		n     [2]int // by kind
		bytes int64  // of their messages
		idle  chan struct{}
	}
}

// kindOf tells acquires that may stand in a queue from the rest.
func kindOf(m *message) kind {
	if m.op == "acquire" && m.has("wait") {
		return waiting
	}
	return working
}

// begin counts an operation, or says why there is no room for it.
func (f *flight) begin(k kind, bytes int, l *Limits) error {
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

func (f *flight) end(k kind, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.n[k]--
	f.mu.bytes -= int64(bytes)
	if f.mu.n[working] == 0 && f.mu.idle != nil {
		close(f.mu.idle)
		f.mu.idle = nil
	}
}

// quiet is closed when there are only acquires that wait.
func (f *flight) quiet() <-chan struct{} {
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
