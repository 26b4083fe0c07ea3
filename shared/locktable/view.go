// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"iter"
	"strconv"
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
}

// LockView is what there is to know of a lock, save its waiters and files.
type LockView struct {
	Name        cluster.LockName
	Grant       Grant
	QueueLength int
	FileCount   int
}

// ClientView is what there is to know of a client.
type ClientView struct {
	ID       cluster.ClientID
	Nonce    uint64
	LowWater cluster.RequestID
	Dropped  cluster.RequestID
	Receipts int
	Held     int
	Waiting  int
}

func (l *lock) grantView() Grant {
	if l.token == 0 {
		return Grant{Lock: l.name}
	}
	return Grant{
		Lock: l.name, Token: l.token, Epoch: l.epoch, Client: l.client.id, Request: l.request,
		TTL: l.ttl, Mode: l.mode, Holder: l.holder.value(),
	}
}

func (l *lock) view() LockView {
	v := LockView{Name: l.name, Grant: l.grantView(), QueueLength: int(l.queued)}
	if l.files != nil {
		v.FileCount = l.files.len()
	}
	return v
}

func (w *waiter) view() Waiter {
	return Waiter{
		Lock: w.lock.name, Client: w.client.id, Request: w.request, LSN: w.lsn, Epoch: w.epoch,
		TTL: w.ttl, Wait: w.wait, Mode: w.mode, Holder: w.holder.value(),
	}
}

func (c *client) view() ClientView {
	return ClientView{
		ID: c.id, Nonce: c.nonce, LowWater: c.lowWater, Dropped: c.dropped,
		Receipts: len(c.receipts), Held: c.held, Waiting: len(c.waits),
	}
}

// openedAt is the LSN of the record that opened the client.
func (c *client) openedAt() cluster.LSN {
	n, _ := strconv.ParseUint(string(c.id[1:]), 10, 64) // an opened ID is made of it
	return cluster.LSN(n)
}

// Live returns the grant if token is the live one of the lock.
func (t *Table) Live(name cluster.LockName, token cluster.Token) (Grant, bool) {
	if l := t.locks[name]; l != nil && token != 0 && l.token == token {
		return l.grantView(), true
	}
	return Grant{}, false
}

// Lock returns the lock if it has a holder, waiters or files.
func (t *Table) Lock(name cluster.LockName) (LockView, bool) {
	if l := t.locks[name]; l != nil {
		return l.view(), true
	}
	return LockView{}, false
}

// LockCount is the number of locks with a holder, waiters or files.
func (t *Table) LockCount() int { return len(t.locks) }

// ClientCount is the number of clients in the table.
func (t *Table) ClientCount() int { return len(t.clients) }

// Locks iterates in order over the locks whose names begin with prefix and come
// after the given name; "" is before all. The table must not change meanwhile.
func (t *Table) Locks(prefix string, after cluster.LockName) iter.Seq[LockView] {
	return func(yield func(LockView) bool) {
		for name := range t.lockNames.from(max(cluster.LockName(prefix), after)) {
			if !strings.HasPrefix(string(name), prefix) {
				return // all names with the prefix stand together
			}
			if name != after && !yield(t.locks[name].view()) {
				return
			}
		}
	}
}

// Waiters iterates over the queue of a lock, the first in line first.
func (t *Table) Waiters(name cluster.LockName) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		l := t.locks[name]
		if l == nil {
			return
		}
		for w := l.head; w != nil; w = w.next {
			if !yield(w.view()) {
				return
			}
		}
	}
}

// File returns the state of a bound file.
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

// FilesOf lists in order the files bound to a lock.
func (t *Table) FilesOf(name cluster.LockName) []cluster.FileName {
	l := t.locks[name]
	if l == nil || l.files == nil {
		return nil
	}
	names := make([]cluster.FileName, 0, l.files.len())
	for file := range l.files.all() {
		names = append(names, file)
	}
	return names
}

// Client returns what is known of a client.
func (t *Table) Client(id cluster.ClientID) (ClientView, bool) {
	if c := t.clients[id]; c != nil {
		return c.view(), true
	}
	return ClientView{}, false
}

// Clients iterates over the clients in order.
func (t *Table) Clients() iter.Seq2[cluster.ClientID, ClientView] {
	return func(yield func(cluster.ClientID, ClientView) bool) {
		for id := range t.clientIDs.all() {
			if !yield(id, t.clients[id].view()) {
				return
			}
		}
	}
}

// HeldBy is the number of grants that the client holds.
func (t *Table) HeldBy(id cluster.ClientID) int {
	if c := t.clients[id]; c != nil {
		return c.held
	}
	return 0
}

// Held iterates over the grants of a client in token order.
func (t *Table) Held(id cluster.ClientID) iter.Seq[Grant] {
	return func(yield func(Grant) bool) {
		c := t.clients[id]
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

// Waiting is the number of requests that the client has in queues.
func (t *Table) Waiting(id cluster.ClientID) int {
	if c := t.clients[id]; c != nil {
		return len(c.waits)
	}
	return 0
}

// WaitsOf iterates over the waiting requests of a client in order of their IDs.
func (t *Table) WaitsOf(id cluster.ClientID) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		c := t.clients[id]
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
