// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"bytes"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// startWatch connects the watch hub to this term, until it ends. publish feeds it.
func (p *Primary) startWatch() {
	f := p.opt.Watch
	if f == nil {
		return
	}
	f.Begin(p.Committed(), p.Epoch())
	context.AfterFunc(p.term.Context(), func() { f.End("the term ended") })
}

// publish gives a committed batch to the replication and to the watch hub, which share one copy
// of its frame: the batch is used again.
func (p *Primary) publish(b *batch) {
	replicas, hub := len(p.opt.Replicas) > 0, p.opt.Watch
	if b.Len() == 0 || !replicas && hub == nil {
		return
	}
	frame := bytes.Clone(b.Elided())
	if replicas {
		p.replication.Add(b.Start(), b.End(), frame)
	}
	if hub != nil {
		hub.Frames(b.Start(), b.End(), p.Epoch(), frame, b.losses)
	}
}

// noteEnds records which grant a record ends, for the history, and the loss or Ask for its
// holder, while the table still has the grant: the record does not name the holder.
func (c *core) noteEnds(r *locktable.Record) {
	switch r.Kind {
	case locktable.KindGrant, locktable.KindForceClear:
		c.limiter.Observe(c.table, r, &c.cur.ended)
		if r.Kind == locktable.KindForceClear && c.p.opt.Watch != nil {
			c.loseAll(r)
			c.cur.losses = append(c.cur.losses, watch.ClearedOf(r))
		}
		return
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak, locktable.KindAsk:
	default:
		return
	}
	g, live := c.table.Live(r.Lock, r.Token)
	if !live {
		return
	}
	if r.Kind != locktable.KindAsk {
		c.limiter.Ended(c.table, &g, r, &c.cur.ended)
	}
	if c.p.opt.Watch != nil {
		c.lose(&g, r)
	}
}

// maxCleared is how many holders get a loss of their own from one record that ends all grants.
// All are told that everything is lost.
const maxCleared = 1 << 14

// loseAll adds a loss for every holder of which a record ends the grant, except anonymous ones,
// which cannot be reached.
func (c *core) loseAll(r *locktable.Record) {
	for l := range c.table.Leases("", 0) {
		if len(c.cur.losses) >= maxCleared {
			return
		}
		if l.Token() == 0 || l.Client().ID().Anonymous() {
			continue
		}
		if g, live := c.table.Live(l.Lock(), l.Token()); live {
			c.lose(&g, r)
		}
	}
}

// lose adds the loss or Ask for the holder of a grant. A holder's own release is no loss.
func (c *core) lose(g *locktable.Grant, r *locktable.Record) {
	switch {
	case r.Kind == locktable.KindRelease && r.Client == g.Client:
	case r.Kind == locktable.KindAsk:
		c.cur.losses = append(c.cur.losses, watch.AskOf(g, r))
	default:
		loss := watch.LossOf(g, r)
		loss.Ended.LastAppend = c.lastAppend(g)
		c.cur.losses = append(c.cur.losses, loss)
	}
}

// note records an append as the last one under its token.
func (c *core) note(r *locktable.Record) {
	a := c.appended[r.Token]
	if a == nil {
		a = &pb.Receipt{}
		c.appended[r.Token] = a
	}
	a.File, a.Offset, a.Length, a.Crc32C = string(r.File), r.Offset, r.Length, r.CRC
	a.Lsn, a.Token, a.Epoch, a.Generation = uint64(r.LSN), uint64(r.Token), uint64(r.Epoch), uint64(r.Generation)
}

// lastAppend returns the last append under a live grant, nil if there was none. One of an older
// term is found in the files: what was appended to a file of the lock since it was granted was
// appended under the grant. Then its epoch is not known, and an append to a file that was
// rotated or unbound since is not found.
func (c *core) lastAppend(g *locktable.Grant) *pb.Receipt {
	if last := c.appended[g.Token]; last != nil {
		return proto.CloneOf(last)
	}
	return convert.LastAppend(c.table, g)
}
