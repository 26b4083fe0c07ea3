// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// block is one block of a letter, as O_DIRECT reads want it.
func block(letter string) string { return strings.Repeat(letter, vfs.BlockSize) }

// seen is what a process on one host saw, and then sees after another changed it.
type seen struct {
	missing, listed, removed, size, data bool // old ones
	direct, synced                       bool // O_DIRECT read, attributes after a sync with the share
}

// look has one process look, another change everything, and the first look again.
func look(t *testing.T, naive, other *client) (old seen) {
	t.Helper()
	other.onPath("mkdir", "d")
	other.put("d/a", block("a"), true)
	other.put("d/gone", "", true)
	other.put("d/short", "", true) // never read: the kernel asks for attributes after a read

	plain, direct := naive.open("d/a", unix.O_RDONLY), naive.open("d/a", unix.O_RDONLY|unix.O_DIRECT)
	naive.fails(order{Call: "stat", Path: "d/new"}, unix.ENOENT)
	naive.onPath("stat", "d/gone")
	naive.onPath("stat", "d/short")
	naive.onPath("list", "d")
	naive.read(plain, 0, vfs.BlockSize)
	naive.read(direct, 0, vfs.BlockSize)

	other.put("d/new", "", true)
	other.onPath("unlink", "d/gone")
	fd := other.open("d/a", unix.O_RDWR|unix.O_DSYNC)
	other.write(fd, 0, block("b")+block("b"))

	short := other.open("d/short", unix.O_RDWR|unix.O_DSYNC)
	other.write(short, 0, "longer")

	old.direct = naive.read(direct, 0, vfs.BlockSize) == block("a")
	old.missing = naive.do(order{Call: "stat", Path: "d/new"}).Errno == unix.ENOENT
	old.removed = naive.do(order{Call: "stat", Path: "d/gone"}).Errno == 0
	old.listed = !slices.Contains(naive.ok(order{Call: "list", Path: "d"}).Names, "new")
	old.size = naive.ok(order{Call: "stat", Path: "d/short"}).Stat.Size == 0
	old.data = naive.read(plain, 0, vfs.BlockSize) == block("a")
	old.synced = naive.ok(order{Call: "statx", FD: plain}).Stat.Size == vfs.BlockSize
	return old
}

func TestCaches(t *testing.T) {
	const long = 10 * time.Minute
	stale := seen{missing: true, listed: true, removed: true, size: true, data: true}
	lying := stale
	lying.direct = true
	for _, c := range []struct {
		name    string
		profile fuse.Profile
		want    seen
	}{
		{"strict", fuse.Strict(), seen{}},
		{"stale", fuse.Stale(long), stale},
		{"stale direct", fuse.StaleDirect(long), lying},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShare(t)
			naive := newClient(t, mount(t, s, c.profile))
			other := newClient(t, mount(t, s, c.profile))
			if old := look(t, naive, other); old != c.want {
				t.Errorf("old is %+v, want %+v", old, c.want)
			}
		})
	}
}

// TestCachesEnd: what is stale is so for the time of the profile.
func TestCachesEnd(t *testing.T) {
	s := newShare(t)
	naive := newClient(t, mount(t, s, fuse.StaleDirect(aWhile)))
	other := newClient(t, mount(t, s, fuse.Strict()))
	other.put("a", block("a"), true)
	plain, direct := naive.open("a", unix.O_RDONLY), naive.open("a", unix.O_RDONLY|unix.O_DIRECT)
	naive.fails(order{Call: "stat", Path: "new"}, unix.ENOENT)
	naive.read(plain, 0, vfs.BlockSize)
	naive.read(direct, 0, vfs.BlockSize)
	other.put("new", "", true)
	other.write(other.open("a", unix.O_RDWR|unix.O_DSYNC), 0, block("b"))
	for what, fresh := range map[string]func() bool{
		"a name":      func() bool { return naive.do(order{Call: "stat", Path: "new"}).Errno == 0 },
		"data":        func() bool { return naive.read(plain, 0, vfs.BlockSize) == block("b") },
		"direct data": func() bool { return naive.read(direct, 0, vfs.BlockSize) == block("b") },
	} {
		cluster.Await(t, cluster.Patience, what+" to become fresh", fresh)
	}
}

// TestInodes: numbers and link counts are the same on all hosts, and stay.
func TestInodes(t *testing.T) {
	s := newShare(t)
	one, two := newClient(t, mount(t, s, fuse.Strict())), newClient(t, mount(t, s, fuse.Strict()))
	one.put("a", "content", false)
	before := one.ok(order{Call: "stat", Path: "a"}).Stat
	one.ok(order{Call: "link", Path: "a", To: "b"})
	two.onPath("mkdir", "d")
	two.ok(order{Call: "rename", Path: "a", To: "d/c"})
	fd := two.open("d/c", unix.O_RDWR)
	for _, c := range []struct {
		remove string
		links  uint64
	}{{"", 2}, {"b", 1}, {"d/c", 0}} {
		if c.remove != "" {
			one.onPath("unlink", c.remove)
		}
		now := two.ok(order{Call: "statx", FD: fd}).Stat
		if now.Ino != before.Ino || uint64(now.Nlink) != c.links || now.Size != 7 {
			t.Errorf("without %q: inode %d, %d links, %d bytes; want %d, %d, 7", c.remove, now.Ino, now.Nlink, now.Size, before.Ino, c.links)
		}
	}
	two.write(fd, 7, "!")
	if got := two.read(fd, 0, 100); got != "content!" {
		t.Errorf("an unlinked file holds %q", got)
	}
	two.ok(order{Call: "truncate", FD: fd, Size: 3})
	two.ok(order{Call: "fallocate", FD: fd, Size: 5})
	if got := two.read(fd, 0, 100); got != "con\x00\x00" {
		t.Errorf("after truncate and fallocate it holds %q", got)
	}
}

// TestManyFiles: what a kernel remembers costs the share descriptors, so it is
// told to forget before they run out.
func TestManyFiles(t *testing.T) {
	const files = 6000
	s := newShare(t)
	for i := range files {
		must(t, os.WriteFile(filepath.Join(s.Dir(), fmt.Sprint(i)), nil, 0o644))
	}
	before := descriptors(t)
	c := newClient(t, mount(t, s, fuse.Stale(time.Hour)))
	for i := range files {
		c.onPath("stat", fmt.Sprint(i))
	}
	cluster.Await(t, cluster.Patience, "the kernel to forget", func() bool { return descriptors(t) < before+files/2 })
	c.onPath("stat", "0")
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}
