// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// WholeText says that a JSON string stands for a text: it has no byte that is not UTF-8 and
// escapes no half of a pair of UTF-16 surrogates. Of either a decoder makes U+FFFD, the same
// for all of them, so that two names would be one.
func WholeText(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for i := 0; i < len(raw)-1; i++ {
		if raw[i] != '\\' {
			continue
		}
		if i++; raw[i] != 'u' {
			continue
		}
		r := escaped(raw[i-1:])
		if i += 4; !utf16.IsSurrogate(r) {
			continue
		}
		if i+1 > len(raw) || utf16.DecodeRune(r, escaped(raw[i+1:])) == utf8.RuneError {
			return false
		}
		i += 6
	}
	return true
}

// escaped is the code unit that raw begins with as \uXXXX, 0 if it does not.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
