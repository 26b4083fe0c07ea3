// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the disk writes at once, and what it writes whole or not at all.
const (
	pageSize   = 4096
	sectorSize = 512
)

// fileData is the content of a file. The backing file holds what all clients
// sees; besides, it is remembered what a power loss would leave instead.
type fileData struct {
	mu sync.RWMutex

	// guarded by mu
	file   *os.File // the backing file, while handles are open
	opens  int      // handles
	known  bool     // stable and before mean something
	stable int64    // the durable size
	before map[int64]*oldPage
}

// oldPage is what is durable of a page that is not.
type oldPage struct {
	data []byte // pageSize bytes, nil = zeros
	// doomed is true if a sync failed on this page: no later sync saves it, unless
	// it is written again.
	doomed bool
}

// open opens the backing file for one more handle.
func (d *fileData) open(n *node) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		if err := d.reopen(n); err != nil {
			return errnoOf(err)
		}
	}
	d.opens++
	return 0
}

func (d *fileData) reopen(n *node) error {
	fd, err := unix.Open(self(n.fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d.file = os.NewFile(uintptr(fd), "backing")
	if d.known {
		return nil
	}
	d.stable, err = d.size()
	d.known, d.before = true, make(map[int64]*oldPage)
	return err
}

// close ends a handle, and with the last one the backing file: kernels remember
// far more files than are open.
func (d *fileData) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opens--
	d.closeUnused()
}

func (d *fileData) closeUnused() {
	if d.opens <= 0 && d.file != nil {
		_ = d.file.Close() // all errors of writes were returned to their writers
		d.file = nil
	}
}

// unsynced reports whether a power loss would change the content.
func (d *fileData) unsynced(n *node) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if !d.known {
		return false
	}
	st, err := statFD(n.fd)
	return len(d.before) > 0 || err == nil && st.Size != d.stable
}

func (d *fileData) size() (int64, error) {
	st, err := statFD(int(d.file.Fd()))
	return st.Size, err
}

// readAt fills p and says how many bytes there are, fewer at the end.
func (d *fileData) readAt(p []byte, off int64) (int, syscall.Errno) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	n, err := d.file.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, inner(err)
}

// writeAt changes the content; durably where sync is set.
func (d *fileData) writeAt(p []byte, off int64, sync bool) (int, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !sync {
		if err := d.remember(off, int64(len(p))); err != nil {
			return 0, inner(err)
		}
	}
	n, err := d.file.WriteAt(p, off)
	if sync && n > 0 {
		for i := off / pageSize; i <= (off+int64(n)-1)/pageSize; i++ {
			delete(d.before, i)
		}
		size, sizeErr := d.size()
		d.stable, err = size, errors.Join(err, sizeErr)
	}
	return n, inner(err)
}

// remember keeps what is durable of a range that is about to change.
func (d *fileData) remember(off, length int64) error {
	for i := off / pageSize; i*pageSize < off+length; i++ {
		if old := d.before[i]; old != nil {
			old.doomed = false
			continue
		}
		old := &oldPage{}
		if from := i * pageSize; from < d.stable {
			old.data = make([]byte, pageSize)
			if _, err := d.file.ReadAt(old.data, from); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			clear(old.data[min(pageSize, d.stable-from):])
		}
		d.before[i] = old
	}
	return nil
}

// truncate cuts or extends the file.
func (d *fileData) truncate(size int64) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.remember(size, max(0, d.stable-size)); err != nil {
		return inner(err)
	}
	return inner(d.file.Truncate(size))
}

// allocate is fallocate, without the modes that move content.
func (d *fileData) allocate(mode uint32, off, length int64) syscall.Errno {
	const known = unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE
	if mode&^known != 0 {
		return syscall.EOPNOTSUPP
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		if err := d.remember(off, length); err != nil {
			return inner(err)
		}
	}
	return errnoOf(unix.Fallocate(int(d.file.Fd()), mode, off, length))
}

// sync makes the content durable, except what an earlier sync lost.
func (d *fileData) sync() syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.before, func(_ int64, old *oldPage) bool { return !old.doomed })
	size, err := d.size()
	d.stable = size
	return errnoOf(err)
}

// failSync is a sync that failed: what was not durable never will be.
func (d *fileData) failSync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, old := range d.before {
		old.doomed = true
	}
}

// settle makes all of it durable, even what a sync lost: what is there now is
// what counts from the next open on.
func (d *fileData) settle(n *node) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.before)
	st, err := statFD(n.fd)
	d.stable = st.Size
	return err
}

// powerLoss keeps of what is not durable what luck has it.
func (d *fileData) powerLoss(n *node, keep float64, luck *luck, loss *Loss) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return nil
	}
	if d.file == nil {
		if err := d.reopen(n); err != nil {
			return err
		}
	}
	defer d.closeUnused()
	size, err := d.size()
	if err != nil {
		return err
	}
	if size != d.stable && !luck.chance(keep) {
		size = d.stable
	}
	for _, i := range slices.Sorted(maps.Keys(d.before)) {
		if err := d.losePage(i, keep, luck, loss); err != nil {
			return err
		}
	}
	clear(d.before)
	d.stable = size
	return d.file.Truncate(size)
}

// losePage puts back a page's durable content: all of it, none, or by sectors.
func (d *fileData) losePage(i int64, keep float64, luck *luck, loss *Loss) error {
	old := d.before[i]
	if !old.doomed && luck.chance(keep) {
		return nil
	}
	data := old.data
	if data == nil {
		data = make([]byte, pageSize)
	}
	if old.doomed || !luck.chance(keep) {
		loss.Pages++
		_, err := d.file.WriteAt(data, i*pageSize)
		return err
	}
	loss.Torn++
	for at := 0; at < pageSize; at += sectorSize {
		if luck.chance(0.5) {
			continue
		}
		if _, err := d.file.WriteAt(data[at:at+sectorSize], i*pageSize+int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// inner is the system's error number inside an error of package os; 0 for nil.
func inner(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return errnoOf(err)
}
