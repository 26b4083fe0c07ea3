// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// State is what Snapshot knows of a name. States compare with ==.
type State struct {
	vfs.Info
	// Sum is a hash of a file's content.
	Sum [sha256.Size]byte
}

// Snapshot describes every name of the visible state.
func (d *Disk) Snapshot() map[string]State {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]State)
	visit(d.root, ".", func(name string, n *inode) {
		s := State{Info: n.info()}
		if n.kind == vfs.TypeFile {
			s.Sum = n.data.sum()
		}
		out[name] = s
	})
	return out
}

// Files returns the visible content of every regular file whose name begins with prefix.
func (d *Disk) Files(prefix string) map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string][]byte)
	visit(d.root, ".", func(name string, n *inode) {
		if n.kind == vfs.TypeFile && strings.HasPrefix(name, prefix) {
			out[name] = n.data.bytes()
		}
	})
	return out
}

// ReadFile returns the visible content of one file.
func (d *Disk) ReadFile(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := walk(d.root, name, d.child)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return n.data.bytes(), nil
}

// Mkdir makes a directory and those above it, durable at once.
func (d *Disk) Mkdir(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.mkdirAll(name)
	return pathError("mkdir", name, err)
}

// Expose lets everybody read a file or look into a directory.
func (d *Disk) Expose(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := walk(d.root, name, d.child)
	if err != nil {
		return pathError("chmod", name, err)
	}
	n.private = false
	return nil
}

// Write is an operator's edit: it makes the file and the directories above it
// where they are missing, writes, and is durable at once.
func (d *Disk) Write(name string, off int64, data []byte) error {
	return d.edit("write", name, func(n *inode) error {
		_, err := d.write(n, data, off)
		return err
	})
}

// BeginAt makes the volume that of a cluster which began with this feature level of one digit, as an older binary would have
// made it: CLUSTER and the claim of epoch 0, one file, name it.
func (d *Disk) BeginAt(level uint32) error {
	b, err := d.ReadFile("CLUSTER")
	if err != nil {
		return err
	}
	key := []byte(`"feature_level": `)
	i := bytes.Index(b, key)
	if i < 0 {
		return fmt.Errorf("CLUSTER names no feature level: %s", b)
	}
	return d.Write("CLUSTER", int64(i+len(key)), []byte(strconv.FormatUint(uint64(level), 10)))
}

// Truncate cuts or extends a file, durable at once.
func (d *Disk) Truncate(name string, size int64) error {
	return d.edit("truncate", name, func(n *inode) error {
		before := blocks(n.data.size)
		n.data.truncate(size)
		d.used += blocks(size) - before
		return nil
	})
}

// Remove is an operator's rm -rf, durable at once.
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := parent(d.root, name, d.child)
	if err != nil {
		return pathError("remove", name, err)
	}
	return pathError("remove", name, d.removeAll(at))
}

// Rename is an operator's mv, durable at once.
func (d *Disk) Rename(oldName, newName string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, err := parent(d.root, oldName, d.child)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	to, err := parent(d.root, newName, d.child)
	if err != nil {
		return pathError("rename", newName, err)
	}
	if _, err := d.rename(from, to); err != nil {
		return pathError("rename", oldName, err)
	}
	d.syncDir(to.dir)
	return nil
}

// MakeSpecial puts something there that is neither file nor directory,
// durable at once.
func (d *Disk) MakeSpecial(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := parent(d.root, name, d.child)
	if err == nil {
		_, err = d.create(at, vfs.TypeOther)
		d.syncDir(at.dir)
	}
	return pathError("mknod", name, err)
}

// edit changes a file and makes all of it durable, even what a sync had lost.
func (d *Disk) edit(op, name string, change func(*inode) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, err := d.mkdirAll(path.Dir(name))
	if err != nil {
		return pathError(op, name, err)
	}
	at := place{dir, path.Base(name)}
	n := dir.entries[at.name]
	if n == nil {
		if n, err = d.create(at, vfs.TypeFile); err != nil {
			return pathError(op, name, err)
		}
		d.syncDir(dir)
	}
	if n.kind != vfs.TypeFile {
		return pathError(op, name, syscall.EISDIR)
	}
	err = change(n)
	n.changed = true
	clear(n.history)
	n.stableSize = n.data.size
	return pathError(op, name, err)
}

func (d *Disk) child(at place) *inode { return at.dir.entries[at.name] }

func (d *Disk) mkdirAll(name string) (*inode, error) {
	return walk(d.root, name, func(at place) *inode {
		if n := at.dir.entries[at.name]; n != nil {
			return n
		}
		n, err := d.create(at, vfs.TypeDir)
		if err != nil {
			return nil
		}
		d.syncDir(at.dir)
		return n
	})
}

func (d *Disk) removeAll(at place) error {
	if n := at.dir.entries[at.name]; n != nil {
		for _, name := range slices.Sorted(maps.Keys(n.entries)) {
			if err := d.removeAll(place{n, name}); err != nil {
				return err
			}
		}
	}
	if _, err := d.remove(at); err != nil {
		return err
	}
	d.syncDir(at.dir)
	return nil
}

// visit calls see for everything below a directory, in order of names.
func visit(dir *inode, name string, see func(string, *inode)) {
	for _, entry := range slices.Sorted(maps.Keys(dir.entries)) {
		n, full := dir.entries[entry], path.Join(name, entry)
		see(full, n)
		visit(n, full, see)
	}
}

// sum hashes the content without going through its zero pages.
func (c *content) sum() [sha256.Size]byte {
	hash := sha256.New()
	var number [8]byte
	put := func(n int64) {
		binary.LittleEndian.PutUint64(number[:], uint64(n))
		_, _ = hash.Write(number[:]) // a hash never fails
	}
	put(c.size)
	for _, i := range slices.Sorted(maps.Keys(c.pages)) {
		if pg := c.pages[i]; *pg != (page{}) {
			put(i)
			_, _ = hash.Write(pg[:])
		}
	}
	return [sha256.Size]byte(hash.Sum(nil))
}
