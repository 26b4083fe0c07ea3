// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
)

// exportChunk is how many entities the owner of the table returns at a time: within 100 µs.
const exportChunk = 128

// export is a state of the table on its way out of the goroutine that owns it.
type export struct {
	host Host
	// Owned by the reader.
	limit *throttle.Throttle
	ended bool // the last chunk was read
	// Owned by the goroutine that owns the table.
	x       *locktable.Exporter
	givenUp bool
}

// chunk is what one call to the owner of the table returns. It is read after that only.
type chunk struct {
	took     time.Duration // of the owner's time
	entities []locktable.Entity
	more     bool
}

// Export returns the state at the end of a frame. Its entities are read from the table in chunks,
// with rests between them if there is a limit, while it goes on changing. The caller has to call
// stop if it does not read them to the end; it may always. It returns an error if the term has
// ended, or the cause of ctx.
func (r *Replication) Export(ctx context.Context, limit *throttle.Throttle) (_ checkpoint.Export, stop func(), err error) {
	e := &export{host: r.host, limit: limit}
	x := checkpoint.Export{Cluster: r.opt.Cluster, Epoch: r.opt.Epoch}
	first, err := e.ask(ctx, true, func(v serving.View) {
		if !e.givenUp {
			e.x = v.Table.BeginExport()
			x.At, x.Hash = v.At, e.x.Hash()
		}
	})
	if err != nil {
		e.giveUp()
		return checkpoint.Export{}, nil, err // the owner of the table may still be writing x
	}
	x.Entities = e.entities(ctx, first)
	return x, e.giveUp, nil
}

// ask has the owner of the table prepare and return one chunk.
func (e *export) ask(ctx context.Context, frame bool, prepare func(serving.View)) (*chunk, error) {
	c := &chunk{}
	asked := time.Now()
	err := e.host.ReadTable(ctx, frame, func(v serving.View) {
		began := time.Now()
		prepare(v)
		if e.x != nil {
			c.entities, c.more = e.x.Next(exportChunk, nil)
		}
		c.took = time.Since(began)
	})
	if err != nil {
		return nil, err // the owner may still be writing c
	}
	e.limit.Waited(time.Since(asked) - c.took)
	e.ended = !c.more
	return c, nil
}

// entities yields the first chunk c and asks for the others. The basis of all of them is the
// position of the first, which was committed before that was answered.
func (e *export) entities(ctx context.Context, c *chunk) iter.Seq2[locktable.Entity, error] {
	return func(yield func(locktable.Entity, error) bool) {
		for {
			for _, x := range c.entities {
				if !yield(x, nil) {
					return
				}
			}
			if !c.more {
				return
			}
			e.limit.Rest()
			var err error
			if c, err = e.ask(ctx, false, func(serving.View) {}); err != nil {
				yield(locktable.Entity{}, err)
				return
			}
		}
	}
}

// giveUp closes an export that has not ended. It does not wait for that.
func (e *export) giveUp() {
	if e.ended {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.host.ReadTable(ctx, false, func(serving.View) { //nolint:errcheck // it is not waited for
		e.givenUp = true
		if e.x != nil {
			e.x.Close()
		}
	})
}
