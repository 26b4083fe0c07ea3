// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"
	"unicode"
)

// Visible makes text of other clients harmless to a terminal: it replaces control characters,
// and characters that change the direction of text, by their escapes.
func Visible(s string) string {
	if !strings.ContainsFunc(s, invisible) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if invisible(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// invisible reports whether a rune is a control or format character other than a newline.
func invisible(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }

// OneLine is Visible for text that must stay on one line: it escapes newlines, too.
func OneLine(s string) string { return strings.ReplaceAll(Visible(s), "\n", `\n`) }
