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
	c.inodes = maps.Clone(t.inodes)
	for id := range t.clientIDs.all() {
		old := t.clients[id]
		// Receipts are values and what they point to never changes.
		n := &client{
			id: id, nonce: old.nonce, lowWater: old.lowWater, dropped: old.dropped,
			receipts: slices.Clone(old.receipts), holder: old.holder,
		}
		c.clients[id] = n
		if n.nonce != 0 {
			c.nonces[n.nonce] = n
		}
	}
	for name := range t.fileNames.all() {
		f := *t.files[name]
		c.files[name] = &f
	}
	var held []*lock
	for name := range t.lockNames.all() {
		l := c.cloneLock(t.locks[name])
		if l.token != 0 {
			held = append(held, l)
		}
	}
	relink(held)
	return c
}

// cloneLock copies the lock and its queue into c, which has the clients already.
// The grants are linked later, by relink.
func (c *Table) cloneLock(old *lock) *lock {
	n := *old
	n.heldPrev, n.heldNext, n.head, n.tail, n.queued = nil, nil, nil, nil, 0
	if old.client != nil {
		n.client = c.clients[old.client.id]
	}
	if old.files != nil {
		files := old.files.clone()
		n.files = &files
	}
	for w := old.head; w != nil; w = w.next {
		copied := *w
		copied.lock, copied.client, copied.prev, copied.next = &n, c.clients[w.client.id], nil, nil
		n.push(&copied)
		copied.client.addWaiter(&copied)
	}
	c.locks[n.name] = &n
	return &n
}

// relink gives clients their grants in token order, which is not that of the names.
func relink(held []*lock) {
	slices.SortFunc(held, func(a, b *lock) int { return cmp.Compare(a.token, b.token) })
	for _, l := range held {
		l.client.hold(l)
	}
}
