// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// twins are a share and the simulation's disk, to which the same is done.
type twins struct {
	c    *client
	disk *volumetest.Disk
	host *volumetest.Host
	rng  *rand.Rand
}

// TestAgainstTheSimulation does the same random calls on a mount and on the disk
// that the simulation of this project uses, takes the power from both, and
// compares what is left. The two share no code.
func TestAgainstTheSimulation(t *testing.T) {
	const seeds, losses, calls = 6, 10, 120
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s, _, c := oneMount(t)
			w := &twins{c: c, disk: volumetest.New(seed), rng: rand.New(rand.NewPCG(seed, 0))}
			for range losses {
				w.host = w.disk.Host(1, volumetest.ProfileLocal())
				for range calls {
					w.step(t)
				}
				compare(t, "before a power loss", tree(t, w.host), backing(t, s.Dir()))
				lose(t, s)
				w.disk.Crash(nil)
				compare(t, "after a power loss", tree(t, w.disk.Host(1, volumetest.ProfileLocal())), backing(t, s.Dir()))
				if t.Failed() {
					return
				}
			}
		})
	}
}

// name draws a path, in few directories, so that calls meet.
func (w *twins) name() string {
	return [...]string{"", "d/", "e/", "d/f/"}[w.rng.IntN(4)] + [...]string{"a", "b", "c", "d", "e", "f"}[w.rng.IntN(6)]
}

// step does one random thing to both.
func (w *twins) step(t *testing.T) {
	t.Helper()
	name, to := w.name(), w.name()
	var want error
	var got syscall.Errno
	what := w.rng.IntN(9)
	switch what {
	case 0:
		want, got = w.host.Mkdir(name), w.c.do(order{Call: "mkdir", Path: name}).Errno
	case 1, 2:
		// A kernel that finds out only in a rename that a directory was moved
		// behind its back, by the power loss, refuses it with ESTALE.
		w.c.do(order{Call: "stat", Path: name})
		w.c.do(order{Call: "stat", Path: to})
		want, got = w.host.Rename(name, to), w.c.do(order{Call: "rename", Path: name, To: to}).Errno
	case 3:
		want, got = w.host.Link(name, to), w.c.do(order{Call: "link", Path: name, To: to}).Errno
	case 4:
		want = w.host.Remove(name)
		if got = w.c.do(order{Call: "unlink", Path: name}).Errno; got == unix.EISDIR {
			got = w.c.do(order{Call: "rmdir", Path: name}).Errno
		}
	case 5:
		dir := path.Dir(name)
		want, got = w.host.SyncDir(dir), w.c.do(order{Call: "syncdir", Path: dir}).Errno
	default:
		got, want = w.write(name, what)
	}
	// Where there are two reasons to refuse, either may be told.
	if (want == nil) != (got == 0) {
		t.Fatalf("call %d of %s, %s: the simulation says %v, the mount %v", what, name, to, want, got)
	}
}

// write writes a random piece: to an old file or a new one, synced or not.
func (w *twins) write(name string, what int) (syscall.Errno, error) {
	flag, flags := vfs.FlagWrite, unix.O_RDWR
	if what == 6 {
		flag, flags = vfs.FlagCreate, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL
	}
	f, want := w.host.Open(name, flag)
	a := w.c.do(order{Call: "open", Path: name, Flags: flags})
	if want != nil || a.Errno != 0 {
		return a.Errno, want
	}
	data := make([]byte, w.rng.IntN(9000))
	for i := range data {
		data[i] = byte(w.rng.Int())
	}
	off := w.rng.Int64N(20_000)
	_, want = f.WriteAt(data, off)
	got := w.c.do(order{Call: "write", FD: a.FD, Off: off, Data: data}).Errno
	if w.rng.IntN(3) == 0 {
		want = errors.Join(want, f.Datasync())
		got |= w.c.do(order{Call: "fdatasync", FD: a.FD}).Errno
	}
	want = errors.Join(want, f.Close())
	return got | w.c.do(order{Call: "close", FD: a.FD}).Errno, want
}

// tree is a volume's files, and its directories as names with a slash.
func tree(t *testing.T, v vfs.FS) map[string]string {
	t.Helper()
	out := make(map[string]string)
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := v.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name)
			if e.Type == vfs.TypeDir {
				out[name+"/"] = ""
				walk(name)
				continue
			}
			f, err := v.Open(name, vfs.FlagRead)
			must(t, err)
			content, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
			must(t, errors.Join(err, f.Close()))
			out[name] = string(content)
		}
	}
	walk(".")
	return out
}

// backing is the same of a directory.
func backing(t *testing.T, root string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	must(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(root, name)
		if err = errors.Join(err, relErr); err != nil || rel == "." {
			return err
		}
		if d.IsDir() {
			out[rel+"/"] = ""
			return nil
		}
		content, err := os.ReadFile(name)
		out[rel] = string(content)
		return err
	}))
	return out
}

func compare(t *testing.T, when string, want, got map[string]string) {
	t.Helper()
	for name, content := range want {
		if has, is := got[name]; !is || has != content {
			t.Errorf("%s: %s is there: %v, with %d bytes; the simulation has %d", when, name, is, len(has), len(content))
		}
	}
	for name := range got {
		if _, is := want[name]; !is {
			t.Errorf("%s: %s is there, and not in the simulation", when, name)
		}
	}
}
