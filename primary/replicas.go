// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
)

// host is a primary as its replication sees it.
type host struct{ *Primary }

// ReadTable implements replication.Host.
func (h host) ReadTable(ctx context.Context, frame bool, f func(serving.View)) error {
	kind := callExport
	if frame {
		kind = callInternal
	}
	out, err := h.await(ctx, &call{kind: kind, read: f})
	if err == nil && out.Status != cluster.StatusOK {
		err = fmt.Errorf("export the table: %v", out.Status)
	}
	return err
}

// Export returns the state at the end of a frame, see replication.Replication.Export, with rests
// while its entities are read.
func (p *Primary) Export(ctx context.Context) (_ checkpoint.Export, stop func(), err error) {
	return p.replication.Export(ctx, throttle.New(p.term.Done(), nil))
}

// Snapshot returns a copy of the table for the caller, at the end of a frame. It returns the
// errors of Export.
func (p *Primary) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	x, stop, err := p.Export(ctx)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer stop()
	t, err := locktable.Restore(x.At.LSN, x.Entities)
	return checkpoint.Snapshot{Cluster: x.Cluster, Epoch: x.Epoch, At: x.At, Table: t}, err
}

// Waited returns for each replica whether answers wait for it; nothing if they wait for none by
// configuration.
func (p *Primary) Waited() map[cluster.ServerID]bool { return p.replication.Waited() }

// deliverAcknowledged delivers the answers of a batch when the replicas have applied what they
// depend on.
func (p *Primary) deliverAcknowledged(b *batch) {
	lsn := b.End().LSN
	if len(b.answers) == 0 || p.replication.Acknowledged(lsn) {
		p.deliverAll(b, b.times.checked)
		return
	}
	later := &batch{answers: slices.Clone(b.answers), times: b.times} // b is used again
	p.replication.Hold(lsn, func(ok bool) {
		if !ok {
			later.fail()
			return
		}
		p.deliverAll(later, p.age())
	})
}

// holdAppends has appends answered only when the replicas have applied them, too.
func (p *Primary) holdAppends(jobs []appendJob) {
	if !p.replication.Waits() {
		return
	}
	for i := range jobs {
		done, lsn := jobs[i].done, jobs[i].rec.LSN
		if done == nil {
			continue
		}
		jobs[i].done = func(out locktable.Outcome) {
			p.replication.Hold(lsn, func(ok bool) {
				if !ok {
					out = serving.Unknown()
				}
				done(out)
			})
		}
	}
}
