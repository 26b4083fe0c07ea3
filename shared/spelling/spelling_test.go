// SPDX-License-Identifier: Apache-2.0

package spelling

import (
	"strings"
	"testing"
)

func TestMeant(t *testing.T) {
	known := []string{"id", "volume", "suspicion", "heartbeat", "min-ttl", "max-ttl", "tls-key"}
	for name, want := range map[string]string{
		"suspicon": "suspicion", "hartbeat": "heartbeat", "min-tt": "min-ttl", "mx-ttl": "max-ttl", "ids": "id", "vol": "", "tls_key": "tls-key", "colour": "", "": "",
		strings.Repeat("x", 1000): "",
	} {
		if want != "" {
			want = ": did you mean " + want + "?"
		}
		if got := Meant(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, x := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "bc", 1}, {"ab", "ba", 2}, {"kitten", "sitting", 3}} {
		if got := distance(x.a, x.b); got != x.want {
			t.Errorf("%q to %q: got %d, want %d", x.a, x.b, got, x.want)
		}
	}
}
