// SPDX-License-Identifier: Apache-2.0

// Package meter counts what the terms of one server did, for its metrics.
//
// Counting costs the hot path next to nothing: a term notes what happens beside its batch, in a Tally that belongs to the
// goroutine that has the batch, and adds that to the Meter once per batch, in one critical section of a mutex that nobody else
// wants, but for a scrape. No label is looked up and nothing is allocated. A scrape takes a copy.
//
// A Meter lives as long as the server, so that its counters go on from term to term.
package meter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Op is what a call asked for. Those of requests have the number of their locktable.Op.
type Op uint8

// The calls that are no requests to the lock table. The zero value is what is not counted.
const (
	OpRenew Op = iota + 24
	OpKeepAlive
	OpRead // of the table
	OpFile // of the state of a protected file
	ops
)

// statuses is how many of them there may be.
const statuses = 32

// String returns the name of the operation, as in the label op.
func (op Op) String() string {
	switch op {
	case OpRenew:
		return "renew"
	case OpKeepAlive:
		return "keepalive"
	case OpRead:
		return "read"
	case OpFile:
		return "file"
	}
	return locktable.Op(op).String()
}

// End is how a term ended.
type End uint8

// The ends of terms.
const (
	EndResigned End = iota // on purpose
	EndYielded             // before it served: another server is meant to
	EndFenced              // a later term took over
	EndNoQuorum            // no majority heard this primary
	EndStalled             // the volume stalled here and not elsewhere
	EndRefused             // no server can serve from the volume
	EndStopped             // the server stopped without a handover
	EndFailed              // anything else, mostly an error of the volume
	ends
)

// String returns the name of the end, as in the label end.
func (e End) String() string {
	return [...]string{"resigned", "yielded", "fenced", "no_quorum", "stalled", "refused", "stopped", "failed"}[e]
}

// Ends returns all ends of terms.
func Ends() (all []End) {
	for e := range ends {
		all = append(all, e)
	}
	return all
}

// Counts is what a Meter has counted.
type Counts struct {
	// Requests and Seconds are by operation, Requests also by status. Seconds leaves out the time in a lock's queue.
	Requests [ops][statuses]uint64
	Seconds  [ops]Histogram
	// Batch is how many calls one commit answered or passed on, Sync and Check how long its parts took, in seconds.
	Batch, Sync, Check Histogram
	// Wait is how long those waited in a lock's queue that were granted it, Hold how long grants lasted, in seconds. A hold is in
	// whole milliseconds, since a failover may lie within it.
	Wait, Hold Histogram
	// Takeover is how long it took from a claim until the term served, in seconds.
	Takeover Histogram
	// Ended are the terms that ended, by how.
	Ended [ends]uint64
	// Expired and Broken are leases, Appended bytes.
	Expired, Broken, Appended uint64
	// Exemplars are calls whose traces were reported last, by operation; the zero value where there is none.
	Exemplars [ops]Exemplar
}

// Exemplar is a traced call among those that a histogram counts.
type Exemplar struct {
	Trace   string // its ID
	Seconds float64
	At      time.Time // when it was answered
}

// Answer counts one call that was answered after so many seconds.
func (c *Counts) Answer(op Op, status cluster.Status, seconds float64) {
	if op == 0 || op >= ops {
		return
	}
	c.Requests[op][status%statuses]++
	c.Seconds[op].Observe(seconds)
}

// Add adds a tally.
func (c *Counts) Add(t *Tally) {
	c.Expired += t.Expired
	c.Broken += t.Broken
	c.Appended += t.Appended
	for _, d := range t.Waits {
		c.Wait.Observe(d.Seconds())
	}
	for _, ms := range t.Holds {
		c.Hold.Observe(float64(max(0, ms)) / 1000)
	}
}

// Tally is what happened in one batch. It belongs to one goroutine at a time.
type Tally struct {
	Expired, Broken, Appended uint64
	Waits                     []time.Duration
	Holds                     []int64 // in milliseconds
}

// Reset empties the tally and keeps its memory.
func (t *Tally) Reset() {
	*t = Tally{Waits: t.Waits[:0], Holds: t.Holds[:0]}
}

// Meter has the counts of one server. The zero value is ready for use by several goroutines.
type Meter struct {
	busy   atomic.Int64 // nanoseconds
	mu     sync.Mutex
	counts Counts
}

// Begin returns the counts to add to. End must be called soon.
func (m *Meter) Begin() *Counts {
	m.mu.Lock()
	return &m.counts
}

// End ends what Begin began.
func (m *Meter) End() { m.mu.Unlock() }

// Answer counts one call, see Counts.Answer.
func (m *Meter) Answer(op Op, status cluster.Status, took time.Duration) {
	if op == 0 {
		return
	}
	m.Begin().Answer(op, status, took.Seconds())
	m.End()
}

// Exemplify has a call be the exemplar of its operation.
func (m *Meter) Exemplify(op Op, e Exemplar) {
	if op == 0 || op >= ops {
		return
	}
	m.Begin().Exemplars[op] = e
	m.End()
}

// CountEnd counts a term that ended.
func (m *Meter) CountEnd(e End) {
	m.Begin().Ended[e]++
	m.End()
}

// Work counts time in which the core loop was busy and did not wait for the volume.
func (m *Meter) Work(d time.Duration) { m.busy.Add(int64(d)) }

// Busy returns what Work has counted.
func (m *Meter) Busy() time.Duration { return time.Duration(m.busy.Load()) }

// Snapshot returns a copy of the counts.
func (m *Meter) Snapshot() *Counts {
	c := new(Counts)
	m.mu.Lock()
	defer m.mu.Unlock()
	*c = m.counts
	return c
}
