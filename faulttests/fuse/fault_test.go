// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
)

// aWhile is far longer than a call takes that does not hang.
const aWhile = 300 * time.Millisecond

// oneMount is a share with one strict mount and a process on it.
func oneMount(t *testing.T) (*fuse.Share, *fuse.Mount, *client) {
	t.Helper()
	s := newShare(t)
	m := mount(t, s, fuse.Strict())
	return s, m, newClient(t, m)
}

func wantFile(t *testing.T, s *fuse.Share, name, want string) {
	t.Helper()
	if got, err := s.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
	}
}

func TestErrors(t *testing.T) {
	_, m, c := oneMount(t)
	c.put("a", "content", true)
	fd := c.open("a", unix.O_RDWR)
	for _, f := range []struct {
		op    fuse.Op
		order order
	}{
		{fuse.Lookup, order{Call: "stat", Path: "a"}},
		{fuse.GetAttr, order{Call: "fstat", FD: fd}},
		{fuse.SetAttr, order{Call: "truncate", FD: fd, Size: 3}},
		{fuse.Open, order{Call: "open", Path: "a"}},
		{fuse.Create, order{Call: "open", Path: "new", Flags: unix.O_CREAT | unix.O_RDWR}},
		{fuse.Read, order{Call: "read", FD: fd, Size: 7}},
		{fuse.Write, order{Call: "write", FD: fd, Data: []byte("x")}},
		{fuse.Fsync, order{Call: "fsync", FD: fd}},
		{fuse.Fsync, order{Call: "fdatasync", FD: fd}},
		{fuse.FsyncDir, order{Call: "syncdir"}},
		{fuse.ReadDir, order{Call: "list"}},
		{fuse.Mkdir, order{Call: "mkdir", Path: "d"}},
		{fuse.Rename, order{Call: "rename", Path: "a", To: "b"}},
		{fuse.Link, order{Call: "link", Path: "b", To: "a"}},
		{fuse.Unlink, order{Call: "unlink", Path: "b"}},
		{fuse.Rmdir, order{Call: "rmdir", Path: "d"}},
		{fuse.Fallocate, order{Call: "fallocate", FD: fd, Size: 8192}},
		{fuse.Lock, order{Call: "flock", FD: fd, Flags: unix.LOCK_EX | unix.LOCK_NB}},
		{fuse.StatFs, order{Call: "statfs"}},
	} {
		before := m.Calls(f.op)
		for _, errno := range []syscall.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
			// The kernel looks up a name that it knew once more after an error.
			r := m.Inject(fuse.Fault{Ops: f.op, Err: errno})
			c.fails(f.order, errno)
			r.Release()
			if r.Hits() == 0 || f.op != fuse.Lookup && r.Hits() != 1 {
				t.Errorf("%v %s hit %d times", f.op, f.order.Call, r.Hits())
			}
		}
		if m.Calls(f.op) <= before {
			t.Errorf("%v is not counted", f.op)
		}
		c.ok(f.order)
	}
}

func TestWhichCallsGoWrong(t *testing.T) {
	s, m, c := oneMount(t)
	c.onPath("mkdir", "d")
	c.onPath("mkdir", "dd")
	other := newClient(t, mount(t, s, fuse.Strict()))
	stat := func(path string) order { return order{Call: "stat", Path: path} }

	r := m.Inject(fuse.Fault{Under: "d", Err: unix.EIO})
	c.fails(stat("d"), unix.EIO)
	c.ok(stat("dd"))
	other.ok(stat("d"))
	r.Release()
	c.ok(stat("d"))

	c.put("d/a", "", false)
	fd, otherFD := c.open("d/a", unix.O_RDWR), other.open("d/a", unix.O_RDWR)
	r = s.Inject(fuse.Fault{Ops: fuse.Fsync, Contains: "/a", Skip: 1, Times: 2, Err: unix.ESTALE})
	c.onFile("fsync", fd)
	c.fails(order{Call: "fsync", FD: fd}, unix.ESTALE)
	other.fails(order{Call: "fsync", FD: otherFD}, unix.ESTALE)
	c.onFile("fsync", fd)
	if r.Calls() != 4 || r.Hits() != 2 {
		t.Errorf("%d calls, %d hits", r.Calls(), r.Hits())
	}
	r.Release()

	r = m.Inject(fuse.Fault{Ops: fuse.GetAttr, Chance: 0.5, Err: unix.EIO})
	failed := 0
	for range 200 {
		if c.do(order{Call: "fstat", FD: fd}).Errno == unix.EIO {
			failed++
		}
	}
	if failed < 50 || failed > 150 {
		t.Errorf("of 200 calls with chance one half, %d failed", failed)
	}
	r.Release()
	if all := fuse.AllOps.String(); strings.Count(all, "|") != 17 {
		t.Errorf("names of all calls: %s", all)
	}
}

func TestDelay(t *testing.T) {
	_, m, c := oneMount(t)
	c.put("a", "", false)
	fd := c.open("a", unix.O_RDWR)
	r := m.Inject(fuse.Fault{Ops: fuse.Fsync, Delay: aWhile, Jitter: time.Millisecond})
	began := time.Now()
	c.onFile("fdatasync", fd)
	if took := time.Since(began); took < aWhile {
		t.Errorf("a delayed call took %v", took)
	}
	r.Release()
}

// TestHang cuts a host off. Its calls go on when it is back.
func TestHang(t *testing.T) {
	s, m, c := oneMount(t)
	other := newClient(t, mount(t, s, fuse.Strict()))
	c.put("a", "before", false)
	fd := c.open("a", unix.O_RDWR)
	cut := m.Cut()
	hanging := c.begin(order{Call: "write", FD: fd, Data: []byte("behind")})
	cluster.Await(t, cluster.Patience, "the call to hang", func() bool { return cut.Waiting() == 1 })
	select {
	case a := <-hanging:
		t.Fatalf("a call of a host that is cut off ends: %v", a.Errno)
	case <-time.After(aWhile):
	}
	other.ok(order{Call: "stat", Path: "a"})
	wantFile(t, s, "a", "before")
	cut.Release()
	if a := <-hanging; a.Errno != 0 {
		t.Errorf("after the cut: %v", a.Errno)
	}
	wantFile(t, s, "a", "behind")
	soft := m.CutSoft()
	c.fails(order{Call: "stat", Path: "a"}, unix.EIO)
	soft.Release()
	c.ok(order{Call: "stat", Path: "a"})
}

// TestKillWhileHanging: a hard mount does not keep a process from dying, and
// its call is not done.
func TestKillWhileHanging(t *testing.T) {
	s, m, c := oneMount(t)
	c.put("a", "before", false)
	fd := c.open("a", unix.O_RDWR)
	for _, wait := range []fuse.Fault{{Hang: true}, {Delay: time.Hour}} {
		r := m.Inject(wait)
		c.begin(order{Call: "write", FD: fd, Data: []byte("behind")})
		cluster.Await(t, cluster.Patience, "the call to wait", func() bool { return r.Hits() == 1 })
		c.kill()
		r.Release()
		wantFile(t, s, "a", "before")
		c = newClient(t, m)
		fd = c.open("a", unix.O_RDWR)
	}
}

// TestUnmountWhileHanging: nothing keeps a mount from ending.
func TestUnmountWhileHanging(t *testing.T) {
	s, m, c := oneMount(t)
	c.put("a", "before", false)
	fd := c.open("a", unix.O_RDWR)
	shared := s.Inject(fuse.Fault{Ops: fuse.Write, Hang: true})
	hanging := c.begin(order{Call: "write", FD: fd, Data: []byte("behind")})
	cluster.Await(t, cluster.Patience, "the call to hang", func() bool { return shared.Waiting() == 1 })
	must(t, m.Unmount())
	if a := <-hanging; a.Errno == 0 {
		t.Errorf("a call succeeds on a mount that ended")
	}
	if a := c.do(order{Call: "fstat", FD: fd}); a.Errno == 0 {
		t.Errorf("an open file survives its mount")
	}
	must(t, m.Unmount())
	must(t, s.Close())
	wantFile(t, s, "a", "before")
}

func TestErrorsOfCallsThatAreDone(t *testing.T) {
	s, m, c := oneMount(t)
	c.put("a", "0000", true)
	fd := c.open("a", unix.O_RDWR|unix.O_DSYNC)
	r := m.Inject(fuse.Fault{Ops: fuse.Write, Err: unix.EIO, Effect: fuse.Done})
	c.fails(order{Call: "write", FD: fd, Data: []byte("1")}, unix.EIO)
	wantFile(t, s, "a", "1000")
	r.Release()

	r = m.Inject(fuse.Fault{Ops: fuse.Write | fuse.Rename | fuse.Mkdir, Err: unix.EIO, Effect: fuse.DoneLate})
	c.fails(order{Call: "write", FD: fd, Off: 1, Data: []byte("2")}, unix.EIO)
	c.fails(order{Call: "mkdir", Path: "d"}, unix.EIO)
	c.fails(order{Call: "rename", Path: "a", To: "b"}, unix.EIO)
	c.onFile("close", fd)
	wantFile(t, s, "a", "1000")
	c.fails(order{Call: "stat", Path: "b"}, unix.ENOENT)
	if r.Waiting() != 3 {
		t.Errorf("%d effects wait", r.Waiting())
	}
	r.Release()
	wantFile(t, s, "b", "1200")
	c.onPath("stat", "d")
}
