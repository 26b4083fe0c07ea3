// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
)

// TestFlock takes turns at one flock on two mounts: by unlock, by close, by
// kill -9, and after the share has forgotten a host.
func TestFlock(t *testing.T) {
	s := newShare(t)
	m := mount(t, s, fuse.Strict())
	one, two := newClient(t, m), newClient(t, mount(t, s, fuse.Stale(cluster.Patience)))
	one.put("a", "", true)
	take := func(c *client, fd int) order {
		return order{Call: "flock", FD: fd, Flags: unix.LOCK_EX | unix.LOCK_NB}
	}
	fd1, fd2 := one.open("a", unix.O_RDWR), two.open("a", unix.O_RDWR)
	one.ok(take(one, fd1))
	two.fails(take(two, fd2), unix.EAGAIN)
	one.fails(take(one, one.open("a", unix.O_RDWR)), unix.EAGAIN)
	one.ok(order{Call: "flock", FD: fd1, Flags: unix.LOCK_UN})
	two.ok(take(two, fd2))
	one.fails(take(one, fd1), unix.EAGAIN)

	waits := one.begin(order{Call: "flock", FD: fd1, Flags: unix.LOCK_EX})
	two.onFile("close", fd2)
	if a := <-waits; a.Errno != 0 {
		t.Fatalf("a flock that waited: %v", a.Errno)
	}
	fd2 = two.open("a", unix.O_RDWR)
	two.fails(take(two, fd2), unix.EAGAIN)

	// The rename changes nothing.
	one.ok(order{Call: "rename", Path: "a", To: "b"})
	two.fails(take(two, fd2), unix.EAGAIN)

	// A host that is cut off cannot tell that the holder died.
	cut := m.Cut()
	one.kill()
	cluster.Await(t, cluster.Patience, "the release to hang", func() bool { return cut.Waiting() > 0 })
	two.fails(take(two, fd2), unix.EAGAIN)
	cut.Release()
	cluster.Await(t, cluster.Patience, "the lock of a killed process", func() bool { return two.do(take(two, fd2)).Errno == 0 })

	one = newClient(t, m)
	fd1 = one.open("b", unix.O_RDWR)
	two.ok(order{Call: "flock", FD: fd2, Flags: unix.LOCK_SH | unix.LOCK_NB})
	one.ok(order{Call: "flock", FD: fd1, Flags: unix.LOCK_SH | unix.LOCK_NB})
	one.fails(take(one, fd1), unix.EAGAIN)
	two.ok(order{Call: "flock", FD: fd2, Flags: unix.LOCK_UN})
	one.ok(take(one, fd1))
	m.DropLocks()
	two.ok(take(two, fd2))
}
