// SPDX-License-Identifier: Apache-2.0

package osfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Names below one that leads elsewhere are there for every call, whatever is in its place; files do not go from one to the other.
func TestAttach(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(here, "x"), []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := osfs.Open(here)
	if err != nil {
		t.Fatal(err)
	}
	other, err := osfs.Open(there)
	if err != nil {
		t.Fatal(err)
	}
	f.Attach("x", other)
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	wants := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	wants("Mkdir of the name itself", f.Mkdir("x"), fs.ErrExist)
	wants("MkdirPrivate of the name itself", f.MkdirPrivate("x"), fs.ErrExist)
	ok("Mkdir", f.Mkdir("x/d"))
	ok("write", vfs.WriteFile(f, "x/d/a", vfs.FlagCreate|vfs.FlagPrivate, []byte("text")))
	ok("Link", f.Link("x/d/a", "x/b"))
	ok("Rename", f.Rename("x/b", "x/c"))
	ok("Replace", f.Replace("x/v", func(w io.Writer) error { _, err := io.WriteString(w, "view"); return err }))
	ok("SyncDir", f.SyncDir("x"))
	wants("Link from there", f.Link("x/c", "c"), syscall.EXDEV)
	wants("Rename to there", f.Rename("y", "x/y"), syscall.EXDEV)
	ok("write beside it", vfs.WriteFile(f, "xx", vfs.FlagCreate, nil))
	if info, err := f.Lstat("x"); err != nil || info.Type != vfs.TypeDir {
		t.Errorf("Lstat of the name: %+v, %v", info, err)
	}
	if o, err := f.Owner("x"); err != nil || o.Type != vfs.TypeFile {
		t.Errorf("Owner sees %+v, %v", o, err)
	}
	if info, err := f.Lstat("x/c"); err != nil || info.Nlink != 2 || info.Mode != 0o600 {
		t.Errorf("Lstat below it: %+v, %v", info, err)
	}
	if b, err := vfs.ReadFile(f, "x/v", vfs.FlagRead); err != nil || string(b) != "view" {
		t.Errorf("%q, %v", b, err)
	}
	l, err := f.TryLock("x/c")
	ok("TryLock", err)
	ok("Unlock", l.Unlock())
	ok("Remove", f.Remove("x/v"))
	var names []string
	entries, err := f.ReadDir("x")
	for _, x := range entries {
		names = append(names, x.Name)
	}
	if err != nil || len(names) != 2 || names[0] != "c" || names[1] != "d" {
		t.Errorf("ReadDir: %v, %v", names, err)
	}
	if found, err := os.ReadDir(here); err != nil || len(found) != 2 { // x and xx
		t.Errorf("in its place there are %v, %v", found, err)
	}
	ok("Close", f.Close())
	if _, err := other.Lstat("c"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
