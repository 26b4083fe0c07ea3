// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"bytes"
	"syscall"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file or directory of a process.
type handle struct {
	node *node // with a reference
	boot int64 // of the share when it was opened

	listing []gofuse.DirEntry // of a directory, since its reader began at the top
}

// opened makes a handle. It takes over the caller's open of a file's data.
func (h *host) opened(n *node, boot int64) uint64 {
	h.share.nodes.hold(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.handles[h.last] = &handle{node: n, boot: boot}
	return h.last
}

// closed takes a handle away, but not its reference to the node.
func (h *host) closed(fh uint64) *handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.handles[fh]
	delete(h.handles, fh)
	return x
}

// letGo ends a handle that was taken away.
func (x *handle) letGo(s *nodes) {
	if !x.node.dir {
		x.node.data.close()
	}
	s.release(x.node)
}

// open is a handle, unless the share has restarted since.
func (h *host) open(fh uint64) (*handle, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.handles[fh]
	if x == nil || x.boot != h.share.boots.Load() {
		return x, syscall.ESTALE
	}
	return x, 0
}

// withHandle makes a call on an open file.
func (h *host) withHandle(c *call, fh uint64, do func(*handle) syscall.Errno) syscall.Errno {
	x, _ := h.open(fh)
	if x == nil {
		return syscall.ESTALE
	}
	c.at = []place{{dir: x.node}}
	return h.do(c, func() syscall.Errno {
		if x.boot != h.share.boots.Load() {
			return syscall.ESTALE
		}
		if c.unheard && !x.node.dir { // the handle may be closed by now
			if errno := x.node.data.open(x.node); errno != 0 {
				return errno
			}
			defer x.node.data.close()
		}
		return do(x)
	})
}

// Open opens a file.
func (h *host) Open(cancel <-chan struct{}, in *gofuse.OpenIn, out *gofuse.OpenOut) gofuse.Status {
	n, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	var boot int64
	errno = h.do(newCall(Open, cancel, &in.InHeader, place{dir: n}), func() syscall.Errno {
		boot = h.share.boots.Load()
		return h.openData(n, in.Flags&unix.O_TRUNC != 0)
	})
	if errno != 0 {
		return gofuse.Status(errno)
	}
	out.Fh, out.OpenFlags = h.opened(n, boot), h.openFlags(in.Flags)
	return gofuse.OK
}

// openFlags tell the kernel whether its page cache may answer.
func (h *host) openFlags(flags uint32) uint32 {
	if h.profile.Cache == 0 || flags&unix.O_DIRECT != 0 {
		return gofuse.FOPEN_DIRECT_IO | gofuse.FOPEN_PARALLEL_DIRECT_WRITES | gofuse.FOPEN_NOFLUSH
	}
	return gofuse.FOPEN_KEEP_CACHE | gofuse.FOPEN_NOFLUSH
}

// Create makes and opens a file.
func (h *host) Create(cancel <-chan struct{}, in *gofuse.CreateIn, name string, out *gofuse.CreateOut) gofuse.Status {
	dir, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	at, flags, mode := place{dir, name}, in.Flags, in.Mode
	var boot int64
	c := newCall(Create, cancel, &in.InHeader, at)
	status := h.entry(c, func() (*node, syscall.Errno) {
		if !c.unheard {
			boot = h.share.boots.Load()
		}
		n, made, errno := h.share.tree.create(at, int(flags), mode&0o7777)
		if errno != 0 {
			return nil, errno
		}
		if errno = h.openData(n, !made && flags&unix.O_TRUNC != 0); errno != 0 {
			h.share.nodes.release(n)
			return nil, errno
		}
		if c.unheard {
			n.data.close()
		}
		return n, 0
	}, &out.EntryOut)
	if status != gofuse.OK {
		return status
	}
	n, errno := h.node(out.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	out.Fh, out.OpenFlags = h.opened(n, boot), h.openFlags(flags)
	return gofuse.OK
}

// openData opens a file's data for a handle, and empties it where that is wanted.
func (h *host) openData(n *node, empty bool) syscall.Errno {
	errno := n.data.open(n)
	if errno == 0 && empty {
		if errno = h.truncate(n, 0); errno != 0 {
			n.data.close()
		}
	}
	return errno
}

// truncate sets a file's size.
func (h *host) truncate(n *node, size int64) syscall.Errno {
	if errno := n.data.open(n); errno != 0 {
		return errno
	}
	defer n.data.close()
	if h.quick != nil {
		h.quick.forgetFile(n)
	}
	return n.data.truncate(size)
}

// Read reads from a file.
func (h *host) Read(cancel <-chan struct{}, in *gofuse.ReadIn, buf []byte) (gofuse.ReadResult, gofuse.Status) {
	got := 0
	errno := h.withHandle(newCall(Read, cancel, &in.InHeader), in.Fh, func(x *handle) (errno syscall.Errno) {
		if h.quick != nil {
			got, errno = h.quick.readAt(x.node, buf[:in.Size], int64(in.Offset))
		} else {
			got, errno = x.node.data.readAt(buf[:in.Size], int64(in.Offset))
		}
		return errno
	})
	return gofuse.ReadResultData(buf[:got]), gofuse.Status(errno)
}

// Write writes to a file.
func (h *host) Write(cancel <-chan struct{}, in *gofuse.WriteIn, data []byte) (uint32, gofuse.Status) {
	written, off, sync := 0, int64(in.Offset), in.Flags&unix.O_DSYNC != 0
	c := newCall(Write, cancel, &in.InHeader)
	c.detach = func() { data = bytes.Clone(data) }
	errno := h.withHandle(c, in.Fh, func(x *handle) syscall.Errno {
		n, errno := x.node.data.writeAt(data, off, sync)
		if h.quick != nil {
			h.quick.forget(x.node, off, int64(len(data)))
		}
		if n > 0 && !c.unheard {
			written, errno = n, 0 // as a write that the end of the disk cuts short
		}
		return errno
	})
	if errno != 0 {
		return 0, gofuse.Status(errno)
	}
	return uint32(written), gofuse.OK
}

// Fsync makes a file's content durable.
func (h *host) Fsync(cancel <-chan struct{}, in *gofuse.FsyncIn) gofuse.Status {
	c := newCall(Fsync, cancel, &in.InHeader)
	errno := h.withHandle(c, in.Fh, func(x *handle) syscall.Errno { return x.node.data.sync() })
	if c.injected {
		c.at[0].dir.data.failSync()
	}
	return gofuse.Status(errno)
}

// Fallocate reserves or clears space.
func (h *host) Fallocate(cancel <-chan struct{}, in *gofuse.FallocateIn) gofuse.Status {
	mode, off, length := in.Mode, int64(in.Offset), int64(in.Length)
	return gofuse.Status(h.withHandle(newCall(Fallocate, cancel, &in.InHeader), in.Fh, func(x *handle) syscall.Errno {
		if h.quick != nil {
			h.quick.forgetFile(x.node)
		}
		return x.node.data.allocate(mode, off, length)
	}))
}

// Flush is what the kernel asks when a descriptor is closed; nothing is left to do.
func (h *host) Flush(<-chan struct{}, *gofuse.FlushIn) gofuse.Status { return gofuse.ENOSYS }

// Release ends an open file, and with it its flock. A host that is cut off
// cannot tell that, so the lock lasts until it can.
func (h *host) Release(_ <-chan struct{}, in *gofuse.ReleaseIn) {
	x := h.closed(in.Fh)
	if x == nil {
		return
	}
	if in.ReleaseFlags&gofuse.FUSE_RELEASE_FLOCK_UNLOCK == 0 {
		x.letGo(h.share.nodes)
		return
	}
	// The kernel does not wait for it, nor may its other releases.
	go h.unlock(x, holder{h.Mount, in.Fh})
}

func (h *host) unlock(x *handle, who holder) {
	defer x.letGo(h.share.nodes)
	c := &call{op: Lock, at: []place{{dir: x.node}}}
	for _, r := range h.struck(c) {
		if h.hold(c, r) != 0 {
			break // the mount ends, and all its locks with it
		}
	}
	x.node.lock.set(who, unix.F_UNLCK)
}

// GetLk asks for byte-range locks, which are not supported.
func (h *host) GetLk(<-chan struct{}, *gofuse.LkIn, *gofuse.LkOut) gofuse.Status {
	return gofuse.Status(syscall.ENOLCK)
}

// SetLk is flock that does not wait.
func (h *host) SetLk(cancel <-chan struct{}, in *gofuse.LkIn) gofuse.Status {
	errno, _ := h.flock(cancel, in)
	return gofuse.Status(errno)
}

// SetLkw is flock that waits.
func (h *host) SetLkw(cancel <-chan struct{}, in *gofuse.LkIn) gofuse.Status {
	for {
		errno, again := h.flock(cancel, in)
		if errno != syscall.EAGAIN || again == nil {
			return gofuse.Status(errno)
		}
		if errno := h.wait(newCall(Lock, cancel, &in.InHeader), again); errno != 0 {
			return gofuse.Status(errno)
		}
	}
}

func (h *host) flock(cancel <-chan struct{}, in *gofuse.LkIn) (errno syscall.Errno, again <-chan struct{}) {
	if in.LkFlags&gofuse.LK_FLOCK == 0 {
		return syscall.ENOLCK, nil
	}
	c, who, kind := newCall(Lock, cancel, &in.InHeader), holder{h.Mount, in.Fh}, in.Lk.Typ
	errno = h.withHandle(c, in.Fh, func(x *handle) syscall.Errno {
		errno, free := x.node.lock.set(who, kind)
		if !c.unheard {
			again = free
		}
		return errno
	})
	return errno, again
}

// OpenDir opens a directory.
func (h *host) OpenDir(_ <-chan struct{}, in *gofuse.OpenIn, out *gofuse.OpenOut) gofuse.Status {
	n, errno := h.node(in.NodeId)
	if errno != 0 {
		return gofuse.Status(errno)
	}
	out.Fh = h.opened(n, h.share.boots.Load())
	if h.profile.Cache > 0 {
		out.OpenFlags = gofuse.FOPEN_CACHE_DIR | gofuse.FOPEN_KEEP_CACHE
	}
	return gofuse.OK
}

// ReadDir continues a listing, or makes one if the reader is at the beginning.
func (h *host) ReadDir(cancel <-chan struct{}, in *gofuse.ReadIn, out *gofuse.DirEntryList) gofuse.Status {
	x, errno := h.open(in.Fh)
	if in.Offset == 0 {
		errno = h.withHandle(newCall(ReadDir, cancel, &in.InHeader), in.Fh, func(x *handle) (errno syscall.Errno) {
			x.listing, errno = h.share.tree.list(x.node)
			return errno
		})
	}
	if errno != 0 {
		return gofuse.Status(errno)
	}
	for _, e := range x.listing[min(in.Offset, uint64(len(x.listing))):] {
		if !out.AddDirEntry(e) {
			break
		}
	}
	return gofuse.OK
}

// ReleaseDir ends an open directory.
func (h *host) ReleaseDir(in *gofuse.ReleaseIn) {
	if x := h.closed(in.Fh); x != nil {
		x.letGo(h.share.nodes)
	}
}

// FsyncDir makes a directory's names durable.
func (h *host) FsyncDir(cancel <-chan struct{}, in *gofuse.FsyncIn) gofuse.Status {
	return gofuse.Status(h.withHandle(newCall(FsyncDir, cancel, &in.InHeader), in.Fh, func(x *handle) syscall.Errno {
		return h.share.tree.syncDir(x.node)
	}))
}
