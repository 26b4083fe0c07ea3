// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// extra is what few grants have: metadata, and the word that somebody wants the lock.
// Made once, it stays until the grant ends.
type extra struct {
	metadata string
	ask      *Ask        // never changed; nil if nobody asked
	changed  cluster.LSN // while an export was under way
}

// Ask is an operator's word to the holder of a lock: let go, or the grant is broken.
type Ask struct {
	Lock  cluster.LockName
	Token cluster.Token // of the grant
	LSN   cluster.LSN   // of the Ask record
	Grace time.Duration
	Actor string
	// Reason is for people.
	Reason string
	// Request is that which the grant answered.
	Request cluster.RequestID
	// Remaining is what is left of the grace where the core loop says so, else negative.
	// It is no part of the state.
	Remaining time.Duration
}

const remainingUnknown = -time.Millisecond

// extraOf returns what the grant has beside the usual, made if need be.
func (t *Table) extraOf(l *lock) *extra {
	row := t.ownRow(l)
	if row.grant == nil {
		row.grant = &extra{}
	}
	return row.grant
}

// dropExtra is called when the grant has ended.
func (t *Table) dropExtra(l *lock) {
	if l.grant == nil {
		return
	}
	if l.grant.ask != nil {
		t.asked.remove(l.token)
		delete(t.asks, l.token)
	}
	l.grant = nil
	t.tidyRow(l)
}

// changeGrant changes what a live grant has beside the usual.
func (t *Table) changeGrant(l *lock, change func(*extra)) {
	t.leavesGrant(l)
	t.hash -= t.sum(l.appendGrant)
	change(t.extraOf(l))
	l.grant.changed = t.stamp()
	t.hash += t.sum(l.appendGrant)
}

func (t *Table) setMetadata(r *Record) {
	t.changeGrant(t.live(r.Lock, r.Token), func(x *extra) { x.metadata = r.Metadata })
}

// ask notes an Ask. One that comes later takes the place of the one before.
func (t *Table) ask(r *Record) {
	l := t.live(r.Lock, r.Token)
	a := &Ask{
		Lock: r.Lock, Token: r.Token, LSN: r.LSN, Grace: r.Wait, Actor: r.Actor, Reason: r.Reason,
		Request: l.request, Remaining: remainingUnknown,
	}
	t.changeGrant(l, func(x *extra) { x.ask = a })
	t.noteAsk(a)
}

func (t *Table) noteAsk(a *Ask) {
	t.asked.insert(a.Token)
	t.asks[a.Token] = a
}

// AskOf returns the word to a holder of a lock that it let go, if there is one.
func (t *Table) AskOf(name cluster.LockName, token cluster.Token) (Ask, bool) {
	if a := t.asks[token]; a != nil && a.Lock == name {
		return *a, true
	}
	return Ask{}, false
}

// Asks iterates over them in the order of the grants. The table must not change meanwhile.
func (t *Table) Asks() iter.Seq[Ask] {
	return func(yield func(Ask) bool) {
		for token := range t.asked.all() {
			if !yield(*t.asks[token]) {
				return
			}
		}
	}
}
