// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"slices"
	"strings"
	"testing"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
)

func TestDiff(t *testing.T) {
	for _, x := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a\nb\n", "a\nb\n", ""},
		{"a\nb\nc\n", "a\nx\nc\n", "-b +x"},
		{"a\nb\n", "a\nb\nc\nd\n", "+c +d"},
		{"a\nb\nc\nd\n", "b\nd\n", "-a -c"},
		{"a\nb\nc\n", "c\na\nb\n", "+c -c"},
	} {
		if got := strings.Join(rules.Diff([]byte(x.a), []byte(x.b)), " "); got != x.want {
			t.Errorf("%q, %q: %s, want %s", x.a, x.b, got, x.want)
		}
	}
	long := slices.Repeat([]string{"x", "y"}, 3000)
	other := slices.Repeat([]string{"y", "z", "x"}, 2000)
	if got := rules.Diff([]byte(strings.Join(long, "\n")), []byte(strings.Join(other, "\n"))); len(got) < 6000 {
		t.Errorf("%d lines differ", len(got))
	}
}
