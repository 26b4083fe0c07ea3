// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// LossOf is the loss that a record is to the holder of the grant that it ends.
func LossOf(g *locktable.Grant, r *locktable.Record) Loss {
	return Loss{Client: g.Client, Told: &pb.Loss{
		Lock: string(g.Lock), Token: uint64(g.Token), RequestId: uint64(g.Request),
		Reason: convert.LossReason(r.Kind), Lsn: uint64(r.LSN), Epoch: uint64(r.Epoch),
		Actor: r.Actor, Message: r.Reason,
	}}
}

// ClearedOf is the loss that a ForceClear is to everybody: it names no lock, for it ends
// every grant there was.
func ClearedOf(r *locktable.Record) Loss {
	return Loss{Told: &pb.Loss{Reason: convert.LossReason(r.Kind), Lsn: uint64(r.LSN), Epoch: uint64(r.Epoch)}}
}

// AskOf is the word of an Ask to the holder of a grant.
func AskOf(g *locktable.Grant, r *locktable.Record) Loss {
	return Loss{Client: g.Client, Ask: convert.FromAsk(&locktable.Ask{
		Lock: g.Lock, Token: g.Token, LSN: r.LSN, Actor: r.Actor, Reason: r.Reason, Grace: r.Wait, Remaining: r.Wait, Request: g.Request,
	})}
}

// lossWatcher is one who wants to hear of a client's losses.
type lossWatcher struct {
	client cluster.ClientID
	tell   func([]Loss)
}

// Losses has tell told of every grant of a client that ends otherwise than by its
// holder's own release, and of every ask to let go, until the returned function is
// called; that may be from anywhere but tell. Losses after an LSN that are still
// known are told at once; 0 = none. Tell must not block, nor change what it is told. Told
// of none, it may have missed some: only a keep-alive knows then.
func (h *Hub) Losses(client cluster.ClientID, after cluster.LSN, tell func([]Loss)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
	if after != 0 && !h.reaches(after) {
		tell(nil)
	}
	if known := h.lossesSince(client, after); len(known) > 0 {
		tell(known)
	}
	x := &lossWatcher{client: client, tell: tell}
	h.mu.losses[client] = append(h.mu.losses[client], x)
	h.want()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		left := slices.DeleteFunc(h.mu.losses[client], func(y *lossWatcher) bool { return y == x })
		if h.mu.losses[client] = left; len(left) == 0 {
			delete(h.mu.losses, client)
			h.want()
		}
	}
}

// lossesSince lists the kept losses of a client after an LSN.
func (h *Hub) lossesSince(client cluster.ClientID, after cluster.LSN) (known []Loss) {
	if after == 0 {
		return nil
	}
	h.in.Lock()
	var chunks []*chunk
	for i := len(h.in.ring) - 1; i >= 0 && h.in.ring[i].end.LSN > after; i-- {
		// What was not handed out yet will be told with the rest.
		if h.in.first+uint64(i) < h.mu.next && len(h.in.ring[i].losses) > 0 {
			chunks = append(chunks, h.in.ring[i])
		}
	}
	h.in.Unlock()
	for _, c := range slices.Backward(chunks) {
		if c.findSuccessors() != nil {
			continue // who resumes a watch is told
		}
		for _, l := range c.losses {
			if l.concerns(client) && l.Told != nil && cluster.LSN(l.lsn()) > after {
				known = append(known, l)
			}
		}
	}
	return known
}

// tellLosses tells the losses of a chunk.
func (h *Hub) tellLosses(c *chunk) error {
	if err := c.findSuccessors(); err != nil {
		return err
	}
	told := map[cluster.ClientID][]Loss{}
	for _, l := range c.losses {
		if l.Client == "" {
			for client := range h.mu.losses {
				told[client] = append(told[client], l)
			}
		} else if len(h.mu.losses[l.Client]) > 0 {
			told[l.Client] = append(told[l.Client], l)
		}
	}
	for client, losses := range told {
		for _, x := range h.mu.losses[client] {
			x.tell(losses)
		}
	}
	return nil
}

// tellGap says to all that losses may have been missed.
func (h *Hub) tellGap() {
	for _, all := range h.mu.losses {
		for _, x := range all {
			x.tell(nil)
		}
	}
}

// findSuccessors completes the losses with the grants behind them: a lock that
// somebody waits for is granted in the frame that freed it. Several who share a lock
// may lose it before that.
func (c *chunk) findSuccessors() error {
	if c.succeeded {
		return nil
	}
	open := map[string][]*pb.Loss{}
	i := 0
	err := c.decode(func(e *event, r *locktable.Record) {
		if e.kind == locktable.KindGrant {
			for _, l := range open[e.lock] {
				l.SuccessorToken = uint64(r.LSN.Token())
			}
			delete(open, e.lock)
		}
		for ; i < len(c.losses) && uint64(e.lsn) == c.losses[i].lsn(); i++ { // a clear ends many
			if told := c.losses[i].Told; told != nil {
				open[told.Lock] = append(open[told.Lock], told)
			}
		}
	})
	c.succeeded = err == nil
	return err
}
