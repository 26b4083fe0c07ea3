// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"crypto/rand"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestProtectedFileNamesStayInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		for _, name := range []cluster.FileName{
			"", ".", "..", "/etc/passwd", "../CLUSTER", "a/../../CLUSTER", "a//b", "a/", "./a", "a/./b", "a\\b", "a\nb", "a\x00b",
			cluster.FileName(strings.Repeat("x", 256)), cluster.FileName(strings.Repeat("x/", 300) + "x"),
		} {
			before := x.host.Calls()
			if _, err := x.r.AdoptProtected(name); err == nil {
				t.Errorf("adopted %q", name)
			}
			if _, err := x.r.OpenProtected(name); err == nil {
				t.Errorf("opened %q", name)
			}
			if x.host.Calls() != before {
				t.Errorf("%q reached the filesystem", name)
			}
		}
	})
}

func TestProtectedFileIsMadeDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		f, err := x.r.AdoptProtected("deep/er/f")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.DurableClone(nil).ReadFile("files/deep/er/f"); err != nil {
			t.Errorf("after a power loss: %v", err)
		}
		if err := f.WriteAt([]byte("hello"), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Datasync(); err != nil {
			t.Fatal(err)
		}
		if b, _ := d.DurableClone(nil).ReadFile("files/deep/er/f"); string(b) != "hello" {
			t.Errorf("after a power loss it holds %q", b)
		}
		crc, err := f.CRC(0, 5)
		if size, sizeErr := f.Size(); size != 5 || errors.Join(err, sizeErr) != nil || crc != crc32.Checksum([]byte("hello"), crc32.MakeTable(crc32.Castagnoli)) {
			t.Errorf("size %d, sum %08x, %v", size, crc, err)
		}
		if _, err := f.CRC(0, 6); !errors.Is(err, volume.ErrForeign) {
			t.Errorf("the sum of more than there is: %v", err)
		}
		again, err := x.r.AdoptProtected("deep/er/f")
		if err != nil || again.Inode() != f.Inode() || again.Made() || !f.Made() {
			t.Errorf("adopted again: %v; made %t, before that %t", err, again.Made(), f.Made())
		}
		x.r.End(errors.New("a test")) //nolint:errcheck // it returns the cause
		if err := f.WriteAt([]byte("late"), 5); !errors.Is(err, volume.ErrDeposed) {
			t.Errorf("write in the name of an ended term: %v", err)
		}
	})
}

func TestProtectedFileIsRefusedWhere(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*volumetest.Disk) error
		want   error
	}{
		{"its name is free", func(d *volumetest.Disk) error { return d.Remove("files/dir/f") }, volume.ErrMoved},
		{"it is a directory", func(d *volumetest.Disk) error {
			return errors.Join(d.Remove("files/dir/f"), d.Mkdir("files/dir/f"))
		}, volume.ErrForeign},
		{"it is a special file", func(d *volumetest.Disk) error {
			return errors.Join(d.Remove("files/dir/f"), d.MakeSpecial("files/dir/f"))
		}, volume.ErrForeign},
		{"it has a second name", func(d *volumetest.Disk) error {
			return host(d, 8).Link("files/dir/f", "files/dir/g")
		}, volume.ErrForeign},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			f, err := x.r.AdoptProtected("dir/f")
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Verify(); err != nil {
				t.Fatalf("before: %v", err)
			}
			if err := test.change(d); err != nil {
				t.Fatal(err)
			}
			if _, err := x.r.OpenProtected("dir/f"); !errors.Is(err, test.want) {
				t.Errorf("open: %v", err)
			}
			if err := f.Verify(); !errors.Is(err, volume.ErrMoved) && !errors.Is(err, volume.ErrForeign) {
				t.Errorf("verify of the open file: %v", err)
			}
			if test.want == volume.ErrForeign {
				if _, err := x.r.AdoptProtected("dir/f"); err == nil {
					t.Error("it was adopted")
				}
			}
			if x.r.Err() != nil {
				t.Errorf("a protected file ended the term: %v", x.r.Err())
			}
		})
	}
}

func TestParentOfAProtectedFileMustBeADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		if err := d.Write("files/dir", 0, []byte("a file")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.r.AdoptProtected("dir/f"); !errors.Is(err, volume.ErrForeign) {
			t.Errorf("got %v", err)
		}
	})
}

// TestProtectedFilesOfTheOperatingSystem shows the same with the real thing:
// symbolic links in every place, hard links and pipes.
func TestProtectedFilesOfTheOperatingSystem(t *testing.T) {
	root := t.TempDir()
	fsys, err := osfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // a test's
	if _, err := volume.Init(t.Context(), fsys, members(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	v, err := volume.Open(fsys, volume.Options{Server: 1, Random: rand.Reader, FirstSegment: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Claim(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	at := func(name string) string { return filepath.Join(root, "files", name) }
	if err := errors.Join(
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, at("link")),
		os.Symlink(filepath.Dir(secret), at("dirlink")),
		os.Symlink("/nowhere", at("dangling")),
		os.Mkdir(at("dir"), 0o755),
		os.Symlink("../../CLUSTER", at("dir/up")),
		os.WriteFile(at("one"), nil, 0o600),
		os.Link(at("one"), at("two")),
		syscall.Mkfifo(at("pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []cluster.FileName{"link", "dirlink/secret", "dirlink/new", "dangling", "dir/up", "one", "two", "pipe"} {
		if f, err := r.AdoptProtected(name); err == nil {
			t.Errorf("adopted %s", name)
			f.Close() //nolint:errcheck // the test has failed
		}
		if f, err := r.OpenProtected(name); err == nil {
			t.Errorf("opened %s", name)
			f.Close() //nolint:errcheck // the test has failed
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the secret is %q, %v", b, err)
	}
	for _, name := range []string{filepath.Join(filepath.Dir(secret), "new"), "/nowhere"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made", name)
		}
	}
	f, err := r.AdoptProtected("dir/ok")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WriteAt([]byte("x"), 0), f.Datasync(), f.Close(), r.Release(), v.Close()); err != nil {
		t.Error(err)
	}
}

// TestProtectedFileIsReadPastCaches: one server has the file in its page cache,
// another appends, and the first, which is primary again, must not believe its cache.
func TestProtectedFileIsReadPastCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		if _, err := initialise(d.Host(9, volumetest.ProfileNetwork())); err != nil {
			t.Fatal(err)
		}
		h := d.Host(1, volumetest.ProfileNetwork())
		if err := d.Write("files/f", 0, []byte("short")); err != nil {
			t.Fatal(err)
		}
		f, err := h.Open("files/f", vfs.FlagRead)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(make([]byte, 5), 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Write("files/f", 5, []byte(" and longer")); err != nil {
			t.Fatal(err)
		}
		v, err := open(h, 1)
		if err != nil {
			t.Fatal(err)
		}
		prepared, err := v.Prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := v.Claim(t.Context(), prepared)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.OpenProtected("f")
		if err != nil {
			t.Fatal(err)
		}
		crc, err := p.CRC(2, 14)
		if want := crc32.Checksum([]byte("ort and longer"), crc32.MakeTable(crc32.Castagnoli)); crc != want || err != nil {
			t.Errorf("the sum is %08x, want %08x: %v", crc, want, err)
		}
		b := make([]byte, 20)
		if n, err := p.ReadAt(b, 6); string(b[:n]) != "and longer" || !errors.Is(err, io.EOF) {
			t.Errorf("read %q, %v", b[:n], err)
		}
		if err := errors.Join(p.Close(), f.Close(), r.Release(), v.Close()); err != nil {
			t.Error(err)
		}
	})
}
