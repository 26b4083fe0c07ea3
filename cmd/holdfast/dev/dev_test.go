// SPDX-License-Identifier: Apache-2.0

package dev

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStored: the size is that of all files, links not followed.
func TestStored(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"one": 3, "a/two": 5, "a/b/three": 0} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../one", filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if got := stored(dir); got != 8 {
		t.Errorf("got %d bytes, want 8", got)
	}
	if got := stored(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("got %d bytes of what is not there", got)
	}
}
