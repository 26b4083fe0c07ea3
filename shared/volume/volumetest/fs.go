// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

var _ vfs.FS = (*Host)(nil)

// Open opens a file; a name on a network host may lead to an old file.
func (h *Host) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := h.openStep(OpOpen, name, flag)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openStep gives the handle back if the call fails after all.
func (h *Host) openStep(op, name string, flag vfs.Flag) (*file, error) {
	var f *file
	err := h.do(step{call: Call{Op: op, Name: name}, conflicts: h.opening(name, flag), run: func() (err error) {
		f, err = h.open(name, flag)
		return err
	}})
	if err != nil && f != nil {
		h.disk.mu.Lock()
		defer h.disk.mu.Unlock()
		f.release()
	}
	return f, err
}

func (h *Host) open(name string, flag vfs.Flag) (*file, error) {
	n, err := h.openInode(name, flag)
	if err != nil {
		return nil, err
	}
	if flag&vfs.FlagDirect == 0 {
		h.openView(n)
	}
	f := &file{host: h, node: n, name: name, flag: flag}
	n.opens++
	h.files[f] = struct{}{}
	return f, nil
}

func (h *Host) openInode(name string, flag vfs.Flag) (*inode, error) {
	if flag&vfs.FlagCreate != 0 {
		return h.create(name, vfs.TypeFile, flag&vfs.FlagPrivate != 0)
	}
	n, err := h.regular(name)
	if err != nil {
		return nil, err
	}
	if flag&vfs.FlagWrite != 0 && h.disk.readOnly {
		return nil, syscall.EROFS
	}
	return n, nil
}

// regular finds a regular file by name.
func (h *Host) regular(name string) (*inode, error) {
	n, err := walk(h.disk.root, name, h.child)
	switch {
	case err != nil:
		return nil, err
	case n.kind == vfs.TypeDir:
		return nil, syscall.EISDIR
	case n.kind != vfs.TypeFile:
		return nil, syscall.ELOOP
	default:
		return n, nil
	}
}

// parent finds the directory that a name is in.
func (h *Host) parent(name string) (place, error) { return parent(h.disk.root, name, h.child) }

func (h *Host) dir(name string) (*inode, error) {
	n, err := walk(h.disk.root, name, h.child)
	if err != nil {
		return nil, err
	}
	if n.kind != vfs.TypeDir {
		return nil, syscall.ENOTDIR
	}
	return n, nil
}

// create makes something at the server and believes what it says.
func (h *Host) create(name string, kind vfs.Type, private bool) (*inode, error) {
	at, err := h.parent(name)
	if err != nil {
		return nil, err
	}
	n, err := h.disk.create(at, kind)
	if err != nil {
		h.unlearn(at)
		return nil, err
	}
	n.private = private
	h.learn(at, n)
	return n, nil
}

// Mkdir makes a directory.
func (h *Host) Mkdir(name string) error { return h.mkdir(name, false) }

// MkdirPrivate makes a directory for its owner only.
func (h *Host) MkdirPrivate(name string) error { return h.mkdir(name, true) }

func (h *Host) mkdir(name string, private bool) error {
	return h.do(step{call: Call{Op: OpMkdir, Name: name}, run: func() error {
		_, err := h.create(name, vfs.TypeDir, private)
		return err
	}})
}

// Rename moves a file or directory, always at the server.
func (h *Host) Rename(oldName, newName string) error {
	return h.renameStep(OpRename, oldName, newName)
}

func (h *Host) renameStep(op, oldName, newName string) error {
	return h.do(step{call: Call{Op: op, Name: oldName, NewName: newName}, conflicts: h.changing(oldName, newName), run: func() error {
		from, to, err := h.pair(oldName, newName)
		if err != nil {
			return err
		}
		n, err := h.disk.rename(from, to)
		if err != nil {
			h.unlearn(from)
			h.unlearn(to)
			return err
		}
		if from.dir.entries[from.name] == nil {
			h.learn(from, nil)
		}
		h.learn(to, n)
		for f := range h.files {
			if f.node == n {
				f.name = newName
			}
		}
		return nil
	}})
}

func (h *Host) pair(oldName, newName string) (from, to place, err error) {
	if from, err = h.parent(oldName); err != nil {
		return from, to, err
	}
	to, err = h.parent(newName)
	return from, to, err
}

// Link makes a hard link, always at the server.
func (h *Host) Link(oldName, newName string) error {
	return h.do(step{call: Call{Op: OpLink, Name: oldName, NewName: newName}, conflicts: h.changing(oldName), run: func() error {
		from, to, err := h.pair(oldName, newName)
		if err != nil {
			return err
		}
		n, err := h.disk.link(from, to)
		if err != nil {
			h.unlearn(from)
			h.unlearn(to)
			return err
		}
		h.learn(from, n)
		h.learn(to, n)
		return nil
	}})
}

// Remove unlinks a name, always at the server.
func (h *Host) Remove(name string) error { return h.removeStep(OpRemove, name) }

func (h *Host) removeStep(op, name string) error {
	return h.do(step{call: Call{Op: op, Name: name}, conflicts: h.changing(name), run: func() error {
		at, err := h.parent(name)
		if err != nil {
			return err
		}
		n, err := h.disk.remove(at)
		if err != nil {
			h.unlearn(at)
			return err
		}
		h.learn(at, nil)
		if h.cache != nil {
			delete(h.cache.infos, n)
		}
		return nil
	}})
}

// ReadDir lists a directory; on a network host the list may be old.
func (h *Host) ReadDir(name string) ([]vfs.Entry, error) {
	var out []vfs.Entry
	err := h.do(step{call: Call{Op: OpReadDir, Name: name}, run: func() error {
		dir, err := h.dir(name)
		if err != nil {
			return err
		}
		entries := h.list(dir)
		out = make([]vfs.Entry, 0, len(entries))
		for _, entry := range slices.Sorted(maps.Keys(entries)) {
			out = append(out, vfs.Entry{Name: entry, Type: entries[entry].kind})
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Lstat describes a name; on a network host name and attributes may be old.
func (h *Host) Lstat(name string) (vfs.Info, error) {
	var out vfs.Info
	err := h.do(step{call: Call{Op: OpLstat, Name: name}, conflicts: h.opening(name, vfs.FlagRead), run: func() error {
		n, err := walk(h.disk.root, name, h.child)
		if err != nil {
			return err
		}
		out = h.info(n)
		return nil
	}})
	if err != nil {
		return vfs.Info{}, err
	}
	return out, nil
}

// Space says how much of the disk's capacity is not used.
func (h *Host) Space() (s vfs.Space, err error) {
	err = h.do(step{call: Call{Op: OpSpace, Name: "."}, run: func() error {
		s.Left = 1 << 40
		if h.disk.capacity > 0 {
			s.Left = max(0, h.disk.capacity-h.disk.used)
		}
		s.Free = s.Left
		return nil
	}})
	return s, err
}

// SyncDir makes the names in a directory durable.
func (h *Host) SyncDir(name string) error { return h.syncDirStep(OpSyncDir, name) }

func (h *Host) syncDirStep(op, name string) error {
	return h.do(step{call: Call{Op: op, Name: name}, run: func() error {
		dir, err := h.dir(name)
		if err != nil {
			return err
		}
		h.disk.syncDir(dir)
		return nil
	}})
}

// Replace writes a file beside its name and renames it over, step by step.
func (h *Host) Replace(name string, write func(io.Writer) error) error {
	if name == "." || !fs.ValidPath(name) {
		return pathError("replace", name, syscall.EINVAL)
	}
	temp := path.Join(path.Dir(name), fmt.Sprintf(".%s%d", path.Base(name), h.disk.uniqueNumber()))
	f, err := h.openStep(OpReplaceCreate, temp, vfs.FlagCreate)
	if err != nil {
		return err
	}
	h.disk.mu.Lock()
	h.delegate(f.node, vfs.FlagCreate)
	h.disk.mu.Unlock()
	if err := h.fill(f, name, write); err != nil {
		f.discard()
		// The first error is the one to tell; a temporary that stays is harmless.
		_ = h.removeStep(OpReplaceCleanup, temp)
		return err
	}
	return h.syncDirStep(OpReplaceSyncDir, path.Dir(name))
}

// fill writes, syncs, closes and renames the temporary file of a Replace.
func (h *Host) fill(f *file, name string, write func(io.Writer) error) error {
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return err
	}
	if _, err := f.writeStep(OpReplaceWrite, content.Bytes(), 0); err != nil {
		return err
	}
	if err := f.syncStep(OpReplaceSync); err != nil {
		return err
	}
	f.discard()
	return h.renameStep(OpReplaceRename, f.called(), name)
}

// TryLock takes a file's flock at the server.
func (h *Host) TryLock(name string) (vfs.Lock, error) {
	var l *flock
	err := h.do(step{call: Call{Op: OpTryLock, Name: name}, conflicts: h.changing(name), run: func() error {
		n, err := h.openInode(name, vfs.FlagWrite)
		if err != nil {
			return err
		}
		if n.lock != nil {
			return vfs.ErrLocked
		}
		l = &flock{host: h, node: n, name: name}
		n.lock = l
		n.opens++
		h.locks[l] = struct{}{}
		return nil
	}})
	if err == nil {
		return l, nil
	}
	if l != nil {
		h.disk.mu.Lock()
		defer h.disk.mu.Unlock()
		l.release()
	}
	return nil, err
}

// flock is a held lock and the open file it belongs to.
type flock struct {
	host *Host
	node *inode
	name string
}

// Unlock gives the lock up; a second time it does nothing.
func (l *flock) Unlock() error {
	return l.host.do(step{call: Call{Op: OpUnlock, Name: l.name}, run: func() error {
		l.release()
		return nil
	}})
}

// release is called with disk.mu held.
func (l *flock) release() {
	if _, held := l.host.locks[l]; !held {
		return
	}
	delete(l.host.locks, l)
	l.node.lock = nil
	l.node.opens--
	l.host.disk.reclaim(l.node)
}
