// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// division is what the log of a cell says that it owns, read and divided here anew from PROTOCOL 23.1.
type division struct {
	Cell   int `json:"cell"`
	Ranges []struct {
		From string `json:"from"`
		Cell int    `json:"cell"`
	} `json:"ranges"`
	Pins []struct {
		Prefix string `json:"prefix"`
		Cell   int    `json:"cell"`
	} `json:"pins"`
}

// has reports whether a name belongs to the cell.
func (c *division) has(name string) bool {
	of, longest := -1, 0
	for _, p := range c.Pins {
		if strings.HasPrefix(name, p.Prefix) && len(p.Prefix) > longest {
			of, longest = p.Cell, len(p.Prefix)
		}
	}
	if of < 0 {
		place := placeOf(name)
		for _, r := range c.Ranges {
			if r.From <= place { // hexadecimal digits, always as many
				of = r.Cell
			}
		}
	}
	return of == c.Cell
}

// placeOf is the place of a name, in 16 digits.
func placeOf(name string) string {
	if i := strings.IndexByte(name, '{'); i >= 0 {
		if n := strings.IndexByte(name[i:], '}'); n > 1 {
			name = name[i+1 : i+n]
		}
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// become has the log be that of a cell, which it says once, before it has any name.
func (x *reference) become(r *locktable.Record, bad badFunc) {
	c := &division{}
	if err := json.Unmarshal([]byte(r.Own), c); err != nil {
		bad(I9, "what the cell owns: %v", err)
		return
	}
	if x.cell != nil || len(x.locks)+len(x.files)+len(x.marks) > 0 {
		bad(I9, "it becomes cell %d, and is a cell already, or has names", c.Cell)
	}
	x.cell = c
}

// foreign wants the names of a record to belong to the cell.
func (x *reference) foreign(r *locktable.Record, bad badFunc) {
	if x.cell == nil {
		return
	}
	for _, name := range []string{string(r.Lock), string(r.File)} {
		if name != "" && !x.cell.has(name) {
			bad(I2, "%s belongs to another cell than %d", name, x.cell.Cell)
		}
	}
}
