// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// blockFile is a file of one block that one process writes in place, past the caches. It stays
// open for writing as long as its name leads to it: an NFS server gives nobody a delegation of
// such a file, behind which each write would have to wait if the machine of a reader dies.
type blockFile struct {
	fs    vfs.FS
	name  string
	check func() error // that the name is still of this volume, before it is opened anew

	mu   sync.Mutex // held while it is written
	file vfs.File   // nil before the first write, and behind an error
	info vfs.Info
}

// write writes the block. The first write makes the file.
func (b *blockFile) write(block []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); err != nil {
		return err
	}
	if _, err := b.file.WriteAt(block, 0); err != nil {
		return errors.Join(err, b.drop())
	}
	return nil
}

// read reads the block of the file that is open.
func (b *blockFile) read() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return nil, fs.ErrNotExist
	}
	block := vfs.AlignedBuffer(vfs.BlockSize)
	return block, vfs.ReadBlock(b.file, block, 0)
}

// open opens the file that has the name now.
func (b *blockFile) open() error {
	if b.file != nil {
		if now, err := b.fs.Lstat(b.name); err == nil && now.Inode == b.info.Inode {
			return nil
		}
		if err := b.drop(); err != nil {
			return err
		}
	}
	if err := b.check(); err != nil {
		return err
	}
	f, err := b.fs.Open(b.name, vfs.FlagWrite|vfs.FlagDirect)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = vfs.CreateZeros(b.fs, b.name, vfs.BlockSize)
	}
	if err != nil {
		return err
	}
	return b.keep(f)
}

func (b *blockFile) keep(f vfs.File) (err error) {
	if b.info, err = f.Stat(); err != nil {
		return errors.Join(err, f.Close())
	}
	b.file = f
	return nil
}

func (b *blockFile) drop() error {
	f := b.file
	b.file = nil
	return f.Close()
}

// hold opens the file before it is written, if it is there.
func (b *blockFile) hold() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.fs.Open(b.name, vfs.FlagWrite|vfs.FlagDirect)
	if err != nil {
		return vfs.IgnoreMissing(err)
	}
	return b.keep(f)
}

// close gives the file back; another write opens it again. While a write hangs nothing can be
// given back, and who closes does not wait for it.
func (b *blockFile) close() error {
	if !b.mu.TryLock() {
		return nil
	}
	defer b.mu.Unlock()
	if b.file == nil {
		return nil
	}
	return b.drop()
}
