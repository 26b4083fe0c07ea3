// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"
)

// mode is how a lock is held: alone, shared, or by permits, when it is shared as well.
type mode struct {
	shared bool
	limit  uint32 // how many permits there are; 0 = it has no limit
}

// kind is what an acquire asks for.
type kind struct {
	mode
	weight uint32 // how many permits
}

func (c AcquireCall) kind() kind {
	if c.Limit > 0 {
		return kind{mode{true, c.Limit}, max(1, c.Weight)}
	}
	return kind{mode: mode{shared: c.Shared}}
}

func (k kind) compare(o kind) int {
	return cmp.Or(compareBool(k.shared, o.shared), cmp.Compare(k.limit, o.limit), cmp.Compare(k.weight, o.weight))
}

// holdsUp reports whether o may have to wait behind a k that waits, though o could have the lock at once.
func (k kind) holdsUp(o kind) bool {
	return k.limit == o.limit && (!k.shared || k.weight > o.weight)
}

// fits reports whether so many permits more than those taken are at most the limit.
func (k kind) fits(taken uint64) bool { return taken+uint64(k.weight) <= uint64(k.limit) }

// kindOf is what a grant of this lock was asked for.
func (s lockState) kindOf(h hold) kind { return kind{s.mode, h.weight} }

// taken is how many permits the holders have.
func (s lockState) taken() (sum uint64) {
	for _, h := range s.holds {
		sum += uint64(h.weight)
	}
	return sum
}

// admits reports whether a lock that nobody waits for is granted.
func (s lockState) admits(k kind) bool {
	switch {
	case !s.free() && s.limit != k.limit:
		return false
	case k.limit > 0:
		return k.fits(s.taken())
	}
	return s.free() || k.shared && s.shared
}

// tally counts acquires by what they ask for. It is sorted, has no zeros, and is never changed in place.
type tally []count

type count struct {
	kind
	n int
}

func (c count) compare(o count) int { return cmp.Or(c.kind.compare(o.kind), cmp.Compare(c.n, o.n)) }

// of is how many ask for this.
func (t tally) of(k kind) int {
	if i, found := slices.BinarySearchFunc(t, k, func(c count, k kind) int { return c.kind.compare(k) }); found {
		return t[i].n
	}
	return 0
}

// plus is the tally with so many more who ask for this.
func (t tally) plus(k kind, n int) tally {
	i, found := slices.BinarySearchFunc(t, k, func(c count, k kind) int { return c.kind.compare(k) })
	switch {
	case n == 0:
		return t
	case !found:
		return slices.Insert(slices.Clone(t), i, count{k, n})
	case t[i].n+n == 0:
		return slices.Delete(slices.Clone(t), i, i+1)
	}
	t = slices.Clone(t)
	t[i].n += n
	return t
}

// atMost is the tally with no more of each than o has.
func (t tally) atMost(o tally) tally {
	if o.covers(t) {
		return t
	}
	var least tally
	for _, c := range t {
		least = least.plus(c.kind, min(c.n, o.of(c.kind)))
	}
	return least
}

// covers reports whether t has as many of each as o.
func (t tally) covers(o tally) bool {
	return !slices.ContainsFunc(o, func(c count) bool { return t.of(c.kind) < c.n })
}

// owes reports whether it is less than none of something.
func (t tally) owes() bool { return slices.ContainsFunc(t, func(c count) bool { return c.n < 0 }) }

func (t tally) compare(o tally) int { return slices.CompareFunc(t, o, count.compare) }

// unknownCall is an acquire without an answer.
type unknownCall struct {
	kind
	over int64 // when nothing can be left of it any more; 0 = never
}

func (c unknownCall) compare(o unknownCall) int {
	return cmp.Or(c.kind.compare(o.kind), cmp.Compare(c.over, o.over))
}
