// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// waiter is one request in a queue.
type waiter struct {
	lock       *lock
	client     *client
	prev, next *waiter

	request cluster.RequestID
	hash    uint64
	lsn     cluster.LSN   // of the Enqueue record
	wait    time.Duration // WaitForever or positive
	since   int64         // in milliseconds since 1970; for people, and no part of Hash
	*grantParams
	metadata string
	slot     cluster.Slot // what it is for; "" for nothing
}

// enqueue puts the request at the end of the queue.
func (t *Table) enqueue(r *Record) {
	c, l := t.clientFor(r.Client), t.lockFor(r.Lock)
	w := &waiter{
		lock: l, client: c, request: r.Request, hash: r.Hash, lsn: r.LSN, wait: r.Wait, since: r.Time,
		grantParams: t.share(c, grantParamsOf(r)), metadata: r.Metadata, slot: r.Slot,
	}
	t.push(w)
	c.addWaiter(w)
	t.tie(c)
	t.hash += t.sum(w.appendTo)
	if l.joins() && w.shares() {
		t.beginPhase(l, r)
	}
	t.settle(r, receipt{})
}

// leave ends the wait of r's request, if it waits, and stores its receipt.
func (t *Table) leave(r *Record, rc receipt) {
	c := t.clientFor(r.Client)
	if w := c.waiter(r.Request); w != nil {
		rc.hash = w.hash
		last := w.lock.lastExclusive(w)
		t.unqueue(w)
		if last {
			t.beginPhase(w.lock, r)
		}
		t.owedOrVanish(w.lock)
	}
	t.settle(r, rc)
	t.tidyClient(c)
}

func (t *Table) unqueue(w *waiter) {
	t.leavesWaiter(w)
	t.hash -= t.sum(w.appendTo)
	t.pull(w)
	w.client.removeWaiter(w)
	t.tie(w.client)
}

// push puts w at the end of the queue.
func (t *Table) push(w *waiter) {
	l := t.ownEntry(w.lock)
	w.prev = l.tail
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.queued++
	if w.shares() {
		t.pushShared(w)
	}
}

// pull removes w from the queue.
func (t *Table) pull(w *waiter) {
	l := w.lock
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	l.queued--
	if w.shares() {
		t.pullShared(w)
	}
	t.tidyEntry(l)
}

// pushShared and pullShared maintain the list of the shared waiters.
func (t *Table) pushShared(w *waiter) {
	s := t.sharingOf(w.lock)
	s.waiters = append(s.waiters, w)
}

func (t *Table) pullShared(w *waiter) {
	s := w.lock.sharing
	i, _ := s.findWaiter(w.lsn)
	s.waiters = without(s.waiters, i)
	if s.phase != 0 && (len(s.waiters) == 0 || s.waiters[0].lsn > s.phase) {
		t.setPhase(w.lock, 0)
	}
	t.tidySharing(w.lock)
}

func (s *sharing) findWaiter(place cluster.LSN) (int, bool) {
	return slices.BinarySearchFunc(s.waiters, place, func(w *waiter, place cluster.LSN) int { return cmp.Compare(w.lsn, place) })
}

// owed returns the waiters that are owed a grant of this phase.
func (s *sharing) owed() []*waiter {
	n, _ := s.findWaiter(s.phase + 1)
	return s.waiters[:n]
}

func (l *lock) sharedWaiting() int {
	if s := l.sharing; s != nil {
		return len(s.waiters)
	}
	return 0
}

// crowded reports whether one more waiter in this mode could make one holder too many: the
// requests of a phase join those that hold the lock already.
func (l *lock) crowded(mode Mode) bool {
	return mode == ModeShared && l.holders()+l.together() >= MaxHolders+MaxQueue
}

// together is how many requests wait that may hold the lock beside others.
func (l *lock) together() int {
	if limit, _ := l.limit(); limit != 0 {
		return int(l.queued)
	}
	return l.sharedWaiting()
}

func (l *lock) exclusiveWaiting() int { return int(l.queued) - l.sharedWaiting() }

// admits reports whether a request of this mode, with this permit, is granted at once.
func (l *lock) admits(mode Mode, p Permit) bool {
	if p.Limit != 0 {
		return l.head == nil && l.hasRoom(p)
	}
	if l.token == 0 && l.sharing == nil {
		return l.head == nil
	}
	return mode == ModeShared && !l.exclusive() && l.head == nil
}

// joins reports whether a shared request that has to wait belongs to the phase that is being
// granted: no exclusive request holds the lock or waits for it.
func (l *lock) joins() bool { return !l.exclusive() && l.exclusiveWaiting() == 0 }

// due reports whether a grant of l is owed: it does not wait for another request or end.
func (l *lock) due() bool {
	s := l.sharing
	if w := l.head; w != nil && w.permit.Limit != 0 {
		return l.hasRoom(w.permit)
	}
	if s == nil {
		return l.token == 0 && l.head != nil
	}
	return s.phase != 0 || l.head != nil && l.holders() == 0
}

// next returns the waiter that is owed the next grant, nil if none is.
func (l *lock) next() *waiter {
	switch {
	case !l.due():
		return nil
	case l.sharing != nil && l.sharing.phase != 0:
		return l.sharing.waiters[0]
	case l.head.permit.Limit != 0:
		return l.head
	}
	return l.firstExclusive()
}

// firstExclusive returns the first exclusive waiter, nil if there is none. It skips the shared
// waiters before it; each is skipped once at most, because the end of that grant is their turn.
func (l *lock) firstExclusive() *waiter {
	w := l.head
	for w != nil && w.mode == ModeShared {
		w = w.next
	}
	return w
}

// lastExclusive reports whether w, a waiter of l, is the only exclusive request that holds the
// lock or waits for it.
func (l *lock) lastExclusive(w *waiter) bool {
	return w.mode == ModeExclusive && !l.exclusive() && l.exclusiveWaiting() == 1
}

// beginPhase begins a phase of all shared requests that wait when r is applied, that of r
// included.
func (t *Table) beginPhase(l *lock, r *Record) {
	if s := l.sharing; s != nil && len(s.waiters) > 0 {
		t.setPhase(l, r.LSN)
	}
}

func (t *Table) setPhase(l *lock, lsn cluster.LSN) {
	s := l.sharing
	if s.phase != 0 {
		t.leavesPhase(l)
		t.hash -= t.sum(l.appendPhase)
	}
	if s.phase = lsn; lsn != 0 {
		t.hash += t.sum(l.appendPhase)
	}
}
