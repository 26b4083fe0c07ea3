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
	// MaxHolders is how many hold a lock in shared mode before no other joins them at
	// once. A phase goes above it by as many as waited; those who hold and those who wait
	// to share are never more than MaxHolders+MaxQueue together.
	MaxHolders = 1 << 16
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

	locks     *index[cluster.LockName, lock]
	lockNames sorted[cluster.LockName]
	owed      sorted[cluster.LockName] // a Grant is due
	asked     sorted[cluster.Token]    // of the grants whose holders are asked to let go
	asks      map[cluster.Token]*Ask

	files     map[cluster.FileName]*file
	fileNames sorted[cluster.FileName]
	inodes    map[uint64]cluster.FileName
	past      past

	clients   *index[cluster.ClientID, client]
	clientIDs sorted[cluster.ClientID]
	nonces    *index[uint64, client]

	noRow   row    // of all locks that need none
	terms   *terms // the last ones seen
	spare   *lock  // locks to use again, linked by heldNext
	spares  int
	exports []*Exporter // under way
	scratch []byte      // for hashing; owned by Apply
}

// lock is one lock with its holder, queue and files. There are many: its size counts.
// A lock that several hold has one more of these for each further grant, which has no
// queue and no files and is not in the index.
type lock struct {
	Lease   // of the live grant
	request cluster.RequestID
	since   int64 // of the live grant; for people, and no part of Hash
	// Neighbours among the grants of client, in token order.
	heldPrev, heldNext *lock
	*row
}

// terms are what many grants and places have in common. They are never changed.
type terms struct {
	epoch  cluster.Epoch
	ttl    time.Duration
	holder Holder
	mode   Mode

	maxHold   time.Duration
	heartbeat bool
}

// row is what stands behind the holder of a lock. Most locks have nothing there
// and share noRow.
type row struct {
	head, tail *waiter
	queued     int32
	grant      *extra                    // of the live grant; nil if there is nothing
	sharing    *sharing                  // nil if nobody shares the lock or wants to
	files      *sorted[cluster.FileName] // bound to this lock; nil if none
}

// waiter is one request in a queue.
type waiter struct {
	lock       *lock
	client     *client
	prev, next *waiter

	request cluster.RequestID
	hash    uint64
	lsn     cluster.LSN // of the Enqueue record
	wait    time.Duration
	since   int64 // for people, and no part of Hash
	*terms
	metadata string
}

// file is one protected file.
type file struct {
	FileState
	name    cluster.FileName
	changed cluster.LSN // while an export was under way
}

// New returns the empty table at LSN 0.
func New() *Table {
	return &Table{
		locks:   newIndex(func(l *lock) cluster.LockName { return l.name }),
		asks:    map[cluster.Token]*Ask{},
		files:   map[cluster.FileName]*file{},
		inodes:  map[uint64]cluster.FileName{},
		clients: newIndex(func(c *client) cluster.ClientID { return c.id }),
		nonces:  newIndex(func(c *client) uint64 { return c.nonce }),
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
		t.endGrant(r)
		t.settle(r, receiptOf(r))
	case KindDowngrade:
		t.downgrade(r)
		t.settle(r, receiptOf(r))
	case KindMetadata:
		t.setMetadata(r)
		t.settle(r, receiptOf(r))
	case KindAsk:
		t.ask(r)
		t.settle(r, receiptOf(r))
	case KindExpire:
		t.endGrant(r)
	case KindWaitTimeout, KindCancel:
		t.leave(r, receiptOf(r))
	case KindAppend:
		t.append(r)
		t.settle(r, receiptOf(r))
	case KindBind:
		t.bind(r)
		t.settle(r, receiptOf(r))
	case KindUnbind:
		t.unbind(r)
		t.settle(r, receiptOf(r))
	case KindRotate:
		t.rotate(r)
		t.settle(r, receiptOf(r))
	case KindSeal:
		t.seal(r)
		t.settle(r, receiptOf(r))
	case KindAlready:
		t.settle(r, receiptOf(r))
	case KindQuarantine:
		t.quarantine(r)
	case KindForceClear:
		t.forceClear()
	case KindOpenClient:
		t.addClient(&client{Presence: Presence{id: cluster.OpenedClientID(r.LSN, r.Mark)}, nonce: r.Nonce})
	case KindForgetClient:
		t.dropClient(t.clients.get(r.Client))
	case KindResigned, KindReign: // marks in the log
	}
}

// grant makes r.Client the holder or one more of them, out of the queue if it waits there.
func (t *Table) grant(r *Record) {
	c, l := t.clientFor(r.Client), t.lockFor(r.Lock)
	rc := receiptOf(r)
	w := c.waiter(r.Request)
	if w != nil {
		rc.hash = w.hash
		t.unqueue(w)
	}
	rc.lock = l.name
	g := t.slot(l, cluster.Token(r.LSN))
	g.token, g.request, g.since, g.terms = cluster.Token(r.LSN), r.Request, r.Time, t.share(c, termsOf(r))
	if r.Metadata != "" {
		t.extraOf(g).metadata = r.Metadata
	}
	c.hold(g)
	t.hash += t.sum(g.appendGrant)
	if w != nil {
		t.owedOrVanish(l)
	}
	t.settle(r, rc)
}

// enqueue puts the request at the end of the queue.
func (t *Table) enqueue(r *Record) {
	c, l := t.clientFor(r.Client), t.lockFor(r.Lock)
	w := &waiter{
		lock: l, client: c, request: r.Request, hash: r.Hash, lsn: r.LSN, wait: r.Wait, since: r.Time,
		terms: t.share(c, termsOf(r)), metadata: r.Metadata,
	}
	t.push(w)
	c.addWaiter(w)
	t.hash += t.sum(w.appendTo)
	if l.joins() && w.mode == ModeShared {
		t.beginPhase(l, r)
	}
	t.settle(r, receipt{})
}

// leave ends the waiting of r's request, if it waits, and leaves its receipt.
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

// endGrant ends the grant that r names. Behind an exclusive one it is the turn of all
// shared requests that wait.
func (t *Table) endGrant(r *Record) {
	l := t.locks.get(r.Lock)
	g := l.under(r.Token)
	exclusive := g.mode == ModeExclusive
	t.dropGrant(l, g)
	if exclusive {
		t.beginPhase(l, r)
	}
	t.owedOrVanish(l)
}

// dropGrant takes g, a grant of l, away and, of an anonymous client, its receipt.
func (t *Table) dropGrant(l, g *lock) {
	t.leavesGrant(g)
	t.hash -= t.sum(g.appendGrant)
	c := g.client
	c.unhold(g)
	if c.id.Anonymous() {
		t.dropReceipt(c, g.request)
	}
	t.dropExtra(g)
	t.dropSlot(l, g)
	t.tidyClient(c)
}

// owedOrVanish keeps invariants 3 and 4 after a lock lost or got a grant, or lost a
// waiter or file.
func (t *Table) owedOrVanish(l *lock) {
	switch {
	case l.due():
		t.owed.insert(l.name)
		return
	case t.owed.len() > 0:
		t.owed.remove(l.name)
	}
	if l.token == 0 && l.row == &t.noRow {
		t.dropLock(l)
	}
}

func (t *Table) unqueue(w *waiter) {
	t.leavesWaiter(w)
	t.hash -= t.sum(w.appendTo)
	t.pull(w)
	w.client.removeWaiter(w)
}

// forceClear drops every grant and waiter.
func (t *Table) forceClear() {
	for _, name := range slices.Collect(t.lockNames.all()) {
		l := t.locks.get(name)
		for l.head != nil {
			w := l.head
			t.unqueue(w)
			t.tidyClient(w.client)
		}
		for l.sharing != nil { // the youngest first, which is the least work
			t.dropGrant(l, l.sharing.grants[len(l.sharing.grants)-1])
		}
		if l.token != 0 {
			t.dropGrant(l, l)
		}
		t.owedOrVanish(l)
	}
}

// lockFor returns the lock, made if need be. Whoever calls it gives the lock a
// holder, a waiter or a file.
func (t *Table) lockFor(name cluster.LockName) *lock {
	if l := t.locks.get(name); l != nil {
		return l
	}
	l := t.newLock(name)
	t.locks.put(l)
	t.lockNames.insert(name)
	return l
}

func (t *Table) newLock(name cluster.LockName) *lock {
	l := t.spare
	if l == nil {
		l = &lock{}
	} else {
		t.spare, t.spares = l.heldNext, t.spares-1
	}
	*l = lock{Lease: Lease{name: name}, row: &t.noRow}
	return l
}

// maxSpares bounds the locks that are kept to be used again.
const maxSpares = 1024

func (t *Table) dropLock(l *lock) {
	t.locks.remove(l.name)
	t.lockNames.remove(l.name)
	t.spareLock(l)
}

func (t *Table) spareLock(l *lock) {
	if t.spares < maxSpares {
		*l = lock{heldNext: t.spare}
		t.spare, t.spares = l, t.spares+1
	}
}

// ownRow gives the lock a row of its own.
func (t *Table) ownRow(l *lock) *row {
	if l.row == &t.noRow {
		l.row = &row{}
	}
	return l.row
}

// tidyRow gives a row back that holds nothing.
func (t *Table) tidyRow(l *lock) {
	if l.head == nil && l.files == nil && l.grant == nil && l.sharing == nil {
		l.row = &t.noRow
	}
}

// push puts w at the end of the queue.
func (t *Table) push(w *waiter) {
	l := t.ownRow(w.lock)
	w.prev = l.tail
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.queued++
	if w.mode == ModeShared {
		t.pushShared(w)
	}
}

// pull takes w out of the queue.
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
	if w.mode == ModeShared {
		t.pullShared(w)
	}
	t.tidyRow(l)
}

func termsOf(r *Record) terms {
	return terms{epoch: r.Epoch, ttl: r.TTL, holder: r.Holder, mode: r.Mode, maxHold: r.MaxHold, heartbeat: r.Heartbeat}
}
