// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The places of names are for ever: whoever changes one of these numbers gives every lock of every site to another cell. They were
// computed by another program: int.from_bytes(hashlib.sha256(tag).digest()[:8]).
func TestPlacesOfNamesNeverChange(t *testing.T) {
	three, err := Divide(3, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, tag string
		hash      NameHash
		ofThree   CellID
	}{
		{"a", "a", 0xca978112ca1bbdca, 2},
		{"billing/job", "billing/job", 0xe55a6b1e9106bd98, 2},
		{"{billing}/job", "billing", 0x0c95c7ece1ce1a97, 0},
		{"{billing}/other", "billing", 0x0c95c7ece1ce1a97, 0},
		{"{}job", "{}job", 0xe4ce6d9b8ce23f7d, 2},
		{"x{a}{b}", "a", 0xca978112ca1bbdca, 2},
		{"a{b", "a{b", 0xacef99516b82fddd, 2},
		{"a}b{c}", "c", 0x2e7d2c03a9507ae2, 0},
		{"größe", "größe", 0xd353a2671b67afff, 2},
		{"x{{y}}z", "{y", 0x399a31c97b5c7460, 0},
		{"{a/b}", "a/b", 0xc14cddc033f64b9d, 2},
	} {
		if tag, hash, cell := HashTag(x.name), HashOf(x.name), three.Route(x.name); tag != x.tag || hash != x.hash || cell != x.ofThree {
			t.Errorf("%q has tag %q, place %016x, %v; want %q, %016x, %v", x.name, tag, uint64(hash), cell, x.tag, uint64(x.hash), x.ofThree)
		}
	}
	want := []Range{{0, 0}, {0x5555555555555555, 1}, {0xaaaaaaaaaaaaaaaa, 2}}
	if !slices.Equal(three.Ranges, want) {
		t.Errorf("three cells have %x, want %x", three.Ranges, want)
	}
}

func pins(texts ...string) (all []Pin) {
	for _, s := range texts {
		p, err := ParsePin(s)
		if err != nil {
			panic(err)
		}
		all = append(all, p)
	}
	return all
}

func divide(t *testing.T, n int, texts ...string) Division {
	t.Helper()
	d, err := Divide(n, pins(texts...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRoute(t *testing.T) {
	d := divide(t, 3, "billing/=3", "billing/eu/=1", "bill=2", "{a}x=0")
	for name, want := range map[string]CellID{
		"billing/job": 3, "billing/eu/job": 1, "billing/eu": 3, "billing": 2, "bills": 2, "{a}xy": 0,
		"a": d.at(HashOf("a")), "{a}y": d.at(HashOf("a")), "bil": d.at(HashOf("bil")),
	} {
		if got := d.Route(name); got != want {
			t.Errorf("%q goes to %v, want %v", name, got, want)
		}
	}
	// The first and the last place of each range.
	for i, r := range d.Ranges {
		if d.at(r.From) != r.Cell || i > 0 && d.at(r.From-1) != d.Ranges[i-1].Cell {
			t.Errorf("place %016x goes to %v, the one before to %v", uint64(r.From), d.at(r.From), d.at(r.From-1))
		}
	}
	if d.at(^NameHash(0)) != 2 {
		t.Error("the last place has another cell")
	}
	if got := d.Cells(); !slices.Equal(got, []CellID{0, 1, 2, 3}) {
		t.Errorf("cells %v", got)
	}
}

// at is the cell of a place, found in another way.
func (d *Division) at(h NameHash) (c CellID) {
	for _, r := range d.Ranges {
		if h >= r.From {
			c = r.Cell
		}
	}
	return c
}

func TestDivisionsThatAreNone(t *testing.T) {
	for what, x := range map[string]struct {
		n       int
		pins    []Pin
		problem string
	}{
		"no cell":        {0, nil, "0 cells"},
		"too many":       {257, nil, "257 cells"},
		"a gap":          {2, []Pin{{"a/", 3}}, "there is no cell 2"},
		"pinned twice":   {2, []Pin{{"a/", 1}, {"b/", 1}, {"a/", 0}}, `"a/" is pinned twice`},
		"no prefix":      {2, []Pin{{"", 1}}, "pinned prefix is empty"},
		"no name has it": {2, []Pin{{"a//", 1}}, "relative and clean"},
		"a long prefix":  {2, []Pin{{strings.Repeat("a", MaxLockName), 1}}, "at most 511 are allowed"},
		"no such cell":   {2, []Pin{{"a/", MaxCells}}, "the cells of a site are 0 to 255"},
		"too many pins":  {2, make([]Pin, MaxPins+1), "at most 64 pins"},
	} {
		if d, err := Divide(x.n, x.pins); err == nil || !strings.Contains(err.Error(), x.problem) {
			t.Errorf("%s: %+v, %v; want %q", what, d, err, x.problem)
		}
	}
	for what, d := range map[string]Division{
		"begins late": {Ranges: []Range{{1, 0}}}, "falls": {Ranges: []Range{{0, 0}, {9, 1}, {8, 2}}}, "empty range": {Ranges: []Range{{0, 0}, {9, 1}, {9, 2}}},
		"same cell": {Ranges: []Range{{0, 0}, {9, 0}}}, "pins fall": {Ranges: []Range{{0, 0}}, Pins: []Pin{{"b", 1}, {"a", 1}}},
	} {
		if d.Validate() == nil {
			t.Errorf("%s: it is valid", what)
		}
	}
	for _, text := range []string{"billing/", "billing/=x", "billing/=-1", "=1", "/a=1", "a=4294967296"} {
		if p, err := ParsePin(text); err == nil {
			t.Errorf("%q is pin %v", text, p)
		}
	}
	if p, err := ParsePin("a=b/=2"); err != nil || p != (Pin{"a=b/", 2}) || p.String() != "a=b/=2" {
		t.Errorf("pin %v, %v", p, err)
	}
}

// said returns what a cell of a site of one division says.
func said(d Division, cell CellID, version uint64) *Own {
	return &Own{Site: ID{1}, Cell: cell, Version: version, Division: d}
}

func learn(t *testing.T, all ...*Own) *SiteMap {
	t.Helper()
	m := new(SiteMap)
	for _, o := range all {
		if err := m.Learn(o); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestSiteMap(t *testing.T) {
	d := divide(t, 2, "p/=2", "p/q/=0")
	m := learn(t, said(d, 2, 1), said(d, 0, 1))
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "of the names without a pin, no cell that answered owns those from place 8000000000000000 on") {
		t.Errorf("without cell 1: %v", err)
	}
	one := "z" // a name of cell 1, which said nothing yet
	for d.Route(one) != 1 {
		one += "z"
	}
	if c, known := m.Route(one); c != 1 || !known {
		t.Errorf("%q goes to %v, %t", one, c, known)
	}
	if err := m.Learn(said(d, 1, 1)); err != nil || m.Check() != nil {
		t.Errorf("all cells: %v, %v", err, m.Check())
	}
	if c, known := new(SiteMap).Route("a"); c != 0 || known {
		t.Errorf("an empty map knows %v", c)
	}
	if new(SiteMap).Check() == nil {
		t.Error("an empty map is complete")
	}
	other := said(d, 1, 1)
	other.Site = ID{2}
	if err := m.Learn(other); err == nil || !strings.Contains(err.Error(), "cells of two sites") {
		t.Errorf("a cell of another site: %v", err)
	}
	if err := m.Learn(said(divide(t, 2), 1, 1)); err == nil || !strings.Contains(err.Error(), "two volumes say that they are this cell") {
		t.Errorf("the same cell with another division: %v", err)
	}
	if err := m.Learn(said(d, 3, 1)); err == nil {
		t.Error("a cell that owns nothing is learned")
	}
}

// The newest version of each cell counts, in whatever order they are learned.
func TestNewestVersionCounts(t *testing.T) {
	old, now := divide(t, 2), divide(t, 2, "p/=2")
	versions := []*Own{said(old, 0, 1), said(old, 1, 1), said(now, 0, 2), said(now, 1, 2), said(now, 2, 1)}
	for range 50 {
		rand.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
		m := learn(t, versions...)
		if c, _ := m.Route("p/x"); c != 2 || m.Check() != nil || m.Cells()[0].Version != 2 {
			t.Fatalf("p/x goes to %v: %v", c, m.Check())
		}
	}
	// Cell 2 is there before the others know that it is.
	if err := learn(t, said(old, 0, 1), said(old, 1, 1), said(now, 2, 1)).Check(); err == nil || !strings.Contains(err.Error(), `of the names that begin with "p/", cell 0 and cell 2 both own those from place 0000000000000000 on`) {
		t.Errorf("two owners: %v", err)
	}
	// The others know of cell 2, which said nothing.
	m := learn(t, said(now, 0, 2), said(now, 1, 2))
	if c, _ := m.Route("p/x"); c != 2 {
		t.Errorf("p/x goes to %v", c)
	}
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), `of the names that begin with "p/", no cell that answered owns those from place 0000000000000000 on`) {
		t.Errorf("no owner: %v", err)
	}
}

// Check says that names have one owner each exactly if they have: random divisions, of which some cells know another one, and names
// around every border.
func TestCheckIsRight(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	prefixes := []string{"a", "a/", "a/b", "a/b/", "c/"}
	wrong := 0
	for range 3000 {
		some := func() Division {
			d := Division{Ranges: []Range{{0, CellID(rng.IntN(3))}}}
			for at := NameHash(1) << 62; len(d.Ranges) < 1+rng.IntN(3); at += 1 << 62 {
				d.Ranges = append(d.Ranges, Range{at, (d.Ranges[len(d.Ranges)-1].Cell + CellID(1+rng.IntN(2))) % 3})
			}
			for _, p := range prefixes {
				if rng.IntN(3) == 0 {
					d.Pins = append(d.Pins, Pin{p, CellID(rng.IntN(3))})
				}
			}
			return d
		}
		base, m := some(), new(SiteMap)
		for cell := range CellID(3) {
			d := base
			if rng.IntN(5) == 0 {
				d = some()
			}
			if o := said(d, cell, 1); o.Validate() == nil { // else it owns nothing
				if err := m.Learn(o); err != nil {
					t.Fatal(err)
				}
			}
		}
		problem := ""
		for i, begin := range append(prefixes, "x") {
			for k := range 16 { // enough to meet every quarter of the places
				name := fmt.Sprintf("%s%d-%d", begin, i, k)
				n := 0
				for _, o := range m.Cells() {
					if o.Owns(name) {
						n++
					}
				}
				if n != 1 {
					problem = fmt.Sprintf("%q has %d owners", name, n)
				}
			}
		}
		if err := m.Check(); (err == nil) != (problem == "") {
			t.Fatalf("%s, and Check says %v", problem, err)
		}
		if problem != "" {
			wrong++
		}
	}
	if wrong < 300 || wrong > 2700 {
		t.Errorf("%d of 3000 maps are wrong: too few of one kind", wrong)
	}
}

func TestRefuses(t *testing.T) {
	d := divide(t, 1, "p/=1", "q/=1")
	zero, one := said(d, 0, 1), said(d, 1, 1)
	for _, x := range []struct {
		own  *Own
		lock LockName
		file FileName
		want string
		has  CellID
	}{
		{nil, "p/x", "y", "", 0}, {zero, "x", "y", "", 0}, {zero, "", "", "", 0}, {zero, "x", "", "", 0}, {one, "p/x", "q/y", "", 0},
		{zero, "p/x", "y", `lock "p/x" belongs to cell 1 of this site, and this is cell 0: ask that one`, 1},
		{one, "x", "p/y", `lock "x" belongs to cell 0 of this site, and this is cell 1: ask that one`, 0},
		{zero, "", "p/y", `file "p/y" belongs to cell 1 of this site, and this is cell 0: ask that one`, 1},
		{one, "p/x", "y", `file "y" belongs to cell 0 of this site, and its lock "p/x" to cell 1: a file is in the cell of its lock, so give both the same {tag} in their names, or names below one pinned prefix`, 0},
	} {
		if why, has := x.own.Refuses(x.lock, x.file); why != x.want || has != x.has {
			t.Errorf("%q %q: %q, %v", x.lock, x.file, why, has)
		}
	}
}

// What is read is valid, has one text, and gives each name to one of its cells.
func FuzzOwn(f *testing.F) {
	d, _ := Divide(3, []Pin{{"p/", 1}, {"q/", 3}}) //nolint:errcheck // it is valid
	f.Add(said(d, 1, 1).Text(), "p/x")
	f.Add(`{"site_id":"01000000000000000000000000000000","cell":0,"version":1,"ranges":[{"from":"0000000000000000","cell":0}]}`, "{}")
	f.Add(`{"site_id":"01000000000000000000000000000000","cell":0,"version":1,"ranges":[],"pins":[{"prefix":"a","cell":0}]}`, "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		o, err := ParseOwn(text)
		if err != nil {
			return
		}
		if o.Validate() != nil || o.Text() != text || !slices.Contains(o.Cells(), o.Route(name)) {
			t.Fatalf("%q is read as %+v: %v", text, o, o.Validate())
		}
		if why, _ := o.Refuses(LockName(name), ""); name != "" && (why == "") != o.Owns(name) {
			t.Fatalf("%q is refused: %q", name, why)
		}
	})
}

// TestUnder compares the cells of a prefix with those of names that begin with it.
func TestUnder(t *testing.T) {
	d, err := Divide(3, []Pin{{Prefix: "p/", Cell: 3}, {Prefix: "p/q/", Cell: 1}, {Prefix: "{x}/z", Cell: 4}})
	if err != nil {
		t.Fatal(err)
	}
	tagged := d.Route("{build}/x")
	for prefix, want := range map[string][]CellID{
		"":         {0, 1, 2, 3, 4},
		"a":        {0, 1, 2},
		"{build":   {0, 1, 2}, // the tag may go on
		"{build}":  {tagged},
		"p":        {0, 1, 2, 1, 3},
		"p/":       {1, 3},
		"p/r":      {3},
		"p/q/deep": {1},
		"{x}/":     {d.Route("{x}/a"), 4},
		"{}/":      {0, 1, 2}, // is no tag
	} {
		slices.Sort(want)
		if got := d.Under(prefix); !slices.Equal(got, slices.Compact(want)) {
			t.Errorf("%q: %v, want %v", prefix, got, want)
		}
		for i := range 200 {
			if name := fmt.Sprint(prefix, i); !slices.Contains(d.Under(prefix), d.Route(name)) {
				t.Errorf("%q: %v has %q, too", prefix, d.Route(name), name)
			}
		}
	}
}
