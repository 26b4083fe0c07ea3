// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

func (c *core) addLease(lock cluster.LockName, token cluster.Token, client cluster.ClientID, ttl time.Duration) {
	c.leases[token] = &lease{lock: lock, token: token, client: client, ttl: ttl, granted: c.now}
	c.timers.add(timer{at: c.now + ttl, kind: timerLease, token: token})
}

func (c *core) addWaiter(lock cluster.LockName, client cluster.ClientID, request cluster.RequestID, ttl, wait time.Duration) {
	w := &waiter{lock: lock, ttl: ttl, since: c.now, deadline: -1}
	if wait >= 0 {
		w.deadline = c.now + wait
	}
	key := waitKey{client, request}
	c.waits[key] = w
	c.timers.add(timer{at: c.nextLook(w, key), kind: timerWaiter, key: key})
}

// deadline is when a lease ends: its TTL after the grant or after its client was
// last heard, whichever is later. So one keep-alive renews all a client holds.
func (c *core) deadline(l *lease) time.Duration {
	from := l.granted
	if heard, ok := c.heard[l.client]; ok && heard > from {
		from = heard
	}
	return from + l.ttl
}

// silence is when a waiter is taken out because nobody stands behind it.
func (c *core) silence(w *waiter, key waitKey) time.Duration {
	from := w.since
	if heard, ok := c.heard[key.client]; ok && heard > from {
		from = heard
	}
	for _, x := range w.calls {
		if !x.abandoned.Load() {
			from = c.now
		}
	}
	return from + w.ttl
}

// nextLook is when a waiter may have to go.
func (c *core) nextLook(w *waiter, key waitKey) time.Duration {
	at := c.silence(w, key)
	if w.deadline >= 0 {
		at = min(at, w.deadline)
	}
	return at
}

// unheard stands for a client that has not spoken in this reign.
const unheard time.Duration = -1

// hear notes that a client of the table has spoken. One that is not in the table
// is noted when its first record is.
func (c *core) hear(id cluster.ClientID) {
	if _, known := c.heard[id]; known {
		c.heard[id] = c.now
	}
}

// hearOf begins to count the silence of a client that a record named.
func (c *core) hearOf(id cluster.ClientID) {
	if id == "" {
		return
	}
	if _, known := c.heard[id]; known {
		return
	}
	c.heard[id] = unheard
	if !id.Anonymous() {
		c.timers.add(timer{at: c.now + c.p.opt.Timing.ClientRetention, kind: timerClient, key: waitKey{client: id}})
	}
}

// hearHolder notes that a live token was used, by whomever: its lease's client counts as heard.
func (c *core) hearHolder(lock cluster.LockName, token cluster.Token) (locktable.Grant, bool) {
	g, ok := c.table.Live(lock, token)
	if ok {
		c.hear(g.Client)
	}
	return g, ok
}

func (c *core) renew(x *call) {
	g, ok := c.hearHolder(x.req.Lock, x.req.Token)
	out := locktable.Outcome{
		Status: cluster.StatusOK, Lock: x.req.Lock, Token: x.req.Token, TTL: g.TTL, Client: g.Client, Epoch: c.p.Epoch(),
	}
	if !ok {
		out.Status, out.Message = cluster.StatusInvalidToken, "the token is not the live one of this lock"
	}
	c.answer(x, out)
}

func (c *core) keepAlive(x *call) {
	id := x.req.Client
	_, known := c.table.Client(id)
	if id.Opened() && !known {
		c.answer(x, locktable.Outcome{Status: cluster.StatusStaleRequest, Client: id, Message: "the client was forgotten: open a new one"})
		return
	}
	c.hear(id)
	if c.table.HeldBy(id) != x.held {
		x.grants = []locktable.Grant{} // who holds nothing has to be told, too
		for g := range c.table.Held(id) {
			x.grants = append(x.grants, g)
		}
	}
	c.answer(x, locktable.Outcome{Status: cluster.StatusOK, Client: id, Epoch: c.p.Epoch(), LSN: c.table.LSN()})
}

// expire ends what is overdue, as far as the batch has room.
func (c *core) expire() {
	for !c.full() {
		t, ok := c.timers.due(c.now)
		if !ok {
			return
		}
		switch t.kind {
		case timerLease:
			c.lookAtLease(t)
		case timerWaiter:
			c.lookAtWaiter(t)
		case timerClient:
			c.lookAtClient(t)
		}
	}
}

func (c *core) lookAtLease(t timer) {
	l, ok := c.leases[t.token]
	if !ok {
		c.ended--
		return
	}
	if t.at = c.deadline(l); t.at > c.now {
		c.timers.add(t)
		return
	}
	c.ended-- // follow counts its timer, which is gone already
	c.apply(c.table.DecideExpire(l.lock, l.token, c.p.Epoch(), c.recs[:0]), nil)
}

func (c *core) lookAtWaiter(t timer) {
	w, ok := c.waits[t.key]
	if !ok {
		c.ended--
		return
	}
	if t.at = c.nextLook(w, t.key); t.at > c.now {
		c.timers.add(t)
		return
	}
	c.ended--
	c.apply(c.table.DecideWaitTimeout(t.key.client, t.key.request, c.p.Epoch(), c.recs[:0]), nil)
}

func (c *core) lookAtClient(t timer) {
	id := t.key.client
	if _, ok := c.table.Client(id); !ok {
		delete(c.heard, id) // with its only timer
		return
	}
	retention := c.p.opt.Timing.ClientRetention
	if t.at = max(0, c.heard[id]) + retention; t.at > c.now {
		c.timers.add(t)
		return
	}
	recs := c.table.DecideForget(id, c.p.Epoch(), c.recs[:0])
	if len(recs) == 0 { // it holds or waits
		t.at = c.now + retention
		c.timers.add(t)
		return
	}
	c.apply(recs, nil)
}

// sweep drops timers and clients that are about nothing, once they are most of
// what is kept. So memory follows what is held now.
func (c *core) sweep() {
	tooMany := len(c.heard) > 4096 && len(c.heard) > 2*c.table.ClientCount()
	if tooMany {
		for id := range c.heard {
			if _, ok := c.table.Client(id); !ok {
				delete(c.heard, id)
			}
		}
	}
	if !tooMany && (c.ended <= 1024 || c.ended <= len(c.timers)/2) {
		return
	}
	c.timers.sweep(func(t timer) bool {
		switch t.kind {
		case timerLease:
			return c.leases[t.token] != nil
		case timerWaiter:
			return c.waits[t.key] != nil
		default:
			_, ok := c.heard[t.key.client]
			return ok
		}
	})
	c.ended = 0
}
