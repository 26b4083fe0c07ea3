// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// callKind is what a call asks of the core loop.
type callKind uint8

const (
	callRequest callKind = iota
	callRenew
	callKeepAlive
	callRead
	callFile       // where a protected file ends
	callInternal   // a read by the primary itself, where a frame ends
	callExport     // a read of a state that has left already
	callResign     // end the reign on purpose
	callVerified   // a file's writer has verified its file
	callQuarantine // a file's writer found a foreign file
)

// call is one thing for the core loop to do. Until it is queued it belongs to
// the caller, then to the core loop.
type call struct {
	kind   callKind
	req    *locktable.Request
	read   func(View)
	belief Belief
	// grants and asks answer a KeepAlive; written before done.
	grants []locktable.Grant
	asks   []locktable.Ask
	// word is what a file's writer said: of a callVerified, and of a request
	// that was parked for it.
	word *verified
	// done is called exactly once, from a goroutine of the primary, and must not block.
	done func(locktable.Outcome)
	// order is what the call was made of, or nil: a batch tells its outcome to the
	// order's outlet together with others.
	order *Order
	// abandoned says that nobody waits any more: the call no longer keeps its waiter
	// alive. Not nil for a request; calls of one connection may share it.
	abandoned *atomic.Bool
}

// queue is how calls reach the core loop: many put, the core loop takes all there is.
type queue struct {
	wake chan struct{} // capacity 1
	mu   struct {
		sync.Mutex
		calls  []*call
		closed bool
	}
}

// put queues calls. After close they are answered UNKNOWN at once.
func (q *queue) put(calls ...*call) {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		for _, c := range calls {
			c.answerUnknown()
		}
		return
	}
	first := len(q.mu.calls) == 0
	q.mu.calls = append(q.mu.calls, calls...)
	q.mu.Unlock()
	if first {
		q.poke()
	}
}

func (c *call) answerUnknown() {
	if c.done != nil {
		c.done(unknown())
	}
}

// unknown answers what was in flight when the reign ended: the next one may
// have adopted it or not.
func unknown() locktable.Outcome {
	return locktable.Outcome{Status: cluster.StatusUnknown, Message: "the reign ended: ask again with the same request ID"}
}

// take swaps what is queued for the empty slice it is given.
func (q *queue) take(empty []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls := q.mu.calls
	q.mu.calls = empty
	return calls
}

// empty says that nothing is queued now.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.calls) == 0
}

func (q *queue) poke() { poke(q.wake) }

// close answers what is queued, and everything put from now on, UNKNOWN.
func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	calls := q.mu.calls
	q.mu.calls = nil
	q.mu.Unlock()
	for _, c := range calls {
		c.answerUnknown()
	}
}
