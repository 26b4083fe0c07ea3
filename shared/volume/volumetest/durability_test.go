// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

const seeds = 400

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, v vfs.FS, name string, flag vfs.Flag) vfs.File {
	t.Helper()
	f, err := v.Open(name, flag)
	must(t, err)
	return f
}

func write(t *testing.T, f vfs.File, off int64, content string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(content), off); err != nil {
		t.Fatal(err)
	}
}

// local is a disk with one host and a synced file "f" holding content.
func local(t *testing.T, content string) (*volumetest.Disk, *volumetest.Host, vfs.File) {
	t.Helper()
	d := volumetest.New(1)
	must(t, d.Write("f", 0, []byte(content)))
	h := d.Host(1, volumetest.ProfileLocal())
	return d, h, open(t, h, "f", vfs.FlagWrite)
}

// names lists what is there in one string.
func names(d *volumetest.Disk) string {
	return strings.Join(slices.Sorted(maps.Keys(d.Snapshot())), " ")
}

// outcomes counts what a power loss leaves, over many of them.
func outcomes(d *volumetest.Disk, describe func(*volumetest.Disk) string) map[string]int {
	seen := make(map[string]int)
	for seed := range uint64(seeds) {
		seen[describe(d.DurableClone(rand.New(rand.NewPCG(seed, 7))))]++
	}
	return seen
}

func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, h *volumetest.Host)
		want map[string]string
	}{
		{"nothing synced", func(t *testing.T, h *volumetest.Host) {
			write(t, open(t, h, "a", vfs.FlagCreate), 0, "x")
		}, map[string]string{}},
		{"content without name", func(t *testing.T, h *volumetest.Host) {
			f := open(t, h, "a", vfs.FlagCreate)
			write(t, f, 0, "x")
			must(t, f.Sync())
		}, map[string]string{}},
		{"name without content", func(t *testing.T, h *volumetest.Host) {
			write(t, open(t, h, "a", vfs.FlagCreate), 0, "x")
			must(t, h.SyncDir("."))
		}, map[string]string{"a": ""}},
		{"both", func(t *testing.T, h *volumetest.Host) {
			f := open(t, h, "a", vfs.FlagCreate)
			write(t, f, 0, "x")
			must(t, f.Datasync())
			must(t, h.SyncDir("."))
			write(t, f, 1, "y")
		}, map[string]string{"a": "x"}},
		{"in a directory without a name", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Mkdir("d"))
			must(t, open(t, h, "d/a", vfs.FlagCreate).Close())
			must(t, h.SyncDir("d"))
		}, map[string]string{}},
		{"local O_DSYNC and O_DIRECT change nothing", func(t *testing.T, h *volumetest.Host) {
			f := open(t, h, "a", vfs.FlagCreate|vfs.FlagDsync|vfs.FlagDirect)
			must(t, h.SyncDir("."))
			write(t, f, 0, "x")
		}, map[string]string{"a": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := volumetest.New(1)
			c.do(t, d.Host(1, volumetest.ProfileLocal()))
			clone := d.DurableClone(nil)
			d.Crash(nil)
			for _, disk := range []*volumetest.Disk{clone, d} {
				got := make(map[string]string)
				for name, content := range disk.Files("") {
					got[name] = string(content)
				}
				if !maps.Equal(got, c.want) {
					t.Errorf("left: %q, want %q", got, c.want)
				}
			}
		})
	}
}

func TestPowerLossTearsBetweenSectorsOnly(t *testing.T) {
	const sector = 512
	d, _, f := local(t, strings.Repeat("0", 4*sector))
	write(t, f, 0, strings.Repeat("1", 4*sector))
	write(t, f, 0, strings.Repeat("2", 4*sector))
	seen := outcomes(d, func(d *volumetest.Disk) string {
		content := d.Files("f")["f"]
		var out strings.Builder
		for part := range slices.Chunk(content, sector) {
			if !bytes.Equal(part, bytes.Repeat(part[:1], sector)) {
				t.Fatal("a sector is torn")
			}
			out.WriteByte(part[0])
		}
		return out.String()
	})
	for _, want := range []string{"0000", "2222"} {
		if seen[want] == 0 {
			t.Errorf("never left %s", want)
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d mixtures of sectors: %v", len(seen), seen)
	}
	if !strings.Contains(fmt.Sprint(seen), "1") {
		t.Error("no version between the syncs ever survives")
	}
}

func TestPowerLossShortensUnsyncedGrowth(t *testing.T) {
	d, _, f := local(t, "old")
	write(t, f, 3, strings.Repeat("n", 6000))
	seen := outcomes(d, func(d *volumetest.Disk) string {
		content := d.Files("f")["f"]
		if len(content) < 3 || string(content[:3]) != "old" {
			t.Fatalf("synced bytes are lost: %d bytes left", len(content))
		}
		if rest := bytes.Trim(content[3:], "n\x00"); len(rest) > 0 {
			t.Fatalf("foreign bytes %q", rest)
		}
		return fmt.Sprint(len(content), " ", bytes.Count(content, []byte("n")))
	})
	if seen["3 0"] == 0 || seen["6003 6000"] == 0 || len(seen) < 10 {
		t.Errorf("left (size, bytes): %v", seen)
	}
}

func TestPowerLossKeepsRenamesWhole(t *testing.T) {
	setup := func(t *testing.T) (*volumetest.Disk, *volumetest.Host) {
		d := volumetest.New(1)
		must(t, d.Write("x/a", 0, []byte("a")))
		must(t, d.Write("y/b", 0, []byte("b")))
		return d, d.Host(1, volumetest.ProfileLocal())
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, h *volumetest.Host)
		want []string // all that may be left, and each must be at times
	}{
		{"one", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Rename("x/a", "y/a"))
		}, []string{"x x/a y y/b", "x y y/a y/b"}},
		{"chain", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Rename("x/a", "y/a"))
			must(t, h.Rename("y/a", "x/c"))
		}, []string{"x x/a y y/b", "x y y/a y/b", "x x/c y y/b"}},
		{"directory", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Rename("x", "y/x"))
		}, []string{"x x/a y y/b", "y y/b y/x y/x/a"}},
		{"synced at its source", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Rename("x/a", "y/a"))
			must(t, h.SyncDir("x"))
		}, []string{"x y y/a y/b"}},
		{"synced at its target", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Rename("x/a", "y/a"))
			must(t, h.SyncDir("y"))
		}, []string{"x y y/a y/b"}},
		{"synced after a chain", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Rename("x/a", "x/c"))
			must(t, h.Rename("x/c", "y/c"))
			must(t, h.SyncDir("y"))
		}, []string{"x y y/b y/c"}},
		{"link and unlink are two", func(t *testing.T, h *volumetest.Host) {
			must(t, h.Link("x/a", "y/a"))
			must(t, h.Remove("x/a"))
		}, []string{"x x/a y y/b", "x x/a y y/a y/b", "x y y/a y/b", "x y y/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, h := setup(t)
			c.do(t, h)
			seen := outcomes(d, names)
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("left: %q, want %q", got, c.want)
			}
		})
	}
}

func TestPowerLossUndoesRenameOver(t *testing.T) {
	d, h, f := local(t, "old")
	temp := open(t, h, "temp", vfs.FlagCreate)
	write(t, temp, 0, "new")
	must(t, temp.Sync())
	must(t, h.Rename("temp", "f"))
	must(t, f.Close())
	seen := outcomes(d, func(d *volumetest.Disk) string { return string(d.Files("f")["f"]) })
	if len(seen) != 2 || seen["old"] == 0 || seen["new"] == 0 {
		t.Errorf("f holds: %v", seen)
	}
}

func TestPowerLossIsRepeatable(t *testing.T) {
	d, h, f := local(t, "old")
	for i := range 50 {
		write(t, f, int64(i*3000), strings.Repeat("x", 2000))
		must(t, open(t, h, fmt.Sprint("n", i), vfs.FlagCreate).Close())
	}
	before := d.Snapshot()
	one := d.DurableClone(rand.New(rand.NewPCG(3, 3))).Snapshot()
	two := d.DurableClone(rand.New(rand.NewPCG(3, 3))).Snapshot()
	if !maps.Equal(one, two) {
		t.Error("the same random source leaves something else")
	}
	if !maps.Equal(before, d.Snapshot()) {
		t.Error("DurableClone changes the disk")
	}
	if !maps.Equal(before, d.Clone().Snapshot()) {
		t.Error("Clone differs from the visible state")
	}
	if !maps.Equal(before, d.Clone().DurableClone(nil).Snapshot()) {
		t.Error("Clone is not durable")
	}
	write(t, f, 0, "later")
	if got := d.Clone().Snapshot(); maps.Equal(before, got) {
		t.Error("Snapshot does not see a change")
	}
}

func TestCrashEndsAllHosts(t *testing.T) {
	d, h, f := local(t, "old")
	other := d.Host(2, volumetest.ProfileNetwork())
	if _, err := h.TryLock("f"); err != nil {
		t.Fatal(err)
	}
	d.Crash(d.Rand())
	_, err := f.Stat()
	_, err2 := other.Lstat("f")
	for _, err := range []error{err, err2, f.Close(), h.Mkdir("d"), other.Rename("f", "g")} {
		if !errors.Is(err, volumetest.ErrCrashed) {
			t.Errorf("a dead host says %v", err)
		}
	}
	if _, err := d.Host(1, volumetest.ProfileLocal()).TryLock("f"); err != nil {
		t.Errorf("a dead host keeps its lock: %v", err)
	}
}

func TestInodeNumbersSurviveAndAreNeverReused(t *testing.T) {
	d, _, f := local(t, "old")
	before, err := f.Stat()
	must(t, err)
	d.Crash(nil)
	h := d.Host(1, volumetest.ProfileLocal())
	after, err := h.Lstat("f")
	must(t, err)
	if before != after {
		t.Errorf("before %+v, after %+v", before, after)
	}
	must(t, h.Remove("f"))
	must(t, open(t, h, "f", vfs.FlagCreate).Close())
	fresh, err := h.Lstat("f")
	must(t, err)
	if fresh.Inode <= before.Inode {
		t.Errorf("inode %d after %d", fresh.Inode, before.Inode)
	}
}

func TestFailedSyncLosesItsPages(t *testing.T) {
	d, h, f := local(t, "old")
	write(t, f, 0, "new")
	h.SetHook(volumetest.AtOp(volumetest.OpSync, "", 1, volumetest.FailBefore(syscall.EIO)))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync: %v", err)
	}
	must(t, f.Sync())
	if got := string(d.DurableClone(nil).Files("")["f"]); got != "old" {
		t.Errorf("after a failed and a successful sync the disk holds %q", got)
	}
	write(t, f, 0, "two")
	must(t, f.Sync())
	if got := string(d.DurableClone(nil).Files("")["f"]); got != "two" {
		t.Errorf("after writing anew the disk holds %q", got)
	}
}

func TestCapacity(t *testing.T) {
	d, h, f := local(t, "old")
	d.SetCapacity(3 * 4096)
	n, err := f.WriteAt(make([]byte, 5*4096), 100)
	if n != 3*4096-100 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteAt = %d, %v", n, err)
	}
	write(t, f, 0, "rewriting needs no space")
	if _, err := h.Open("g", vfs.FlagCreate); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("create: %v", err)
	}
	must(t, h.Remove("f"))
	if d.Used() != 3*4096 {
		t.Errorf("an open file's space is gone: %d used", d.Used())
	}
	must(t, f.Close())
	if d.Used() != 0 {
		t.Errorf("%d bytes used by nothing", d.Used())
	}
	must(t, open(t, h, "g", vfs.FlagCreate).Close())
}

func TestReadOnly(t *testing.T) {
	d, h, f := local(t, "old")
	d.SetReadOnly(true)
	_, writeErr := f.WriteAt([]byte("x"), 0)
	_, openErr := h.Open("f", vfs.FlagWrite)
	_, createErr := h.Open("g", vfs.FlagCreate)
	_, lockErr := h.TryLock("f")
	for _, err := range []error{writeErr, openErr, createErr, lockErr,
		h.Mkdir("d"), h.Link("f", "g"), h.Rename("f", "g"), h.Remove("f")} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v, want EROFS", err)
		}
	}
	must(t, open(t, h, "f", vfs.FlagRead).Close())
}

func TestOperator(t *testing.T) {
	d := volumetest.New(1)
	must(t, d.Write("a/b/c", 5000, []byte("end")))
	must(t, d.Truncate("a/b/c", 5001))
	must(t, d.Truncate("a/b/c", 5003))
	if got, err := d.ReadFile("a/b/c"); err != nil || string(got[5000:]) != "e\x00\x00" {
		t.Errorf("ReadFile = %q, %v", got, err)
	}
	must(t, d.Rename("a/b", "x"))
	must(t, d.Mkdir("p/q"))
	must(t, d.MakeSpecial("p/link"))
	h := d.Host(1, volumetest.ProfileLocal())
	if _, err := h.Open("p/link", 0); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("open of something special: %v", err)
	}
	must(t, d.Remove("a"))
	if got := names(d.DurableClone(nil)); got != "p p/link p/q x x/c" {
		t.Errorf("left: %s", got)
	}
	must(t, d.Remove("x"))
	if err := d.Remove("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second Remove: %v", err)
	}
	if d.Used() != 0 {
		t.Errorf("%d bytes used by nothing", d.Used())
	}
}
