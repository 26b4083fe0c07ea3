// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is one inode of the share. Its number is that of the backing inode,
// which no other inode can get while the descriptor is open.
type node struct {
	ino uint64
	dir bool
	fd  int // O_PATH: leads here whatever becomes of the names

	// refs and where are guarded by nodes.mu.
	refs  int
	where place // the name by which it was last looked up, for faults

	hidden atomic.Int32 // its names in the stash, which clients do not see
	lost   atomic.Bool  // a power loss took its last name

	data fileData
	lock flock
}

// place is one name in one directory. Without a name it is dir itself.
type place struct {
	dir  *node
	name string
}

// nodes are the inodes that a kernel may still use by number.
type nodes struct {
	root *node

	mu    sync.Mutex
	byIno map[uint64]*node
}

func newNodes(backing string) (*nodes, error) {
	fd, err := unix.Open(backing, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	st, err := statFD(fd)
	if err != nil {
		return nil, err
	}
	root := &node{ino: st.Ino, dir: true, fd: fd, refs: 1}
	return &nodes{root: root, byIno: map[uint64]*node{st.Ino: root}}, nil
}

// statFD describes an O_PATH descriptor.
func statFD(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st, err
}

// find returns the node with a name, with a reference for the caller. The
// caller holds the tree's lock, at least for reading.
func (s *nodes) find(at place) (*node, syscall.Errno) {
	var st unix.Stat_t
	if err := unix.Fstatat(at.dir.fd, at.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, errnoOf(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.byIno[st.Ino]; n != nil {
		n.refs++
		n.where = at
		return n, 0
	}
	fd, err := unix.Openat(at.dir.fd, at.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errnoOf(err)
	}
	n := &node{ino: st.Ino, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, fd: fd, refs: 1, where: at}
	s.byIno[st.Ino] = n
	return n, 0
}

// hold adds a reference to a node that has some.
func (s *nodes) hold(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.refs++
}

// release takes a reference away. A node without any is closed, unless a power
// loss would change what is in it and a name still leads there.
func (s *nodes) release(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.refs--
	if n.refs > 0 {
		return
	}
	if st, err := statFD(n.fd); err == nil && st.Nlink > 0 && n.data.unsynced(n) {
		return
	}
	s.close(n)
}

// releaseNumber releases a node by its number.
func (s *nodes) releaseNumber(ino uint64) {
	s.mu.Lock()
	n := s.byIno[ino]
	s.mu.Unlock()
	if n != nil {
		s.release(n)
	}
}

// sweep closes the nodes that were kept for their un-synced content only.
func (s *nodes) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.byIno {
		if n.refs <= 0 {
			s.close(n)
		}
	}
}

func (s *nodes) close(n *node) {
	delete(s.byIno, n.ino)
	_ = unix.Close(n.fd) // it led to a path, nothing was written through it
}

// all lists the nodes that are known.
func (s *nodes) all() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*node, 0, len(s.byIno))
	for _, n := range s.byIno {
		out = append(out, n)
	}
	return out
}

// get is the node of a number that a kernel has; ESTALE where a power loss took
// it, or a directory above it, away.
func (s *nodes) get(ino uint64) (*node, syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byIno[ino]
	if n == nil {
		return nil, syscall.ESTALE
	}
	for up := n; up != nil; up = up.where.dir {
		if up.lost.Load() {
			return nil, syscall.ESTALE
		}
	}
	return n, 0
}

// moved remembers a new name.
func (s *nodes) moved(n *node, to place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.where = to
}

// paths are where places lie, from the root "/".
func (s *nodes) paths(at []place) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(at))
	for _, p := range at {
		name := p.name
		for up := p.dir; up != nil; up = up.where.dir {
			name = path.Join(up.where.name, name)
		}
		out = append(out, "/"+name)
	}
	return out
}

// stat describes a node as clients see it.
func (t *tree) stat(n *node) (gofuse.Attr, syscall.Errno) {
	if n.hidden.Load() == 0 {
		attr, errno := attrOf(n)
		if n.hidden.Load() == 0 {
			return attr, errno
		}
	}
	// Names move into the stash and out of it: not while we count.
	t.mu.RLock()
	defer t.mu.RUnlock()
	attr, errno := attrOf(n)
	switch hidden := n.hidden.Load(); {
	case hidden > 0 && n.dir:
		attr.Nlink = 0
	default:
		attr.Nlink -= uint32(hidden)
	}
	return attr, errno
}

// attrOf describes a node as the backing filesystem does.
func attrOf(n *node) (attr gofuse.Attr, errno syscall.Errno) {
	var st syscall.Stat_t
	err := syscall.Fstat(n.fd, &st)
	attr.FromStat(&st)
	return attr, errnoOf(err)
}

// self is a path that leads to what a descriptor has open.
func self(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// errnoOf is the system's error number of an error; 0 for nil.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return errno
	}
	return syscall.EIO
}
