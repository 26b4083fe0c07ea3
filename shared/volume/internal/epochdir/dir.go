// SPDX-License-Identifier: Apache-2.0

package epochdir

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Dir gives package wal access to one epoch's directory.
type Dir struct {
	FS   vfs.FS
	Path string
	// Gate is called before each change, which fails with its error, for example after the term has ended.
	// A nil Gate allows all changes, for a reader or the process that creates the directory.
	Gate func() error
}

var _ wal.Dir = (*Dir)(nil)

// ErrReadOnly is returned by writes to a file that was opened for reading.
var ErrReadOnly = errors.New("this directory is opened for reading only")

func (d *Dir) may() error {
	if d.Gate == nil {
		return nil
	}
	return d.Gate()
}

func (d *Dir) name(n string) string { return d.Path + "/" + n }

// Names returns the names of the files in the directory.
func (d *Dir) Names() ([]string, error) {
	entries, err := d.FS.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, x := range entries {
		if x.Type == vfs.TypeFile {
			names = append(names, x.Name)
		}
	}
	return names, nil
}

// Open opens for reading, past every cache.
func (d *Dir) Open(n string) (wal.File, error) {
	f, err := d.FS.Open(d.name(n), vfs.FlagDirect)
	if err != nil {
		return nil, err
	}
	return walFile{f, func() error { return ErrReadOnly }}, nil
}

// OpenWrite opens for writing.
func (d *Dir) OpenWrite(n string) (wal.File, error) {
	if err := d.may(); err != nil {
		return nil, err
	}
	f, err := d.FS.Open(d.name(n), vfs.FlagWrite|vfs.FlagDirect)
	if err != nil {
		return nil, err
	}
	return walFile{f, d.may}, nil
}

// Create creates a file of zeros.
func (d *Dir) Create(n string, size int64) (wal.File, error) {
	if err := d.may(); err != nil {
		return nil, err
	}
	f, err := vfs.CreateZeros(d.FS, d.name(n), size)
	if err != nil {
		return nil, err
	}
	return walFile{f, d.may}, nil
}

// Rename renames inside the directory.
func (d *Dir) Rename(oldName, newName string) error {
	if err := d.may(); err != nil {
		return err
	}
	return d.FS.Rename(d.name(oldName), d.name(newName))
}

// Remove unlinks a file.
func (d *Dir) Remove(n string) error {
	if err := d.may(); err != nil {
		return err
	}
	return d.FS.Remove(d.name(n))
}

// Sync makes the names in the directory durable.
func (d *Dir) Sync() error {
	if err := d.may(); err != nil {
		return err
	}
	return d.FS.SyncDir(d.Path)
}

// walFile is a file whose writes may refuses.
type walFile struct {
	vfs.File
	may func() error
}

// WriteAt implements io.WriterAt.
func (f walFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.may(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

// Size returns the size of the file in bytes.
func (f walFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	return info.Size, nil
}

// HidingDir is a Dir that lists only the segments that begin before the LSN Before; 0 lists all.
type HidingDir struct {
	Dir
	Before cluster.LSN
}

// Names implements wal.Dir.
func (d *HidingDir) Names() ([]string, error) {
	names, err := d.Dir.Names()
	return slices.DeleteFunc(names, func(n string) bool {
		first, ok := wal.ParseSegmentName(n)
		return ok && d.Before != 0 && first >= d.Before
	}), err
}
