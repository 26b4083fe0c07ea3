// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// phaseStep is the most grants of a phase that one decision adds. The largest of them
// together stay far below what one frame takes.
const phaseStep = 128

// sharing is what only a lock has that several hold or want to.
type sharing struct {
	grants  []*lock   // the live ones beside that of the lock itself, in token order
	waiters []*waiter // the shared ones of the queue, in order
	// phase is the last record of a phase which is not granted in full yet: shared
	// requests with a place up to there are owed a grant. 0: nobody is.
	phase cluster.LSN
}

// sharingOf returns what l has beside the usual of a lock, made if need be.
func (t *Table) sharingOf(l *lock) *sharing {
	row := t.ownRow(l)
	if row.sharing == nil {
		row.sharing = &sharing{}
	}
	return row.sharing
}

// tidySharing gives back what is not needed any more.
func (t *Table) tidySharing(l *lock) {
	if s := l.sharing; s != nil && len(s.grants) == 0 && len(s.waiters) == 0 {
		l.row.sharing = nil
		t.tidyRow(l)
	}
}

func (s *sharing) findGrant(token cluster.Token) (int, bool) {
	return slices.BinarySearchFunc(s.grants, token, func(g *lock, token cluster.Token) int { return cmp.Compare(g.token, token) })
}

func (s *sharing) findWaiter(place cluster.LSN) (int, bool) {
	return slices.BinarySearchFunc(s.waiters, place, func(w *waiter, place cluster.LSN) int { return cmp.Compare(w.lsn, place) })
}

// without takes the element out of s. At the beginning, where most of them leave, that
// costs nothing.
func without[E any](s []*E, i int) []*E {
	if i > 0 {
		return slices.Delete(s, i, i+1)
	}
	s[0] = nil
	return s[1:]
}

// owed lists the waiters that are owed a grant of this phase.
func (s *sharing) owed() []*waiter {
	n, _ := s.findWaiter(s.phase + 1)
	return s.waiters[:n]
}

// under returns the live grant of l with this token, nil if there is none.
func (l *lock) under(token cluster.Token) *lock {
	if token == 0 {
		return nil
	}
	if l.token == token {
		return l
	}
	if s := l.sharing; s != nil {
		if i, ok := s.findGrant(token); ok {
			return s.grants[i]
		}
	}
	return nil
}

// live returns the live grant, nil if there is none.
func (t *Table) live(name cluster.LockName, token cluster.Token) *lock {
	if l := t.locks.get(name); l != nil {
		return l.under(token)
	}
	return nil
}

// holders counts the live grants.
func (l *lock) holders() int {
	n := 0
	if l.token != 0 {
		n = 1
	}
	if s := l.sharing; s != nil {
		n += len(s.grants)
	}
	return n
}

// exclusive says that l is held in exclusive mode. Such a grant is that of the lock itself.
func (l *lock) exclusive() bool { return l.token != 0 && l.mode == ModeExclusive }

// first returns the oldest live grant; its token is 0 if there is none.
func (l *lock) first() *lock {
	s := l.sharing
	if s == nil || len(s.grants) == 0 || l.token != 0 && l.token < s.grants[0].token {
		return l
	}
	return s.grants[0]
}

// grants iterates over the live grants with higher tokens than this one, in token order.
func (l *lock) grants(after cluster.Token) iter.Seq[*lock] {
	return func(yield func(*lock) bool) {
		own := l.token > after
		if s := l.sharing; s != nil {
			i, _ := s.findGrant(after + 1)
			for _, g := range s.grants[i:] {
				if own && l.token < g.token {
					if own = false; !yield(l) {
						return
					}
				}
				if !yield(g) {
					return
				}
			}
		}
		if own {
			yield(l)
		}
	}
}

func (l *lock) sharedWaiting() int {
	if s := l.sharing; s != nil {
		return len(s.waiters)
	}
	return 0
}

// crowded says that one more who waits in this mode would be one holder too many when all
// of them have their turn: a phase comes to those who hold the lock already.
func (l *lock) crowded(mode Mode) bool {
	return mode == ModeShared && l.holders()+l.sharedWaiting() >= MaxHolders+MaxQueue
}

func (l *lock) exclusiveWaiting() int { return int(l.queued) - l.sharedWaiting() }

// admits says that a request of this mode is granted at once.
func (l *lock) admits(mode Mode) bool {
	if l.token == 0 && l.sharing == nil {
		return l.head == nil
	}
	return mode == ModeShared && !l.exclusive() && l.head == nil
}

// joins says that a shared request which has to wait is one of the phase that is being
// granted: nobody waits for a turn of his own.
func (l *lock) joins() bool { return !l.exclusive() && l.exclusiveWaiting() == 0 }

// due says that the next grant of l is owed: no request has to come for it.
func (l *lock) due() bool {
	s := l.sharing
	if s == nil {
		return l.token == 0 && l.head != nil
	}
	return s.phase != 0 || l.head != nil && l.holders() == 0
}

// next is the waiter that is owed the next grant, nil if nobody is.
func (l *lock) next() *waiter {
	switch {
	case !l.due():
		return nil
	case l.sharing != nil && l.sharing.phase != 0:
		return l.sharing.waiters[0]
	}
	return l.firstExclusive()
}

// firstExclusive looks behind the shared waiters that came before. They are looked at once
// for each phase in which they wait, because the end of that grant is their turn.
func (l *lock) firstExclusive() *waiter {
	w := l.head
	for w != nil && w.mode == ModeShared {
		w = w.next
	}
	return w
}

// slot is where l's next grant goes.
func (t *Table) slot(l *lock, token cluster.Token) *lock {
	if l.token == 0 {
		return l
	}
	s := t.sharingOf(l)
	g := t.newLock(l.name)
	i, _ := s.findGrant(token)
	s.grants = slices.Insert(s.grants, i, g)
	return g
}

// dropSlot takes the grant of l out that has ended.
func (t *Table) dropSlot(l, g *lock) {
	if g == l {
		l.Lease, l.request, l.since = Lease{name: l.name}, 0, 0
		return
	}
	s := l.sharing
	i, _ := s.findGrant(g.token)
	s.grants = without(s.grants, i)
	t.spareLock(g)
	t.tidySharing(l)
}

// beginPhase owes a grant to all shared requests that wait when r is applied, that of r too.
func (t *Table) beginPhase(l *lock, r *Record) {
	if s := l.sharing; s != nil && len(s.waiters) > 0 {
		t.setPhase(l, r.LSN)
	}
}

func (t *Table) setPhase(l *lock, lsn cluster.LSN) {
	s := l.sharing
	if s.phase != 0 {
		t.leavesPhase(l)
		t.hash -= t.sum(l.appendPhase)
	}
	if s.phase = lsn; lsn != 0 {
		t.hash += t.sum(l.appendPhase)
	}
}

// pushShared and pullShared keep the list of the shared waiters.
func (t *Table) pushShared(w *waiter) {
	s := t.sharingOf(w.lock)
	s.waiters = append(s.waiters, w)
}

func (t *Table) pullShared(w *waiter) {
	s := w.lock.sharing
	i, _ := s.findWaiter(w.lsn)
	s.waiters = without(s.waiters, i)
	if s.phase != 0 && (len(s.waiters) == 0 || s.waiters[0].lsn > s.phase) {
		t.setPhase(w.lock, 0)
	}
	t.tidySharing(w.lock)
}

// downgrade makes an exclusive grant a shared one, under the same token.
func (t *Table) downgrade(r *Record) {
	l := t.locks.get(r.Lock)
	t.leavesGrant(l)
	t.hash -= t.sum(l.appendGrant)
	x := *l.terms
	x.mode = ModeShared
	l.terms = t.share(l.client, x)
	if at := t.stamp(); at != 0 {
		t.extraOf(l).changed = at
	}
	t.hash += t.sum(l.appendGrant)
	t.beginPhase(l, r)
	t.owedOrVanish(l)
}

// grantBehind adds the grants that follow from the end of g, a grant of l: the first ones
// of them, if there are many.
func (t *Table) grantBehind(d *draft, l, g *lock) {
	s := l.sharing
	switch {
	case s == nil: // so nobody shared it or wants to
		if l.head != nil {
			d.grant(l.head)
		}
	case g.mode == ModeExclusive && len(s.waiters) > 0:
		d.grantAll(s.waiters)
	case l.holders() > 1:
	case s.phase != 0:
		d.grantAll(s.owed())
	default:
		if w := l.firstExclusive(); w != nil {
			d.grant(w)
		}
	}
}

// grantWithout adds the grants that follow when w, which is still in its queue, leaves it:
// behind the last waiter for exclusive mode nobody has to wait for a turn.
func (t *Table) grantWithout(d *draft, w *waiter) {
	if l := w.lock; l.lastExclusive(w) && l.sharing != nil {
		d.grantAll(l.sharing.waiters)
	}
}

// lastExclusive says that nobody holds l, or waits for it, in exclusive mode but w.
func (l *lock) lastExclusive(w *waiter) bool {
	return w.mode == ModeExclusive && !l.exclusive() && l.exclusiveWaiting() == 1
}

// grantOwed adds grants that are owed.
func (t *Table) grantOwed(d *draft, l *lock) {
	if s := l.sharing; s != nil && s.phase != 0 {
		d.grantAll(s.owed())
	} else if w := l.firstExclusive(); w != nil {
		d.grant(w)
	}
}

// grantAll grants to the first of the waiters. The others stay owed: DecideOwed goes on.
func (d *draft) grantAll(waiters []*waiter) {
	for _, w := range waiters[:min(len(waiters), phaseStep)] {
		d.grant(w)
	}
}

func (d *draft) grant(w *waiter) {
	d.add(Record{
		Kind: KindGrant, Client: w.client.id, Request: w.request, Hash: w.hash,
		Lock: w.lock.name, TTL: w.ttl, Mode: w.mode, Holder: w.holder, Metadata: w.metadata,
		MaxHold: w.maxHold, Heartbeat: w.heartbeat,
	})
}

// Owes says that grants are due which DecideOwed decides.
func (t *Table) Owes() bool { return t.owed.len() > 0 }

// DecideOwed grants what is owed since a record before, a bounded number at a time: the
// rest of a phase with many waiters.
func (t *Table) DecideOwed(epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	for name := range t.owed.all() {
		t.grantOwed(&d, t.locks.get(name))
		break
	}
	return d.recs
}

func (t *Table) decideDowngrade(q *Request, d *draft, r Record) Decision {
	if dec, ok := t.mustHold(q); !ok {
		return dec
	}
	l := t.live(q.Lock, q.Token)
	if l.mode == ModeShared {
		return Decision{Outcome: Outcome{
			Status: cluster.StatusOK, Client: q.Client, Request: q.ID, Lock: q.Lock, Token: q.Token,
			Message: "the lock was held in shared mode already",
		}}
	}
	r.Kind, r.Token = KindDowngrade, q.Token
	dec := decided(d.add(r))
	if l.sharing != nil {
		d.grantAll(l.sharing.waiters)
	}
	return dec
}

// mustWrite refuses q, which has passed mustHold, unless its token is that of an exclusive grant.
func (t *Table) mustWrite(q *Request) (Decision, bool) {
	if t.live(q.Lock, q.Token).mode == ModeExclusive {
		return Decision{}, true
	}
	return refuse(q, cluster.StatusInvalidArgument,
		fmt.Sprintf("token %d holds lock %q in shared mode, which writes nothing: release it and acquire the lock in exclusive mode", q.Token, q.Lock)), false
}

// noUpgrade is a word to a client that tries to hold exclusively what it holds in shared
// mode. Two that waited for each other's end would wait for ever, so there is no way.
func (l *lock) noUpgrade(q *Request) string {
	if q.Mode != ModeExclusive || l.exclusive() || l.holders() > phaseStep {
		return "" // among so many it is not looked for
	}
	for g := range l.grants(0) {
		if g.client.id == q.Client {
			return "this client holds the lock in shared mode, which cannot be upgraded: release it, then acquire the lock in exclusive mode"
		}
	}
	return ""
}
