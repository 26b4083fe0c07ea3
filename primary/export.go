// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/wal"
)

// exportChunk is how many entities the core loop returns at a time: within 100 µs.
const exportChunk = 128

// export is a state of the table on its way out of the core loop.
type export struct {
	p *Primary
	// Owned by the reader.
	limit *throttle.Throttle
	ended bool // the last chunk was read
	// Owned by the core loop.
	x       *locktable.Exporter
	givenUp bool
}

// chunk is what one call to the core loop returns. It is read after the answer only.
type chunk struct {
	took     time.Duration // of the core loop's time
	at       wal.Position
	hash     uint64
	entities []locktable.Entity
	more     bool
}

// Export returns the state at the end of a frame. Its entities are read from the core loop in
// chunks, with rests between them, while the table goes on changing. The caller has to call
// stop if it does not read them to the end; it may always. It returns an error if the term has
// ended, or the cause of ctx.
func (p *Primary) Export(ctx context.Context) (_ checkpoint.Export, stop func(), err error) {
	return p.export(ctx, throttle.New(p.term.Done(), nil))
}

func (p *Primary) export(ctx context.Context, limit *throttle.Throttle) (_ checkpoint.Export, stop func(), err error) {
	e := &export{p: p, limit: limit}
	first, err := e.ask(ctx, callInternal, func(v serving.View, c *chunk) {
		if !e.givenUp {
			e.x = v.Table.BeginExport()
			c.at, c.hash = v.At, e.x.Hash()
		}
	})
	if err != nil {
		e.giveUp()
		return checkpoint.Export{}, nil, err
	}
	return checkpoint.Export{
		Cluster: p.term.Cluster(), Epoch: p.term.Epoch(), At: first.at, Hash: first.hash,
		Entities: e.entities(ctx, first),
	}, e.giveUp, nil
}

// ask has the core loop prepare and return one chunk.
func (e *export) ask(ctx context.Context, kind callKind, prepare func(serving.View, *chunk)) (*chunk, error) {
	c := &chunk{}
	asked := time.Now()
	out, err := e.p.await(ctx, &call{kind: kind, read: func(v serving.View) {
		began := time.Now()
		prepare(v, c)
		if e.x != nil {
			c.entities, c.more = e.x.Next(exportChunk, nil)
		}
		c.took = time.Since(began)
	}})
	if err == nil && out.Status != cluster.StatusOK {
		err = fmt.Errorf("export the table: %v", out.Status)
	}
	if err != nil {
		return nil, err // the core loop may still be writing c
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
			if c, err = e.ask(ctx, callExport, func(serving.View, *chunk) {}); err != nil {
				yield(locktable.Entity{}, err)
				return
			}
		}
	}
}

// giveUp closes an export that has not ended.
func (e *export) giveUp() {
	if e.ended {
		return
	}
	e.p.submit(&call{kind: callExport, done: func(locktable.Outcome) {}, read: func(serving.View) {
		e.givenUp = true
		if e.x != nil {
			e.x.Close()
		}
	}})
}

// Snapshot returns a copy of the table for the caller, at the end of a frame.
func (p *Primary) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	x, stop, err := p.Export(ctx)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer stop()
	t, err := locktable.Restore(x.At.LSN, x.Entities)
	return checkpoint.Snapshot{Cluster: x.Cluster, Epoch: x.Epoch, At: x.At, Table: t}, err
}
