// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"container/heap"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// waitKey names a waiter.
type waitKey struct {
	client  cluster.ClientID
	request cluster.RequestID
}

// waiter is a place in a queue as the core loop counts it.
type waiter struct {
	ttl      time.Duration
	since    time.Duration // on the serving clock
	deadline time.Duration // on the serving clock; negative for none
	calls    []*call       // open calls that wait for it
}

// timer says when to look at a waiter again. It may have ended meanwhile;
// whoever looks finds out. So keep-alives cost nothing.
type timer struct {
	at  time.Duration // on the serving clock
	key waitKey
}

// timers is the heap of the waiters' deadlines, earliest first.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

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

// due takes the earliest timer if its time has come.
func (t *timers) due(now time.Duration) (timer, bool) {
	if len(*t) == 0 || (*t)[0].at > now {
		return timer{}, false
	}
	return heap.Pop(t).(timer), true
}

// sweep drops the timers that keep says are about nothing any more.
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
