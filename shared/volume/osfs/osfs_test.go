// SPDX-License-Identifier: Apache-2.0

package osfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openers are the two sets of rules, both tried on whatever t.TempDir is on.
func openers() map[string]func(string) (*osfs.FS, error) {
	return map[string]func(string) (*osfs.FS, error){"as it is": osfs.Open, "as network": osfs.OpenNetwork}
}

// open makes a volume with the directory "d" and the file "d/f".
func open(t *testing.T, opener func(string) (*osfs.FS, error)) (*osfs.FS, string) {
	t.Helper()
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "d/f"), []byte("content"), 0o644))
	return attach(t, opener, root), root
}

func attach(t *testing.T, opener func(string) (*osfs.FS, error), root string) *osfs.FS {
	t.Helper()
	v, err := opener(root)
	must(t, err)
	t.Cleanup(func() { must(t, v.Close()) })
	return v
}

// A call that hangs while the volume is closed goes on in the volume's directory: the number of its descriptor is no
// other one's by then. No call begins after that, and nobody waits.
func TestCloseLeavesCallsTheirDirectory(t *testing.T) {
	root := t.TempDir()
	v, err := osfs.Open(root)
	must(t, err)
	arrived, goOn, ended := make(chan int), make(chan struct{}), make(chan error)
	go func() {
		ended <- v.InParent("f", func(dir int) error {
			arrived <- dir
			<-goOn
			return unix.Mkdirat(dir, "late", 0o755)
		})
	}()
	fd := <-arrived
	must(t, v.Close())
	for name, call := range map[string]func() error{
		"lstat":   func() error { _, err := v.Lstat("f"); return err },
		"root":    func() error { _, err := v.Lstat("."); return err },
		"mkdir":   func() error { return v.Mkdir("e") },
		"open":    func() error { _, err := v.Open("f", vfs.FlagRead); return err },
		"syncdir": func() error { return v.SyncDir(".") },
		"space":   func() error { _, err := v.Space(); return err },
	} {
		if err := call(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	elsewhere, err := os.Open(t.TempDir())
	must(t, err)
	defer elsewhere.Close() //nolint:errcheck // a directory's descriptor
	close(goOn)
	must(t, <-ended)
	if _, err := os.Lstat(filepath.Join(root, "late")); err != nil {
		t.Errorf("the call that hung went elsewhere: %v", err)
	}
	if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); to == root {
		t.Errorf("the root stays open: %v, %v", to, err)
	}
}

func TestConformance(t *testing.T) {
	for name, opener := range openers() {
		t.Run(name, func(t *testing.T) {
			volumetest.Conformance(t, func(t *testing.T) vfs.FS { return attach(t, opener, t.TempDir()) })
		})
	}
}

func TestSymbolicLinksAreRefused(t *testing.T) {
	v, root := open(t, osfs.Open)
	must(t, os.Symlink("d", filepath.Join(root, "inside")))
	must(t, os.Symlink("d/f", filepath.Join(root, "last")))
	must(t, os.Symlink(t.TempDir(), filepath.Join(root, "outside")))
	must(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	view := func(io.Writer) error { return nil }
	for _, name := range []string{"last", "inside/f", "outside/x", "dangling", "inside/../d/f"} {
		_, readErr := v.Open(name, vfs.FlagRead)
		_, writeErr := v.Open(name, vfs.FlagWrite|vfs.FlagDsync)
		_, lockErr := v.TryLock(name)
		for what, err := range map[string]error{"read": readErr, "write": writeErr, "lock": lockErr} {
			if !errors.Is(err, syscall.ELOOP) && !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
	}
	for _, dir := range []string{"inside", "outside"} {
		name := dir + "/new"
		_, createErr := v.Open(name, vfs.FlagCreate)
		_, listErr := v.ReadDir(dir)
		_, statErr := v.Lstat(name)
		for what, err := range map[string]error{
			"create": createErr, "readdir": listErr, "lstat": statErr, "syncdir": v.SyncDir(dir),
			"mkdir": v.Mkdir(name), "remove": v.Remove(dir + "/f"), "replace": v.Replace(name, view),
			"rename from": v.Rename(dir+"/f", "x"), "rename to": v.Rename("d/f", name),
			"link from": v.Link(dir+"/f", "x"), "link to": v.Link("d/f", name),
		} {
			if !errors.Is(err, syscall.ELOOP) {
				t.Errorf("%s through %s: %v", what, dir, err)
			}
		}
	}
	if _, err := v.Open("dangling", vfs.FlagCreate); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create through a dangling link: %v", err)
	}
	info, err := v.Lstat("last")
	if err != nil || info.Type != vfs.TypeOther {
		t.Errorf("Lstat of a link = %+v, %v", info, err)
	}
}

func TestSpecialFilesAreRefused(t *testing.T) {
	v, root := open(t, osfs.Open)
	must(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o644))
	for _, flag := range []vfs.Flag{vfs.FlagRead, vfs.FlagWrite} {
		// Would hang here for ever if the fifo could hold it.
		if _, err := v.Open("fifo", flag); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("open of a fifo: %v", err)
		}
	}
	if _, err := v.TryLock("fifo"); err == nil {
		t.Error("a fifo can be locked")
	}
	entries, err := v.ReadDir(".")
	must(t, err)
	if entries[1] != (vfs.Entry{Name: "fifo", Type: vfs.TypeOther}) {
		t.Errorf("ReadDir = %v", entries)
	}
}

func TestErrorsNameCallAndFile(t *testing.T) {
	v, _ := open(t, osfs.Open)
	_, err := v.Open("d/none", vfs.FlagRead)
	pathErr, ok := errors.AsType[*fs.PathError](err)
	if !ok || pathErr.Path != "d/none" || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("Open: %v", err)
	}
	linkErr, ok := errors.AsType[*os.LinkError](v.Rename("d/none", "x"))
	if !ok || linkErr.Old != "d/none" || linkErr.New != "x" || !errors.Is(linkErr, fs.ErrNotExist) {
		t.Errorf("Rename: %v", linkErr)
	}
}

func TestRootIsKeptWhenItsPathMoves(t *testing.T) {
	v, root := open(t, osfs.Open)
	moved := root + "-moved"
	must(t, os.Rename(root, moved))
	defer os.RemoveAll(moved)
	if _, err := v.Lstat("d/f"); err != nil {
		t.Errorf("after the root was moved: %v", err)
	}
	if _, err := v.TryLock("d/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock by a path that is gone: %v", err)
	}
	// Another directory takes the path: the lock must not be one of its files.
	must(t, os.MkdirAll(filepath.Join(root, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "d/f"), nil, 0o644))
	if _, err := v.TryLock("d/f"); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("lock of another file: %v", err)
	}
	lock, err := attach(t, osfs.Open, root).TryLock("d/f")
	must(t, err) // the wrong lock was let go
	must(t, lock.Unlock())
}

func TestLockBetweenTwoInstances(t *testing.T) {
	for name, opener := range openers() {
		t.Run(name, func(t *testing.T) {
			one, root := open(t, opener)
			two := attach(t, opener, root)
			lock, err := one.TryLock("d/f")
			must(t, err)
			if _, err := two.TryLock("d/f"); !errors.Is(err, vfs.ErrLocked) {
				t.Fatalf("two hold the lock: %v", err)
			}
			must(t, one.Rename("d", "e"))
			if _, err := two.TryLock("e/f"); !errors.Is(err, vfs.ErrLocked) {
				t.Errorf("after a rename two hold the lock: %v", err)
			}
			must(t, lock.Unlock())
			lock, err = two.TryLock("e/f")
			must(t, err)
			must(t, lock.Unlock())
		})
	}
}

func TestLockDoesNotCreate(t *testing.T) {
	v, _ := open(t, osfs.Open)
	if _, err := v.TryLock("d/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("TryLock: %v", err)
	}
	if _, err := v.Lstat("d/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock made its file: %v", err)
	}
}

// TestReplaceIsAtomic reads while views are replaced: each read sees one whole view.
func TestReplaceIsAtomic(t *testing.T) {
	v, root := open(t, osfs.Open)
	replace := func(letter byte) error {
		return v.Replace("d/view", func(w io.Writer) error {
			for range 1000 {
				if _, err := w.Write(bytes.Repeat([]byte{letter}, 100)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, replace('a'))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			content, err := os.ReadFile(filepath.Join(root, "d/view"))
			if err != nil || len(content) != 100_000 || strings.Count(string(content), string(content[:1])) != len(content) {
				t.Errorf("read %d bytes, %v", len(content), err)
				return
			}
		}
	})
	for letter := byte('b'); letter < 'z'; letter++ {
		if err := replace(letter); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
}

func TestDirectReadOfRaggedFile(t *testing.T) {
	v, _ := open(t, osfs.OpenNetwork)
	f, err := v.Open("d/f", vfs.FlagRead|vfs.FlagDirect)
	if errors.Is(err, syscall.EINVAL) {
		if !strings.Contains(err.Error(), "direct I/O") {
			t.Errorf("not explained: %v", err)
		}
		t.Skipf("no direct I/O here: %v", err)
	}
	must(t, err)
	defer f.Close()
	p := vfs.AlignedBuffer(2 * vfs.BlockSize)
	if n, err := f.ReadAt(p, 0); n != 7 || err != io.EOF || string(p[:n]) != "content" {
		t.Errorf("ReadAt = %d, %v", n, err)
	}
	if n, err := f.ReadAt(p, vfs.BlockSize); n != 0 || err != io.EOF {
		t.Errorf("ReadAt behind the end = %d, %v", n, err)
	}
}

// TestFlags asks the kernel what an open really asked for.
func TestFlags(t *testing.T) {
	const marks = unix.O_DIRECT | unix.O_DSYNC | unix.O_NONBLOCK | unix.O_ACCMODE
	for _, c := range []struct {
		flag           vfs.Flag
		local, network int
	}{
		{vfs.FlagRead, unix.O_RDONLY, unix.O_RDONLY},
		{vfs.FlagWrite, unix.O_RDWR, unix.O_RDWR},
		{vfs.FlagWrite | vfs.FlagDsync, unix.O_RDWR, unix.O_RDWR | unix.O_DSYNC},
		{vfs.FlagDirect, unix.O_RDONLY, unix.O_RDONLY | unix.O_DIRECT | unix.O_DSYNC},
	} {
		for name, opener := range openers() {
			v, root := open(t, opener)
			f, err := v.Open("d/f", c.flag)
			must(t, err)
			want := c.local
			if v.Kind().Network {
				want = c.network
			}
			if got := flagsOf(t, filepath.Join(root, "d/f")) & marks; got != want {
				t.Errorf("%s, flag %d: opened with %#o, want %#o", name, c.flag, got, want)
			}
			must(t, f.Close())
		}
	}
}

// flagsOf finds this process's descriptor of a file and returns its flags.
func flagsOf(t *testing.T, path string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != path {
			continue
		}
		var fd int
		for _, digit := range filepath.Base(link) {
			fd = fd*10 + int(digit-'0')
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		must(t, err)
		return flags
	}
	t.Fatalf("no descriptor of %s", path)
	return 0
}

func TestNothingLeaksDescriptors(t *testing.T) {
	v, root := open(t, osfs.Open)
	must(t, os.Symlink("f", filepath.Join(root, "d/link")))
	must(t, unix.Mkfifo(filepath.Join(root, "d/fifo"), 0o644))
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	before := count()
	for range 20 {
		for _, name := range []string{"d/f", "d/link", "d/fifo", "d", "d/f/x", "none/x"} {
			if f, err := v.Open(name, vfs.FlagWrite); err == nil {
				must(t, f.Close())
			}
			if l, err := v.TryLock(name); err == nil {
				must(t, l.Unlock())
			}
			_, _ = v.ReadDir(name)
			_ = v.SyncDir(name)
			_ = v.Rename(name, name+"/x")
			_ = v.Replace(name+"/x", func(io.Writer) error { return nil })
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestOpenRefusesWhatIsNoDirectory(t *testing.T) {
	_, root := open(t, osfs.Open)
	if _, err := osfs.Open(filepath.Join(root, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing root: %v", err)
	}
	if _, err := osfs.Open(filepath.Join(root, "d/f")); err == nil {
		t.Error("a file is opened as root")
	}
}

// TestUnchangedSinceItWasMade: an empty file that was written, cut or moved is told from one that
// is as it was made, where the filesystem knows when that was.
func TestUnchangedSinceItWasMade(t *testing.T) {
	v, root := open(t, osfs.Open)
	name := filepath.Join(root, "d/new")
	unchanged := func() bool {
		f, err := v.Open("d/new", vfs.FlagWrite)
		must(t, err)
		defer f.Close()
		info, err := f.Stat()
		must(t, err)
		return info.Unchanged
	}
	for what, change := range map[string]func(){
		"cut":   func() { must(t, os.Truncate(name, 0)) },
		"moved": func() { must(t, errors.Join(os.Rename(name, name+".1"), os.Rename(name+".1", name))) },
	} {
		f, err := v.Open("d/new", vfs.FlagCreate)
		must(t, err)
		must(t, errors.Join(f.Sync(), v.SyncDir("d"), f.Close()))
		if !unchanged() {
			t.Skip("this filesystem does not know when a file was made")
		}
		if what == "cut" {
			must(t, os.WriteFile(name, []byte("content"), 0o644))
			if unchanged() {
				t.Error("a file that is not empty is as it was made")
			}
		}
		for until := time.Now().Add(10 * time.Second); ; { // the clock of some filesystems ticks slowly
			change()
			if !unchanged() {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("a file that was %s is as it was made", what)
			}
		}
		must(t, os.Remove(name))
	}
	network := attach(t, osfs.OpenNetwork, root)
	f, err := network.Open("d/new", vfs.FlagCreate)
	must(t, err)
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Unchanged {
		t.Errorf("on a network filesystem: %+v, %v", info, err)
	}
}
