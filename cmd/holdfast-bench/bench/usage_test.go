// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDirUsage(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("epochs/1/a", 4096)
	write("epochs/1/files/b", 4096) // only entries of the directory itself are left out
	write("files/c", 4096)
	if err := os.Link(filepath.Join(dir, "epochs/1/a"), filepath.Join(dir, "epochs/a")); err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		without []string
		files   int
	}{{nil, 3}, {[]string{"files"}, 2}, {[]string{"epochs", "files"}, 0}} {
		files, bytes, err := DirUsage(dir, tt.without...)
		if err != nil || files != tt.files || bytes < int64(tt.files)*4096 || bytes > int64(tt.files)*16384 {
			t.Errorf("without %v: %d files, %d bytes, %v", tt.without, files, bytes, err)
		}
	}
	if _, _, err := DirUsage(filepath.Join(dir, "nothing")); err != nil {
		t.Errorf("a directory that has gone: %v", err)
	}
}

func TestDescriptors(t *testing.T) {
	before, err := Descriptors(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var open []*os.File
	for range 50 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, f)
	}
	after, err := Descriptors(os.Getpid())
	if err != nil || after < before+40 {
		t.Errorf("%d, then %d, %v", before, after, err)
	}
	for _, f := range open {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
