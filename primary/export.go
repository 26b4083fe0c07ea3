// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// exportChunk is how many entities the core loop hands out at a time: within 100 µs.
	exportChunk = 128
	// restMost bounds one rest of background work. What took longer waited for storage.
	restMost = 20 * time.Millisecond
)

// export is a state of the table on its way out of the core loop.
type export struct {
	p *Primary
	// Owned by the reader.
	pace  *pace
	ended bool // the last chunk was read
	// Owned by the core loop.
	x       *locktable.Exporter
	givenUp bool
}

// chunk is what one call to the core loop gives. It is read behind the answer only.
type chunk struct {
	took     time.Duration // of the core loop's time
	at       wal.Position
	hash     uint64
	entities []locktable.Entity
	more     bool
}

// Export is the state at the end of a frame. It is read from the core loop in
// chunks while the table goes on changing, so it takes its time: it rests
// between them. Whoever does not read it to its end has to stop it.
func (p *Primary) Export(ctx context.Context) (_ volume.Export, stop func(), err error) {
	return p.export(ctx, p.newPace())
}

func (p *Primary) export(ctx context.Context, pace *pace) (_ volume.Export, stop func(), err error) {
	e := &export{p: p, pace: pace}
	first, err := e.ask(ctx, callInternal, func(v View, c *chunk) {
		if !e.givenUp {
			e.x = v.Table.BeginExport()
			c.at, c.hash = v.At, e.x.Hash()
		}
	})
	if err != nil {
		e.giveUp()
		return volume.Export{}, nil, err
	}
	return volume.Export{
		Cluster: p.reign.Cluster(), Epoch: p.reign.Epoch(), At: first.at, Hash: first.hash,
		Entities: e.entities(ctx, first),
	}, e.giveUp, nil
}

// ask lets the core loop prepare and hand out one chunk.
func (e *export) ask(ctx context.Context, kind callKind, prepare func(View, *chunk)) (*chunk, error) {
	c := &chunk{}
	asked := time.Now()
	out, err := e.p.await(ctx, &call{kind: kind, read: func(v View) {
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
	e.pace.idle += time.Since(asked) - c.took
	e.ended = !c.more
	return c, nil
}

// entities yields what the first chunk has and asks for the others. The basis of all of
// them is the position of the first, which was committed before that was answered.
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
			e.pace.rest()
			var err error
			if c, err = e.ask(ctx, callExport, func(View, *chunk) {}); err != nil {
				yield(locktable.Entity{}, err)
				return
			}
		}
	}
}

// giveUp lets the table forget an export that has not ended.
func (e *export) giveUp() {
	if e.ended {
		return
	}
	e.p.submit(&call{kind: callExport, done: func(locktable.Outcome) {}, read: func(View) {
		e.givenUp = true
		if e.x != nil {
			e.x.Close()
		}
	}})
}

// Snapshot is a table of the caller's own.
func (p *Primary) Snapshot(ctx context.Context) (volume.Snapshot, error) {
	x, stop, err := p.Export(ctx)
	if err != nil {
		return volume.Snapshot{}, err
	}
	defer stop()
	t, err := locktable.Restore(x.At.LSN, x.Entities)
	return volume.Snapshot{Cluster: x.Cluster, Epoch: x.Epoch, At: x.At, Table: t}, err
}

// pace keeps background work to a quarter of a core: behind each piece it rests
// three times as long as that worked.
type pace struct {
	sleep func(time.Duration) bool
	since time.Time
	idle  time.Duration // since then, of waiting for somebody else
	hurry func() bool   // says when not to rest; nil for never
}

func (p *Primary) newPace() *pace { return &pace{sleep: p.sleep, since: time.Now()} }

func (x *pace) rest() {
	worked := time.Since(x.since) - x.idle
	if worked > 0 && (x.hurry == nil || !x.hurry()) {
		x.sleep(min(3*worked, restMost))
	}
	x.since, x.idle = time.Now(), 0
}
