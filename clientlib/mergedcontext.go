// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"sync"
	"sync/atomic"
)

// mergedContext is the context of a call: the caller's, which ends with the Client too. Most
// calls are answered before anything waits for either end, so the two are merged only when Done
// is called.
type mergedContext struct {
	context.Context // the caller's
	life            context.Context

	once   sync.Once
	merged atomic.Pointer[merged]
}

type merged struct {
	context.Context
	stop func()
}

func (j *mergedContext) merge() *merged {
	j.once.Do(func() {
		ctx, cancel := context.WithCancelCause(j.Context)
		if j.life.Err() != nil {
			cancel(context.Cause(j.life))
		}
		unhook := context.AfterFunc(j.life, func() { cancel(context.Cause(j.life)) })
		j.merged.Store(&merged{Context: ctx, stop: func() {
			unhook()
			cancel(nil)
		}})
	})
	return j.merged.Load()
}

// end releases what was merged.
func (j *mergedContext) end() {
	if m := j.merged.Load(); m != nil {
		m.stop()
	}
}

// Done implements context.Context.
func (j *mergedContext) Done() <-chan struct{} { return j.merge().Done() }

// Err implements context.Context.
func (j *mergedContext) Err() error {
	if err := j.Context.Err(); err != nil {
		return err
	}
	if j.life.Err() != nil {
		return j.merge().Err()
	}
	return nil
}

// Value implements context.Context; context.Cause asks here.
func (j *mergedContext) Value(key any) any {
	if m := j.merged.Load(); m != nil {
		return m.Value(key)
	}
	if j.life.Err() != nil {
		return j.merge().Value(key)
	}
	return j.Context.Value(key)
}

// outer returns the Done of the caller's own context, for callers that learn of the end of the
// Client otherwise.
func outer(ctx context.Context) <-chan struct{} {
	if j, ok := ctx.(*mergedContext); ok {
		return j.Context.Done()
	}
	return ctx.Done()
}
