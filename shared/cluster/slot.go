// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"strings"
)

// MaxSlot is the most bytes of a slot.
const MaxSlot = 64

// Slot names a time, or a number, for which something is done once: "2026-11-22", "build-17". Slots of a lock have an order, in which
// they come: see Compare.
type Slot string

// Validate wants printable characters of ASCII, without spaces.
func (s Slot) Validate() error {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return fmt.Errorf("slot %q: use letters, digits and signs of ASCII, without spaces", s)
		}
	}
	if s == "" || len(s) > MaxSlot {
		return fmt.Errorf("slot %.80q has %d bytes: use 1 to %d", s, len(s), MaxSlot)
	}
	return nil
}

// Compare orders slots as people do: byte by byte, but for digits that stand together, which are a number. So build-9 comes before
// build-10, and 2026-11-22 before 2026-11-22T06:00:00Z. Two spellings of the same numbers are in the order of their bytes.
func (s Slot) Compare(o Slot) int {
	a, b := string(s), string(o)
	for a != "" && b != "" {
		if n, m := digits(a), digits(b); n > 0 && m > 0 {
			x, y := strings.TrimLeft(a[:n], "0"), strings.TrimLeft(b[:m], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[n:], b[m:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(s, o))
}

// digits returns how many digits a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
