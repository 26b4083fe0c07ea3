// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"iter"
	"time"
)

// grant is the key of a handle. The name is part of it, because a caller of Attach passes one
// with the token, and may pass a wrong one.
type grant struct {
	lock  LockName
	token Token
}

// A handle stays in the map where it was added until it is removed: an acquired one in locks, an
// attached one in attached. A token that is attached before its Acquire returns has one in each,
// and neither hides the other.

// handles yields all handles, in any order. It is called with mu held.
func (k *leaseRenewer) handles() iter.Seq[*Lock] {
	return func(yield func(*Lock) bool) {
		for _, l := range k.mu.locks {
			if !yield(l) {
				return
			}
		}
		for _, l := range k.mu.attached {
			if !yield(l) {
				return
			}
		}
	}
}

// holders returns the clients that have acquired handles.
func (k *leaseRenewer) holders() map[ClientID]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[ClientID]bool{}
	for _, l := range k.mu.locks {
		all[l.owner] = true
	}
	return all
}

// held returns the handles of a grant, the acquired one first.
func (k *leaseRenewer) held(lock LockName, token Token) []*Lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.of(lock, token)
}

// of returns the handles of a grant, the acquired one first. The caller has k.mu.
func (k *leaseRenewer) of(lock LockName, token Token) (all []*Lock) {
	if l := k.mu.locks[token]; l != nil && l.name == lock {
		all = append(all, l)
	}
	if l := k.mu.attached[grant{lock, token}]; l != nil {
		all = append(all, l)
	}
	return all
}

// concerned returns the handles of the grant that a notice is about, and keeps the notice for a
// handle that is about to be added.
func (k *leaseRenewer) concerned(lock LockName, token Token, n notice) []*Lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keepEarly(lock, n)
	return k.of(lock, token)
}

// heldBefore returns the handles of locks that were granted before an LSN: a token is the LSN of
// its grant. It keeps the notice for handles that are about to be added.
func (k *leaseRenewer) heldBefore(at LSN, n notice) (all []*Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for lock := range k.mu.expecting {
		k.keepEarly(lock, n)
	}
	for l := range k.handles() {
		if LSN(l.token) < at {
			all = append(all, l)
		}
	}
	return all
}

// add adds the handle of an acquired lock. It returns false if the lease has ended already, or
// the client is closed.
func (k *leaseRenewer) add(l *Lock) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.c.opt.Clock.Now()
	lease := l.counted()
	if k.mu.closed || lease.over(now) {
		return false
	}
	k.mu.locks[l.token] = l
	k.count(lease.ttl, now)
	return true
}

// attach adds the handle of a token that another client got, and returns the one to use: that
// which is there already, if any. A second one would hide the first from plan and close.
func (k *leaseRenewer) attach(l *Lock) *Lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed {
		l.end(l.lost(LossClosed, nil))
		return l
	}
	g := grant{l.name, l.token}
	for _, is := range []*Lock{k.mu.locks[l.token], k.mu.attached[g]} {
		if is != nil && is.name == l.name && is.ctx.Err() == nil {
			return is
		}
	}
	k.mu.attached[g] = l
	return l
}

// watch starts counting the lease of an attached lock that was renewed.
func (k *leaseRenewer) watch(l *Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.attached[grant{l.name, l.token}] == l && !k.mu.closed {
		k.start(l.counted().ttl, k.c.opt.Clock.Now())
	}
}

// extend counts left of a lease that has a longer TTL since sent.
func (k *leaseRenewer) extend(l *Lock, ttl, sent, left time.Duration, at LSN) {
	k.mu.Lock()
	defer k.mu.Unlock()
	counted := k.mu.locks[l.token] == l
	if counted {
		k.uncount(l.counted().ttl)
	}
	l.grant(ttl, sent, left, at)
	switch now := k.c.opt.Clock.Now(); {
	case counted:
		k.count(l.counted().ttl, now)
	case k.mu.attached[grant{l.name, l.token}] == l && !k.mu.closed:
		k.start(l.counted().ttl, now)
	}
}

// remove forgets a handle.
func (k *leaseRenewer) remove(l *Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := (grant{l.name, l.token}); k.mu.attached[g] == l {
		delete(k.mu.attached, g)
	}
	if k.mu.locks[l.token] == l {
		delete(k.mu.locks, l.token)
		k.uncount(l.counted().ttl)
	}
}

// released ends the other handles of a token that l releases.
func (k *leaseRenewer) released(l *Lock) {
	for _, other := range k.held(l.name, l.token) {
		other.end(ErrReleased)
		k.remove(other)
	}
}
