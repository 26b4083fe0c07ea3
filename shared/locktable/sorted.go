// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"iter"
	"slices"
	"sort"
)

// blockLen is the most keys in one block of a sorted set: an insertion moves at
// most that many.
const blockLen = 256

// sorted is a set in order of its keys: blocks of keys, each block below the
// next. Maps find entries faster, but only this gives them a reproducible order.
type sorted[K cmp.Ordered] struct {
	blocks [][]K // none is empty
	n      int
}

func (s *sorted[K]) len() int { return s.n }

// find returns the block that holds k or should, and k's place in it.
func (s *sorted[K]) find(k K) (block, pos int, ok bool) {
	block = sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i][0] > k })
	if block > 0 {
		block--
	}
	if block == len(s.blocks) {
		return block, 0, false
	}
	pos, ok = slices.BinarySearch(s.blocks[block], k)
	return block, pos, ok
}

func (s *sorted[K]) has(k K) bool {
	_, _, ok := s.find(k)
	return ok
}

// insert adds k if it is not there.
func (s *sorted[K]) insert(k K) {
	i, pos, ok := s.find(k)
	if ok {
		return
	}
	s.n++
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, []K{k})
		return
	}
	b := slices.Insert(s.blocks[i], pos, k)
	s.blocks[i] = b
	if len(b) <= blockLen {
		return
	}
	half := len(b) / 2
	if i == len(s.blocks)-1 && pos == len(b)-1 {
		half = len(b) - 1 // keys that come in order leave full blocks
	}
	upper := append(make([]K, 0, blockLen+1), b[half:]...)
	clear(b[half:])
	s.blocks[i] = b[:half]
	s.blocks = slices.Insert(s.blocks, i+1, upper)
}

// remove removes k if it is there, and joins a block that became small to its neighbour, so
// that the set shrinks with its keys.
func (s *sorted[K]) remove(k K) {
	i, pos, ok := s.find(k)
	if !ok {
		return
	}
	s.n--
	s.blocks[i] = slices.Delete(s.blocks[i], pos, pos+1)
	size := len(s.blocks[i])
	switch {
	case size == 0:
		s.blocks = slices.Delete(s.blocks, i, i+1)
	case size >= blockLen/4:
	case i+1 < len(s.blocks) && size+len(s.blocks[i+1]) <= blockLen*3/4:
		s.join(i)
	case i > 0 && size+len(s.blocks[i-1]) <= blockLen*3/4:
		s.join(i - 1)
	}
}

// join appends block i+1 to block i.
func (s *sorted[K]) join(i int) {
	s.blocks[i] = append(s.blocks[i], s.blocks[i+1]...)
	s.blocks = slices.Delete(s.blocks, i+1, i+2)
}

// from iterates over the keys >= k in order. The set must not change meanwhile.
func (s *sorted[K]) from(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		i, pos, _ := s.find(k)
		for ; i < len(s.blocks); i++ {
			for _, key := range s.blocks[i][min(pos, len(s.blocks[i])):] {
				if !yield(key) {
					return
				}
			}
			pos = 0
		}
	}
}

// after is from without k itself.
func (s *sorted[K]) after(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		for key := range s.from(k) {
			if key != k && !yield(key) {
				return
			}
		}
	}
}

// all iterates over all keys in order. The set must not change meanwhile.
func (s *sorted[K]) all() iter.Seq[K] {
	var least K // "" and 0 are the least of the keys in use
	return s.from(least)
}

func (s *sorted[K]) clone() sorted[K] {
	c := sorted[K]{blocks: make([][]K, len(s.blocks)), n: s.n}
	for i, b := range s.blocks {
		c.blocks[i] = slices.Clone(b)
	}
	return c
}

// check verifies order and count.
func (s *sorted[K]) check() bool {
	n, first := 0, true
	var last K
	for _, b := range s.blocks {
		if len(b) == 0 || len(b) > blockLen {
			return false
		}
		for _, k := range b {
			if !first && k <= last {
				return false
			}
			last, first = k, false
			n++
		}
	}
	return n == s.n
}
