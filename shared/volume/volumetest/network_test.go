// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// twoHosts is a network filesystem with a synced file "f" holding "old".
func twoHosts(t *testing.T) (d *volumetest.Disk, a, b *volumetest.Host) {
	t.Helper()
	d = volumetest.New(1)
	must(t, d.Write("f", 0, []byte("old")))
	return d, d.Host(1, volumetest.ProfileNetwork()), d.Host(2, volumetest.ProfileNetwork())
}

// read opens a name and reads it through the caches.
func read(t *testing.T, v vfs.FS, name string, flag vfs.Flag) string {
	t.Helper()
	f, err := v.Open(name, flag)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	p := vfs.AlignedBuffer(vfs.BlockSize)
	n, err := f.ReadAt(p, 0)
	if err != io.EOF {
		t.Fatalf("ReadAt = %d, %v", n, err)
	}
	return string(p[:n])
}

// publish writes, syncs and closes.
func publish(t *testing.T, v vfs.FS, name string, flag vfs.Flag, content string) {
	t.Helper()
	f := open(t, v, name, flag)
	write(t, f, 0, content)
	must(t, f.Sync())
	must(t, f.Close())
}

// TestNaiveReaderIsLiedTo proves that the model has teeth: each naive way to
// look is wrong while the caches last and right when they have expired.
func TestNaiveReaderIsLiedTo(t *testing.T) {
	list := func(t *testing.T, v vfs.FS, name string) string {
		entries, err := v.ReadDir(name)
		must(t, err)
		var out []string
		for _, e := range entries {
			out = append(out, e.Name)
		}
		return strings.Join(out, " ")
	}
	there := func(t *testing.T, v vfs.FS, name string) string {
		_, err := v.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return "missing"
		}
		must(t, err)
		return "there"
	}
	for _, c := range []struct {
		name         string
		look         func(t *testing.T, v vfs.FS) string
		change       func(t *testing.T, v vfs.FS)
		stale, fresh string
	}{
		{"negative name", func(t *testing.T, v vfs.FS) string { return there(t, v, "g") },
			func(t *testing.T, v vfs.FS) { publish(t, v, "g", vfs.FlagCreate, "new") },
			"missing", "there"},
		{"positive name", func(t *testing.T, v vfs.FS) string { return there(t, v, "f") },
			func(t *testing.T, v vfs.FS) { must(t, v.Rename("f", "g")) },
			"there", "missing"},
		{"listing", func(t *testing.T, v vfs.FS) string { return list(t, v, ".") },
			func(t *testing.T, v vfs.FS) { must(t, v.Link("f", "g")) }, "f", "f g"},
		{"attributes", func(t *testing.T, v vfs.FS) string {
			info, err := v.Lstat("f")
			must(t, err)
			return strings.Repeat("x", int(info.Size))
		}, func(t *testing.T, v vfs.FS) { publish(t, v, "f", vfs.FlagWrite, "longer") },
			"xxx", "xxxxxx"},
		{"data", func(t *testing.T, v vfs.FS) string { return read(t, v, "f", vfs.FlagRead) },
			func(t *testing.T, v vfs.FS) { publish(t, v, "f", vfs.FlagWrite, "new") },
			"old", "new"},
		{"rename over, the old file linked elsewhere",
			func(t *testing.T, v vfs.FS) string { return read(t, v, "f", vfs.FlagDirect) },
			func(t *testing.T, v vfs.FS) {
				must(t, v.Link("f", "backup"))
				publish(t, v, "temp", vfs.FlagCreate, "new")
				must(t, v.Rename("temp", "f"))
			}, "old", "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := twoHosts(t)
				if got := c.look(t, b); got != c.stale {
					t.Fatalf("before the change: %q, want %q", got, c.stale)
				}
				c.change(t, a)
				if got := c.look(t, a); got != c.fresh {
					t.Errorf("the host that made the change sees %q, want %q", got, c.fresh)
				}
				if got := c.look(t, b); got != c.stale {
					t.Errorf("the other host sees %q, the caches should still say %q", got, c.stale)
				}
				time.Sleep(volumetest.ProfileNetwork().Stale)
				if got := c.look(t, b); got != c.fresh {
					t.Errorf("after the caches expired: %q, want %q", got, c.fresh)
				}
			})
		})
	}
}

func TestDirectReadsDoNotLie(t *testing.T) {
	_, a, b := twoHosts(t)
	plain, direct := open(t, b, "f", vfs.FlagRead), open(t, b, "f", vfs.FlagDirect)
	p := vfs.AlignedBuffer(vfs.BlockSize)
	at := func(f vfs.File) string {
		n, err := f.ReadAt(p, 0)
		if err != io.EOF {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	if at(plain) != "old" || at(direct) != "old" {
		t.Fatal("cannot read")
	}
	publish(t, a, "f", vfs.FlagWrite, "newer")
	if got := at(plain); got != "old" {
		t.Errorf("a plain read sees %q", got)
	}
	if got := at(direct); got != "newer" {
		t.Errorf("a direct read sees %q", got)
	}
	info, err := plain.Stat()
	must(t, err)
	if info.Size != 5 {
		t.Errorf("Stat of an open file: %+v", info)
	}
	must(t, a.Remove("f"))
	if info, err = plain.Stat(); err != nil || info.Nlink != 0 {
		t.Errorf("Stat after an unlink elsewhere: %+v, %v", info, err)
	}
	b.DropCaches()
	if got := read(t, b, "f", vfs.FlagRead); !strings.Contains(got, "no such file") {
		t.Errorf("with cold caches: %q", got)
	}
}

func TestServerDecidesNames(t *testing.T) {
	_, a, b := twoHosts(t)
	if _, err := b.Lstat("g"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	must(t, a.Mkdir("g"))
	if err := b.Mkdir("g"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Mkdir: %v", err)
	}
	if _, err := b.Lstat("g"); err != nil {
		t.Errorf("after EEXIST the name is looked up again: %v", err)
	}
	must(t, a.Rename("g", "h"))
	if err := b.Rename("g", "i"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Rename: %v", err)
	}
	must(t, b.Rename("h", "g"))
}

func TestRemovedFileIsLookedUpAgain(t *testing.T) {
	_, a, b := twoHosts(t)
	if got := read(t, b, "f", vfs.FlagRead); got != "old" {
		t.Fatal(got)
	}
	must(t, a.Remove("f"))
	if got := read(t, b, "f", vfs.FlagRead); !strings.Contains(got, "no such file") {
		t.Errorf("a file that is nowhere any more: %q", got)
	}
	publish(t, a, "f", vfs.FlagCreate, "new")
	must(t, a.Remove("f"))
}

func TestWriteBack(t *testing.T) {
	for _, c := range []struct {
		name             string
		flag             vfs.Flag
		end              func(h *volumetest.Host, f vfs.File) error
		visible, durable string
	}{
		{"plain", 0, nil, "old", "old"},
		{"close", 0, func(_ *volumetest.Host, f vfs.File) error { return f.Close() }, "new", "old"},
		{"sync", 0, func(_ *volumetest.Host, f vfs.File) error { return f.Sync() }, "new", "new"},
		{"datasync", 0, func(_ *volumetest.Host, f vfs.File) error { return f.Datasync() }, "new", "new"},
		{"kill", 0, func(h *volumetest.Host, _ vfs.File) error { h.Kill(); return nil }, "new", "old"},
		{"power off", 0, func(h *volumetest.Host, _ vfs.File) error { h.PowerOff(); return nil }, "old", "old"},
		{"dsync", vfs.FlagDsync, nil, "new", "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, a, _ := twoHosts(t)
			f := open(t, a, "f", vfs.FlagWrite|c.flag)
			write(t, f, 0, "new")
			if got := read(t, a, "f", vfs.FlagRead); got != "new" {
				t.Errorf("the writer sees %q", got)
			}
			if c.end != nil {
				must(t, c.end(a, f))
			}
			if got := string(d.Files("")["f"]); got != c.visible {
				t.Errorf("visible %q, want %q", got, c.visible)
			}
			if got := string(d.DurableClone(nil).Files("")["f"]); got != c.durable {
				t.Errorf("durable %q, want %q", got, c.durable)
			}
		})
	}
}

func TestPlainWritesCarryStaleNeighbours(t *testing.T) {
	for _, c := range []struct {
		name string
		flag vfs.Flag
		want string
	}{
		{"plain", vfs.FlagWrite, "oldold-b"},
		{"dsync", vfs.FlagWrite | vfs.FlagDsync, "a-dold-b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, a, b := twoHosts(t)
			must(t, d.Write("f", 0, []byte("oldoldold")[:8]))
			fa, fb := open(t, a, "f", c.flag), open(t, b, "f", c.flag)
			if _, err := fb.ReadAt(make([]byte, 1), 0); err != nil {
				t.Fatal(err)
			}
			write(t, fa, 0, "a-")
			must(t, fa.Sync())
			write(t, fb, 6, "-b")
			must(t, fb.Sync())
			if got := string(d.Files("")["f"]); got != c.want {
				t.Errorf("left %q, want %q", got, c.want)
			}
		})
	}
}

func TestDirectNeedsAlignment(t *testing.T) {
	_, a, _ := twoHosts(t)
	f := open(t, a, "f", vfs.FlagWrite|vfs.FlagDirect)
	buf := vfs.AlignedBuffer(2 * vfs.BlockSize)
	for _, c := range []struct {
		name string
		p    []byte
		off  int64
	}{
		{"offset", buf[:vfs.BlockSize], 512},
		{"length", buf[:512], 0},
		{"address", buf[8 : 8+vfs.BlockSize], 0},
	} {
		if _, err := f.ReadAt(c.p, c.off); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: ReadAt: %v", c.name, err)
		}
		if _, err := f.WriteAt(c.p, c.off); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: WriteAt: %v", c.name, err)
		}
	}
	if n, err := f.WriteAt(buf, vfs.BlockSize); n != len(buf) || err != nil {
		t.Errorf("aligned WriteAt = %d, %v", n, err)
	}
}

func TestFlushMeetsFullDisk(t *testing.T) {
	d, a, _ := twoHosts(t)
	f := open(t, a, "f", vfs.FlagWrite)
	d.SetCapacity(4096)
	write(t, f, 0, strings.Repeat("x", 5000))
	if err := f.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Sync: %v", err)
	}
	must(t, f.Close()) // the error was told once
}

func TestPowerOffLeavesLocksUntilNoticed(t *testing.T) {
	_, a, b := twoHosts(t)
	if _, err := a.TryLock("f"); err != nil {
		t.Fatal(err)
	}
	a.PowerOff()
	if _, err := b.TryLock("f"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("before the server noticed: %v", err)
	}
	a.LoseLocks()
	if _, err := b.TryLock("f"); err != nil {
		t.Errorf("after: %v", err)
	}
}
