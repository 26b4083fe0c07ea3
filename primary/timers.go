// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"container/heap"
	"time"
)

// wheelSlots is how many grains ahead a wheel reaches. What is due later waits in the last
// slot and has to be added again when that comes.
const wheelSlots = 4096

// wheel is a timer wheel: a ring of slots, each for one grain of time. An entry takes the
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

// timer is when to examine a waiter again. The waiter may have been renewed or have ended by
// then. So keep-alives cost nothing.
type timer struct {
	at  time.Duration // on the serving clock
	key waitKey
}

// timers is the heap of the waiters' deadlines, earliest first.
type timers []timer

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }

func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = timer{}
	*t = (*t)[:last]
	return x
}

func (t *timers) add(x timer) { heap.Push(t, x) }

// due removes and returns the earliest timer if its time has come; else false.
func (t *timers) due(now time.Duration) (timer, bool) {
	if len(*t) == 0 || (*t)[0].at > now {
		return timer{}, false
	}
	return heap.Pop(t).(timer), true
}

// sweep drops the timers of which keep reports false.
func (t *timers) sweep(keep func(timer) bool) {
	var kept timers // a heap of its own: the old one may have been far larger
	for _, x := range *t {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	*t = kept
	heap.Init(t)
}
