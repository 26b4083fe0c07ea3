// SPDX-License-Identifier: Apache-2.0

package election

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

const (
	// waitsPerPing is how often a ping waits for a CPU: when it is sent and answered, and when it and
	// its answer arrive.
	waitsPerPing = 4
	// mostAllowance bounds Allowance, as a multiple of Suspicion.
	mostAllowance = 9
	// A late tick counts for as long as the slot of time in which it came and those after it: less
	// than 5 s, and no less than the longest allowance by default.
	lateSlots = 3
	lateSlot  = 1600 * time.Millisecond
)

// lateness is by how much this server's own ticks were late in the last seconds. Elector.mu guards it.
type lateness struct {
	due   time.Time                // when the next tick should come; zero before the first
	began time.Time                // when the newest slot did
	slots [lateSlots]time.Duration // the worst lateness in each, the newest first
	woke  time.Time                // the last tick that was late by more than any want of CPU explains; zero: none was
	slept time.Duration            // by how much that was
	asked time.Time                // when overslept first found that a tick is overdue; zero: it is not
}

// tick records that the loop ran now, and returns how late the tick was that was due; 0 if none was.
// The next one is due after every. Lateness above sleep is not remembered: that was no want of CPU,
// and says nothing of how late the next tick will be.
func (l *lateness) tick(now time.Time, every, sleep time.Duration) (late time.Duration) {
	if now.Before(l.due) {
		return 0
	}
	if !l.due.IsZero() {
		late = now.Sub(l.due)
	}
	l.due, l.asked = now.Add(wake.Next(now, every)), time.Time{}
	if n := min(now.Sub(l.began)/lateSlot, lateSlots); n > 0 {
		copy(l.slots[n:], l.slots[:])
		clear(l.slots[:n])
		l.began = now
	}
	if late <= sleep {
		l.slots[0] = max(l.slots[0], late)
	} else {
		l.woke, l.slept = now, late
	}
	return late
}

// overslept returns for how long this process did not run just before now: what its ticks have not noticed yet, and what they noticed. Both count for a
// time of grace only, in which all of a process comes to run again: one whose ticks hang does not sleep.
func (l *lateness) overslept(now time.Time, grace time.Duration) (d time.Duration) {
	if overdue := now.Sub(l.due); !l.due.IsZero() && overdue > 0 {
		if l.asked.IsZero() {
			l.asked = now
		}
		if now.Sub(l.asked) < grace {
			d = overdue
		}
	}
	if !l.woke.IsZero() && now.Sub(l.woke) < grace {
		d += l.slept
	}
	return d
}

// worst returns by how much a tick was late at most, of those remembered and the one that is due.
func (l *lateness) worst(now time.Time) time.Duration {
	if l.due.IsZero() {
		return 0
	}
	return max(slices.Max(l.slots[:]), now.Sub(l.due))
}

// allowanceLocked returns what Allowance does.
func (e *Elector) allowanceLocked(now time.Time) time.Duration {
	most := mostAllowance * e.opt.Timing.Suspicion
	return min(waitsPerPing*min(e.mu.late.worst(now), most), most)
}

// sleep is how late a tick has to be for this server to have slept.
func (e *Elector) sleep() time.Duration { return mostAllowance * e.opt.Timing.Suspicion / 2 }

// timingLocked returns the timing by which this server judges the silence of others now. Only
// Suspicion and MajorityWindow differ from the configured ones, and they are never shorter.
func (e *Elector) timingLocked(now time.Time) cluster.Timing {
	t, extra := e.opt.Timing, e.allowanceLocked(now)
	t.Suspicion += extra
	t.MajorityWindow += extra
	return t
}

// Late returns how long ago the loop of Run should have made its next round; 0 before the first one.
func (e *Elector) Late(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.late.due.IsZero() {
		return 0
	}
	return max(0, now.Sub(e.mu.late.due))
}

// Allowance returns by how much longer than configured this server waits before it takes another
// one's silence for its end: 0 while its own ticks are on time.
func (e *Elector) Allowance() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allowanceLocked(time.Now())
}
