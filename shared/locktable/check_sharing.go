// SPDX-License-Identifier: Apache-2.0

package locktable

import "fmt"

// turn verifies who may hold the lock together, and who is next.
func (ck *checker) turn(l *lock) error {
	owed := l.due()
	if owed {
		ck.owed++
	}
	if owed != ck.t.owed.has(l.name) {
		return fmt.Errorf("invariant 3: owed a grant: %t, known as such: %t", owed, !owed)
	}
	if owed && l.next() == nil {
		return fmt.Errorf("invariant 3: owed a grant, but to nobody")
	}
	s := l.sharing
	if s == nil {
		if w := l.head; w != nil && l.token != 0 && l.mode == ModeShared && w.mode == ModeShared {
			return fmt.Errorf("invariant 3: shared by one, and the waiter of record %d is kept from it", w.lsn)
		}
		return nil
	}
	if len(s.grants) == 0 && len(s.waiters) == 0 {
		return fmt.Errorf("invariant 9: it has something of a shared lock without need")
	}
	for g := range l.grants(0) {
		if l.holders() > 1 && g.mode != ModeShared {
			return fmt.Errorf("invariant 1: held by %d, and by token %d in exclusive mode", l.holders(), g.token)
		}
	}
	if l.holders() > MaxHolders+MaxQueue {
		return fmt.Errorf("invariant 1: held by %d", l.holders())
	}
	i := 0
	for w := l.head; w != nil; w = w.next {
		if w.mode == ModeShared {
			if i == len(s.waiters) || s.waiters[i] != w {
				return fmt.Errorf("invariant 2: the waiter of record %d is not listed as shared", w.lsn)
			}
			i++
		}
	}
	if i != len(s.waiters) {
		return fmt.Errorf("invariant 2: %d waiters are listed as shared, %d are", len(s.waiters), i)
	}
	if s.phase != 0 {
		ck.sum(l.appendPhase)
		if l.exclusive() || s.phase > ck.t.lsn || len(s.owed()) == 0 {
			return fmt.Errorf("invariant 3: phase of record %d, held exclusively %t, %d are owed a grant", s.phase, l.exclusive(), len(s.owed()))
		}
	}
	if !l.exclusive() && l.exclusiveWaiting() == 0 && len(s.owed()) != len(s.waiters) {
		return fmt.Errorf("invariant 3: %d wait in shared mode, for nobody", len(s.waiters)-len(s.owed()))
	}
	return nil
}
