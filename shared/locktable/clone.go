// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"maps"
	"slices"
)

// Clone returns a table of its own in the same state: an Apply to either does not
// touch the other. It costs time and memory in proportion to the state.
func (t *Table) Clone() *Table {
	c := New()
	c.lsn, c.hash = t.lsn, t.hash
	c.lockNames, c.owed, c.fileNames, c.clientIDs = t.lockNames.clone(), t.owed.clone(), t.fileNames.clone(), t.clientIDs.clone()
	c.asked, c.asks = t.asked.clone(), maps.Clone(t.asks) // an Ask is never changed
	c.inodes, c.past = maps.Clone(t.inodes), t.past.clone()
	for id := range t.clientIDs.all() {
		old := t.clients.get(id)
		// Receipts are values and what they point to never changes.
		n := &client{
			Presence: Presence{id: id}, nonce: old.nonce, lowWater: old.lowWater, dropped: old.dropped,
			receipts: slices.Clone(old.receipts), terms: old.terms,
		}
		c.clients.put(n)
		if n.nonce != 0 {
			c.nonces.put(n)
		}
	}
	for name := range t.fileNames.all() {
		f := *t.files[name]
		c.files[name] = &f
	}
	var held []*lock
	for name := range t.lockNames.all() {
		old := t.locks.get(name)
		l := c.cloneLock(old)
		for g := range old.grants(0) {
			held = append(held, c.cloneGrant(l, g))
		}
		if s := old.sharing; s != nil && s.phase != 0 {
			l.sharing.phase = s.phase
		}
	}
	relink(held)
	return c
}

// cloneLock copies the lock and its queue into c, which has the clients already.
func (c *Table) cloneLock(old *lock) *lock {
	n := c.newLock(old.name)
	if old.files != nil {
		files := old.files.clone()
		c.ownRow(n).files = &files
	}
	for w := old.head; w != nil; w = w.next {
		copied := *w
		copied.lock, copied.client, copied.prev, copied.next = n, c.clients.get(w.client.id), nil, nil
		c.push(&copied)
		copied.client.addWaiter(&copied)
	}
	c.locks.put(n)
	return n
}

// cloneGrant copies a grant to l, the copy of its lock.
func (c *Table) cloneGrant(l, old *lock) *lock {
	g := c.slot(l, old.token)
	g.token, g.terms, g.request, g.since, g.client = old.token, old.terms, old.request, old.since, c.clients.get(old.client.id)
	if x := old.grant; x != nil {
		copied := *x
		copied.changed = 0
		c.ownRow(g).grant = &copied
	}
	return g
}

// relink gives clients their grants in token order, which is not that of the names.
func relink(held []*lock) {
	slices.SortFunc(held, func(a, b *lock) int { return cmp.Compare(a.token, b.token) })
	for _, l := range held {
		l.client.hold(l)
	}
}
