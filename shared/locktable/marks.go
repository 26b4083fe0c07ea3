// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// MaxMarks is of how many locks something is remembered while nobody holds them. With one more, what was used longest
// ago is forgotten.
const MaxMarks = 1 << 16

// marks is what is remembered of locks while nobody holds them. Only requests that ask for it make a mark: names that
// never come again cost nothing.
type marks struct {
	of map[cluster.LockName]*mark
	// by has the same marks by the record that made or changed each last, which was about one lock only, and order has those LSNs.
	by    map[cluster.LSN]*mark
	order sorted[cluster.LSN]
}

// mark is what is remembered of one lock.
type mark struct {
	lock cluster.LockName
	last cluster.Token // of the latest grant; 0 = not known
	slot cluster.Slot  // the highest that is done; "" for none
	by   cluster.Token // under which that was done
	at   cluster.LSN   // of the record that made or changed it last
	// changed is the LSN of the last change that left at as it was, while an export was under way. It is no part of the state.
	changed cluster.LSN
}

// Mark is what is remembered of a lock.
type Mark struct {
	// Last is the token under which the lock was granted last, 0 if it is not known.
	Last cluster.Token
	// Slot is the highest slot that is done, "" for none, and By the token under which it was.
	Slot cluster.Slot
	By   cluster.Token
}

// MarkState is a mark in a checkpoint.
type MarkState struct {
	Lock cluster.LockName `json:"lock"`
	Last cluster.Token    `json:"last_token,omitempty"`
	Slot cluster.Slot     `json:"done,omitempty"`
	By   cluster.Token    `json:"done_token,omitempty"`
	LSN  cluster.LSN      `json:"lsn"`
}

func newMarks() marks {
	return marks{of: map[cluster.LockName]*mark{}, by: map[cluster.LSN]*mark{}}
}

func (m *marks) clone() marks {
	c := marks{of: make(map[cluster.LockName]*mark, len(m.of)), by: make(map[cluster.LSN]*mark, len(m.of)), order: m.order.clone()}
	for name, old := range m.of { // into maps: the order does not matter
		x := *old
		x.changed = 0
		c.of[name], c.by[x.at] = &x, &x
	}
	return c
}

// Mark returns what is remembered of the lock; false if that is nothing.
func (t *Table) Mark(name cluster.LockName) (Mark, bool) {
	m := t.marks.of[name]
	if m == nil {
		return Mark{}, false
	}
	return Mark{Last: m.last, Slot: m.slot, By: m.by}, true
}

// MarkCount returns of how many locks something is remembered.
func (t *Table) MarkCount() int { return len(t.marks.of) }

// marks reports whether this acquire, or what follows it, needs a mark.
func (q *Request) marks() bool { return q.Remember || q.After != 0 || q.Slot != "" }

// refuseMarked refuses an acquire because of what is remembered of the lock, or because nothing can be remembered yet.
func (t *Table) refuseMarked(q *Request) (Decision, bool) {
	if q.marks() && q.Level != 0 && q.Level < MarksLevel {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf(
			"what a lock remembers needs feature level %d, and every server has to know it: upgrade all servers, then type holdfast upgrade --finish", MarksLevel)), true
	}
	m := t.marks.of[q.Lock]
	if m.done(q.Slot) {
		return refuse(q, cluster.StatusAlreadyDone, fmt.Sprintf("slot %s of lock %q is done: %s was, under token %d", q.Slot, q.Lock, m.slot, m.by)), true
	}
	switch {
	case q.After == 0:
	case m == nil || m.last == 0:
		return refuse(q, cluster.StatusLockChanged, fmt.Sprintf(
			"it is not known whether lock %q was granted after token %d: it was not acquired with remember, or that was forgotten", q.Lock, q.After)), true
	case m.last < q.After:
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf(
			"token %d is none of lock %q, which was granted last under token %d", q.After, q.Lock, m.last)), true
	case m.last > q.After:
		return refuse(q, cluster.StatusLockChanged, fmt.Sprintf(
			"lock %q was granted after token %d: under token %d at last", q.Lock, q.After, m.last)), true
	}
	return Decision{}, false
}

// done reports whether a slot is done: no slot never is, and where there is no mark nothing is.
func (m *mark) done(s cluster.Slot) bool { return m != nil && s != "" && m.slot.Compare(s) >= 0 }

// legalSlot: a grant is for a slot that is not done.
func (t *Table) legalSlot(r *Record) error {
	if m := t.marks.of[r.Lock]; m.done(r.Slot) {
		return fmt.Errorf("slot %s of lock %q is done: %s was", r.Slot, r.Lock, m.slot)
	}
	return nil
}

// legalDone: what a holder says it has done is what it was granted the lock for.
func (t *Table) legalDone(r *Record) error {
	if r.Slot != "" && (t.live(r.Lock, r.Token) == nil || t.live(r.Lock, r.Token).slotOf() != r.Slot) {
		return fmt.Errorf("token %d of lock %q is not for slot %s", r.Token, r.Lock, r.Slot)
	}
	return nil
}

func (t *Table) legalSkip(r *Record) error {
	w := t.waiter(r.Client, r.Request)
	if w == nil || w.lock.name != r.Lock || !t.marks.of[r.Lock].done(w.slot) {
		return fmt.Errorf("request %d of client %s does not wait for lock %q, or not for a slot that is done", r.Request, r.Client, r.Lock)
	}
	return nil
}

// slotOf returns what a live grant is for, "" for nothing.
func (l *lock) slotOf() cluster.Slot {
	if l.grant == nil {
		return ""
	}
	return l.grant.slot
}

// markDone remembers what a release has done.
func (t *Table) markDone(r *Record) {
	if r.Slot == "" {
		return
	}
	next := mark{lock: r.Lock}
	if old := t.marks.of[r.Lock]; old != nil {
		next = *old
	} else if t.live(r.Lock, r.Token).mode == ModeExclusive { // nobody had it since
		next.last = r.Token
	}
	next.slot, next.by, next.at = r.Slot, r.Token, r.LSN
	t.setMark(next)
}

// skipSearch is among how many waiters a slot that is done is looked for at once. Those behind are told at their turn.
const skipSearch = 1024

// skipDone answers the waiters of l that wait for a slot up to this one, which is done with the last record; false if there is none.
func (d *draft) skipDone(l *lock, slot cluster.Slot) bool {
	if slot == "" {
		return false
	}
	m, n, looks := &mark{slot: slot}, 0, 0
	for w := l.head; w != nil && n < phaseStep && looks < skipSearch; w = w.next {
		if looks++; m.done(w.slot) {
			d.skip(w)
			n++
		}
	}
	return n > 0
}

// grantOrSkip is for an exclusive waiter whose turn it is.
func (t *Table) grantOrSkip(d *draft, w *waiter) {
	if t.marks.of[w.lock.name].done(w.slot) {
		d.skip(w)
		return
	}
	d.grant(w)
}

func (d *draft) skip(w *waiter) {
	d.add(Record{Kind: KindSkip, Lock: w.lock.name, Client: w.client.id, Request: w.request})
}

// importSlot checks what a grant or place of a state is for.
func importSlot(s cluster.Slot) error {
	if s == "" {
		return nil
	}
	return s.Validate()
}

// legalAfter checks the condition of a grant.
func (t *Table) legalAfter(r *Record) error {
	if r.After == 0 {
		return nil
	}
	if m := t.marks.of[r.Lock]; m == nil || m.last != r.After {
		return fmt.Errorf("lock %q was not granted under token %d last", r.Lock, r.After)
	}
	return nil
}

func (t *Table) legalForgetMark(r *Record) error {
	if t.marks.of[r.Lock] == nil {
		return fmt.Errorf("nothing is remembered of lock %q", r.Lock)
	}
	return nil
}

// markGrant remembers the token of a grant, if something is to be remembered of its lock.
func (t *Table) markGrant(r *Record) {
	old := t.marks.of[r.Lock]
	if old == nil && !r.Remember {
		return
	}
	next := mark{lock: r.Lock}
	if old != nil {
		next = *old
	}
	next.last, next.at = cluster.Token(r.LSN), r.LSN
	t.setMark(next)
}

// setMark puts next in place of the mark of its lock, and forgets the one that was used longest ago if there are too many.
func (t *Table) setMark(next mark) {
	if old := t.marks.of[next.lock]; old != nil {
		t.dropMark(old)
	}
	next.changed = t.stamp()
	m := &next
	t.marks.of[m.lock], t.marks.by[m.at] = m, m
	t.marks.order.insert(m.at)
	t.hash += t.sum(m.appendTo)
	if len(t.marks.of) > MaxMarks {
		t.dropMark(t.oldestMark())
	}
}

func (t *Table) oldestMark() *mark {
	for at := range t.marks.order.all() {
		return t.marks.by[at]
	}
	return nil
}

func (t *Table) dropMark(m *mark) {
	t.leavesMark(m)
	t.hash -= t.sum(m.appendTo)
	delete(t.marks.of, m.lock)
	delete(t.marks.by, m.at)
	t.marks.order.remove(m.at)
}

// doubtMarks forgets the last token of every lock: grants may have been lost of which nothing is known.
func (t *Table) doubtMarks() {
	for at := range t.marks.order.all() {
		m := t.marks.by[at]
		t.leavesMark(m)
		t.hash -= t.sum(m.appendTo)
		m.last, m.changed = 0, t.stamp()
		t.hash += t.sum(m.appendTo)
	}
}

// DecideForgetMarks forgets marks that no record after upTo made or changed, a bounded number at a time; nothing if there are
// none.
func (t *Table) DecideForgetMarks(upTo cluster.LSN, epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	n := 0
	for at := range t.marks.order.all() {
		if n++; at > upTo || n > phaseStep {
			break
		}
		d.add(Record{Kind: KindForgetMark, Lock: t.marks.by[at].lock})
	}
	return d.recs
}

func (m *mark) appendTo(b []byte) []byte {
	b = appendNumbers(appendText(append(b, tagMark), m.lock), uint64(m.last), uint64(m.at))
	if m.slot != "" {
		b = appendNumbers(appendText(append(b, 's'), m.slot), uint64(m.by))
	}
	return b
}

func (m *mark) export() *MarkState {
	return &MarkState{Lock: m.lock, Last: m.last, Slot: m.slot, By: m.by, LSN: m.at}
}

// leavesMark is called before a mark is changed or dropped, see the Exporter.
func (t *Table) leavesMark(m *mark) {
	for _, x := range t.exports {
		passed := x.phase > exportMarks || x.phase == exportMarks && m.at <= x.mark
		if !passed && max(m.at, m.changed) <= x.at {
			x.others = append(x.others, Entity{Mark: m.export()})
		}
	}
}

func (x *Exporter) walkMarks(to []Entity, n int) ([]Entity, int) {
	for at := range x.t.marks.order.after(x.mark) {
		if n == 0 {
			return to, 0
		}
		n--
		x.mark = at
		if m := x.t.marks.by[at]; max(at, m.changed) <= x.at {
			to = append(to, Entity{Mark: m.export()})
		}
	}
	return to, n
}

func (t *Table) importMark(s *MarkState) error {
	if err := errors.Join(s.Lock.Validate(), importSlot(s.Slot)); err != nil {
		return err
	}
	if t.marks.of[s.Lock] != nil || t.marks.by[s.LSN] != nil || len(t.marks.of) >= MaxMarks {
		return fmt.Errorf("what is remembered of lock %q, or in record %d, comes twice, or behind that of %d others", s.Lock, s.LSN, len(t.marks.of))
	}
	t.setMark(mark{lock: s.Lock, last: s.Last, slot: s.Slot, by: s.By, at: s.LSN})
	return nil
}

// marks checks what is remembered of locks that nobody holds.
func (ck *checker) marks() error {
	m := &ck.t.marks
	if len(m.of) > MaxMarks || len(m.of) != len(m.by) || len(m.of) != m.order.len() || !m.order.check() {
		return errors.New("invariant 14: marks of locks are too many, or not those in their order")
	}
	for at := range m.order.all() {
		x := m.by[at]
		if x == nil || m.of[x.lock] != x || x.at != at || at == 0 || at > ck.t.lsn || cluster.LSN(x.last) > at || cluster.LSN(x.by) >= at || (x.slot == "") != (x.by == 0) {
			return fmt.Errorf("invariant 14: the mark of record %d is %+v", at, x)
		}
		ck.sum(x.appendTo)
		l := ck.t.locks.get(x.lock)
		if l == nil || x.last == 0 {
			continue
		}
		for g := range l.grants(x.last) {
			return fmt.Errorf("invariant 14: lock %q was granted under token %d last, and is held under %d", x.lock, x.last, g.token)
		}
	}
	return nil
}
