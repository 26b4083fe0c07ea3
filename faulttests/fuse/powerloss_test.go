// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
)

// lose takes the power, and with it all that was not synced.
func lose(t *testing.T, s *fuse.Share) {
	t.Helper()
	loss, err := s.PowerLoss(0)
	must(t, err)
	t.Logf("lost %+v", loss)
}

func wantGone(t *testing.T, s *fuse.Share, name string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(s.Dir(), name)); !os.IsNotExist(err) {
		t.Errorf("%s is there (%v)", name, err)
	}
}

func TestPowerLossOfData(t *testing.T) {
	s, m, c := oneMount(t)
	long := block("0") + block("0") + "end"
	for _, name := range []string{"plain", "fsync", "fdatasync", "dsync", "direct", "short", "longer", "failed", "rewritten"} {
		c.put(name, long, true)
	}
	open := func(name string, flags int) int { return c.open(name, unix.O_RDWR|flags) }
	c.write(open("plain", 0), 100, "new")
	for _, call := range []string{"fsync", "fdatasync"} {
		fd := open(call, 0)
		c.write(fd, 100, "new")
		c.onFile(call, fd)
	}
	c.write(open("dsync", unix.O_DSYNC), 100, "new")
	c.write(open("direct", unix.O_DSYNC|unix.O_DIRECT), 4096, block("1"))
	c.ok(order{Call: "truncate", FD: open("short", 0), Size: 10})
	c.write(open("longer", 0), 10_000, "new")

	// An fsync that failed once succeeds afterwards, and lies.
	fd := open("failed", 0)
	c.write(fd, 100, "new")
	again := open("rewritten", 0)
	c.write(again, 100, "new")
	r := m.Inject(fuse.Fault{Ops: fuse.Fsync, Times: 2, Err: unix.EIO})
	c.fails(order{Call: "fsync", FD: fd}, unix.EIO)
	c.fails(order{Call: "fsync", FD: again}, unix.EIO)
	r.Release()
	c.onFile("fsync", fd)
	c.write(again, 100, "new")
	c.onFile("fsync", again)

	if _, files := s.Unsynced(); files != 4 {
		t.Errorf("%d files are not synced, want 4", files)
	}
	lose(t, s)
	changed := long[:100] + "new" + long[103:]
	for name, want := range map[string]string{
		"plain": long, "short": long, "longer": long, "failed": long,
		"fsync": changed, "fdatasync": changed, "dsync": changed, "rewritten": changed,
		"direct": block("0") + block("1") + "end",
	} {
		if got, err := s.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes that differ, or %v", name, len(got), err)
		}
	}
}

func TestPowerLossOfNames(t *testing.T) {
	s, _, c := oneMount(t)
	for _, dir := range []string{"d", "e", "victim", "removed"} {
		c.onPath("mkdir", dir)
	}
	for _, file := range []string{"d/moved", "d/moved2", "d/over", "e/over", "d/unlinked", "d/unlinked2", "d/linked"} {
		c.put(file, file, true)
	}
	c.onPath("syncdir", "")

	c.onPath("mkdir", "newdir")
	c.put("newdir/synced", "x", true)
	fd := c.open("d/new", unix.O_CREAT|unix.O_RDWR)
	c.write(fd, 0, "content")
	c.onFile("fsync", fd)
	c.ok(order{Call: "rename", Path: "d/moved", To: "e/moved"})
	c.ok(order{Call: "rename", Path: "d/over", To: "e/over"})
	c.ok(order{Call: "link", Path: "d/linked", To: "d/link"})
	c.onPath("unlink", "d/unlinked")
	c.onPath("rmdir", "removed")
	c.onPath("mkdir", "dir")
	c.ok(order{Call: "rename", Path: "dir", To: "victim"})
	if names, _ := s.Unsynced(); names != 9 {
		t.Errorf("%d names are not synced, want 9", names)
	}
	lose(t, s)
	for _, gone := range []string{"newdir", "d/new", "e/moved", "d/link", "dir"} {
		wantGone(t, s, gone)
	}
	for _, file := range []string{"d/moved", "d/over", "e/over", "d/unlinked", "d/linked"} {
		wantFile(t, s, file, file)
	}
	for _, dir := range []string{"victim", "removed"} {
		c.onPath("list", dir)
	}
	if st := c.ok(order{Call: "stat", Path: "d/linked"}).Stat; st.Nlink != 1 {
		t.Errorf("%d links", st.Nlink)
	}

	c.ok(order{Call: "rename", Path: "d/moved2", To: "e/moved2"})
	c.put("d/temp", "temp", false)
	c.ok(order{Call: "rename", Path: "d/temp", To: "e/over"}) // needs that temp was made
	c.onPath("unlink", "d/unlinked2")
	c.onPath("syncdir", "d")
	lose(t, s)
	wantGone(t, s, "d/moved2")
	wantGone(t, s, "d/unlinked2")
	wantFile(t, s, "e/moved2", "d/moved2")
	wantFile(t, s, "e/over", "") // the name lasts, the content was never synced
}

// TestPowerLossLeavesMountsAlive: handles are stale, flocks are gone, and all
// else goes on.
func TestPowerLossLeavesMountsAlive(t *testing.T) {
	s, m, c := oneMount(t)
	c.put("a", "content", true)
	c.put("never", "", false)
	fd, lost := c.open("a", unix.O_RDWR), c.open("never", unix.O_RDWR)
	c.ok(order{Call: "flock", FD: fd, Flags: unix.LOCK_EX})
	hang := m.Inject(fuse.Fault{Ops: fuse.Write, Times: 1, Hang: true})
	late := c.begin(order{Call: "write", FD: fd, Data: []byte("late")})
	cluster.Await(t, cluster.Patience, "the write to hang", func() bool { return hang.Waiting() == 1 })
	lose(t, s)
	hang.Release()
	if a := <-late; a.Errno != unix.ESTALE {
		t.Errorf("a write that hung over a power loss: %v", a.Errno)
	}
	for _, call := range []order{{Call: "read", Size: 5}, {Call: "write", Data: []byte("x")}, {Call: "fsync"}, {Call: "truncate"}} {
		call.FD = fd
		c.fails(call, unix.ESTALE)
		call.FD = lost
		c.fails(call, unix.ESTALE)
	}
	c.fails(order{Call: "statx", FD: lost}, unix.ESTALE)
	c.fails(order{Call: "stat", Path: "never"}, unix.ENOENT)
	again := c.open("a", unix.O_RDWR)
	c.ok(order{Call: "flock", FD: again, Flags: unix.LOCK_EX | unix.LOCK_NB})
	c.onFile("close", fd) // the old lock's end takes nothing from the new one
	c.fails(order{Call: "flock", FD: c.open("a", unix.O_RDWR), Flags: unix.LOCK_EX | unix.LOCK_NB}, unix.EAGAIN)
	c.write(again, 0, "C")
	wantFile(t, s, "a", "Content")
	c.put("never", "now", true)
}

// TestPowerLossByChance: some survives, some does not, some is torn; what was
// synced is whole.
func TestPowerLossByChance(t *testing.T) {
	const n = 64
	s, _, c := oneMount(t)
	c.put("data", strings.Repeat(block("a"), n), true)
	c.write(c.open("data", unix.O_RDWR), 0, strings.Repeat(block("b"), n))
	c.onPath("mkdir", "d")
	for i := range n {
		c.put(fmt.Sprintf("d/synced%d", i), "", false)
	}
	c.onPath("syncdir", "d")
	c.onPath("syncdir", "")
	for i := range n {
		c.put(fmt.Sprintf("d/created%d", i), "", false)
		c.ok(order{Call: "rename", Path: fmt.Sprintf("d/synced%d", i), To: fmt.Sprintf("renamed%d", i)})
	}
	loss, err := s.PowerLoss(0.5)
	must(t, err)
	t.Logf("lost %+v", loss)
	if loss.Torn == 0 || loss.Pages == 0 || loss.Torn+loss.Pages == n || loss.Names == 0 || loss.Names == 2*n {
		t.Errorf("with chance one half, of %d pages and %d names a power loss took %+v", n, 2*n, loss)
	}
	data, err := s.ReadFile("data")
	must(t, err)
	kinds := map[string]int{}
	for i := 0; i < len(data); i += 512 {
		kinds[string(data[i:i+512])]++
	}
	if len(kinds) != 2 || kinds[block("a")[:512]]+kinds[block("b")[:512]] != 8*n {
		t.Errorf("%d kinds of sectors", len(kinds))
	}
	names := strings.Join(c.ok(order{Call: "list", Path: "d"}).Names, " ") + " " + strings.Join(c.ok(order{Call: "list"}).Names, " ") + " "
	for i := range n {
		old, renamed := strings.Contains(names, fmt.Sprintf("synced%d ", i)), strings.Contains(names, fmt.Sprintf("renamed%d ", i))
		if old == renamed {
			t.Errorf("file %d has its old name: %v, its new one: %v", i, old, renamed)
		}
	}
}
