// SPDX-License-Identifier: Apache-2.0

package primary

import "time"

// wheelSlots is how many grains ahead a wheel reaches. What is due later waits in the last
// slot and has to be added again when that comes.
const wheelSlots = 4096

// wheel is a timer wheel, for all deadlines of the core loop: a ring of slots, each for one grain of
// time. An entry may be renewed while it is in the wheel: the caller, to whom due returns it, adds
// it again if its time has not come. So keep-alives cost nothing. An entry takes the
// eight bytes of a pointer and stores its own place, so that adding and removing cost the same
// however many there are.
type wheel[E any] struct {
	grain time.Duration
	place func(*E) *uint64 // of an entry; 0 while it is in no wheel
	slots [][]*E
	next  int64 // the first grain that is not over
	n     int
}

func newWheel[E any](grain time.Duration, place func(*E) *uint64) wheel[E] {
	return wheel[E]{grain: grain, place: place, slots: make([][]*E, wheelSlots)}
}

// add schedules e for the given time. due returns it at most one grain later, or earlier if the
// time is beyond the wheel: then it has to be added again.
func (w *wheel[E]) add(e *E, at time.Duration) {
	grain := int64((at + w.grain - 1) / w.grain)
	grain = min(max(grain, w.next), w.next+wheelSlots-1)
	i := grain % wheelSlots
	w.slots[i] = append(w.slots[i], e)
	*w.place(e) = uint64(i)<<32 | uint64(len(w.slots[i]))
	w.n++
}

// remove removes e if it is in the wheel.
func (w *wheel[E]) remove(e *E) {
	p := *w.place(e)
	if p == 0 {
		return
	}
	slot, at := &w.slots[p>>32], int(uint32(p))-1
	last := len(*slot) - 1
	if at < last {
		(*slot)[at] = (*slot)[last]
		*w.place((*slot)[at]) = p
	}
	(*slot)[last] = nil
	*slot = (*slot)[:last]
	*w.place(e) = 0
	w.n--
}

// due removes and returns an entry whose slot has come; false if there is none.
func (w *wheel[E]) due(now time.Duration) (*E, bool) {
	upTo := int64(now / w.grain)
	if w.n == 0 {
		w.next = max(w.next, upTo)
		return nil, false
	}
	for ; w.next <= upTo; w.next++ {
		slot := &w.slots[w.next%wheelSlots]
		if n := len(*slot); n > 0 {
			e := (*slot)[n-1]
			w.remove(e)
			return e, true
		}
		if cap(*slot) > 64 {
			*slot = nil // the next ones may be few
		}
	}
	return nil, false
}

// clear empties the wheel. It does not reset the places of the entries, which must be gone.
func (w *wheel[E]) clear() {
	clear(w.slots)
	w.n = 0
}
