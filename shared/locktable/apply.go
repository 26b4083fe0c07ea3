// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Limits of the table. They bound what one client or one lock can make it hold.
const (
	// MaxQueue is the most waiters of one lock.
	MaxQueue = 1 << 16
	// MaxHolders is the number of shared holders of one lock above which no request is
	// granted at once. A phase may exceed it by as many as waited; holders and waiters for
	// shared mode together are never more than MaxHolders+MaxQueue.
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
	owed      sorted[cluster.LockName] // locks of which a Grant is due
	asked     sorted[cluster.Token]    // of the grants whose holders are asked to release
	asks      map[cluster.Token]*Ask

	files     map[cluster.FileName]*file
	fileNames sorted[cluster.FileName]
	inodes    map[uint64]cluster.FileName
	past      past
	level     level
	members   *members // nil: it is that of CLUSTER
	owned     *owned   // nil: there is no site, and all names are here
	marks     marks

	clients   *index[cluster.ClientID, client]
	clientIDs sorted[cluster.ClientID]
	tied      sorted[cluster.ClientID] // of those that hold and wait
	nonces    *index[uint64, client]

	noEntry lockEntry    // of all locks that need none
	params  *grantParams // the last ones seen, to share them
	spare   *lock        // locks to use again, linked by heldNext
	spares  int
	exports []*Exporter // under way
	scratch []byte      // for hashing; owned by Apply
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
		marks:   newMarks(),
	}
}

// LSN returns the LSN of the last record applied, 0 for an empty table.
func (t *Table) LSN() cluster.LSN { return t.lsn }

// Hash returns a hash of the state: equal states have equal hashes, whatever their
// history. The LSN is no part of it.
func (t *Table) Hash() uint64 { return t.hash }

// Apply executes r, whose LSN must be LSN()+1. It returns an error that wraps ErrIllegal
// if r does not fit the state, and then leaves the table as it was. It keeps nothing of
// r.Data.
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

// mutate cannot fail: legal has checked everything it relies on.
func (t *Table) mutate(r *Record) {
	switch r.Kind {
	case KindGrant:
		t.grant(r)
	case KindEnqueue:
		t.enqueue(r)
	case KindRelease, KindBreak:
		t.markDone(r)
		t.endGrant(r)
		t.settle(r, receiptOf(r))
	case KindDowngrade:
		t.downgrade(r)
		t.settle(r, receiptOf(r))
	case KindExtend:
		t.extend(r)
		t.settle(r, receiptOf(r))
	case KindMetadata:
		t.setMetadata(r)
		t.settle(r, receiptOf(r))
	case KindAsk:
		t.ask(r)
		t.settle(r, receiptOf(r))
	case KindExpire:
		t.endGrant(r)
	case KindWaitTimeout, KindCancel, KindSkip:
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
		c := &client{Presence: Presence{id: cluster.OpenedClientID(r.LSN, r.Mark)}, nonce: r.Nonce}
		c.setOwner(r.Identity)
		t.addClient(c)
	case KindForgetClient:
		t.dropClient(t.clients.get(r.Client))
	case KindLevel:
		t.raise(level{r.Level, r.Version})
	case KindMembers:
		t.setMembers(r.Members)
		t.settle(r, receiptOf(r))
	case KindOwn:
		t.setOwn(r.Own)
	case KindForgetMark:
		t.dropMark(t.marks.of[r.Lock])
	case KindHandedOver, KindTerm: // they only stand in the log
	}
	t.own(r)
}

// legal returns why r must not be applied in this state, nil if it may. It changes nothing.
func (t *Table) legal(r *Record) error {
	if err := r.Validate(); err != nil {
		return err
	}
	switch r.Kind {
	case KindGrant:
		return t.legalGrant(r)
	case KindEnqueue:
		return t.legalEnqueue(r)
	case KindDowngrade:
		return errors.Join(t.legalWriter(r), t.legalRequester(r))
	case KindExtend:
		return errors.Join(t.legalExtend(r), t.legalRequester(r))
	case KindRelease, KindMetadata, KindAsk:
		return errors.Join(t.legalToken(r), t.legalDone(r), t.legalRequester(r))
	case KindBreak:
		if r.Request == 0 {
			return t.legalToken(r)
		}
		return errors.Join(t.legalToken(r), t.legalRequester(r))
	case KindExpire:
		return t.legalToken(r)
	case KindWaitTimeout:
		if w := t.waiter(r.Client, r.Request); w == nil || w.lock.name != r.Lock {
			return fmt.Errorf("request %d of client %s does not wait for lock %q", r.Request, r.Client, r.Lock)
		}
		return nil
	case KindCancel:
		return t.legalCancel(r)
	case KindAppend, KindBind, KindUnbind, KindRotate, KindSeal, KindAlready:
		if err := t.legalWriter(r); err != nil {
			return err
		}
		if r.Request != 0 {
			if err := t.legalRequester(r); err != nil {
				return err
			}
		}
		return t.legalFile(r)
	case KindQuarantine:
		if f := t.files[r.File]; f == nil || f.Quarantined || f.Generation != r.Generation {
			return fmt.Errorf("file %q is unbound, quarantined or not of generation %d", r.File, r.Generation)
		}
		return nil
	case KindOpenClient:
		if c := t.nonces.get(r.Nonce); c != nil {
			return fmt.Errorf("nonce %#x belongs to client %s", r.Nonce, c.id)
		}
		return nil
	case KindForgetClient:
		if c := t.clients.get(r.Client); c == nil || c.held > 0 || len(c.waits) > 0 {
			return fmt.Errorf("client %s is unknown, holds or waits", r.Client)
		}
		return nil
	case KindLevel:
		return t.legalLevel(r)
	case KindMembers:
		return t.legalMembers(r)
	case KindOwn:
		return t.legalOwn(r)
	case KindForgetMark:
		return t.legalForgetMark(r)
	case KindSkip:
		return t.legalSkip(r)
	default: // ForceClear, HandedOver and Term are always legal
		return nil
	}
}

func (t *Table) legalGrant(r *Record) error {
	l := t.locks.get(r.Lock)
	if err := errors.Join(t.legalAfter(r), t.legalSlot(r), t.legalName(r)); err != nil {
		return err
	}
	if l == nil {
		return t.legalRequester(r)
	}
	if err := l.legalLimit(r.Permit); err != nil {
		return err
	}
	w := l.next()
	if w == nil || w.client.id != r.Client || w.request != r.Request {
		if l.admits(r.Mode, r.Permit) && l.holders() < MaxHolders {
			return t.legalRequester(r)
		}
		return fmt.Errorf("it is not the turn of request %d of client %s at lock %q: held under token %d, %d wait", r.Request, r.Client, r.Lock, l.oldestGrant().token, l.queued)
	}
	if r.Hash != w.hash || r.TTL != w.ttl || r.Mode != w.mode || r.Holder != w.holder || r.Metadata != w.metadata || r.LowWater != 0 ||
		r.MaxHold != w.maxHold || r.Heartbeat != w.heartbeat || r.Remember != w.remember || r.After != 0 || r.Slot != w.slot || r.Permit != w.permit {
		return fmt.Errorf("the grant differs from the waiting request %d of client %s", r.Request, r.Client)
	}
	return nil
}

func (t *Table) legalEnqueue(r *Record) error {
	l := t.locks.get(r.Lock)
	switch {
	case l == nil || l.admits(r.Mode, r.Permit):
		return fmt.Errorf("lock %q is free for mode %d", r.Lock, r.Mode)
	case l.legalLimit(r.Permit) != nil:
		return l.legalLimit(r.Permit)
	case l.queued >= MaxQueue:
		return fmt.Errorf("lock %q has %d waiters", r.Lock, l.queued)
	case l.crowded(r.Mode):
		return fmt.Errorf("lock %q has %d holders and waiters that share it", r.Lock, l.holders()+l.together())
	}
	return errors.Join(t.legalName(r), t.legalRequester(r))
}

func (t *Table) legalToken(r *Record) error {
	if t.live(r.Lock, r.Token) == nil {
		return fmt.Errorf("token %d is not the live one of lock %q", r.Token, r.Lock)
	}
	return nil
}

func (t *Table) legalExtend(r *Record) error {
	if err := t.legalToken(r); err != nil {
		return err
	}
	return t.live(r.Lock, r.Token).mayExtend(r.TTL)
}

// legalWriter is legalToken for what needs an exclusive grant.
func (t *Table) legalWriter(r *Record) error {
	if g := t.live(r.Lock, r.Token); g == nil || g.mode != ModeExclusive {
		return fmt.Errorf("token %d is not the live one of lock %q, or a shared one", r.Token, r.Lock)
	}
	return nil
}

// legalRequester checks that r's request may be executed: never before, and
// not below a mark.
func (t *Table) legalRequester(r *Record) error {
	c := t.clients.get(r.Client)
	if c == nil {
		if r.Client.Opened() {
			return fmt.Errorf("client %s is not open", r.Client)
		}
		return nil
	}
	if c.receipt(r.Request) != nil || c.waiter(r.Request) != nil {
		return fmt.Errorf("request %d of client %s was executed or waits", r.Request, r.Client)
	}
	if c.stale(r.Request) {
		return fmt.Errorf("request %d of client %s is below the marks %d and %d", r.Request, r.Client, c.lowWater, c.dropped)
	}
	if c.id.Opened() && c.outstanding(r.LowWater) >= MaxOutstanding {
		return fmt.Errorf("client %s has too many receipts", r.Client)
	}
	return nil
}

func (t *Table) legalCancel(r *Record) error {
	if w := t.waiter(r.Client, r.Request); w != nil {
		if w.lock.name != r.Lock {
			return fmt.Errorf("request %d of client %s waits for lock %q, not %q", r.Request, r.Client, w.lock.name, r.Lock)
		}
		return nil
	}
	if r.Lock != "" || r.Client.Anonymous() {
		return fmt.Errorf("request %d of client %s does not wait", r.Request, r.Client)
	}
	return t.legalRequester(r)
}

func (t *Table) legalFile(r *Record) error {
	f := t.files[r.File]
	if r.Kind == KindBind {
		if f != nil {
			return fmt.Errorf("file %q is bound to lock %q", r.File, f.Lock)
		}
		if r.Generation <= t.past.generation {
			return fmt.Errorf("file %q may have had generation %d before", r.File, r.Generation)
		}
		return errors.Join(t.legalName(r), t.legalInode(r.Inode))
	}
	if f == nil || f.Lock != r.Lock {
		return fmt.Errorf("file %q is not bound to lock %q", r.File, r.Lock)
	}
	switch r.Kind {
	case KindAppend, KindSeal:
		if f.Quarantined || f.Sealed || r.Generation != f.Generation || r.Offset != f.End {
			return fmt.Errorf("file %q is at generation %d, offset %d, quarantined %t, sealed %t", r.File, f.Generation, f.End, f.Quarantined, f.Sealed)
		}
	case KindUnbind:
		if f.Sealed || r.Remember && (f.Quarantined || t.past.full(f)) {
			return fmt.Errorf("file %q is sealed, quarantined, or too many are remembered", r.File)
		}
	case KindAlready:
		if r.Generation != f.Generation || r.Offset != f.End {
			return fmt.Errorf("file %q is at generation %d, offset %d", r.File, f.Generation, f.End)
		}
	case KindRotate:
		if r.Generation != f.Generation+1 {
			return fmt.Errorf("file %q has generation %d", r.File, f.Generation)
		}
		return t.legalInode(r.Inode)
	}
	return nil
}

func (t *Table) legalInode(inode uint64) error {
	if other, ok := t.inodes[inode]; ok {
		return fmt.Errorf("inode %d is bound as file %q", inode, other)
	}
	return nil
}

// waiter returns the waiting request or nil.
func (t *Table) waiter(id cluster.ClientID, request cluster.RequestID) *waiter {
	if c := t.clients.get(id); c != nil {
		return c.waiter(request)
	}
	return nil
}

// Clone returns an independent copy: an Apply to either table does not change the other.
// It costs time and memory in proportion to the state.
func (t *Table) Clone() *Table {
	c := New()
	c.lsn, c.hash = t.lsn, t.hash
	c.lockNames, c.owed, c.fileNames, c.clientIDs = t.lockNames.clone(), t.owed.clone(), t.fileNames.clone(), t.clientIDs.clone()
	c.asked, c.asks = t.asked.clone(), maps.Clone(t.asks) // an Ask is never changed
	c.inodes, c.past, c.level = maps.Clone(t.inodes), t.past.clone(), t.level
	c.members = t.members // a list is never changed
	c.owned = t.owned     // likewise
	c.marks = t.marks.clone()
	for id := range t.clientIDs.all() {
		old := t.clients.get(id)
		// Receipts are values and what they point to never changes.
		n := &client{
			Presence: Presence{id: id}, nonce: old.nonce, lowWater: old.lowWater, dropped: old.dropped,
			receipts: slices.Clone(old.receipts), params: old.params, identity: old.identity,
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
	c.relink(held)
	return c
}

// cloneLock copies the lock and its queue into c, which has the clients already.
func (c *Table) cloneLock(old *lock) *lock {
	n := c.newLock(old.name)
	if old.files != nil {
		files := old.files.clone()
		c.ownEntry(n).files = &files
	}
	for w := old.head; w != nil; w = w.next {
		copied := *w
		copied.lock, copied.client, copied.prev, copied.next = n, c.clients.get(w.client.id), nil, nil
		c.push(&copied)
		copied.client.addWaiter(&copied)
		c.tie(copied.client)
	}
	c.locks.put(n)
	return n
}

// cloneGrant copies a grant to l, the copy of its lock.
func (c *Table) cloneGrant(l, old *lock) *lock {
	g := c.slot(l, old.token)
	g.token, g.grantParams, g.request, g.since, g.client = old.token, old.grantParams, old.request, old.since, c.clients.get(old.client.id)
	l.takes(g)
	if x := old.grant; x != nil {
		copied := *x
		copied.changed = 0
		c.ownEntry(g).grant = &copied
	}
	return g
}

// relink links the grants of each client in token order; held may be in any order.
func (t *Table) relink(held []*lock) {
	slices.SortFunc(held, func(a, b *lock) int { return cmp.Compare(a.token, b.token) })
	for _, l := range held {
		l.client.hold(l)
		t.tie(l.client)
	}
}

// ResetCounts zeroes Granted, Heard and Place everywhere and closes the exports under way.
// The table's next owner then finds it as if it had just been adopted.
func (t *Table) ResetCounts() {
	for l := range t.Leases("", 0) {
		l.Granted, l.Place = 0, 0
	}
	for p := range t.Presences("") {
		p.Heard, p.Place = 0, 0
	}
	for len(t.exports) > 0 {
		t.exports[0].Close()
	}
}
