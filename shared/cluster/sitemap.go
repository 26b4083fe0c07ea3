// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// SiteMap is what the cells of one site say of themselves, as far as somebody has asked them. There is no other source: it may be lost
// at any time, and asked for again. It says where to ask. Who may answer is decided by the cell that is asked. The zero value is
// an empty map.
type SiteMap struct {
	said map[CellID]*Own
}

// Learn takes what a cell said of itself; of one cell the highest version counts. It returns an error if that cannot be of this
// site: another site's ID, or the same version with another content. Two volumes then say that they are the same cell.
func (m *SiteMap) Learn(o *Own) error {
	if err := o.Validate(); err != nil {
		return err
	}
	for _, other := range m.said {
		if other.Site != o.Site {
			return fmt.Errorf("%v says that it is of site %s, and %v of site %s: these are cells of two sites", o.Cell, o.Site, other.Cell, other.Site)
		}
		break
	}
	old := m.said[o.Cell]
	switch {
	case old != nil && old.Version > o.Version:
		return nil
	case old != nil && old.Version == o.Version && old.Text() != o.Text():
		return fmt.Errorf("%v is told in two ways, both of version %d: two volumes say that they are this cell", o.Cell, o.Version)
	}
	if m.said == nil {
		m.said = map[CellID]*Own{}
	}
	m.said[o.Cell] = o
	return nil
}

// Cells returns what the cells said, in order of their numbers.
func (m *SiteMap) Cells() []*Own {
	var all []*Own
	for _, id := range slices.Sorted(maps.Keys(m.said)) {
		all = append(all, m.said[id])
	}
	return all
}

// Route returns the cell of a name: the one that says it owns it, else the one that the cell with the highest version names, which said
// nothing yet. It returns false if nothing is known.
func (m *SiteMap) Route(name string) (CellID, bool) {
	var newest *Own
	for _, o := range m.Cells() {
		if o.Owns(name) {
			return o.Cell, true
		}
		if newest == nil || o.Version > newest.Version {
			newest = o
		}
	}
	if newest == nil {
		return 0, false
	}
	return newest.Route(name), true
}

// share is what one cell says it owns of the names that begin with a prefix: the places from from to last.
type share struct {
	from, last NameHash
	cell       CellID
}

// Check returns an error unless every name is owned by exactly one of the cells. With a cell that said nothing yet some names have none.
//
// All pins of all cells cut the names into classes: of each prefix, the names that begin with it and with no longer prefix. Within a
// class, a cell owns all, nothing, or its ranges, so that it is enough to look at each class once.
func (m *SiteMap) Check() error {
	prefixes := []string{""}
	for _, o := range m.Cells() {
		for _, p := range o.Pins {
			prefixes = append(prefixes, p.Prefix)
		}
	}
	slices.Sort(prefixes)
	for _, prefix := range slices.Compact(prefixes) {
		if err := m.checkClass(prefix); err != nil {
			return err
		}
	}
	return nil
}

func (m *SiteMap) checkClass(prefix string) error {
	what := "names without a pin"
	if prefix != "" {
		what = fmt.Sprintf("names that begin with %q", prefix)
	}
	var all []share
	for _, o := range m.Cells() {
		all = append(all, o.shares(prefix)...)
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.cell, b.cell)) })
	next, done := NameHash(0), false // where the places begin that no share had yet
	for i, s := range all {
		if done || s.from < next {
			return fmt.Errorf("of the %s, %v and %v both own those from place %016x on", what, all[i-1].cell, s.cell, uint64(s.from))
		}
		if s.from > next {
			break
		}
		next, done = s.last+1, s.last == ^NameHash(0)
	}
	if !done {
		return fmt.Errorf("of the %s, no cell that answered owns those from place %016x on", what, uint64(next))
	}
	return nil
}

// shares returns what the cell owns of the names that begin with prefix and with no longer prefix of any pin.
func (o *Own) shares(prefix string) (all []share) {
	if p := o.pin(prefix); p != nil {
		if p.Cell == o.Cell {
			all = append(all, share{0, ^NameHash(0), o.Cell})
		}
		return all
	}
	for i, r := range o.Ranges {
		if r.Cell != o.Cell {
			continue
		}
		last := ^NameHash(0)
		if i+1 < len(o.Ranges) {
			last = o.Ranges[i+1].From - 1
		}
		all = append(all, share{r.From, last, o.Cell})
	}
	return all
}
