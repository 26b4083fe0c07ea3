// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Limits of the table. They bound what one client or one lock can make it hold.
const (
	// MaxQueue is the most waiters of one lock.
	MaxQueue = 1 << 16
	// MaxOutstanding is the most receipts and waiting requests of one opened client.
	MaxOutstanding = 1 << 16
	// MaxChosenReceipts is how many receipts a client with a self-chosen ID keeps.
	MaxChosenReceipts = 64
)

// ErrIllegal means that a record does not fit the state: the log and the table
// do not belong together, or one of them is wrong.
var ErrIllegal = errors.New("record is illegal in this state")

// Table is the state that a log of records makes. Use New or Restore.
type Table struct {
	lsn  cluster.LSN
	hash uint64

	locks     map[cluster.LockName]*lock
	lockNames sorted[cluster.LockName]
	owed      sorted[cluster.LockName] // free locks with waiters: a Grant is due

	files     map[cluster.FileName]*file
	fileNames sorted[cluster.FileName]
	inodes    map[uint64]cluster.FileName

	clients   map[cluster.ClientID]*client
	clientIDs sorted[cluster.ClientID]
	nonces    map[uint64]*client

	scratch []byte // for hashing; owned by Apply
}

// lock is one lock with its holder, queue and files.
type lock struct {
	name cluster.LockName

	// The live grant; token 0 means that the lock is free.
	token   cluster.Token
	epoch   cluster.Epoch
	request cluster.RequestID
	ttl     time.Duration
	client  *client
	holder  *Holder // nil if unknown; shared between grants, never changed
	// Neighbours among the grants of client, in token order.
	heldPrev, heldNext *lock

	head, tail *waiter
	queued     int32
	mode       Mode

	files *sorted[cluster.FileName] // bound to this lock; nil if none
}

// waiter is one request in a queue.
type waiter struct {
	lock       *lock
	client     *client
	prev, next *waiter

	request cluster.RequestID
	hash    uint64
	lsn     cluster.LSN // of the Enqueue record
	epoch   cluster.Epoch
	ttl     time.Duration
	wait    time.Duration
	mode    Mode
	holder  *Holder
}

// file is one protected file.
type file struct {
	FileState
	name cluster.FileName
}

// New returns the empty table at LSN 0.
func New() *Table {
	return &Table{
		locks:   map[cluster.LockName]*lock{},
		files:   map[cluster.FileName]*file{},
		inodes:  map[uint64]cluster.FileName{},
		clients: map[cluster.ClientID]*client{},
		nonces:  map[uint64]*client{},
	}
}

// LSN is that of the last record applied.
func (t *Table) LSN() cluster.LSN { return t.lsn }

// Hash identifies the state: equal states have equal hashes, whatever their
// history. The LSN is no part of it.
func (t *Table) Hash() uint64 { return t.hash }

// Apply changes the table as r says. An error wraps ErrIllegal and leaves the
// table as it was. Nothing of r.Data is kept.
func (t *Table) Apply(r *Record) error {
	if r.LSN != t.lsn+1 {
		return fmt.Errorf("%w: apply record %d (%v): the table is at %d", ErrIllegal, r.LSN, r.Kind, t.lsn)
	}
	if err := t.legal(r); err != nil {
		return fmt.Errorf("%w: apply record %d (%v): %w", ErrIllegal, r.LSN, r.Kind, err)
	}
	t.mutate(r)
	t.lsn = r.LSN
	return nil
}

// mutate cannot fail: legal has looked at everything it relies on.
func (t *Table) mutate(r *Record) {
	switch r.Kind {
	case KindGrant:
		t.grant(r)
	case KindEnqueue:
		t.enqueue(r)
	case KindRelease, KindBreak:
		t.endGrant(t.locks[r.Lock])
		t.settle(r, receiptOf(r))
	case KindExpire:
		t.endGrant(t.locks[r.Lock])
	case KindWaitTimeout:
		t.leave(r, receiptOf(r))
	case KindCancel:
		t.leave(r, receiptOf(r))
	case KindAppend:
		t.append(r)
		t.settle(r, receiptOf(r))
	case KindBind:
		t.bind(r)
		t.settle(r, receiptOf(r))
	case KindUnbind:
		t.unbind(t.files[r.File])
		t.settle(r, receiptOf(r))
	case KindRotate:
		t.rotate(r)
		t.settle(r, receiptOf(r))
	case KindQuarantine:
		t.quarantine(r)
	case KindForceClear:
		t.forceClear()
	case KindOpenClient:
		t.addClient(&client{id: cluster.OpenedClientID(r.LSN), nonce: r.Nonce})
	case KindForgetClient:
		t.dropClient(t.clients[r.Client])
	case KindResigned, KindReign: // marks in the log
	}
}

// grant makes r.Client the holder, out of the queue if it waits there.
func (t *Table) grant(r *Record) {
	c, l := t.clientFor(r.Client), t.lockFor(r.Lock)
	rc := receiptOf(r)
	if w := c.waiter(r.Request); w != nil {
		rc.hash = w.hash
		t.unqueue(w)
		t.owed.remove(l.name)
	}
	l.token, l.epoch, l.request = cluster.Token(r.LSN), r.Epoch, r.Request
	l.ttl, l.mode, l.holder = r.TTL, r.Mode, c.share(r.Holder)
	c.hold(l)
	t.hash += t.sum(l.appendGrant)
	t.settle(r, rc)
}

// enqueue puts the request at the end of the queue.
func (t *Table) enqueue(r *Record) {
	c, l := t.clientFor(r.Client), t.lockFor(r.Lock)
	w := &waiter{
		lock: l, client: c, request: r.Request, hash: r.Hash, lsn: r.LSN, epoch: r.Epoch,
		ttl: r.TTL, wait: r.Wait, mode: r.Mode, holder: c.share(r.Holder),
	}
	l.push(w)
	c.addWaiter(w)
	t.hash += t.sum(w.appendTo)
	t.settle(r, receipt{})
}

// leave ends the waiting of r's request, if it waits, and leaves its receipt.
func (t *Table) leave(r *Record, rc receipt) {
	c := t.clientFor(r.Client)
	if w := c.waiter(r.Request); w != nil {
		rc.hash = w.hash
		t.unqueue(w)
		t.owedOrVanish(w.lock)
	}
	t.settle(r, rc)
	t.tidyClient(c)
}

// endGrant frees the lock.
func (t *Table) endGrant(l *lock) {
	t.dropGrant(l)
	t.owedOrVanish(l)
}

// dropGrant takes the grant away and, of an anonymous client, its receipt.
func (t *Table) dropGrant(l *lock) {
	t.hash -= t.sum(l.appendGrant)
	c := l.client
	c.unhold(l)
	if c.id.Anonymous() {
		t.dropReceipt(c, l.request)
	}
	l.token, l.epoch, l.request, l.ttl, l.mode, l.client, l.holder = 0, 0, 0, 0, 0, nil, nil
	t.tidyClient(c)
}

// owedOrVanish keeps invariants 3 and 4 after a lock lost a grant, waiter or file.
func (t *Table) owedOrVanish(l *lock) {
	switch {
	case l.token != 0:
	case l.head != nil:
		t.owed.insert(l.name)
	default:
		t.owed.remove(l.name)
		if l.files == nil {
			delete(t.locks, l.name)
			t.lockNames.remove(l.name)
		}
	}
}

func (t *Table) unqueue(w *waiter) {
	t.hash -= t.sum(w.appendTo)
	w.lock.pull(w)
	w.client.removeWaiter(w)
}

// forceClear drops every grant and waiter.
func (t *Table) forceClear() {
	for _, name := range slices.Collect(t.lockNames.all()) {
		l := t.locks[name]
		for l.head != nil {
			w := l.head
			t.unqueue(w)
			t.tidyClient(w.client)
		}
		if l.token != 0 {
			t.dropGrant(l)
		}
		t.owedOrVanish(l)
	}
}

// lockFor returns the lock, made if need be. Whoever calls it gives the lock a
// holder, a waiter or a file.
func (t *Table) lockFor(name cluster.LockName) *lock {
	l, ok := t.locks[name]
	if !ok {
		l = &lock{name: name}
		t.locks[name] = l
		t.lockNames.insert(name)
	}
	return l
}

// push puts w at the end of the queue.
func (l *lock) push(w *waiter) {
	w.prev = l.tail
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.queued++
}

// pull takes w out of the queue.
func (l *lock) pull(w *waiter) {
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
}

func (h *Holder) value() Holder {
	if h == nil {
		return Holder{}
	}
	return *h
}
