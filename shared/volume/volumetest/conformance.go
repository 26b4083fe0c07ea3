// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Conformance is the contract of vfs.FS as tests, which every
// implementation passes. newFS makes an empty filesystem.
func Conformance(t *testing.T, newFS func(t *testing.T) vfs.FS) {
	t.Helper()
	cases := []struct {
		name string
		test func(t *testing.T, v vfs.FS)
	}{
		{"create, write, read", conformFile},
		{"flags", conformFlags},
		{"private", conformPrivate},
		{"names are refused", conformNames},
		{"room is told", conformSpace},
		{"errors", conformErrors},
		{"rename files", conformRenameFile},
		{"rename directories", conformRenameDir},
		{"hard links", conformLink},
		{"unlinked but open", conformUnlinked},
		{"listing", conformReadDir},
		{"locks", conformLocks},
		{"replace", conformReplace},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(t, newFS(t)) })
	}
}

// must ends the test at an unexpected error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants checks an error's identity; a nil want wants none.
func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// put creates a file with content.
func put(t *testing.T, v vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := v.Open(name, vfs.FlagCreate)
	must(t, err)
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// touch creates a file and closes it.
func touch(t *testing.T, v vfs.FS, name, content string) {
	t.Helper()
	must(t, put(t, v, name, content).Close())
}

// get reads a whole file by name.
func get(t *testing.T, v vfs.FS, name string) string {
	t.Helper()
	f, err := v.Open(name, vfs.FlagRead)
	must(t, err)
	content, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	must(t, err)
	must(t, f.Close())
	return string(content)
}

func conformFile(t *testing.T, v vfs.FS) {
	f := put(t, v, "a", "hello")
	if _, err := f.WriteAt([]byte("!"), 8); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 16)
	n, err := f.ReadAt(p, 0)
	if n != 9 || err != io.EOF || string(p[:n]) != "hello\x00\x00\x00!" {
		t.Errorf("ReadAt = %d, %v, %q", n, err, p[:n])
	}
	if n, err := f.ReadAt(p[:4], 1); n != 4 || err != nil || string(p[:4]) != "ello" {
		t.Errorf("ReadAt in the middle = %d, %v, %q", n, err, p[:4])
	}
	if n, err := f.ReadAt(p, 100); n != 0 || err != io.EOF {
		t.Errorf("ReadAt behind the end = %d, %v", n, err)
	}
	_, err = f.ReadAt(p, -1)
	if err == nil {
		t.Error("ReadAt at a negative offset succeeds")
	}
	must(t, f.Sync())
	must(t, f.Datasync())
	must(t, v.SyncDir("."))
	info, err := f.Stat()
	must(t, err)
	if info.Size != 9 || info.Nlink != 1 || info.Type != vfs.TypeFile || info.Inode == 0 {
		t.Errorf("Stat = %+v", info)
	}
	byName, err := v.Lstat("a")
	must(t, err)
	if byName != info {
		t.Errorf("Lstat = %+v, Stat = %+v", byName, info)
	}
	must(t, f.Close())
	wants(t, "second Close", f.Close(), fs.ErrClosed)
	_, err = f.WriteAt(p, 0)
	wants(t, "WriteAt after Close", err, fs.ErrClosed)
	_, err = f.Stat()
	wants(t, "Stat after Close", err, fs.ErrClosed)
	wants(t, "Sync after Close", f.Sync(), fs.ErrClosed)
}

func conformFlags(t *testing.T, v vfs.FS) {
	touch(t, v, "a", "hello")
	_, err := v.Open("a", vfs.FlagCreate)
	wants(t, "create over a file", err, fs.ErrExist)
	f, err := v.Open("a", vfs.FlagRead)
	must(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	wants(t, "write to a file opened to read", err, syscall.EBADF)
	must(t, f.Close())

	f, err = v.Open("direct", vfs.FlagCreate|vfs.FlagDirect)
	must(t, err)
	block := vfs.AlignedBuffer(2 * vfs.BlockSize)
	block[vfs.BlockSize] = 7
	if n, err := f.WriteAt(block, vfs.BlockSize); n != len(block) || err != nil {
		t.Fatalf("direct WriteAt = %d, %v", n, err)
	}
	back := vfs.AlignedBuffer(4 * vfs.BlockSize)
	if n, err := f.ReadAt(back, 0); n != 3*vfs.BlockSize || err != io.EOF {
		t.Fatalf("direct ReadAt = %d, %v", n, err)
	}
	if !bytes.Equal(back[vfs.BlockSize:3*vfs.BlockSize], block) {
		t.Error("direct ReadAt returns other bytes")
	}
	must(t, f.Close())

	f, err = v.Open("dsync", vfs.FlagCreate|vfs.FlagDsync)
	must(t, err)
	if _, err := f.WriteAt([]byte("odd"), 5); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
	if got := get(t, v, "dsync"); got != "\x00\x00\x00\x00\x00odd" {
		t.Errorf("dsync file holds %q", got)
	}
}

func conformPrivate(t *testing.T, v vfs.FS) {
	must(t, v.MkdirPrivate("secrets"))
	wants(t, "MkdirPrivate of what is there", v.MkdirPrivate("secrets"), fs.ErrExist)
	f, err := v.Open("secrets/key", vfs.FlagCreate|vfs.FlagPrivate)
	must(t, err)
	must(t, f.Close())
	f, err = v.Open("secrets/public", vfs.FlagCreate)
	must(t, err)
	must(t, f.Close())
	must(t, v.Link("secrets/key", "linked"))
	for name, want := range map[string]uint32{"secrets": 0o700, "secrets/key": 0o600, "linked": 0o600} {
		if info, err := v.Lstat(name); err != nil || info.Mode&0o777 != want {
			t.Errorf("%s has mode %o, want %o (%v)", name, info.Mode, want, err)
		}
	}
	if info, err := v.Lstat("secrets/public"); err != nil || info.Mode|0o044 != 0o644 {
		t.Errorf("a public file has mode %o (%v)", info.Mode, err)
	}
}

func conformNames(t *testing.T, v vfs.FS) {
	must(t, v.Mkdir("d"))
	touch(t, v, "d/a", "")
	for _, name := range []string{"", "/", "/etc/passwd", "..", "../x", "d/../d/a", "d//a", "./d", "d/a/", "d/."} {
		_, err := v.Open(name, vfs.FlagRead)
		wants(t, "Open "+name, err, syscall.EINVAL)
		_, err = v.Open(name, vfs.FlagCreate)
		wants(t, "create "+name, err, syscall.EINVAL)
		wants(t, "Mkdir "+name, v.Mkdir(name), syscall.EINVAL)
		wants(t, "Remove "+name, v.Remove(name), syscall.EINVAL)
		wants(t, "Rename "+name, v.Rename(name, "x"), syscall.EINVAL)
		wants(t, "Rename to "+name, v.Rename("d/a", name), syscall.EINVAL)
		wants(t, "Link "+name, v.Link(name, "x"), syscall.EINVAL)
		wants(t, "Link to "+name, v.Link("d/a", name), syscall.EINVAL)
		wants(t, "SyncDir "+name, v.SyncDir(name), syscall.EINVAL)
		_, err = v.Lstat(name)
		wants(t, "Lstat "+name, err, syscall.EINVAL)
		_, err = v.ReadDir(name)
		wants(t, "ReadDir "+name, err, syscall.EINVAL)
		_, err = v.TryLock(name)
		wants(t, "TryLock "+name, err, syscall.EINVAL)
		err = v.Replace(name, func(io.Writer) error { return nil })
		wants(t, "Replace "+name, err, syscall.EINVAL)
	}
}

func conformErrors(t *testing.T, v vfs.FS) {
	must(t, v.Mkdir("d"))
	touch(t, v, "d/a", "")
	open := func(name string, flag vfs.Flag) error {
		_, err := v.Open(name, flag)
		return err
	}
	lstat := func(name string) error {
		_, err := v.Lstat(name)
		return err
	}
	list := func(name string) error {
		_, err := v.ReadDir(name)
		return err
	}
	lock := func(name string) error {
		_, err := v.TryLock(name)
		return err
	}
	cases := []struct {
		what      string
		got, want error
	}{
		{"open nothing", open("none", 0), fs.ErrNotExist},
		{"open below nothing", open("none/a", 0), fs.ErrNotExist},
		{"create below nothing", open("none/a", vfs.FlagCreate), fs.ErrNotExist},
		{"open below a file", open("d/a/b", 0), syscall.ENOTDIR},
		{"open a directory", open("d", 0), syscall.EISDIR},
		{"open the root", open(".", 0), syscall.EISDIR},
		{"open a directory to write", open("d", vfs.FlagWrite), syscall.EISDIR},
		{"create over a directory", open("d", vfs.FlagCreate), fs.ErrExist},
		{"mkdir over a directory", v.Mkdir("d"), fs.ErrExist},
		{"mkdir over a file", v.Mkdir("d/a"), fs.ErrExist},
		{"mkdir below nothing", v.Mkdir("none/a"), fs.ErrNotExist},
		{"mkdir below a file", v.Mkdir("d/a/b"), syscall.ENOTDIR},
		{"remove nothing", v.Remove("none"), fs.ErrNotExist},
		{"remove a full directory", v.Remove("d"), syscall.ENOTEMPTY},
		{"rename nothing", v.Rename("none", "x"), fs.ErrNotExist},
		{"rename to below nothing", v.Rename("d/a", "none/x"), fs.ErrNotExist},
		{"rename into itself", v.Rename("d", "d/x"), syscall.EINVAL},
		{"link nothing", v.Link("none", "x"), fs.ErrNotExist},
		{"link a directory", v.Link("d", "x"), syscall.EPERM},
		{"link onto a directory", v.Link("d/a", "d"), fs.ErrExist},
		{"lstat nothing", lstat("none"), fs.ErrNotExist},
		{"lstat below a file", lstat("d/a/b"), syscall.ENOTDIR},
		{"list nothing", list("none"), fs.ErrNotExist},
		{"list a file", list("d/a"), syscall.ENOTDIR},
		{"sync nothing", v.SyncDir("none"), fs.ErrNotExist},
		{"sync a file's names", v.SyncDir("d/a"), syscall.ENOTDIR},
		{"lock nothing", lock("none"), fs.ErrNotExist},
		{"lock a directory", lock("d"), syscall.EISDIR},
	}
	for _, c := range cases {
		wants(t, c.what, c.got, c.want)
	}
	must(t, v.Remove("d/a"))
	must(t, v.Remove("d"))
	wants(t, "lstat a removed directory", lstat("d"), fs.ErrNotExist)
}

func conformRenameFile(t *testing.T, v vfs.FS) {
	f := put(t, v, "a", "old")
	touch(t, v, "b", "target")
	must(t, v.Rename("a", "b"))
	if _, err := f.WriteAt([]byte("new!"), 0); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
	if got := get(t, v, "b"); got != "new!" {
		t.Errorf("b holds %q: a handle opened before a rename stays with its file", got)
	}
	_, err := v.Lstat("a")
	wants(t, "the old name", err, fs.ErrNotExist)
	must(t, v.Rename("b", "b"))
	must(t, v.Mkdir("d"))
	wants(t, "a file onto an empty directory", v.Rename("b", "d"), syscall.EISDIR)
	must(t, v.Rename("b", "d/c"))
	if got := get(t, v, "d/c"); got != "new!" {
		t.Errorf("d/c holds %q", got)
	}
}

func conformRenameDir(t *testing.T, v vfs.FS) {
	for _, dir := range []string{"full", "empty", "from", "from/sub"} {
		must(t, v.Mkdir(dir))
	}
	touch(t, v, "full/x", "")
	f := put(t, v, "from/sub/a", "one")
	before, err := v.Lstat("from")
	must(t, err)
	wants(t, "onto a full directory", v.Rename("from", "full"), syscall.ENOTEMPTY)
	wants(t, "onto a file", v.Rename("from", "full/x"), syscall.ENOTDIR)
	must(t, v.Rename("from", "empty"))
	after, err := v.Lstat("empty")
	must(t, err)
	if after.Inode != before.Inode || after.Type != vfs.TypeDir {
		t.Errorf("after the rename: %+v, before: %+v", after, before)
	}
	if _, err := f.WriteAt([]byte("two"), 0); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
	if got := get(t, v, "empty/sub/a"); got != "two" {
		t.Errorf("the moved file holds %q", got)
	}
	_, err = v.Open("from/sub/a", 0)
	wants(t, "the old path", err, fs.ErrNotExist)
}

func conformLink(t *testing.T, v vfs.FS) {
	f := put(t, v, "a", "one")
	must(t, v.Link("a", "b"))
	touch(t, v, "c", "")
	wants(t, "link onto a file", v.Link("a", "c"), fs.ErrExist)
	a, err := v.Lstat("a")
	must(t, err)
	b, err := v.Lstat("b")
	must(t, err)
	if a != b || a.Nlink != 2 {
		t.Errorf("a = %+v, b = %+v", a, b)
	}
	must(t, v.Rename("a", "b")) // two names of one file: nothing happens
	must(t, v.Remove("a"))
	info, err := f.Stat()
	must(t, err)
	if info.Nlink != 1 {
		t.Errorf("after one Remove: %+v", info)
	}
	must(t, f.Close())
	if got := get(t, v, "b"); got != "one" {
		t.Errorf("b holds %q", got)
	}
}

func conformUnlinked(t *testing.T, v vfs.FS) {
	f := put(t, v, "a", "one")
	must(t, v.Remove("a"))
	info, err := f.Stat()
	must(t, err)
	if info.Nlink != 0 || info.Size != 3 {
		t.Errorf("Stat = %+v", info)
	}
	if _, err := f.WriteAt([]byte("two"), 3); err != nil {
		t.Error(err)
	}
	p := make([]byte, 6)
	if _, err := f.ReadAt(p, 0); err != nil || string(p) != "onetwo" {
		t.Errorf("ReadAt = %q, %v", p, err)
	}
	touch(t, v, "a", "")
	other, err := v.Lstat("a")
	must(t, err)
	if other.Inode == info.Inode {
		t.Error("an open file's inode number is used again")
	}
	must(t, f.Sync())
	must(t, f.Close())
}

func conformReadDir(t *testing.T, v vfs.FS) {
	must(t, v.Mkdir("d"))
	for _, name := range []string{"b", "a", "B", "10", "9"} {
		touch(t, v, "d/"+name, "")
	}
	must(t, v.Mkdir("d/c"))
	got, err := v.ReadDir("d")
	must(t, err)
	want := []vfs.Entry{
		{Name: "10", Type: vfs.TypeFile}, {Name: "9", Type: vfs.TypeFile},
		{Name: "B", Type: vfs.TypeFile}, {Name: "a", Type: vfs.TypeFile},
		{Name: "b", Type: vfs.TypeFile}, {Name: "c", Type: vfs.TypeDir},
	}
	if !slices.Equal(got, want) {
		t.Errorf("ReadDir = %v, want %v", got, want)
	}
	if root, err := v.ReadDir("."); err != nil || len(root) != 1 {
		t.Errorf("ReadDir of the root = %v, %v", root, err)
	}
	if info, err := v.Lstat("."); err != nil || info.Type != vfs.TypeDir {
		t.Errorf("Lstat of the root = %+v, %v", info, err)
	}
}

func conformLocks(t *testing.T, v vfs.FS) {
	must(t, v.Mkdir("d"))
	touch(t, v, "d/a", "content")
	first, err := v.TryLock("d/a")
	must(t, err)
	_, err = v.TryLock("d/a")
	wants(t, "second TryLock", err, vfs.ErrLocked)

	must(t, v.Rename("d", "e"))
	_, err = v.TryLock("e/a")
	wants(t, "TryLock by the new name", err, vfs.ErrLocked)
	must(t, v.Mkdir("d"))
	touch(t, v, "d/a", "")
	other, err := v.TryLock("d/a") // another file by the old name
	must(t, err)
	must(t, other.Unlock())

	must(t, first.Unlock())
	again, err := v.TryLock("e/a")
	must(t, err)
	must(t, first.Unlock()) // a second time, it must not take the lock from others
	_, err = v.TryLock("e/a")
	wants(t, "TryLock after a stray Unlock", err, vfs.ErrLocked)
	must(t, again.Unlock())
	if got := get(t, v, "e/a"); got != "content" {
		t.Errorf("the locked file holds %q", got)
	}
}

func conformReplace(t *testing.T, v vfs.FS) {
	must(t, v.Mkdir("d"))
	for _, content := range []string{"first", "second, longer", "3"} {
		must(t, v.Replace("d/view", func(w io.Writer) error {
			_, err := io.Copy(w, strings.NewReader(content))
			return err
		}))
		if got := get(t, v, "d/view"); got != content {
			t.Errorf("the view holds %q, want %q", got, content)
		}
	}
	broken := errors.New("broken")
	err := v.Replace("d/view", func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, broken)
	})
	wants(t, "a failing writer", err, broken)
	if got := get(t, v, "d/view"); got != "3" {
		t.Errorf("after a failed Replace the view holds %q", got)
	}
	if entries, err := v.ReadDir("d"); err != nil || len(entries) != 1 {
		t.Errorf("temporaries stay behind: %v, %v", entries, err)
	}
	info, err := v.Lstat("d/view")
	must(t, err)
	if info.Mode|0o044 != 0o644 {
		t.Errorf("mode %o, want 644 less the umask", info.Mode)
	}
	err = v.Replace("none/view", func(io.Writer) error { return nil })
	wants(t, "Replace below nothing", err, fs.ErrNotExist)
	err = v.Replace("d", func(io.Writer) error { return nil })
	if err == nil {
		t.Error("Replace of a directory succeeds")
	}
}

func conformSpace(t *testing.T, fsys vfs.FS) {
	if s, err := fsys.Space(); err != nil || s.Free <= 0 || s.Left < s.Free {
		t.Errorf("there is room for %+v (%v)", s, err)
	}
}
