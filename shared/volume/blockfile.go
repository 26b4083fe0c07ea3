// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// blockFile is a file of one block that one process writes in place, past the caches. The file stays
// open for writing as long as its name leads to it: an NFS server then grants no client a delegation of
// it. If the machine of a client with a delegation died, each write would have to wait for it.
type blockFile struct {
	fs    vfs.FS
	name  string
	check func() error // returns an error if the directory is not this volume any more; called before the file is opened

	mu   sync.Mutex // held during a write
	file vfs.File   // nil before the first write and after an error
	info vfs.Info   // of file
}

// write writes the block. The first write creates the file if it is missing.
func (b *blockFile) write(block []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); err != nil {
		return err
	}
	if _, err := b.file.WriteAt(block, 0); err != nil {
		return errors.Join(err, b.closeFile())
	}
	return nil
}

// read reads the block of the open file. It returns an error that wraps fs.ErrNotExist if none is open.
func (b *blockFile) read() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return nil, fs.ErrNotExist
	}
	block := vfs.AlignedBuffer(vfs.BlockSize)
	return block, vfs.ReadBlock(b.file, block, 0)
}

// open opens the file that the name leads to now, unless that is open.
func (b *blockFile) open() error {
	if b.file != nil {
		if now, err := b.fs.Lstat(b.name); err == nil && now.Inode == b.info.Inode {
			return nil
		}
		if err := b.closeFile(); err != nil {
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
	return b.use(f)
}

func (b *blockFile) use(f vfs.File) (err error) {
	if b.info, err = f.Stat(); err != nil {
		return errors.Join(err, f.Close())
	}
	b.file = f
	return nil
}

func (b *blockFile) closeFile() error {
	f := b.file
	b.file = nil
	return f.Close()
}

// create creates the file if it is missing.
func (b *blockFile) create() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open()
}

// openExisting opens the file before its first write, if it exists.
func (b *blockFile) openExisting() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.fs.Open(b.name, vfs.FlagWrite|vfs.FlagDirect)
	if err != nil {
		return vfs.IgnoreMissing(err)
	}
	return b.use(f)
}

// close closes the file; another write opens it again. While a write hangs the file cannot be closed, and
// close does not wait for it.
func (b *blockFile) close() error {
	if !b.mu.TryLock() {
		return nil
	}
	defer b.mu.Unlock()
	if b.file == nil {
		return nil
	}
	return b.closeFile()
}
