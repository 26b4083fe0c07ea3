// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Permit is what a request takes of a lock with a limit: Weight of its Limit permits. The zero Permit is that of a lock without
// a limit. All who hold such a lock, or wait for it, agree on the limit: there is no record of it besides theirs.
type Permit struct {
	Limit  uint32 `json:"limit"`
	Weight uint32 `json:"weight"` // from 1 to Limit
}

// check returns why no request of this mode has the permit, nil if one may.
func (p Permit) check(mode Mode) error {
	switch {
	case p == (Permit{}):
		return nil
	case p.Limit == 0:
		return fmt.Errorf("weight %d without a limit: say of how many permits", p.Weight)
	case p.Weight == 0 || p.Weight > p.Limit:
		return fmt.Errorf("weight %d of %d permits: use 1 to %d", p.Weight, p.Limit, p.Limit)
	case mode != ModeShared:
		return fmt.Errorf("%d of %d permits in mode %d", p.Weight, p.Limit, mode)
	}
	return nil
}

// grantMode returns the mode of the grant: one with a limit is shared by those who have the other permits.
func (q *Request) grantMode() Mode {
	if q.Permit.Limit != 0 {
		return ModeShared
	}
	return q.Mode
}

// validatePermit checks the permit of an acquire, which says nothing of the mode: with a limit, there is only one.
func (q *Request) validatePermit() error {
	switch {
	case q.Permit.Limit == 0:
		return q.Permit.check(ModeShared)
	case q.Mode != ModeExclusive:
		return errors.New("a limit and shared mode: leave one of them out")
	case q.Slot != "":
		return fmt.Errorf("slot %s and a limit: what is done once is done by one holder", q.Slot)
	}
	return q.Permit.check(q.grantMode())
}

// shares reports whether it is about a lock in shared mode, where turns are phases: a lock with a limit has none.
func (x *grantParams) shares() bool { return x.mode == ModeShared && x.permit.Limit == 0 }

// limit returns the limit on which all agree who hold the lock or wait for it, 0 for none; false if there is nobody.
func (l *lock) limit() (limit uint32, used bool) {
	if g := l.oldestGrant(); g.token != 0 {
		return g.permit.Limit, true
	}
	if l.head != nil {
		return l.head.permit.Limit, true
	}
	return 0, false
}

// taken returns how many permits the holders have.
func (l *lock) taken() uint64 {
	n := uint64(0)
	if l.token != 0 {
		n = uint64(l.permit.Weight)
	}
	if s := l.sharing; s != nil {
		n += s.taken
	}
	return n
}

// hasRoom reports whether so many permits are free.
func (l *lock) hasRoom(p Permit) bool { return l.taken()+uint64(p.Weight) <= uint64(p.Limit) }

// takes is called for a new grant g of l: it counts the permits of all but that of the lock itself.
func (l *lock) takes(g *lock) {
	if g != l {
		l.sharing.taken += uint64(g.permit.Weight)
	}
}

// refuseLimit refuses an acquire whose limit is not that of those who hold or wait, or that no record can have yet.
func (t *Table) refuseLimit(q *Request, l *lock) (Decision, bool) {
	if q.Permit.Limit != 0 && q.Level != 0 && q.Level < SemaphoresLevel {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf(
			"a lock with a limit needs feature level %d, and every server has to know it: upgrade all servers, then type holdfast upgrade --finish", SemaphoresLevel)), true
	}
	if l == nil {
		return Decision{}, false
	}
	limit, used := l.limit()
	if !used || limit == q.Permit.Limit {
		return Decision{}, false
	}
	dec := refuse(q, cluster.StatusOtherLimit, fmt.Sprintf("lock %q is held, or waited for, with a limit of %d", q.Lock, limit))
	if limit == 0 {
		dec.Outcome.Message = fmt.Sprintf("lock %q is held, or waited for, without a limit", q.Lock)
	}
	dec.Outcome.Permit.Limit = limit
	return dec, true
}

// legalLimit: who holds or waits agrees with those who do.
func (l *lock) legalLimit(p Permit) error {
	if limit, used := l.limit(); used && limit != p.Limit {
		return fmt.Errorf("lock %q is used with limit %d, not %d", l.name, limit, p.Limit)
	}
	return nil
}

// grantPermits adds the grants of w and of those behind it, as far as they fit beside so many permits that are taken, at most
// phaseStep. The first one that does not fit is waited for: else lighter ones could overtake it for ever.
func (d *draft) grantPermits(w *waiter, taken uint64) {
	for n := 0; w != nil && n < phaseStep; n++ {
		if taken += uint64(w.permit.Weight); taken > uint64(w.permit.Limit) {
			return
		}
		d.grant(w)
		w = w.next
	}
}

// waitsFor reports whether w is not granted its lock before g ends, a grant of it. Beside a permit, others may do.
func (w *waiter) waitsFor(g *lock) bool {
	return w.permit.Limit == 0 || uint64(w.permit.Weight)+uint64(g.permit.Weight) > uint64(w.permit.Limit)
}

func appendPermit(b []byte, p Permit) []byte {
	if p == (Permit{}) {
		return b
	}
	return appendNumbers(append(b, 'k'), uint64(p.Limit), uint64(p.Weight))
}

// export returns nil for no permit.
func (p Permit) export() *Permit {
	if p == (Permit{}) {
		return nil
	}
	return &p
}

// importPermit is the inverse of export. Check verifies what it returns.
func importPermit(p *Permit) Permit {
	if p == nil {
		return Permit{}
	}
	return *p
}

// permits verifies the limit of the lock, and what of it is taken.
func (ck *checker) permits(l *lock) error {
	limit, _ := l.limit()
	sum := uint64(0)
	for g := range l.grants(0) {
		if g.permit.check(g.mode) != nil || g.permit.Limit != limit {
			return fmt.Errorf("invariant 15: token %d has %+v, and the limit is %d", g.token, g.permit, limit)
		}
		sum += uint64(g.permit.Weight)
	}
	for w := l.head; w != nil; w = w.next {
		if w.permit.check(w.mode) != nil || w.permit.Limit != limit {
			return fmt.Errorf("invariant 15: the waiter of record %d asks for %+v, and the limit is %d", w.lsn, w.permit, limit)
		}
	}
	if sum != l.taken() || sum > uint64(limit) {
		return fmt.Errorf("invariant 15: %d of %d permits are taken, and %d are counted", sum, limit, l.taken())
	}
	if s := l.sharing; limit != 0 && s != nil && (len(s.waiters) > 0 || s.phase != 0 || len(s.grants) == 0) {
		return fmt.Errorf("invariant 15: it has a limit, and %d shared waiters, phase %d", len(s.waiters), s.phase)
	}
	return nil
}
