// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"iter"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Grant is one live grant.
type Grant struct {
	Lock    cluster.LockName
	Token   cluster.Token // 0: the lock is free
	Epoch   cluster.Epoch // that granted it
	Client  cluster.ClientID
	Request cluster.RequestID
	TTL     time.Duration
	Mode    Mode
	Holder  Holder
	// Since is when the grant was decided, in milliseconds since 1970 by the clock of
	// the primary of Epoch; for people. 0 if it is not known.
	Since    int64
	Metadata string
	Ask      *Ask // nil if the holder is not asked to release; must not be changed

	MaxHold   time.Duration // 0 = no end
	Heartbeat bool          // only the use of the token renews the lease
	Permit    Permit        // of a lock with a limit

	Identity string // of Client: what the grant belongs to, "" for none
}

// Waiter is one request in a queue.
type Waiter struct {
	Lock    cluster.LockName
	Client  cluster.ClientID
	Request cluster.RequestID
	LSN     cluster.LSN // of its Enqueue record: its place
	Epoch   cluster.Epoch
	TTL     time.Duration
	Wait    time.Duration // as asked for: WaitForever or positive
	Mode    Mode
	Holder  Holder
	Since   int64 // as in Grant

	Permit   Permit
	Metadata string
	Identity string // as in Grant
}

// LockView is a lock without its waiters and files and, of several holders, with the oldest
// grant only.
type LockView struct {
	Name        cluster.LockName
	Grant       Grant // the oldest; its token is 0 if the lock is free
	Holders     int
	Limit       uint32 // of those who hold or wait; 0 = none
	Taken       uint32 // how many permits of Limit the holders have
	QueueLength int
	FileCount   int
}

// ClientView is a client without its grants, waiting requests and receipts.
type ClientView struct {
	ID       cluster.ClientID
	Nonce    uint64            // it was opened with; 0 for other clients
	LowWater cluster.RequestID // requests below are STALE_REQUEST
	Dropped  cluster.RequestID // 1 + the highest ID whose receipt was dropped for its age
	Receipts int               // number of them
	Held     int               // number of grants
	Waiting  int               // number of requests in queues
	Identity string            // that the client belongs to, "" for none
}

func (l *lock) grantView() Grant {
	if l.token == 0 {
		return Grant{Lock: l.name}
	}
	g := Grant{
		Lock: l.name, Token: l.token, Epoch: l.epoch, Client: l.client.id, Request: l.request,
		TTL: l.ttl, Mode: l.mode, Holder: l.holder, Since: l.since,
		MaxHold: l.maxHold, Heartbeat: l.heartbeat, Permit: l.permit, Identity: l.client.owner(),
	}
	if x := l.grant; x != nil {
		g.Metadata, g.Ask = x.metadata, x.ask
	}
	return g
}

func (l *lock) view() LockView {
	v := LockView{Name: l.name, Grant: l.oldestGrant().grantView(), Holders: l.holders(), Taken: uint32(l.taken()), QueueLength: int(l.queued)}
	v.Limit, _ = l.limit()
	if l.files != nil {
		v.FileCount = l.files.len()
	}
	return v
}

func (w *waiter) view() Waiter {
	return Waiter{
		Lock: w.lock.name, Client: w.client.id, Request: w.request, LSN: w.lsn, Epoch: w.epoch,
		TTL: w.ttl, Wait: w.wait, Mode: w.mode, Holder: w.holder, Since: w.since, Permit: w.permit, Metadata: w.metadata,
		Identity: w.client.owner(),
	}
}

func (c *client) view() ClientView {
	return ClientView{
		ID: c.id, Nonce: c.nonce, LowWater: c.lowWater, Dropped: c.dropped,
		Receipts: len(c.receipts), Held: int(c.held), Waiting: len(c.waits), Identity: c.owner(),
	}
}

// openedAt returns the LSN of the record that opened the client.
func (c *client) openedAt() cluster.LSN {
	lsn, _ := c.id.OpenedBy()
	return lsn
}

// Live returns the live grant of the lock with this token; false if there is none.
func (t *Table) Live(name cluster.LockName, token cluster.Token) (Grant, bool) {
	if g := t.live(name, token); g != nil {
		return g.grantView(), true
	}
	return Grant{}, false
}

// Grants iterates over the live grants of a lock in token order. A lock in exclusive mode has
// one, a free lock none.
func (t *Table) Grants(name cluster.LockName) iter.Seq[Grant] {
	return func(yield func(Grant) bool) {
		l := t.locks.get(name)
		if l == nil {
			return
		}
		for g := range l.grants(0) {
			if !yield(g.grantView()) {
				return
			}
		}
	}
}

// Lock returns the lock; false if it has neither holder, waiters nor files.
func (t *Table) Lock(name cluster.LockName) (LockView, bool) {
	if l := t.locks.get(name); l != nil {
		return l.view(), true
	}
	return LockView{}, false
}

// LockCount returns the number of locks with a holder, waiters or files.
func (t *Table) LockCount() int { return t.locks.len() }

// ClientCount returns the number of clients in the table.
func (t *Table) ClientCount() int { return t.clients.len() }

// Locks iterates in order over the locks whose names begin with prefix and come
// after the given name; "" is before all. The table must not change meanwhile.
func (t *Table) Locks(prefix string, after cluster.LockName) iter.Seq[LockView] {
	return func(yield func(LockView) bool) {
		for name := range t.lockNames.from(max(cluster.LockName(prefix), after)) {
			if !strings.HasPrefix(string(name), prefix) {
				return // all names with the prefix stand together
			}
			if name != after && !yield(t.locks.get(name).view()) {
				return
			}
		}
	}
}

// Waiters iterates over the queue of a lock, the first in line first.
func (t *Table) Waiters(name cluster.LockName) iter.Seq[Waiter] {
	return t.WaitersBehind(name, "", 0)
}

// WaitersBehind iterates over the waiters of a lock after the place of this request, in
// order, or over all of them if the request does not wait for the lock.
func (t *Table) WaitersBehind(name cluster.LockName, client cluster.ClientID, request cluster.RequestID) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		l := t.locks.get(name)
		if l == nil {
			return
		}
		w := l.head
		if c := t.clients.get(client); c != nil {
			if at := c.waiter(request); at != nil && at.lock == l {
				w = at.next
			}
		}
		for ; w != nil; w = w.next {
			if !yield(w.view()) {
				return
			}
		}
	}
}

// Waiter returns the place of a request in a queue; false if it does not wait.
func (t *Table) Waiter(client cluster.ClientID, request cluster.RequestID) (Waiter, bool) {
	if w := t.waiter(client, request); w != nil {
		return w.view(), true
	}
	return Waiter{}, false
}

// File returns the state of a bound file; false if it is not bound.
func (t *Table) File(name cluster.FileName) (FileState, bool) {
	if f := t.files[name]; f != nil {
		return f.FileState, true
	}
	return FileState{}, false
}

// Files iterates over the bound files in order.
func (t *Table) Files() iter.Seq2[cluster.FileName, FileState] {
	return func(yield func(cluster.FileName, FileState) bool) {
		for name := range t.fileNames.all() {
			if !yield(name, t.files[name].FileState) {
				return
			}
		}
	}
}

// FilesAfter iterates in order over the bound files whose names begin with prefix and come
// after the given name; "" is before all. The table must not change meanwhile.
func (t *Table) FilesAfter(prefix string, after cluster.FileName) iter.Seq2[cluster.FileName, FileState] {
	return func(yield func(cluster.FileName, FileState) bool) {
		for name := range t.fileNames.from(max(cluster.FileName(prefix), after)) {
			if !strings.HasPrefix(string(name), prefix) {
				return // all names with the prefix stand together
			}
			if name != after && !yield(name, t.files[name].FileState) {
				return
			}
		}
	}
}

// FilesOf returns the files bound to a lock in order, nil if there are none.
func (t *Table) FilesOf(name cluster.LockName) []cluster.FileName {
	l := t.locks.get(name)
	if l == nil || l.files == nil {
		return nil
	}
	names := make([]cluster.FileName, 0, l.files.len())
	for file := range l.files.all() {
		names = append(names, file)
	}
	return names
}

// Client returns a client; false if it is not in the table.
func (t *Table) Client(id cluster.ClientID) (ClientView, bool) {
	if c := t.clients.get(id); c != nil {
		return c.view(), true
	}
	return ClientView{}, false
}

// HeldBy returns the number of grants that the client holds.
func (t *Table) HeldBy(id cluster.ClientID) int {
	if c := t.clients.get(id); c != nil {
		return int(c.held)
	}
	return 0
}

// DigestOf returns the digest of the tokens that the client holds, 0 for none.
func (t *Table) DigestOf(id cluster.ClientID) cluster.Digest {
	if c := t.clients.get(id); c != nil {
		return c.digest
	}
	return 0
}

// Holds reports whether the client holds the lock, alone or with others.
func (t *Table) Holds(id cluster.ClientID, name cluster.LockName) bool {
	c, l := t.clients.get(id), t.locks.get(name)
	if c == nil || l == nil || c.held == 0 {
		return false
	}
	if int(c.held) > l.holders() { // whichever are fewer
		for g := range l.grants(0) {
			if g.client == c {
				return true
			}
		}
		return false
	}
	for g := c.heldHead; g != nil; g = g.heldNext {
		if g.name == name {
			return true
		}
	}
	return false
}

// Held iterates over the grants of a client in token order.
func (t *Table) Held(id cluster.ClientID) iter.Seq[Grant] {
	return func(yield func(Grant) bool) {
		c := t.clients.get(id)
		if c == nil {
			return
		}
		for l := c.heldHead; l != nil; l = l.heldNext {
			if !yield(l.grantView()) {
				return
			}
		}
	}
}

// WaitsOf iterates over the waiting requests of a client in order of their IDs.
func (t *Table) WaitsOf(id cluster.ClientID) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		c := t.clients.get(id)
		if c == nil {
			return
		}
		for _, w := range c.waits {
			if !yield(w.view()) {
				return
			}
		}
	}
}
