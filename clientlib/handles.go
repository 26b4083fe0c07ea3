// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"iter"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// grant is what a handle is of. Who attaches says the name as well, and may say a wrong one.
type grant struct {
	lock  cluster.LockName
	token cluster.Token
}

// A handle stays where it came in until it is removed: what was acquired in locks, what
// was attached in attached. A token that is attached before its Acquire returns has one
// in each, and neither hides the other.

// handles are all there are, in any order. It is called with mu held.
func (k *keeper) handles() iter.Seq[*Lock] {
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

// holders are the clients that have acquired handles.
func (k *keeper) holders() map[cluster.ClientID]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[cluster.ClientID]bool{}
	for _, l := range k.mu.locks {
		all[l.owner] = true
	}
	return all
}

// held are the handles of a grant, the acquired one first.
func (k *keeper) held(lock cluster.LockName, token cluster.Token) []*Lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.of(lock, token)
}

// of is held, with mu held.
func (k *keeper) of(lock cluster.LockName, token cluster.Token) (all []*Lock) {
	if l := k.mu.locks[token]; l != nil && l.name == lock {
		all = append(all, l)
	}
	if l := k.mu.attached[grant{lock, token}]; l != nil {
		all = append(all, l)
	}
	return all
}

// concerned are the handles of a grant that a notice is of. It is kept for one that is about
// to come.
func (k *keeper) concerned(lock cluster.LockName, token cluster.Token, n notice) []*Lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keepEarly(lock, n)
	return k.of(lock, token)
}

// heldBefore lists the locks that were granted before an LSN: a token is the LSN of its grant.
// The notice is kept for those that are about to come.
func (k *keeper) heldBefore(at cluster.LSN, n notice) (all []*Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for lock := range k.mu.expecting {
		k.keepEarly(lock, n)
	}
	for l := range k.handles() {
		if cluster.LSN(l.token) < at {
			all = append(all, l)
		}
	}
	return all
}

// add takes a lock over. False means that its time is over already.
func (k *keeper) add(l *Lock) bool {
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

// attach notes a token that belongs to somebody else, and returns the handle of it that
// there is from now on. A second one would hide the first from plan and close.
func (k *keeper) attach(l *Lock) *Lock {
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

// watch has the lease of an attached lock looked at that was renewed.
func (k *keeper) watch(l *Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.attached[grant{l.name, l.token}] == l && !k.mu.closed {
		k.start(l.counted().ttl, k.c.opt.Clock.Now())
	}
}

// remove forgets a handle.
func (k *keeper) remove(l *Lock) {
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

// released ends the other handles of a token that is given back by l.
func (k *keeper) released(l *Lock) {
	for _, other := range k.held(l.name, l.token) {
		other.end(ErrReleased)
		k.remove(other)
	}
}
