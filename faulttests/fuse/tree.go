// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// tree is the names of a share: the backing directory, and what of its changes
// a power loss could undo.
type tree struct {
	nodes *nodes

	mu sync.RWMutex // for reading: names stay as they are

	// guarded by mu
	pending []*change // un-synced, oldest first
	stash   int       // directory for what was removed and may come back
	stashed int       // counts its names
}

// lookup returns the node with a name, with a reference for the caller.
func (t *tree) lookup(at place) (*node, syscall.Errno) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.nodes.find(at)
}

// list reads a directory.
func (t *tree) list(dir *node) ([]gofuse.DirEntry, syscall.Errno) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	entries, err := readDir(dir, -1)
	out := make([]gofuse.DirEntry, 0, len(entries))
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Fstatat(dir.fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, errnoOf(err)
		}
		out = append(out, gofuse.DirEntry{Name: e.Name(), Ino: st.Ino, Mode: st.Mode & unix.S_IFMT})
	}
	return out, inner(err)
}

// readDir reads at most n names of a directory, all for -1.
func readDir(dir *node, n int) ([]os.DirEntry, error) {
	f, err := os.Open(self(dir.fd))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	entries, err := f.ReadDir(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// create makes a file, or finds it: then made is false. The caller gets a
// reference to the node.
func (t *tree) create(at place, flags int, mode uint32) (n *node, made bool, errno syscall.Errno) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.dir.hidden.Load() > 0 {
		return nil, false, syscall.ENOENT
	}
	const exclusive = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC
	fd, err := unix.Openat(at.dir.fd, at.name, exclusive, mode)
	switch {
	case errors.Is(err, unix.EEXIST) && flags&unix.O_EXCL == 0:
		n, errno = t.nodes.find(at)
		return n, false, errno
	case err != nil:
		return nil, false, errnoOf(err)
	}
	if err := unix.Close(fd); err != nil {
		return nil, false, errnoOf(err)
	}
	n, errno = t.added(at)
	return n, true, errno
}

// added logs a new name.
func (t *tree) added(at place) (*node, syscall.Errno) {
	n, errno := t.nodes.find(at)
	if errno == 0 {
		t.log(&change{adds: at, node: n})
	}
	return n, errno
}

func (t *tree) mkdir(at place, mode uint32) (*node, syscall.Errno) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.dir.hidden.Load() > 0 {
		return nil, syscall.ENOENT
	}
	if err := unix.Mkdirat(at.dir.fd, at.name, mode); err != nil {
		return nil, errnoOf(err)
	}
	return t.added(at)
}

// link gives a file one more name. The caller gets a reference to the node.
func (t *tree) link(n *node, at place) (*node, syscall.Errno) {
	t.mu.Lock()
	defer t.mu.Unlock()
	attr, errno := attrOf(n)
	switch {
	case errno != 0:
		return nil, errno
	case at.dir.hidden.Load() > 0 || int32(attr.Nlink) <= n.hidden.Load():
		return nil, syscall.ENOENT
	case n.dir:
		return nil, syscall.EPERM
	}
	if err := unix.Linkat(unix.AT_FDCWD, self(n.fd), at.dir.fd, at.name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return nil, errnoOf(err)
	}
	return t.added(at)
}

// remove takes a name away: of a directory, or of something else.
func (t *tree) remove(at place, dir bool) syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, errno := t.nodes.find(at)
	if errno != 0 {
		return errno
	}
	defer t.nodes.release(n)
	switch {
	case dir && !n.dir:
		return syscall.ENOTDIR
	case !dir && n.dir:
		return syscall.EISDIR
	case dir:
		if errno := empty(n); errno != 0 {
			return errno
		}
	}
	c := &change{removes: at, victim: n}
	if errno := t.hide(c, at); errno != 0 {
		return errno
	}
	t.log(c)
	return 0
}

func empty(dir *node) syscall.Errno {
	entries, err := readDir(dir, 1)
	if len(entries) > 0 {
		return syscall.ENOTEMPTY
	}
	return inner(err)
}

// hide moves a change's victim from a name into the stash.
func (t *tree) hide(c *change, at place) syscall.Errno {
	t.stashed++
	c.stash = fmt.Sprint(t.stashed)
	if err := unix.Renameat(at.dir.fd, at.name, t.stash, c.stash); err != nil {
		return errnoOf(err)
	}
	c.victim.hidden.Add(1)
	return 0
}

// rename moves a name, onto another one unless noReplace is set.
func (t *tree) rename(from, to place, noReplace bool) syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, errno := t.nodes.find(from)
	if errno != 0 {
		return errno
	}
	defer t.nodes.release(n)
	if to.dir.hidden.Load() > 0 {
		return syscall.ENOENT
	}
	c := &change{removes: from, adds: to, node: n}
	victim, errno := t.nodes.find(to)
	switch {
	case errno == syscall.ENOENT:
		errno = errnoOf(unix.Renameat(from.dir.fd, from.name, to.dir.fd, to.name))
	case errno == 0:
		defer t.nodes.release(victim)
		if victim == n {
			return 0 // POSIX: two names of one file
		}
		c.victim = victim
		errno = t.replace(c, noReplace)
	}
	if errno != 0 {
		return errno
	}
	t.nodes.moved(n, to)
	t.log(c)
	return 0
}

// replace renames onto a victim. The two names are swapped first, so that who
// reads the backing directory never misses the new one.
func (t *tree) replace(c *change, noReplace bool) syscall.Errno {
	switch {
	case noReplace:
		return syscall.EEXIST
	case c.victim.dir && !c.node.dir:
		return syscall.EISDIR
	case !c.victim.dir && c.node.dir:
		return syscall.ENOTDIR
	case c.victim.dir:
		if errno := empty(c.victim); errno != 0 {
			return errno
		}
	}
	from, to := c.removes, c.adds
	if err := unix.Renameat2(from.dir.fd, from.name, to.dir.fd, to.name, unix.RENAME_EXCHANGE); err != nil {
		return errnoOf(err)
	}
	return t.hide(c, from)
}
