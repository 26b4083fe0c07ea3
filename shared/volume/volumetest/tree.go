// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// place is one name in one directory.
type place struct {
	dir  *inode
	name string
}

// change is an un-synced change of directory entries. With both halves it is a rename.
type change struct {
	removes, adds         place // dir is nil where there is no such half
	removedNode, addsNode *inode
}

func (c *change) touches(dir *inode) bool { return c.removes.dir == dir || c.adds.dir == dir }

// apply carries the change out on the entries that names returns.
func (c *change) apply(names func(*inode) map[string]*inode) {
	if c.removes.dir != nil {
		if entries := names(c.removes.dir); entries[c.removes.name] == c.removedNode {
			delete(entries, c.removes.name)
		}
	}
	if c.adds.dir != nil {
		names(c.adds.dir)[c.adds.name] = c.addsNode
	}
}

func (d *Disk) newInode(kind vfs.Type) *inode {
	d.nextInode++
	n := &inode{number: d.nextInode, kind: kind}
	if kind == vfs.TypeDir {
		n.entries = make(map[string]*inode)
		n.stableEntries = make(map[string]*inode)
	}
	return n
}

// uniqueNumber takes a number that no inode will have, for a temporary's name.
func (d *Disk) uniqueNumber() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextInode++
	return d.nextInode
}

// vacant says why nothing can be made at a place, or nil.
func (d *Disk) vacant(at place) error {
	switch {
	case at.dir.gone:
		return syscall.ENOENT
	case at.dir.entries[at.name] != nil:
		return syscall.EEXIST
	case d.readOnly:
		return syscall.EROFS
	default:
		return nil
	}
}

// create makes a file or directory.
func (d *Disk) create(at place, kind vfs.Type) (*inode, error) {
	if err := d.vacant(at); err != nil {
		return nil, err
	}
	if d.capacity > 0 && d.used >= d.capacity {
		return nil, syscall.ENOSPC
	}
	n := d.newInode(kind)
	d.add(at, n)
	return n, nil
}

func (d *Disk) add(at place, n *inode) {
	at.dir.entries[at.name] = n
	n.nlink++
	d.pending = append(d.pending, &change{adds: at, addsNode: n})
}

func (d *Disk) link(from, to place) (*inode, error) {
	n := from.dir.entries[from.name]
	if n == nil {
		return nil, syscall.ENOENT
	}
	if n.kind == vfs.TypeDir {
		return nil, syscall.EPERM
	}
	if err := d.vacant(to); err != nil {
		return nil, err
	}
	d.add(to, n)
	n.changed = true
	return n, nil
}

func (d *Disk) remove(at place) (*inode, error) {
	n := at.dir.entries[at.name]
	switch {
	case n == nil:
		return nil, syscall.ENOENT
	case len(n.entries) > 0:
		return nil, syscall.ENOTEMPTY
	case d.readOnly:
		return nil, syscall.EROFS
	}
	delete(at.dir.entries, at.name)
	d.pending = append(d.pending, &change{removes: at, removedNode: n})
	d.unname(n)
	return n, nil
}

// unname takes one name off an inode.
func (d *Disk) unname(n *inode) {
	n.nlink--
	n.changed = true
	n.gone = n.entries != nil
	d.reclaim(n)
}

// reclaim gives back the space of a file that nothing leads to.
func (d *Disk) reclaim(n *inode) {
	if n.entries == nil && n.deleted() {
		d.used -= blocks(n.data.size)
	}
}

func (d *Disk) rename(from, to place) (*inode, error) {
	n := from.dir.entries[from.name]
	if n == nil || to.dir.gone {
		return nil, syscall.ENOENT
	}
	target := to.dir.entries[to.name]
	if target == n {
		return n, nil // POSIX: two names of one file, nothing happens
	}
	if err := renameConflict(n, target, to.dir); err != nil {
		return nil, err
	}
	if d.readOnly {
		return nil, syscall.EROFS
	}
	delete(from.dir.entries, from.name)
	to.dir.entries[to.name] = n
	n.changed = true
	d.pending = append(d.pending, &change{removes: from, removedNode: n, adds: to, addsNode: n})
	if target != nil {
		d.unname(target)
	}
	return n, nil
}

func renameConflict(n, target, dir *inode) error {
	switch {
	case n.kind == vfs.TypeDir && contains(n, dir):
		return syscall.EINVAL
	case target == nil:
		return nil
	case n.kind != vfs.TypeDir && target.kind == vfs.TypeDir:
		return syscall.EISDIR
	case n.kind == vfs.TypeDir && target.kind != vfs.TypeDir:
		return syscall.ENOTDIR
	case len(target.entries) > 0:
		return syscall.ENOTEMPTY
	default:
		return nil
	}
}

// contains reports whether a directory lies in the tree below root.
func contains(root, dir *inode) bool {
	if root == dir {
		return true
	}
	for _, n := range root.entries {
		if n.kind == vfs.TypeDir && contains(n, dir) {
			return true
		}
	}
	return false
}

// syncDir makes the names in dir durable. A rename out of or into it becomes
// durable as one, and with it whatever happened to its names before.
func (d *Disk) syncDir(dir *inode) {
	chosen := make([]bool, len(d.pending))
	touched := make(map[place]bool)
	for i := len(d.pending) - 1; i >= 0; i-- {
		c := d.pending[i]
		if !c.touches(dir) && !touched[c.adds] && !touched[c.removes] {
			continue
		}
		chosen[i] = true
		for _, at := range [2]place{c.adds, c.removes} {
			if at.dir != nil {
				touched[at] = true
			}
		}
	}
	rest := d.pending[:0]
	for i, c := range d.pending {
		if chosen[i] {
			c.apply(func(dir *inode) map[string]*inode { return dir.stableEntries })
		} else {
			rest = append(rest, c)
		}
	}
	clear(d.pending[len(rest):])
	d.pending = rest
}

// write changes a file within the capacity and says how many bytes went in.
func (d *Disk) write(n *inode, p []byte, off int64) (int, error) {
	if d.readOnly {
		return 0, syscall.EROFS
	}
	var full error
	end := off + int64(len(p))
	if need := blocks(end) - blocks(n.data.size); d.capacity > 0 && need > 0 && d.used+need > d.capacity {
		room := max(0, d.capacity-d.used) / pageSize * pageSize
		p = p[:max(0, min(int64(len(p)), blocks(n.data.size)+room-off))]
		full = syscall.ENOSPC
	}
	if len(p) > 0 {
		before := blocks(n.data.size)
		n.write(p, off)
		n.changed = true
		d.used += blocks(n.data.size) - before
	}
	return len(p), full
}

// blocks is the space that a file of a size takes.
func blocks(size int64) int64 { return (size + pageSize - 1) / pageSize * pageSize }

// info describes an inode as the server sees it.
func (n *inode) info() vfs.Info {
	out := vfs.Info{Inode: n.number, Type: n.kind, Size: n.data.size, Nlink: n.nlink, Mode: 0o644}
	if n.kind == vfs.TypeDir {
		out.Mode, out.Size, out.Nlink = 0o755, pageSize, 2
		for _, child := range n.entries {
			if child.kind == vfs.TypeDir {
				out.Nlink++
			}
		}
		if n.gone {
			out.Nlink = 0
		}
	}
	if n.private {
		out.Mode &^= 0o077
	}
	return out
}

// walk finds the inode behind a clean name, each step by child.
func walk(root *inode, name string, child func(place) *inode) (*inode, error) {
	if !fs.ValidPath(name) {
		return nil, syscall.EINVAL
	}
	n := root
	for rest := name; rest != "." && rest != ""; {
		if n.entries == nil {
			return nil, syscall.ENOTDIR
		}
		first, after, _ := strings.Cut(rest, "/")
		if n = child(place{n, first}); n == nil {
			return nil, syscall.ENOENT
		}
		rest = after
	}
	return n, nil
}

// parent finds the place of a name, which need not exist.
func parent(root *inode, name string, child func(place) *inode) (place, error) {
	if name == "." || !fs.ValidPath(name) {
		return place{}, syscall.EINVAL
	}
	dir, err := walk(root, path.Dir(name), child)
	if err == nil && dir.kind != vfs.TypeDir {
		err = syscall.ENOTDIR
	}
	return place{dir, path.Base(name)}, err
}

// pathError gives an error the operation and the name, once.
func pathError(op, name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok || err == nil {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
