// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

// TestPerson wants the identity beside the process, and as one line.
func TestPerson(t *testing.T) {
	for want, got := range map[string]string{
		"c1":                                person("c1", "", "", 0, ""),
		"c1 make":                           person("c1", "", "", 7, "make"),
		"c1 make (pid 7 on n1)":             person("c1", "", "n1", 7, "make"),
		"c1 make (user:alice, pid 7 on n1)": person("c1", "user:alice", "n1", 7, "make"),
		"c1 (user:alice)":                   person("c1", "user:alice", "", 0, ""),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
