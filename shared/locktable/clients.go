// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"iter"
	"slices"
	"time"
	"unique"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// client is one client with its grants, waiting requests and receipts.
type client struct {
	Presence
	nonce    uint64            // of OpenClient; 0 for other clients
	lowWater cluster.RequestID // named by the client: receipts below are gone
	dropped  cluster.RequestID // 1 + highest ID whose receipt was dropped for its age
	changed  cluster.LSN       // of the last change while an export was under way

	// The held locks, linked in token order: grants only ever come at the end.
	heldHead, heldTail *lock
	held               int32
	tied               bool           // it holds and waits
	digest             cluster.Digest // of their tokens

	waits    []*waiter // by request ID
	receipts []receipt // by request ID

	params *grantParams // the last ones seen: most grants of a client share them

	// identity is what the client belongs to, with its grants, places and receipts; zero for none. It
	// is no part of Hash, see the package documentation.
	identity unique.Handle[string]
}

// receipt is the stored outcome of a processed request.
type receipt struct {
	request cluster.RequestID
	hash    uint64
	lsn     cluster.LSN
	epoch   cluster.Epoch
	token   cluster.Token // of KindMembers the version of the list, so that no receipt needs a field for it
	lock    cluster.LockName
	file    *fileReceipt // nil unless the request concerned a file; never changed
	kind    Kind         // of the record that decided the request
}

type fileReceipt struct {
	name       cluster.FileName
	generation cluster.Generation
	offset     int64
	length     int64
	crc        uint32
}

// leavesReceipt reports whether a record of the kind may answer a request.
func (k Kind) leavesReceipt() bool {
	return k.Known() && (kindFields[k].must|kindFields[k].may)&hasRequest != 0 && k != KindEnqueue
}

// receiptOf returns the receipt of r's request.
func receiptOf(r *Record) receipt {
	rc := receipt{
		request: r.Request, hash: r.Hash, lsn: r.LSN, epoch: r.Epoch,
		token: r.Token, lock: r.Lock, kind: r.Kind,
	}
	switch r.Kind {
	case KindGrant:
		rc.token = cluster.Token(r.LSN)
	case KindMembers:
		rc.token = cluster.Token(r.membersVersion())
	}
	if r.File != "" {
		rc.file = &fileReceipt{name: r.File, generation: r.Generation, offset: r.Offset, length: r.Length, crc: r.CRC}
	}
	return rc
}

// clientFor returns the client and makes it if it is not there.
func (t *Table) clientFor(id cluster.ClientID) *client {
	c := t.clients.get(id)
	if c == nil {
		c = &client{Presence: Presence{id: id}}
		t.addClient(c)
	}
	return c
}

func (t *Table) addClient(c *client) {
	c.changed = t.stamp()
	t.clients.put(c)
	t.clientIDs.insert(c.id)
	if c.nonce != 0 {
		t.nonces.put(c)
	}
	t.hash += t.sum(c.appendTo)
}

func (t *Table) dropClient(c *client) {
	t.changesClient(c)
	t.hash -= t.sum(c.appendTo)
	for i := range c.receipts {
		t.leavesReceipt(c, &c.receipts[i])
		t.hash -= t.sumReceipt(c, &c.receipts[i])
	}
	t.clients.remove(c.id)
	t.clientIDs.remove(c.id)
	if c.nonce != 0 {
		t.nonces.remove(c.nonce)
	}
}

// tidyClient forgets an anonymous client that neither holds nor waits.
func (t *Table) tidyClient(c *client) {
	if c.id.Anonymous() && c.held == 0 && len(c.waits) == 0 && t.clients.get(c.id) == c {
		t.dropClient(c)
	}
}

// settle raises a client's low-water mark to that of its record, and stores the receipt. A receipt of request 0 is none.
func (t *Table) settle(r *Record, rc receipt) {
	if r.Request == 0 || r.Client.Anonymous() && rc.kind != KindGrant {
		return
	}
	c := t.clientFor(r.Client)
	if r.LowWater > c.lowWater {
		t.changesClient(c)
		t.hash -= t.sum(c.appendTo)
		c.lowWater = r.LowWater
		t.hash += t.sum(c.appendTo)
		t.prune(c)
	}
	if rc.request == 0 || rc.request < c.lowWater {
		return
	}
	i, _ := c.find(rc.request)
	c.receipts = slices.Insert(c.receipts, i, rc)
	t.hash += t.sumReceipt(c, &rc)
	if !c.id.Opened() && !c.id.Anonymous() && len(c.receipts) > MaxChosenReceipts {
		t.dropOldest(c)
	}
}

// prune drops the receipts below the low-water mark.
func (t *Table) prune(c *client) {
	n, _ := c.find(c.lowWater)
	for i := range n {
		t.leavesReceipt(c, &c.receipts[i])
		t.hash -= t.sumReceipt(c, &c.receipts[i])
	}
	if left := len(c.receipts) - n; left <= max(n, 32) {
		c.receipts = slices.Delete(c.receipts, 0, n)
		return
	}
	// Moving a long tail for every request would cost more than the memory that
	// the next growth of the slice gives back.
	clear(c.receipts[:n])
	c.receipts = c.receipts[n:]
}

// dropOldest drops the receipt with the lowest LSN and raises the mark below which its
// request is refused.
func (t *Table) dropOldest(c *client) {
	oldest := slices.MinFunc(c.receipts, func(a, b receipt) int { return cmp.Compare(a.lsn, b.lsn) })
	if oldest.request >= c.dropped {
		t.changesClient(c)
		t.hash -= t.sum(c.appendTo)
		c.dropped = oldest.request + 1
		t.hash += t.sum(c.appendTo)
	}
	t.dropReceipt(c, oldest.request)
}

// dropReceipt drops one receipt if it is there.
func (t *Table) dropReceipt(c *client, id cluster.RequestID) {
	if i, ok := c.find(id); ok {
		t.leavesReceipt(c, &c.receipts[i])
		t.hash -= t.sumReceipt(c, &c.receipts[i])
		c.receipts = slices.Delete(c.receipts, i, i+1)
	}
}

// find returns the index of the request's receipt, or where it belongs and false.
func (c *client) find(id cluster.RequestID) (int, bool) {
	// Requests come nearly in order, so most belong after the last one.
	if n := len(c.receipts); n == 0 || c.receipts[n-1].request < id {
		return n, false
	}
	return slices.BinarySearchFunc(c.receipts, id, func(rc receipt, id cluster.RequestID) int {
		return cmp.Compare(rc.request, id)
	})
}

func (c *client) receipt(id cluster.RequestID) *receipt {
	if i, ok := c.find(id); ok {
		return &c.receipts[i]
	}
	return nil
}

// outstanding returns how many receipts and waiting requests the client would have with
// this low-water mark.
func (c *client) outstanding(lowWater cluster.RequestID) int {
	n, _ := c.find(lowWater)
	return len(c.receipts) - n + len(c.waits)
}

// stale reports whether a request without receipt and place must not be executed.
func (c *client) stale(id cluster.RequestID) bool { return id < c.lowWater || id < c.dropped }

func (c *client) findWaiter(id cluster.RequestID) (int, bool) {
	return slices.BinarySearchFunc(c.waits, id, func(w *waiter, id cluster.RequestID) int {
		return cmp.Compare(w.request, id)
	})
}

func (c *client) waiter(id cluster.RequestID) *waiter {
	if i, ok := c.findWaiter(id); ok {
		return c.waits[i]
	}
	return nil
}

func (c *client) addWaiter(w *waiter) {
	i, _ := c.findWaiter(w.request)
	c.waits = slices.Insert(c.waits, i, w)
}

func (c *client) removeWaiter(w *waiter) {
	i, _ := c.findWaiter(w.request)
	c.waits = slices.Delete(c.waits, i, i+1)
}

// hold appends l to the held locks; its token is the highest so far.
func (c *client) hold(l *lock) {
	l.client, l.heldPrev, l.heldNext = c, c.heldTail, nil
	if c.heldTail == nil {
		c.heldHead = l
	} else {
		c.heldTail.heldNext = l
	}
	c.heldTail = l
	c.held, c.digest = c.held+1, c.digest.With(l.token)
}

func (c *client) unhold(l *lock) {
	if l.heldPrev == nil {
		c.heldHead = l.heldNext
	} else {
		l.heldPrev.heldNext = l.heldNext
	}
	if l.heldNext == nil {
		c.heldTail = l.heldPrev
	} else {
		l.heldNext.heldPrev = l.heldPrev
	}
	l.heldPrev, l.heldNext = nil, nil
	c.held, c.digest = c.held-1, c.digest.Without(l.token)
}

// Presence is a client as the core loop counts its silence. Heard and Place belong to the
// core loop, like the fields of a Lease.
type Presence struct {
	Heard time.Duration // when it was heard last, on the serving clock; 0: not in this term
	Place uint64        // in a timer wheel; 0: in none

	id cluster.ClientID
}

// ID returns the client's ID.
func (p *Presence) ID() cluster.ClientID { return p.id }

// Presence returns the client, nil if it is not in the table.
func (t *Table) Presence(id cluster.ClientID) *Presence {
	if c := t.clients.get(id); c != nil {
		return &c.Presence
	}
	return nil
}

// Presences iterates over the clients after the given one, in order of their IDs; "" is
// before all. The table must not change meanwhile.
func (t *Table) Presences(after cluster.ClientID) iter.Seq[*Presence] {
	return func(yield func(*Presence) bool) {
		for id := range t.clientIDs.after(after) {
			if !yield(&t.clients.get(id).Presence) {
				return
			}
		}
	}
}
