// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"path"
	"strings"
	"testing"
	"unicode"
)

// An ID from OpenClient says which record of which cluster made it, in one way only.
func TestOpenedClientIDs(t *testing.T) {
	for id, want := range map[ClientID]struct {
		lsn LSN
		of  Mark
	}{
		"@7": {7, 0}, "@18446744073709551615-ffffffff": {1<<64 - 1, 1<<32 - 1}, "@7-0000000a": {7, 10},
	} {
		lsn, of := id.OpenedBy()
		if lsn != want.lsn || of != want.of || OpenedClientID(lsn, of) != id || id.Validate() != nil {
			t.Errorf("%s: record %d of %08x, %v", id, lsn, of, id.Validate())
		}
	}
	for _, id := range []ClientID{
		"@", "@0", "@07", "@-1", "@+7", "@7-", "@7-a", "@7-0000000A", "@7-00000000", "@7-000000000a", "@7-0000000a-", "@x", "@7-0000000g", "@18446744073709551616",
	} {
		if lsn, of := id.OpenedBy(); lsn != 0 || of != 0 || id.Validate() == nil {
			t.Errorf("%s is taken for that of record %d of %08x", id, lsn, of)
		}
	}
	if m := MarkOf([16]byte{0xde, 0xad, 0xbe, 0xef, 1}); m != 0xdeadbeef {
		t.Errorf("mark %08x", m)
	}
	if MarkOf([16]byte{}) == 0 {
		t.Error("a cluster has no mark")
	}
}

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
