// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// hold is a live grant.
type hold struct {
	token cluster.Token // 0 = a ghost, a grant whose call had no answer, so that its token is not known
	// loose is true if the grant may end at any time: an unanswered release
	// of it is in progress, or its client, which got no answer, releases it.
	loose bool
	// ghost is true for a ghost, also if its token was shown.
	ghost bool
	// opens is true if an unanswered downgrade of it is in progress.
	opens bool
	// slot is what the grant is for, 0 for none; marks is true if an unanswered DoneCall of it is in progress.
	slot  int
	marks bool
	// weight is how many permits it takes; 0 = the lock has no limit.
	weight uint32
	// until is when the lease may end by itself at the earliest; ttl is its length.
	until, ttl int64
}

// ghost is the grant of a call without an answer.
func ghost(weight uint32) hold { return hold{loose: true, ghost: true, until: never, weight: weight} }

// ends reports whether the grant may have ended by now.
func (h hold) ends(now int64) bool { return h.loose || h.until != never && now >= h.until }

// covers reports whether h may be whatever o may be.
func (h hold) covers(o hold) bool {
	return h.token == o.token && h.ghost == o.ghost && h.ttl == o.ttl && h.slot == o.slot && h.weight == o.weight && (h.marks || !o.marks) && (h.loose || !o.loose && h.until <= o.until) && (h.opens || !o.opens)
}

func (h hold) compare(o hold) int {
	return cmp.Or(cmp.Compare(h.token, o.token), cmp.Compare(h.until, o.until), cmp.Compare(h.ttl, o.ttl),
		compareBool(h.loose, o.loose), compareBool(h.opens, o.opens), compareBool(h.ghost, o.ghost), cmp.Compare(h.slot, o.slot), compareBool(h.marks, o.marks), cmp.Compare(h.weight, o.weight))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (s lockState) free() bool { return len(s.holds) == 0 }

// alone reports whether the lock is held exclusively.
func (s lockState) alone() bool { return !s.free() && !s.shared }

// find is where the token is among the live ones, -1 if it is not.
func (s lockState) find(token cluster.Token) int {
	if token == 0 {
		return -1
	}
	return slices.IndexFunc(s.holds, func(h hold) bool { return h.token == token })
}

// ghosts counts the grants whose tokens are not known.
func (s lockState) ghosts() (n int) {
	for _, h := range s.holds {
		if h.token == 0 {
			n++
		}
	}
	return n
}

// ghostKinds counts them by what they were asked for.
func (s lockState) ghostKinds() (all tally) {
	for _, h := range s.holds {
		if h.token == 0 {
			all = all.plus(s.kindOf(h), 1)
		}
	}
	return all
}

// within is the state where these acquires without an answer are not over: nothing else is left of
// the others. False where more ghosts are there, or more permits are taken than there may be.
func (s lockState) within(open tally) (lockState, bool) {
	for _, h := range s.holds {
		if h.ghost {
			open = open.plus(s.kindOf(h), -1)
		}
	}
	if open.owes() || s.taken() > uint64(s.limit) {
		return s, false
	}
	s.acquires = s.acquires.atMost(open)
	return s, true
}

// with is the state with one more grant.
func (s lockState) with(h hold, m mode) lockState {
	i, _ := slices.BinarySearchFunc(s.holds, h, hold.compare)
	s.holds, s.mode = slices.Insert(slices.Clone(s.holds), i, h), m
	return s
}

// without is the state with one grant less.
func (s lockState) without(i int) lockState {
	s.holds = slices.Delete(slices.Clone(s.holds), i, i+1)
	if len(s.holds) == 0 {
		s.holds, s.mode = nil, mode{}
	}
	return s
}

// finished is the state with one grant less, whose slot is done.
func (s lockState) finished(i int) lockState {
	slot := s.holds[i].slot
	s = s.without(i)
	s.done = max(s.done, slot)
	return s
}

// changed is the state with one grant changed.
func (s lockState) changed(i int, f func(*hold)) lockState {
	s.holds = slices.Clone(s.holds)
	f(&s.holds[i])
	slices.SortFunc(s.holds, hold.compare)
	return s
}

// opened is the state after a downgrade of the only grant.
func (s lockState) opened() lockState {
	s = s.changed(0, func(h *hold) { h.opens = false })
	s.shared = true
	return s
}

// used is the state after the service heard of a live grant at a call.
func (s lockState) used(i int, at int64) lockState {
	if s.holds[i].until == never {
		return s
	}
	return s.changed(i, func(h *hold) { h.until = max(h.until, at+h.ttl) })
}

// like reports whether the states differ in grants and calls that are out, if at all.
func (s lockState) like(o lockState) bool {
	return s.done == o.done && s.top == o.top && s.base == o.base && s.length == o.length && s.sum == o.sum
}

// stands reports whether s is o, or o with more that may happen by itself.
func (s lockState) stands(o lockState) bool {
	return s.like(o) && s.mode == o.mode && s.acquires.covers(o.acquires) && s.breaks >= o.breaks &&
		slices.EqualFunc(s.holds, o.holds, hold.covers)
}

// covers reports whether whatever can follow o can follow s as well, where o is what s may come to
// by itself until now.
func (s lockState) covers(o lockState, now int64) bool {
	if !s.like(o) || s.breaks < o.breaks {
		return false
	}
	known := 0
	for _, h := range s.holds {
		if h.token == 0 {
			continue
		}
		switch i := o.find(h.token); {
		case i < 0 && !h.ends(now):
			return false
		case i >= 0 && !h.covers(o.holds[i]):
			return false
		case i >= 0 && s.mode != o.mode && !(h.opens && o.mode == mode{shared: true}):
			return false
		case i >= 0:
			known++
		}
	}
	if known+o.ghosts() != len(o.holds) {
		return false // o has a grant that s lacks
	}
	spare, has := s.acquires, s.ghostKinds()
	for _, c := range o.ghostKinds() { // those of s end, or more are granted
		spare = spare.plus(c.kind, -max(0, c.n-has.of(c.kind)))
	}
	return !spare.owes() && spare.covers(o.acquires)
}

// equal and compare let states be compared and sorted in any fixed order.
func (s lockState) equal(o lockState) bool { return s.compare(o) == 0 }

func (s lockState) compare(o lockState) int {
	return cmp.Or(
		cmp.Compare(s.done, o.done), cmp.Compare(s.top, o.top), cmp.Compare(s.base, o.base), cmp.Compare(s.length, o.length), cmp.Compare(s.sum, o.sum),
		compareBool(s.shared, o.shared), cmp.Compare(s.limit, o.limit), s.acquires.compare(o.acquires),
		cmp.Compare(s.breaks, o.breaks), slices.CompareFunc(s.holds, o.holds, hold.compare))
}
