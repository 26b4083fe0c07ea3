// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"path"
	"strings"
	"testing"
	"unicode"
)

// What counts as plain is good by the whole rule, too.
func FuzzPlainPath(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "/a", "a/", "a//b", "./a", "a/..", "..a", "a\\b", "a\x7f", "é", "a/.b", " "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if plainPath(s) && (path.Clean(s) != s || s[0] == '/' || strings.ContainsFunc(s, unicode.IsControl) || strings.Contains(s, "\\") || s == "." || strings.HasPrefix(s, "..")) {
			t.Errorf("%q is not plain", s)
		}
	})
}
