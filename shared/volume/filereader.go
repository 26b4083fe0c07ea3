// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// FileReader is a protected file opened for reading only, by anybody at any time. What
// is read comes past every cache. Several goroutines may read.
type FileReader struct {
	f     File
	inode uint64
}

// OpenReader opens a protected file for reading. Its name may lead to another file than
// the bound one: compare the inode.
func (v *Volume) OpenReader(name cluster.FileName) (*FileReader, error) {
	return OpenReader(v.fs, name)
}

// OpenReader opens a protected file of a volume whose servers need not run. It fails
// with ErrMoved where nothing has the name.
func OpenReader(fsys FS, name cluster.FileName) (*FileReader, error) {
	if err := name.Validate(); err != nil {
		return nil, err
	}
	f, err := fsys.Open(ProtectedPath(name), FlagRead|FlagDirect)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("protected file %s: %w", name, ErrMoved)
	}
	if err != nil {
		return nil, fmt.Errorf("protected file %s: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("protected file %s: %w", name, err), f.Close())
	}
	return &FileReader{f: f, inode: info.Inode}, nil
}

// Inode is the identity of the open file.
func (r *FileReader) Inode() uint64 { return r.inode }

// ReadAt implements io.ReaderAt.
func (r *FileReader) ReadAt(b []byte, off int64) (int, error) {
	return directReader{r.f}.ReadAt(b, off)
}

// Close closes the descriptor.
func (r *FileReader) Close() error { return r.f.Close() }
