// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"maps"
	"slices"
	"syscall"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// host answers the kernel's calls on one mount. What it does not answer itself
// (extended attributes, symbolic links, devices) is not supported here.
type host struct {
	gofuse.RawFileSystem
	*Mount
}

func newHost(m *Mount) *host { return &host{gofuse.NewDefaultRawFileSystem(), m} }

// String names the filesystem.
func (h *host) String() string { return "holdfast-test" }

// node returns the node with a number of the kernel.
func (h *host) node(id uint64) (*node, syscall.Errno) {
	if id == gofuse.FUSE_ROOT_ID {
		return h.share.nodes.root, 0
	}
	return h.share.nodes.get(id)
}

// call is a request about a place.
func newCall(op Op, cancel <-chan struct{}, in *gofuse.InHeader, at ...place) *call {
	return &call{op: op, at: at, caller: in.Pid, cancel: cancel}
}

// Lookup finds a name. For a missing one, a caching host remembers that, too.
func (h *host) Lookup(cancel <-chan struct{}, in *gofuse.InHeader, name string, out *gofuse.EntryOut) gofuse.Status {
	dir, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	at := place{dir, name}
	status := h.entry(newCall(Lookup, cancel, in, at), func() (*node, syscall.Errno) { return h.share.tree.lookup(at) }, out)
	if status == gofuse.ENOENT && h.profile.Cache > 0 {
		out.SetEntryTimeout(h.profile.Cache)
		return gofuse.OK
	}
	return status
}

// entry makes a call that leads to a node, and tells the kernel about it.
func (h *host) entry(c *call, find func() (*node, syscall.Errno), out *gofuse.EntryOut) gofuse.Status {
	var n *node
	errno := h.do(c, func() syscall.Errno {
		found, errno := find()
		switch {
		case errno != 0:
			return errno
		case c.unheard:
			h.share.nodes.release(found)
		default:
			n = found
		}
		return 0
	})
	if errno != 0 {
		return gofuse.Status(errno)
	}
	return gofuse.Status(h.give(n, out))
}

// give hands a node, with the reference that the host has, to the kernel.
func (h *host) give(n *node, out *gofuse.EntryOut) syscall.Errno {
	attr, errno := h.share.tree.stat(n)
	if errno != 0 {
		h.share.nodes.release(n)
		return errno
	}
	out.NodeId, out.Generation, out.Attr = n.ino, 1, attr
	out.SetEntryTimeout(h.profile.Cache)
	out.SetAttrTimeout(h.profile.Cache)
	h.mu.Lock()
	h.lookups[n.ino]++
	again := h.lookups[n.ino] > 1
	if !again {
		h.fresh++
	}
	prune := h.fresh > pruneAfter
	if prune {
		h.fresh = 0
	}
	h.mu.Unlock()
	if again {
		h.share.nodes.release(n) // one reference for each host is enough
	}
	if prune {
		go h.prune()
	}
	return 0
}

// pruneAfter is how many new nodes a kernel gets before it is asked to forget
// those that are not in use. Else it remembers all, and each costs this process a descriptor.
const pruneAfter = 2000

// prune asks the kernel to forget. What it cached of these nodes is lost, stale or not.
func (h *host) prune() {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.lookups))
	h.mu.Unlock()
	// A kernel before Linux 6.18 does not know how; it still forgets under pressure.
	_ = h.server.PruneNotify(all)
}

// Forget takes lookups back.
func (h *host) Forget(id, lookups uint64) {
	h.mu.Lock()
	has := h.lookups[id]
	gone := has > 0 && has <= lookups
	if gone {
		delete(h.lookups, id)
	} else if has > 0 {
		h.lookups[id] = has - lookups
	}
	h.mu.Unlock()
	if gone {
		h.share.nodes.releaseNumber(id)
	}
}

// GetAttr describes a node.
func (h *host) GetAttr(cancel <-chan struct{}, in *gofuse.GetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	n, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	errno = h.do(newCall(GetAttr, cancel, &in.InHeader, place{dir: n}), func() (errno syscall.Errno) {
		if in.Flags()&gofuse.FUSE_GETATTR_FH != 0 {
			if _, errno := h.open(in.Fh()); errno != 0 {
				return errno
			}
		}
		out.Attr, errno = h.share.tree.stat(n)
		return errno
	})
	out.SetTimeout(h.profile.Cache)
	return gofuse.Status(errno)
}

// SetAttr changes size, mode, owner or times.
func (h *host) SetAttr(cancel <-chan struct{}, in *gofuse.SetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	n, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	want := in.SetAttrInCommon
	errno = h.do(newCall(SetAttr, cancel, &in.InHeader, place{dir: n}), func() syscall.Errno {
		if fh, has := want.GetFh(); has {
			if _, errno := h.open(fh); errno != 0 {
				return errno
			}
		}
		return h.setAttr(n, &want)
	})
	if errno != 0 {
		return gofuse.Status(errno)
	}
	out.Attr, errno = h.share.tree.stat(n)
	out.SetTimeout(h.profile.Cache)
	return gofuse.Status(errno)
}

func (h *host) setAttr(n *node, want *gofuse.SetAttrInCommon) syscall.Errno {
	if size, has := want.GetSize(); has {
		if errno := h.truncate(n, int64(size)); errno != 0 {
			return errno
		}
	}
	if mode, has := want.GetMode(); has {
		if err := unix.Chmod(self(n.fd), mode&0o7777); err != nil {
			return errnoOf(err)
		}
	}
	uid, hasUID := want.GetUID()
	gid, hasGID := want.GetGID()
	if hasUID || hasGID {
		owner, group := -1, -1
		if hasUID {
			owner = int(uid)
		}
		if hasGID {
			group = int(gid)
		}
		if err := unix.Chown(self(n.fd), owner, group); err != nil {
			return errnoOf(err)
		}
	}
	return setTimes(n, want)
}

func setTimes(n *node, want *gofuse.SetAttrInCommon) syscall.Errno {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	changed := false
	for i, get := range []func() (time.Time, bool){want.GetATime, want.GetMTime} {
		if at, has := get(); has {
			times[i], changed = unix.NsecToTimespec(at.UnixNano()), true
		}
	}
	if !changed {
		return 0
	}
	return errnoOf(unix.UtimesNanoAt(unix.AT_FDCWD, self(n.fd), times[:], 0))
}

// Mkdir makes a directory.
func (h *host) Mkdir(cancel <-chan struct{}, in *gofuse.MkdirIn, name string, out *gofuse.EntryOut) gofuse.Status {
	dir, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	at, mode := place{dir, name}, in.Mode
	return h.entry(newCall(Mkdir, cancel, &in.InHeader, at), func() (*node, syscall.Errno) { return h.share.tree.mkdir(at, mode) }, out)
}

// Link makes a hard link.
func (h *host) Link(cancel <-chan struct{}, in *gofuse.LinkIn, name string, out *gofuse.EntryOut) gofuse.Status {
	dir, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	n, errno := h.node(in.Oldnodeid)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	at := place{dir, name}
	c := newCall(Link, cancel, &in.InHeader, at, place{dir: n})
	return h.entry(c, func() (*node, syscall.Errno) { return h.share.tree.link(n, at) }, out)
}

// Unlink removes a name of a file.
func (h *host) Unlink(cancel <-chan struct{}, in *gofuse.InHeader, name string) gofuse.Status {
	return h.remove(Unlink, cancel, in, name)
}

// Rmdir removes an empty directory.
func (h *host) Rmdir(cancel <-chan struct{}, in *gofuse.InHeader, name string) gofuse.Status {
	return h.remove(Rmdir, cancel, in, name)
}

func (h *host) remove(op Op, cancel <-chan struct{}, in *gofuse.InHeader, name string) gofuse.Status {
	dir, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	at := place{dir, name}
	return gofuse.Status(h.do(newCall(op, cancel, in, at), func() syscall.Errno { return h.share.tree.remove(at, op == Rmdir) }))
}

// Rename moves a name.
func (h *host) Rename(cancel <-chan struct{}, in *gofuse.RenameIn, oldName, newName string) gofuse.Status {
	if in.Flags&^unix.RENAME_NOREPLACE != 0 {
		return gofuse.EINVAL
	}
	oldDir, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	newDir, errno := h.node(in.Newdir)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	from, to, noReplace := place{oldDir, oldName}, place{newDir, newName}, in.Flags != 0
	c := newCall(Rename, cancel, &in.InHeader, from, to)
	return gofuse.Status(h.do(c, func() syscall.Errno { return h.share.tree.rename(from, to, noReplace) }))
}

// StatFs describes the backing filesystem.
func (h *host) StatFs(cancel <-chan struct{}, in *gofuse.InHeader, out *gofuse.StatfsOut) gofuse.Status {
	root := h.share.nodes.root
	return gofuse.Status(h.do(newCall(StatFs, cancel, in, place{dir: root}), func() syscall.Errno {
		var st syscall.Statfs_t
		err := syscall.Fstatfs(root.fd, &st)
		out.FromStatfsT(&st)
		return errnoOf(err)
	}))
}
