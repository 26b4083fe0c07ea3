// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Hold is the time in which a client believed that it holds a lock: from the answer with the
// grant until it released the lock, learned of its loss, or had waited for
// an answered renewal as long as it may. All times are of one machine's clock.
type Hold struct {
	Client      int
	Lock        cluster.LockName
	Token       cluster.Token
	Shared      bool // with others
	From, Until time.Time
	// Weight is how many of Limit permits it has; Limit 0 = the lock has none.
	Limit, Weight uint32
}

// Hold adds one.
func (l *Ledger) Hold(h Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.holds = append(l.mu.holds, h)
}

// Holds returns copies of all holds so far.
func (l *Ledger) Holds() []Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.holds)
}

// WatchHold measures how long a client believes that it holds a lock exclusively, by a grant that
// was answered just now. Call the returned function before the release or a downgrade is sent, or
// when the client has given up; it adds the hold to the ledger.
func (l *Ledger) WatchHold(client int, lock *clientlib.Lock, answered time.Time) (end func()) {
	return l.watch(Hold{Client: client, Lock: lock.Name(), Token: lock.Token(), From: answered}, lock)
}

// WatchShared is WatchHold for a shared lock, from the answer of the grant or the downgrade on.
func (l *Ledger) WatchShared(client int, lock *clientlib.Lock, answered time.Time) (end func()) {
	return l.watch(Hold{Client: client, Lock: lock.Name(), Token: lock.Token(), Shared: true, From: answered}, lock)
}

// WatchPermits is WatchShared for so many of the permits of a lock with a limit.
func (l *Ledger) WatchPermits(client int, lock *clientlib.Lock, limit, weight uint32, answered time.Time) (end func()) {
	return l.watch(Hold{Client: client, Lock: lock.Name(), Token: lock.Token(), Shared: true, Limit: limit, Weight: weight, From: answered}, lock)
}

func (l *Ledger) watch(h Hold, lock *clientlib.Lock) (end func()) {
	var lost struct {
		sync.Mutex
		at time.Time
	}
	unwatch := context.AfterFunc(lock.Context(), func() {
		lost.Lock()
		defer lost.Unlock()
		lost.at = time.Now()
	})
	return func() {
		until := time.Now()
		unwatch()
		if e := lock.Expires(); !e.IsZero() && e.Before(until) {
			until = e
		}
		lost.Lock()
		defer lost.Unlock()
		if !lost.at.IsZero() && lost.at.Before(until) {
			until = lost.at
		}
		h.Until = until
		l.Hold(h)
	}
}

// CheckHolds checks that no two holds of a lock overlap, except shared ones, and those that have no more
// permits together than there are. Leave out grants that an operator broke: their holders learn of that later.
func CheckHolds(holds []Hold, r *Report) {
	byLock := map[cluster.LockName][]Hold{}
	for _, h := range holds {
		if h.Until.After(h.From) {
			byLock[h.Lock] = merge(byLock[h.Lock], h)
		}
	}
	for name, all := range byLock {
		slices.SortFunc(all, func(a, b Hold) int { return a.From.Compare(b.From) })
		checkPermits(name, all, r)
		var alone, shared Hold // the ones that end last of those before
		r.Checked(I2, len(all))
		for _, h := range all {
			before := []Hold{alone}
			if !h.Shared {
				before = append(before, shared)
			}
			for _, last := range before {
				if h.From.Before(last.Until) {
					r.Violation(I2, "lock %s: client %d believes in token %d from %v on, client %d in token %d until %v later",
						name, h.Client, h.Token, h.From.Format(time.StampMicro), last.Client, last.Token, last.Until.Sub(h.From))
				}
			}
			last := &alone
			if h.Shared {
				last = &shared
			}
			if h.Until.After(last.Until) {
				*last = h
			}
		}
	}
}

// checkPermits compares each shared hold with those that began before it and go on. They are in order of their begin.
func checkPermits(name cluster.LockName, all []Hold, r *Report) {
	var open []Hold
	for _, h := range all {
		if !h.Shared {
			continue
		}
		open = slices.DeleteFunc(open, func(x Hold) bool { return !h.From.Before(x.Until) })
		open = append(open, h)
		taken := uint64(0)
		for _, x := range open {
			taken += uint64(x.Weight)
			if x.Limit != h.Limit {
				r.Violation(I2, "lock %s: client %d believes in token %d with limit %d from %v on, client %d in token %d with limit %d",
					name, h.Client, h.Token, h.Limit, h.From.Format(time.StampMicro), x.Client, x.Token, x.Limit)
			}
		}
		if taken > uint64(h.Limit) {
			r.Violation(I2, "lock %s: from %v on %d clients believe in %d of %d permits, the last one in token %d",
				name, h.From.Format(time.StampMicro), len(open), taken, h.Limit, h.Token)
		}
	}
}

// merge takes several holds of one grant, which several clients may use, for one. A grant that
// was downgraded is two: it was alone, and then shared.
func merge(all []Hold, h Hold) []Hold {
	for i := range all {
		if x := &all[i]; x.Token == h.Token && x.Shared == h.Shared {
			if h.From.Before(x.From) {
				x.From = h.From
			}
			if h.Until.After(x.Until) {
				x.Until = h.Until
			}
			return all
		}
	}
	return append(all, h)
}
