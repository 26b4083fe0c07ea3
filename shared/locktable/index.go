// SPDX-License-Identifier: Apache-2.0

package locktable

import "hash/maphash"

// index finds entries by a key that they carry themselves. It costs a third of a
// map's memory, because it keeps no keys, and it shrinks with its contents. It
// grows in small shards, so that no insertion takes long. It has no order.
type index[K comparable, E any] struct {
	key    func(*E) K
	seed   maphash.Seed
	n      int
	shards [256]shard[E]
}

// shard is an open-addressed table; len(tags) is 0 or a power of two. The tag of an
// entry is a part of its hash; 0 is an empty place.
type shard[E any] struct {
	tags    []uint8
	entries []*E
	n       int
}

func newIndex[K comparable, E any](key func(*E) K) *index[K, E] {
	return &index[K, E]{key: key, seed: maphash.MakeSeed()}
}

func (x *index[K, E]) len() int { return x.n }

// hash returns the shard, the first place before it is cut to the shard's size, and the tag.
func (x *index[K, E]) hash(k K) (s *shard[E], at uint64, tag uint8) {
	h := maphash.Comparable(x.seed, k)
	return &x.shards[h>>56], h & (1<<48 - 1), uint8(h>>48) | 1
}

// get returns the entry or nil.
func (x *index[K, E]) get(k K) *E {
	s, at, tag := x.hash(k)
	if i, ok := x.find(s, k, at, tag); ok {
		return s.entries[i]
	}
	return nil
}

// find returns the place of k, or the empty one where it belongs.
func (x *index[K, E]) find(s *shard[E], k K, at uint64, tag uint8) (int, bool) {
	if len(s.tags) == 0 {
		return 0, false
	}
	mask := len(s.tags) - 1
	for i := int(at) & mask; ; i = (i + 1) & mask {
		switch {
		case s.tags[i] == 0:
			return i, false
		case s.tags[i] == tag && x.key(s.entries[i]) == k:
			return i, true
		}
	}
}

// put adds e, in place of an entry with the same key.
func (x *index[K, E]) put(e *E) {
	k := x.key(e)
	s, at, tag := x.hash(k)
	i, ok := x.find(s, k, at, tag)
	if !ok {
		if 4*(s.n+1) > 3*len(s.tags) {
			x.resize(s, max(8, 2*len(s.tags)))
			i, _ = x.find(s, k, at, tag)
		}
		s.n++
		x.n++
	}
	s.tags[i], s.entries[i] = tag, e
}

// remove removes the entry of k if there is one.
func (x *index[K, E]) remove(k K) {
	s, at, tag := x.hash(k)
	i, ok := x.find(s, k, at, tag)
	if !ok {
		return
	}
	s.n--
	x.n--
	// What probed past this place moves up, so that no search ends here.
	mask := len(s.tags) - 1
	for j := (i + 1) & mask; s.tags[j] != 0; j = (j + 1) & mask {
		_, home, _ := x.hash(x.key(s.entries[j]))
		if (j-int(home))&mask >= (j-i)&mask {
			s.tags[i], s.entries[i] = s.tags[j], s.entries[j]
			i = j
		}
	}
	s.tags[i], s.entries[i] = 0, nil
	if len(s.tags) > 8 && 8*s.n < len(s.tags) {
		x.resize(s, len(s.tags)/2)
	}
}

func (x *index[K, E]) resize(s *shard[E], size int) {
	old := *s
	*s = shard[E]{tags: make([]uint8, size), entries: make([]*E, size), n: old.n}
	for _, e := range old.entries {
		if e == nil {
			continue
		}
		k := x.key(e)
		_, at, tag := x.hash(k)
		i, _ := x.find(s, k, at, tag)
		s.tags[i], s.entries[i] = tag, e
	}
}
