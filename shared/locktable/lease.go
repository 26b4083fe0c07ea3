// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Lease is the live grant of a lock for whoever counts its time. Granted and Place
// are that counter's own: the table keeps room for them and does not look at
// them. They are no part of the state, and zero where the table was adopted. A
// Lease is valid while its grant is live.
type Lease struct {
	Granted time.Duration
	Place   uint64

	name   cluster.LockName
	token  cluster.Token // 0: the lock is free
	client *client
	*terms
}

// Lock is the lock that is held.
func (l *Lease) Lock() cluster.LockName { return l.name }

// Token is 0 where nobody holds the lock.
func (l *Lease) Token() cluster.Token { return l.token }

// TTL is that of the grant.
func (l *Lease) TTL() time.Duration { return l.ttl }

// MaxHold is how long the grant lives at most; 0 = no end.
func (l *Lease) MaxHold() time.Duration { return l.maxHold }

// Heartbeat says that only the use of its token renews the lease.
func (l *Lease) Heartbeat() bool { return l.heartbeat }

// Client is the one that holds the lock.
func (l *Lease) Client() *Presence { return &l.client.Presence }

// Presence is a client for whoever counts its silence. Heard and Place are that
// counter's own, as those of a Lease.
type Presence struct {
	Heard time.Duration
	Place uint64

	id cluster.ClientID
}

// ID is that of the client.
func (p *Presence) ID() cluster.ClientID { return p.id }

// ResetCounts zeroes Granted, Heard and Place everywhere and closes the exports under way: the
// table goes to another owner, which finds it as if it had just been adopted.
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

// Lease returns the live grant if token is that of the lock, else nil.
func (t *Table) Lease(name cluster.LockName, token cluster.Token) *Lease {
	if g := t.live(name, token); g != nil {
		return &g.Lease
	}
	return nil
}

// Leases iterates in order over the live grants behind the given one of the given lock.
// Of a free lock it shows one without a token. The table must not change meanwhile.
func (t *Table) Leases(name cluster.LockName, after cluster.Token) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for next := range t.lockNames.from(name) {
			l := t.locks.get(next)
			if next != name {
				after = 0
			}
			if next != name && l.holders() == 0 && !yield(&l.Lease) {
				return
			}
			for g := range l.grants(after) {
				if !yield(&g.Lease) {
					return
				}
			}
		}
	}
}

// Presence returns the client, nil if the table does not know it.
func (t *Table) Presence(id cluster.ClientID) *Presence {
	if c := t.clients.get(id); c != nil {
		return &c.Presence
	}
	return nil
}

// Presences iterates over the clients behind the given one, in order. The table
// must not change meanwhile.
func (t *Table) Presences(after cluster.ClientID) iter.Seq[*Presence] {
	return func(yield func(*Presence) bool) {
		for id := range t.clientIDs.after(after) {
			if !yield(&t.clients.get(id).Presence) {
				return
			}
		}
	}
}
