// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// What is to be known of a volume's answers is told once: people on the standard error,
// programs in the message.
func TestTheNoteOfAVolumeIsToldOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h1", "--server", "2=h2", "--server", "3=h3"); r.code != 0 {
		t.Fatalf("init: %+v", r)
	}
	// It has no appends either: that is no empty table.
	if r := run("", "", "blame", "nosuch", "--volume", dir); r.code != 2 || r.out != "" || !strings.Contains(r.errs, "nosuch") {
		t.Errorf("blame of a file that is not there: %+v", r)
	}
	const note = "without a server"
	for _, command := range []string{"history a", "why a", "show a", "ls"} {
		r := run("", "", append(words(command), "--volume", dir)...)
		if r.code != 0 || strings.Contains(r.out, note) || strings.Count(r.errs, note) != 1 {
			t.Errorf("%s: %+v", command, r)
		}
		r = run("", "", append(words(command), "--volume", dir, "-o", "json")...)
		if r.code != 0 || !strings.Contains(r.out, note) || r.errs != "" {
			t.Errorf("%s in JSON: %+v", command, r)
		}
	}
}
