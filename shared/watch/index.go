// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"

	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// index finds the watchers of a lock name: by the name, and by each prefix of it of a length
// that is watched. All names have the prefix of length 0.
type index struct {
	names, prefixes map[string][]*Watcher
	lengths         []length // of prefixes, rising
	count           int
}

// length counts the watched prefixes of one length.
type length struct{ bytes, prefixes int }

func newIndex() index {
	return index{names: map[string][]*Watcher{}, prefixes: map[string][]*Watcher{}}
}

func (x *index) add(w *Watcher) {
	x.count++
	if w.exact {
		w.at = len(x.names[w.target])
		x.names[w.target] = append(x.names[w.target], w)
		return
	}
	of := x.prefixes[w.target]
	if len(of) == 0 {
		i, ok := x.find(len(w.target))
		if !ok {
			x.lengths = slices.Insert(x.lengths, i, length{bytes: len(w.target)})
		}
		x.lengths[i].prefixes++
	}
	w.at = len(of)
	x.prefixes[w.target] = append(of, w)
}

func (x *index) find(bytes int) (int, bool) {
	return slices.BinarySearchFunc(x.lengths, bytes, func(l length, bytes int) int { return l.bytes - bytes })
}

// remove takes out a watcher that is in the index; the last one of its target takes its place.
func (x *index) remove(w *Watcher) {
	from := x.prefixes
	if w.exact {
		from = x.names
	}
	of := from[w.target]
	if w.at >= len(of) || of[w.at] != w {
		return // it is out already
	}
	x.count--
	last := len(of) - 1
	of[w.at], of[last].at = of[last], w.at
	of[last] = nil
	if last > 0 {
		from[w.target] = of[:last]
		return
	}
	delete(from, w.target)
	if w.exact {
		return
	}
	i, _ := x.find(len(w.target))
	if x.lengths[i].prefixes--; x.lengths[i].prefixes == 0 {
		x.lengths = slices.Delete(x.lengths, i, i+1)
	}
}

func (x *index) all() []*Watcher {
	all := make([]*Watcher, 0, x.count)
	for _, of := range x.names {
		all = append(all, of...)
	}
	for _, of := range x.prefixes {
		all = append(all, of...)
	}
	return all
}

// concernsAll reports whether a record of this kind goes to every watch.
func concernsAll(k locktable.Kind) bool {
	return k == locktable.KindForceClear || k == locktable.KindHandedOver || k == locktable.KindTerm
}

// match visits the watchers of an event.
func (x *index) match(k locktable.Kind, lock string, visit func(*Watcher)) {
	want := func(of []*Watcher) {
		for _, w := range of {
			if w.wants(k) {
				visit(w)
			}
		}
	}
	if concernsAll(k) {
		want(x.all())
		return
	}
	if lock != "" {
		want(x.names[lock])
	}
	for _, l := range x.lengths {
		if l.bytes > len(lock) {
			return
		}
		want(x.prefixes[lock[:l.bytes]])
	}
}
