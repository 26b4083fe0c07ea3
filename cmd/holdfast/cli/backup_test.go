// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// modeOf returns the permissions of a file or directory.
func modeOf(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// A backup has what the volume has, protected files, too, so nobody but its owner may look into it.
func TestBackupIsPrivate(t *testing.T) {
	dir, _ := restored(t)
	defer syscall.Umask(syscall.Umask(0))
	dest := filepath.Join(t.TempDir(), "backup")
	if r := run("", "", "backup", "--volume", dir, dest); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if got := modeOf(t, dest); got != 0o700 {
		t.Errorf("the directory of the backup has mode %v", got)
	}
	for _, mode := range []fs.FileMode{0o750, 0o701, 0o777} {
		open := filepath.Join(t.TempDir(), "open")
		if err := os.Mkdir(open, mode); err != nil {
			t.Fatal(err)
		}
		r := run("", "", "backup", "--volume", dir, open)
		if r.code == 0 || !strings.Contains(r.errs, "chmod 700 "+open) {
			t.Errorf("into a directory of mode %v: %+v", mode, r)
		}
		if entries, err := os.ReadDir(open); err != nil || len(entries) > 0 {
			t.Errorf("into a directory of mode %v %d entries were written: %v", mode, len(entries), err)
		}
	}
}

// Who might look into the old volume may look into the new one, and nobody else: the directory's mode is that of the backed up one,
// and what was private in it is.
func TestRestoreKeepsModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // it must not decide
	for _, mode := range []fs.FileMode{0o700, 0o750, 0o755} {
		dir, _ := restored(t)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		dest, again := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "again")
		if r := run("", "", "backup", "--secrets", "--volume", dir, dest); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := run("", "", words("restore "+dest+" --seen-lsn 0 --yes --volume "+again)...); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if got := modeOf(t, again); got != mode {
			t.Errorf("a volume of mode %v is restored with %v", mode, got)
		}
		for _, private := range []string{"secrets", "access"} {
			old, err := filepath.Glob(filepath.Join(dir, private, "*"))
			if err != nil || len(old) == 0 {
				t.Fatalf("%s has nothing: %v", private, err)
			}
			for _, name := range append(old, filepath.Join(dir, private)) {
				rel, err := filepath.Rel(dir, name)
				if err != nil {
					t.Fatal(err)
				}
				if want, got := modeOf(t, name), modeOf(t, filepath.Join(again, rel)); got != want {
					t.Errorf("%s had mode %v, and has %v now", rel, want, got)
				}
			}
		}
	}
}
