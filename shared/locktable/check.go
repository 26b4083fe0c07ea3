// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// checker holds what one run of Check counts.
type checker struct {
	t       *Table
	hash    uint64
	buf     []byte
	waiting int // over all locks
	held    int
	bound   int
	owed    int
	nonces  int
	asked   int
	places  map[cluster.LSN]string // tokens, places of waiters and asks: one record each
}

func (ck *checker) sum(appendTo func([]byte) []byte) {
	ck.buf = appendTo(ck.buf[:0])
	ck.hash += xxhash.Sum64(ck.buf)
}

// place counts the record that made a grant or a place in a queue, which is in use once only.
func (ck *checker) place(lsn cluster.LSN, what string) error {
	if lsn == 0 || lsn > ck.t.lsn {
		return fmt.Errorf("%s: record %d is not in the log, which ends at %d", what, lsn, ck.t.lsn)
	}
	if other, ok := ck.places[lsn]; ok {
		return fmt.Errorf("%s: record %d also made %s", what, lsn, other)
	}
	ck.places[lsn] = what
	return nil
}

// Check verifies the invariants of the package doc over the whole table and returns an error
// that names the first one broken. It is slow and changes nothing.
func (t *Table) Check() error {
	ck := &checker{t: t, places: map[cluster.LSN]string{}}
	if !t.lockNames.check() || !t.fileNames.check() || !t.clientIDs.check() || !t.owed.check() || !t.asked.check() || !t.tied.check() {
		return fmt.Errorf("invariant 9: an index is out of order")
	}
	if t.lockNames.len() != t.locks.len() || t.fileNames.len() != len(t.files) || t.clientIDs.len() != t.clients.len() {
		return fmt.Errorf("invariant 9: an index has another length than its map")
	}
	for name := range t.lockNames.all() {
		if err := ck.lock(name, t.locks.get(name)); err != nil {
			return fmt.Errorf("lock %q: %w", name, err)
		}
	}
	if ck.owed != t.owed.len() {
		return fmt.Errorf("invariant 3: %d locks are owed a grant, %d are known", ck.owed, t.owed.len())
	}
	if ck.asked != t.asked.len() || ck.asked != len(t.asks) {
		return fmt.Errorf("invariant 1: %d holders are asked to let go, %d are known", ck.asked, t.asked.len())
	}
	for name := range t.fileNames.all() {
		if err := ck.file(name, t.files[name]); err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
	}
	if ck.bound != len(t.files) || len(t.inodes) != len(t.files) {
		return fmt.Errorf("invariant 5: %d files, %d listed by locks, %d inodes", len(t.files), ck.bound, len(t.inodes))
	}
	if err := errors.Join(ck.past(), ck.level(), ck.members(), ck.owned(), ck.marks()); err != nil {
		return err
	}
	for id := range t.clientIDs.all() {
		if err := ck.client(id, t.clients.get(id)); err != nil {
			return fmt.Errorf("client %s: %w", id, err)
		}
	}
	if ck.waiting != 0 || ck.held != 0 || ck.nonces != t.nonces.len() {
		return fmt.Errorf("invariant 6: %d waiters and %d grants are not listed by their clients, or nonces differ", ck.waiting, ck.held)
	}
	for id := range t.clientIDs.all() {
		if c := t.clients.get(id); (c.held > 0 && len(c.waits) > 0) != c.tied || c.tied != t.tied.has(id) {
			return fmt.Errorf("invariant 9: client %s holds %d and waits for %d, and is listed as one that does both: %t", id, c.held, len(c.waits), t.tied.has(id))
		}
	}
	if ck.hash != t.hash {
		return fmt.Errorf("invariant 10: the hash is %#x, computed anew %#x", t.hash, ck.hash)
	}
	return nil
}

func (ck *checker) lock(name cluster.LockName, l *lock) error {
	if l == nil || l.name != name || name.Validate() != nil {
		return fmt.Errorf("invariant 9: not in the map, or a bad name")
	}
	if l.holders() == 0 && l.head == nil && l.files == nil {
		return fmt.Errorf("invariant 4: nobody holds it, waits for it or bound a file to it")
	}
	for g := range l.grants(0) {
		if err := ck.grant(g); err != nil {
			return err
		}
	}
	if l.token != 0 {
		// looked at with the others
	} else if l.client != nil || l.grantParams != nil || l.heldPrev != nil || l.heldNext != nil || l.grant != nil || l.since != 0 {
		return fmt.Errorf("invariant 1: free, but remembers a holder")
	}
	if (l.head == nil && l.files == nil && l.grant == nil && l.sharing == nil) != (l.lockEntry == &ck.t.noEntry) {
		return fmt.Errorf("invariant 9: it has a row without need, or shares one")
	}
	if err := errors.Join(ck.permits(l), ck.turn(l)); err != nil {
		return err
	}
	if l.files != nil {
		if l.files.len() == 0 || !l.files.check() {
			return fmt.Errorf("invariant 5: its list of files is empty or out of order")
		}
		ck.bound += l.files.len()
	}
	return ck.queue(l)
}

func (ck *checker) grant(l *lock) error {
	ck.sum(l.appendGrant)
	ck.held++
	if l.client == nil || ck.t.clients.get(l.client.id) != l.client {
		return fmt.Errorf("invariant 6: its holder is no client of the table")
	}
	if l.ttl <= 0 || l.mode > ModeShared || l.request == 0 || l.epoch == 0 {
		return fmt.Errorf("invariant 1: its grant has TTL %v, mode %d, request %d, epoch %d", l.ttl, l.mode, l.request, l.epoch)
	}
	if err := ck.place(cluster.LSN(l.token), "the grant of "+string(l.name)); err != nil {
		return fmt.Errorf("invariant 1: %w", err)
	}
	if l.grant == nil || l.grant.ask == nil {
		return nil
	}
	ck.asked++
	a := l.grant.ask
	if a.Lock != l.name || a.Token != l.token || a.LSN <= cluster.LSN(l.token) || a.Grace <= 0 || !ck.t.asked.has(l.token) || ck.t.asks[l.token] != a {
		return fmt.Errorf("invariant 1: its holder is asked wrongly: %+v", *a)
	}
	if err := ck.place(a.LSN, "the ask of "+string(l.name)); err != nil {
		return fmt.Errorf("invariant 1: %w", err)
	}
	return nil
}

func (ck *checker) queue(l *lock) error {
	var prev *waiter
	n := int32(0)
	for w := l.head; w != nil; prev, w = w, w.next {
		n++
		ck.sum(w.appendTo)
		if err := ck.place(w.lsn, "a place in the queue of "+string(l.name)); err != nil {
			return fmt.Errorf("invariant 2: %w", err)
		}
		switch {
		case w.prev != prev || w.lock != l || prev != nil && prev.lsn >= w.lsn:
			return fmt.Errorf("invariant 2: the queue is out of order at record %d", w.lsn)
		case w.ttl <= 0 || w.wait != WaitForever && w.wait <= 0 || w.mode > ModeShared || w.epoch == 0:
			return fmt.Errorf("invariant 2: the waiter of record %d has TTL %v, wait %v, mode %d", w.lsn, w.ttl, w.wait, w.mode)
		case ck.t.clients.get(w.client.id) != w.client || w.client.waiter(w.request) != w:
			return fmt.Errorf("invariant 6: client %s does not list its request %d", w.client.id, w.request)
		}
	}
	if l.tail != prev || n != l.queued || n > MaxQueue {
		return fmt.Errorf("invariant 2: the queue has %d waiters, %d are counted", n, l.queued)
	}
	ck.waiting += int(n)
	return nil
}

// turn verifies the holders of the lock, and the waiter that is next.
func (ck *checker) turn(l *lock) error {
	owed := l.due()
	if owed {
		ck.owed++
	}
	if owed != ck.t.owed.has(l.name) {
		return fmt.Errorf("invariant 3: owed a grant: %t, known as such: %t", owed, !owed)
	}
	if owed && l.next() == nil {
		return fmt.Errorf("invariant 3: owed a grant, but to nobody")
	}
	if limit, _ := l.limit(); limit != 0 {
		return nil // it has no phases
	}
	s := l.sharing
	if s == nil {
		if w := l.head; w != nil && l.token != 0 && l.mode == ModeShared && w.mode == ModeShared {
			return fmt.Errorf("invariant 3: shared by one, and the waiter of record %d is kept from it", w.lsn)
		}
		return nil
	}
	if len(s.grants) == 0 && len(s.waiters) == 0 {
		return fmt.Errorf("invariant 9: it has something of a shared lock without need")
	}
	for g := range l.grants(0) {
		if l.holders() > 1 && g.mode != ModeShared {
			return fmt.Errorf("invariant 1: held by %d, and by token %d in exclusive mode", l.holders(), g.token)
		}
	}
	if l.holders() > MaxHolders+MaxQueue {
		return fmt.Errorf("invariant 1: held by %d", l.holders())
	}
	i := 0
	for w := l.head; w != nil; w = w.next {
		if w.mode == ModeShared {
			if i == len(s.waiters) || s.waiters[i] != w {
				return fmt.Errorf("invariant 2: the waiter of record %d is not listed as shared", w.lsn)
			}
			i++
		}
	}
	if i != len(s.waiters) {
		return fmt.Errorf("invariant 2: %d waiters are listed as shared, %d are", len(s.waiters), i)
	}
	if s.phase != 0 {
		ck.sum(l.appendPhase)
		if l.exclusive() || s.phase > ck.t.lsn || len(s.owed()) == 0 {
			return fmt.Errorf("invariant 3: phase of record %d, held exclusively %t, %d are owed a grant", s.phase, l.exclusive(), len(s.owed()))
		}
	}
	if !l.exclusive() && l.exclusiveWaiting() == 0 && len(s.owed()) != len(s.waiters) {
		return fmt.Errorf("invariant 3: %d wait in shared mode, for nobody", len(s.waiters)-len(s.owed()))
	}
	return nil
}

func (ck *checker) file(name cluster.FileName, f *file) error {
	if f == nil || f.name != name || name.Validate() != nil {
		return fmt.Errorf("invariant 9: not in the map, or a bad name")
	}
	ck.sum(f.appendTo)
	if l := ck.t.locks.get(f.Lock); l == nil || l.files == nil || !l.files.has(name) {
		return fmt.Errorf("invariant 5: lock %q does not list it", f.Lock)
	}
	if ck.t.inodes[f.Inode] != name || f.Inode == 0 {
		return fmt.Errorf("invariant 5: inode %d is that of file %q", f.Inode, ck.t.inodes[f.Inode])
	}
	appended := f.LastLength > 0
	switch {
	case f.Generation == 0 || f.Start < 0 || f.End < f.Start || f.LastLSN == 0 || f.LastLSN > ck.t.lsn || f.Since > f.LastLSN:
	case appended && (f.LastOffset < f.Start || f.LastOffset+f.LastLength != f.End):
	case !appended && (f.LastLength != 0 || f.LastOffset != 0 || f.LastCRC != 0 || f.End != f.Start):
	case !f.Quarantined && f.Reason != "":
	case !f.Lost.inOrder(f.Generation, f.Since):
	default:
		return nil
	}
	return fmt.Errorf("invariant 5: inconsistent: %+v", f.FileState)
}

func (ck *checker) client(id cluster.ClientID, c *client) error {
	if c == nil || c.id != id || id.Validate() != nil {
		return fmt.Errorf("invariant 9: not in the map, or a bad ID")
	}
	ck.sum(c.appendTo)
	held, token := 0, cluster.Token(0)
	var prev *lock
	digest := cluster.Digest(0)
	for l := c.heldHead; l != nil; prev, l = l, l.heldNext {
		if l.client != c || l.heldPrev != prev || l.token <= token || ck.t.live(l.name, l.token) != l {
			return fmt.Errorf("invariant 6: lists the grant of lock %q wrongly", l.name)
		}
		held, token, digest = held+1, l.token, digest.With(l.token)
	}
	if c.heldTail != prev || held != int(c.held) || digest != c.digest {
		return fmt.Errorf("invariant 6: lists %d grants of digest %x, %d of %x are counted", held, digest, c.held, c.digest)
	}
	ck.held -= held
	for i, w := range c.waits {
		if w.client != c || i > 0 && c.waits[i-1].request >= w.request || c.receipt(w.request) != nil {
			return fmt.Errorf("invariant 7: request %d waits, but wrongly", w.request)
		}
	}
	ck.waiting -= len(c.waits)
	if c.nonce != 0 {
		ck.nonces++
	}
	if c.id.Opened() != (c.nonce != 0) || c.nonce != 0 && (ck.t.nonces.get(c.nonce) != c || c.openedAt() > ck.t.lsn) {
		return fmt.Errorf("invariant 8: nonce %#x does not lead to it", c.nonce)
	}
	return ck.receipts(c)
}

func (ck *checker) receipts(c *client) error {
	limit := MaxChosenReceipts
	switch {
	case c.id.Opened():
		limit = MaxOutstanding - len(c.waits)
	case c.id.Anonymous():
		limit = int(c.held)
		if c.held == 0 && len(c.waits) == 0 {
			return fmt.Errorf("invariant 8: anonymous, and neither holds nor waits")
		}
	}
	if len(c.receipts) > limit {
		return fmt.Errorf("invariant 7: %d receipts, at most %d are allowed", len(c.receipts), limit)
	}
	for i := range c.receipts {
		rc := &c.receipts[i]
		ck.sum(func(b []byte) []byte { return rc.appendTo(b, c) })
		switch {
		case i > 0 && c.receipts[i-1].request >= rc.request || rc.request < c.lowWater || rc.request > MaxRequestID || rc.request == 0:
			return fmt.Errorf("invariant 7: receipt %d is out of order or below %d", rc.request, c.lowWater)
		case rc.lsn == 0 || rc.lsn > ck.t.lsn || rc.epoch == 0 || !rc.kind.leavesReceipt():
			return fmt.Errorf("invariant 7: receipt %d has record %d of epoch %d, kind %v", rc.request, rc.lsn, rc.epoch, rc.kind)
		case rc.kind == KindGrant && cluster.LSN(rc.token) != rc.lsn:
			return fmt.Errorf("invariant 7: receipt %d has token %d of record %d", rc.request, rc.token, rc.lsn)
		}
		if !c.id.Anonymous() {
			continue
		}
		if g := ck.t.live(rc.lock, rc.token); g == nil || g.client != c {
			return fmt.Errorf("invariant 8: receipt %d is not that of a live grant", rc.request)
		}
	}
	return nil
}
