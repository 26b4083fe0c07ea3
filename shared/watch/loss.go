// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// LossOf returns the loss of g's holder, whose grant a release by others, an expiry or a break ends
// with r.
func LossOf(g *locktable.Grant, r *locktable.Record) Loss {
	return Loss{Client: g.Client, Identity: g.Identity, Ended: &pb.Loss{
		Lock: string(g.Lock), Token: uint64(g.Token), RequestId: uint64(g.Request),
		Reason: convert.LossReason(r.Kind), Lsn: uint64(r.LSN), Epoch: uint64(r.Epoch),
		Actor: r.Actor, Message: r.Reason,
	}}
}

// ClearedOf returns the loss of all clients by a ForceClear. It names no lock, for r ends every
// grant.
func ClearedOf(r *locktable.Record) Loss {
	return Loss{Ended: &pb.Loss{Reason: convert.LossReason(r.Kind), Lsn: uint64(r.LSN), Epoch: uint64(r.Epoch)}}
}

// AskOf returns the release request to g's holder that r records.
func AskOf(g *locktable.Grant, r *locktable.Record) Loss {
	return Loss{Client: g.Client, Identity: g.Identity, Ask: convert.FromAsk(&locktable.Ask{
		Lock: g.Lock, Token: g.Token, LSN: r.LSN, Actor: r.Actor, Reason: r.Reason, Grace: r.Wait, Remaining: r.Wait, Request: g.Request,
	})}
}

// lossWatcher is a subscription to a client's losses.
type lossWatcher struct {
	client  cluster.ClientID
	deliver func([]Loss)
}

// Losses calls deliver with every grant of a client that ends otherwise than by its holder's own
// release, and with every release request, until stop is called; that may be from anywhere but
// deliver. Losses after an LSN that are still known are delivered at once; 0 = none. Deliver must not
// block, nor change what it gets. An empty slice means that losses may have been missed: only a
// keep-alive knows then.
func (h *Hub) Losses(client cluster.ClientID, after cluster.LSN, deliver func([]Loss)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
	if after != 0 && !h.reaches(after) {
		deliver(nil)
	}
	if known := h.lossesSince(client, after); len(known) > 0 {
		deliver(known)
	}
	x := &lossWatcher{client: client, deliver: deliver}
	h.mu.losses[client] = append(h.mu.losses[client], x)
	h.updateDemand()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		left := slices.DeleteFunc(h.mu.losses[client], func(y *lossWatcher) bool { return y == x })
		if h.mu.losses[client] = left; len(left) == 0 {
			delete(h.mu.losses, client)
			h.updateDemand()
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
		// What was not distributed yet will be delivered with the rest.
		if h.in.first+uint64(i) < h.mu.next && len(h.in.ring[i].losses) > 0 {
			chunks = append(chunks, h.in.ring[i])
		}
	}
	h.in.Unlock()
	for _, c := range slices.Backward(chunks) {
		if c.findSuccessors() != nil {
			continue // a watch that resumes gets the error
		}
		for _, l := range c.losses {
			if l.concerns(client) && l.Ended != nil && cluster.LSN(l.lsn()) > after {
				known = append(known, l)
			}
		}
	}
	return known
}

// deliverLosses delivers the losses of a chunk.
func (h *Hub) deliverLosses(c *chunk) error {
	if err := c.findSuccessors(); err != nil {
		return err
	}
	byClient := map[cluster.ClientID][]Loss{}
	for _, l := range c.losses {
		if l.Client == "" {
			for client := range h.mu.losses {
				byClient[client] = append(byClient[client], l)
			}
		} else if len(h.mu.losses[l.Client]) > 0 {
			byClient[l.Client] = append(byClient[l.Client], l)
		}
	}
	for client, losses := range byClient {
		for _, x := range h.mu.losses[client] {
			x.deliver(losses)
		}
	}
	return nil
}

// deliverGap lets all subscribers know that losses may have been missed.
func (h *Hub) deliverGap() {
	for _, all := range h.mu.losses {
		for _, x := range all {
			x.deliver(nil)
		}
	}
}

// findSuccessors completes the losses with the grants that follow: a lock with a queue is granted
// in the frame that freed it. Several holders of a lock may lose it before that.
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
			if l := c.losses[i].Ended; l != nil {
				open[l.Lock] = append(open[l.Lock], l)
			}
		}
	})
	c.succeeded = err == nil
	return err
}
