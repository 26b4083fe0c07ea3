// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"io"
	"io/fs"
	"syscall"
	"unsafe"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// file is an open file: it stays with its inode whatever happens to the name.
type file struct {
	host *Host
	node *inode
	flag vfs.Flag

	// guarded by disk.mu
	name   string
	closed bool
}

// called is the name it was opened by, or that its host gave it since.
func (f *file) called() string {
	f.host.disk.mu.Lock()
	defer f.host.disk.mu.Unlock()
	return f.name
}

// ReadAt reads from the server, or through the page cache of a network host.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	call := Call{Op: OpReadAt, Name: f.called(), Offset: off, Length: len(p)}
	err := f.host.do(step{call: call, data: func() []byte { return p[:n] }, run: func() (err error) {
		n, err = f.read(p, off)
		return err
	}})
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) read(p []byte, off int64) (int, error) {
	if err := f.usable(p, off); err != nil {
		return 0, err
	}
	switch {
	case f.host.cache == nil:
		return f.node.data.readAt(p, off), nil
	case f.flag&vfs.FlagDirect == 0:
		return f.host.viewOf(f.node).readAt(f.node, p, off), nil
	}
	// The kernel flushes its own pages before a direct read.
	if err := f.host.flush(f.node); err != nil {
		return 0, err
	}
	return f.node.data.readAt(p, off), nil
}

func (f *file) writable() bool { return f.flag&(vfs.FlagWrite|vfs.FlagCreate) != 0 }

// usable refuses what the kernel would refuse.
func (f *file) usable(p []byte, off int64) error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case off < 0:
		return syscall.EINVAL
	case f.host.cache == nil || f.flag&vfs.FlagDirect == 0 || len(p) == 0:
		return nil
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if off%vfs.BlockSize != 0 || len(p)%vfs.BlockSize != 0 || address%vfs.BlockSize != 0 {
		return syscall.EINVAL
	}
	return nil
}

// WriteAt writes to the server, or into the page cache of a network host.
func (f *file) WriteAt(p []byte, off int64) (int, error) { return f.writeStep(OpWriteAt, p, off) }

func (f *file) writeStep(op string, p []byte, off int64) (int, error) {
	n := 0
	err := f.host.do(step{
		call: Call{Op: op, Name: f.called(), Offset: off, Length: len(p)},
		data: func() []byte { return p },
		run: func() (err error) {
			n, err = f.write(p, off)
			return err
		},
		torn: func(bytes int) {
			if f.usable(p, off) == nil {
				_, _ = f.put(p[:min(bytes, len(p))], off) // the process is dead: nobody hears the error
			}
		},
	})
	return n, err
}

func (f *file) write(p []byte, off int64) (int, error) {
	if err := f.usable(p, off); err != nil {
		return 0, err
	}
	return f.put(p, off)
}

// put writes what usable has admitted.
func (f *file) put(p []byte, off int64) (int, error) {
	h, n := f.host, f.node
	switch {
	case !f.writable():
		return 0, syscall.EBADF
	case h.cache == nil:
		return h.disk.write(n, p, off)
	case f.flag&(vfs.FlagDirect|vfs.FlagDsync) == 0:
		h.viewOf(n).writeBack(n, p, off)
		return len(p), nil
	}
	// Direct and O_DSYNC writes go to the server byte for byte, and to its disk.
	done, err := h.disk.write(n, p, off)
	n.syncRange(off, done)
	delete(h.cache.infos, n)
	if v := h.cache.views[n]; v != nil {
		v.write(n, p[:done], off)
	}
	return done, err
}

// Sync makes the content durable.
func (f *file) Sync() error { return f.syncStep(OpSync) }

// Datasync makes the content durable, its size included.
func (f *file) Datasync() error { return f.syncStep(OpDatasync) }

func (f *file) syncStep(op string) error {
	return f.host.do(step{
		call: Call{Op: op, Name: f.called()},
		run: func() error {
			if f.closed {
				return fs.ErrClosed
			}
			if err := f.host.flush(f.node); err != nil {
				return err
			}
			f.node.sync()
			return nil
		},
		lose: f.node.loseSync,
	})
}

// Stat describes the file as the server sees it, and the host's own unflushed size.
func (f *file) Stat() (vfs.Info, error) {
	var out vfs.Info
	err := f.host.do(step{call: Call{Op: OpStat, Name: f.called()}, run: func() error {
		if f.closed {
			return fs.ErrClosed
		}
		out = f.host.withOwnSize(f.node, f.node.info())
		out.Unchanged = out.Size == 0 && !f.node.changed && !f.host.profile.Kind.Network
		return nil
	}})
	if err != nil {
		return vfs.Info{}, err
	}
	return out, nil
}

// Close flushes the page cache of a network host; it makes nothing durable.
func (f *file) Close() error {
	return f.host.do(step{call: Call{Op: OpClose, Name: f.called()}, run: func() error {
		if f.closed {
			return fs.ErrClosed
		}
		defer f.release()
		if !f.writable() {
			return nil // the kernel flushes when a writing handle is closed
		}
		return f.host.flush(f.node)
	}})
}

// discard closes without being a call of its own.
func (f *file) discard() {
	f.host.disk.mu.Lock()
	defer f.host.disk.mu.Unlock()
	f.release()
}

// release is called with disk.mu held.
func (f *file) release() {
	if _, open := f.host.files[f]; !open {
		return
	}
	delete(f.host.files, f)
	f.closed = true
	f.node.opens--
	f.host.disk.reclaim(f.node)
}
