// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Tracer decides which calls are traced. It is safe for use by several goroutines.
type Tracer interface {
	// Begin returns the trace of a call, nil for a call that is not traced, as most are not. Parent is the traceparent that the
	// caller sent, as W3C Trace Context has it, "" for none; one that is malformed counts as none.
	Begin(parent string) Trace
}

// Trace is the trace of one call. Its methods return at once: what cannot be taken is dropped.
type Trace interface {
	// ID returns the ID of the trace, in hexadecimal.
	ID() string
	// Report adds what a primary did for the call, when its answer leaves.
	Report(Stages)
	// Forward begins an attempt to have another server execute the call. It returns the traceparent to send there, and a
	// function that ends the attempt with the status of the answer, StatusUnknown where none came.
	Forward(to cluster.ServerID) (parent string, end func(cluster.Status))
}

// Stages is where the time of a call went, at the primary that answered it. A stage begins where the one before ends. Times
// that are zero were not reached: the call was answered without a commit.
type Stages struct {
	// Op is the operation, such as acquire, and Status its answer.
	Op     string
	Status cluster.Status
	// Lock and File are what it was about, "" where it names none.
	Lock cluster.LockName
	File cluster.FileName
	// Epoch is that of the term that answered.
	Epoch cluster.Epoch
	// Put is when the call was put into the queue of the core loop, and Ready when its wait in the queue of a lock ended; without
	// such a wait they are the same.
	Put, Ready time.Time
	// Commit is when its commit began, Synced when the log was durable, Checked when the fence had been read.
	Commit, Synced, Checked time.Time
	// Answered is when the answer left. Writes reports whether it waited for a write to a file since Checked, rather than for
	// replicas.
	Answered time.Time
	Writes   bool
}

// Traces has the Tracer of a server, which may change while the server runs. The zero value, and nil, trace nothing.
type Traces struct{ now atomic.Pointer[Tracer] }

// Set has t trace the calls that begin from now on; nil = nothing is traced.
func (s *Traces) Set(t Tracer) {
	if t == nil {
		s.now.Store(nil)
		return
	}
	s.now.Store(&t)
}

// Tracer returns what traces calls now, nil where nothing does.
func (s *Traces) Tracer() Tracer {
	if s == nil {
		return nil
	}
	if t := s.now.Load(); t != nil {
		return *t
	}
	return nil
}

// Begin returns a context of a call with its trace, ctx itself for a call that is not traced. Parent is as for Tracer.Begin.
func (s *Traces) Begin(ctx context.Context, parent string) context.Context {
	if t := s.Tracer(); t != nil {
		if x := t.Begin(parent); x != nil {
			return context.WithValue(ctx, traceKey{}, x)
		}
	}
	return ctx
}

type traceKey struct{}

// TraceOf returns the trace of the call that ctx is of, nil for none.
func TraceOf(ctx context.Context) Trace {
	x, _ := ctx.Value(traceKey{}).(Trace)
	return x
}
