// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A site is several volumes, its cells, which divide the names of locks and protected files among them. A cell is a whole volume: it
// has its own servers, log, tokens and clients, and shares nothing with the others. See docs/PROTOCOL.md, section 23.

// CellID is the number of a cell in its site, from 0. It is the cell's for ever.
type CellID uint32

// String returns "cell 3".
func (c CellID) String() string { return "cell " + strconv.FormatUint(uint64(c), 10) }

const (
	// MaxCells is the most cells of a site.
	MaxCells = 256
	// MaxPins is the most pinned prefixes of a site.
	MaxPins = 64
)

// NameHash is the place of a name among the 2^64 that the cells of a site divide. It is encoded in JSON as 16 hexadecimal digits.
type NameHash uint64

// HashOf returns the place of a name: the first 8 bytes, big-endian, of the SHA-256 of its HashTag. It is the same in every version
// of Holdfast and in every client, for ever: where a name belongs depends on it.
func HashOf(name string) NameHash {
	sum := sha256.Sum256([]byte(HashTag(name)))
	return NameHash(binary.BigEndian.Uint64(sum[:]))
}

// HashTag returns the part of a name that decides its place: the text between its first { and the first } after that, so that names
// with the same text there belong together. Without such a pair, or with nothing in between, it is the whole name.
func HashTag(name string) string {
	if _, after, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}

// MarshalText implements encoding.TextMarshaler.
func (h NameHash) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *NameHash) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*h = NameHash(n)
	return err
}

// Range gives a cell the places from From up to where the next range of the division begins.
type Range struct {
	From NameHash `json:"from"`
	Cell CellID   `json:"cell"`
}

// Pin gives a cell all names that begin with Prefix, wherever their places are, but for those that begin with a longer prefix of a pin.
type Pin struct {
	Prefix string `json:"prefix"`
	Cell   CellID `json:"cell"`
}

// ParsePin is the inverse of String: "billing/=3" pins billing/ to cell 3.
func ParsePin(text string) (Pin, error) {
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return Pin{}, fmt.Errorf("pin %q: use PREFIX=CELL, as in billing/=3", text)
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 32)
	if err != nil {
		return Pin{}, fmt.Errorf("pin %q: %q is no number of a cell: use PREFIX=CELL, as in billing/=3", text, text[i+1:])
	}
	p := Pin{Prefix: text[:i], Cell: CellID(n)}
	return p, p.validate()
}

// String returns "billing/=3".
func (p Pin) String() string { return fmt.Sprintf("%s=%d", p.Prefix, p.Cell) }

// validate wants a prefix that a name can have.
func (p Pin) validate() error {
	if err := validatePath("pinned prefix", strings.TrimSuffix(p.Prefix, "/"), MaxLockName-1); err != nil {
		return err
	}
	return p.Cell.validate()
}

func (c CellID) validate() error {
	if c >= MaxCells {
		return fmt.Errorf("%v: the cells of a site are 0 to %d", c, MaxCells-1)
	}
	return nil
}

// Division says which cell has which name. The ranges begin at place 0 and rise, the pins are in the order of their prefixes.
type Division struct {
	Ranges []Range `json:"ranges"`
	Pins   []Pin   `json:"pins,omitempty"`
}

// Divide returns the division of all places into n equal ranges, of cells 0 to n-1, with pins in any order. A pin may name a further
// cell, which then has pinned names only.
func Divide(n int, pins []Pin) (Division, error) {
	if n < 1 || n > MaxCells {
		return Division{}, fmt.Errorf("%d cells: a site has 1 to %d", n, MaxCells)
	}
	var d Division
	for k := range uint64(n) {
		from, _ := bits.Div64(k, 0, uint64(n)) // k * 2^64 / n
		d.Ranges = append(d.Ranges, Range{NameHash(from), CellID(k)})
	}
	d.Pins = slices.Clone(pins)
	slices.SortFunc(d.Pins, func(a, b Pin) int { return cmp.Compare(a.Prefix, b.Prefix) })
	if err := d.Validate(); err != nil {
		return Division{}, err
	}
	for i, c := range d.Cells() {
		if c != CellID(i) {
			return Division{}, fmt.Errorf("%v has a pin, and there is no %v: give the cells numbers without a gap", c, CellID(i))
		}
	}
	return d, nil
}

// Validate checks that every name has exactly one cell.
func (d *Division) Validate() error {
	if len(d.Ranges) == 0 || d.Ranges[0].From != 0 || len(d.Ranges) > MaxCells || len(d.Pins) > MaxPins {
		return fmt.Errorf("a division has 1 to %d ranges, from place 0 on, and at most %d pins: this one has %d and %d", MaxCells, MaxPins, len(d.Ranges), len(d.Pins))
	}
	for i, r := range d.Ranges {
		if i > 0 && (r.From <= d.Ranges[i-1].From || r.Cell == d.Ranges[i-1].Cell) {
			return fmt.Errorf("the range from %016x on comes out of order, or belongs to the cell before", uint64(r.From))
		}
		if err := r.Cell.validate(); err != nil {
			return err
		}
	}
	for i, p := range d.Pins {
		if err := p.validate(); err != nil {
			return err
		}
		if i > 0 && p.Prefix <= d.Pins[i-1].Prefix {
			return fmt.Errorf("the prefix %q is pinned twice, or comes out of order", p.Prefix)
		}
	}
	return nil
}

// Cells returns the cells that have any name, in order.
func (d *Division) Cells() []CellID {
	var all []CellID
	for _, r := range d.Ranges {
		all = append(all, r.Cell)
	}
	for _, p := range d.Pins {
		all = append(all, p.Cell)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Route returns the cell of a name: that of the longest pinned prefix with which the name begins, else that of its place.
func (d *Division) Route(name string) CellID {
	if p := d.pin(name); p != nil {
		return p.Cell
	}
	h := HashOf(name)
	i, found := slices.BinarySearchFunc(d.Ranges, h, func(r Range, h NameHash) int { return cmp.Compare(r.From, h) })
	if !found {
		i-- // the first range begins at 0
	}
	return d.Ranges[i].Cell
}

// Under returns the cells that can have names with this prefix, in order.
func (d *Division) Under(prefix string) []CellID {
	var all []CellID
	for _, p := range d.Pins {
		if strings.HasPrefix(p.Prefix, prefix) {
			all = append(all, p.Cell)
		}
	}
	switch p := d.pin(prefix); {
	case p != nil:
		all = append(all, p.Cell)
	case HashTag(prefix) != prefix: // that of all names that begin so
		all = append(all, d.Route(prefix))
	default:
		for _, r := range d.Ranges {
			all = append(all, r.Cell)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pin returns the pin with the longest prefix of a text, nil for none.
func (d *Division) pin(text string) (longest *Pin) {
	for i := range d.Pins {
		if p := &d.Pins[i]; strings.HasPrefix(text, p.Prefix) && (longest == nil || len(p.Prefix) > len(longest.Prefix)) {
			longest = p
		}
	}
	return longest
}

// Own is what a cell says of itself: which names it owns, at one version. It owns those that its division gives to it. What that says
// of other cells is what this cell knows of them, and decides nothing: they say themselves what they own.
type Own struct {
	// Site is the random ID of the site, the same in all its cells.
	Site ID     `json:"site_id"`
	Cell CellID `json:"cell"`
	// Version is 1 for what a cell was made with, and rises with every change of what it owns.
	Version uint64 `json:"version"`
	Division
}

// Owns reports whether the cell owns a name. A cell that says nothing, nil, owns all names.
func (o *Own) Owns(name string) bool { return o == nil || o.Route(name) == o.Cell }

// Validate checks an Own by itself.
func (o *Own) Validate() error {
	switch {
	case o.Site == ID{}:
		return errors.New("the site has no ID")
	case o.Version == 0:
		return errors.New("versions start at 1")
	}
	if err := o.Division.Validate(); err != nil {
		return err
	}
	if !slices.Contains(o.Cells(), o.Cell) {
		return fmt.Errorf("%v owns nothing by its own division", o.Cell)
	}
	return nil
}

// Text returns the one text for a valid Own, which is JSON.
func (o *Own) Text() string {
	b, err := json.Marshal(o)
	if err != nil {
		return "" // numbers and texts: it cannot happen
	}
	return string(b)
}

// ParseOwn is the strict inverse of Text: it returns an error for any text that Text does not return.
func ParseOwn(text string) (*Own, error) {
	o := new(Own)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		return nil, fmt.Errorf("what a cell owns: %w", err)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("what a cell owns: %w", err)
	}
	if o.Text() != text {
		return nil, errors.New("what a cell owns: it is not in its one form")
	}
	return o, nil
}

// Refuses returns why a request for these names cannot be answered by this cell, and which one has the first name that this cell does not
// own, as far as it knows; "" if it can. Names that are empty are none.
func (o *Own) Refuses(lock LockName, file FileName) (why string, has CellID) {
	switch {
	case o == nil:
		return "", 0
	case lock != "" && !o.Owns(string(lock)):
		has = o.Route(string(lock))
		return fmt.Sprintf("lock %q belongs to %v of this site, and this is %v: ask that one", string(lock), has, o.Cell), has
	case file == "" || o.Owns(string(file)):
		return "", 0
	}
	has = o.Route(string(file))
	if lock == "" {
		return fmt.Sprintf("file %q belongs to %v of this site, and this is %v: ask that one", string(file), has, o.Cell), has
	}
	return fmt.Sprintf("file %q belongs to %v of this site, and its lock %q to %v: a file is in the cell of its lock, so give both the same {tag} in their names, or names below one pinned prefix",
		string(file), has, string(lock), o.Cell), has
}
