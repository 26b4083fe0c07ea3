// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/wal"
)

// dir shows one epoch's directory to package wal. With a gate it stops once the
// reign is closed; without one it only reads or belongs to Init.
type dir struct {
	fs   FS
	path string
	gate func() error
}

var _ wal.Dir = (*dir)(nil)

var errReadOnly = errors.New("this directory is opened for reading only")

func (d *dir) may() error {
	if d.gate == nil {
		return nil
	}
	return d.gate()
}

func (d *dir) name(n string) string { return d.path + "/" + n }

// Names lists the directory.
func (d *dir) Names() ([]string, error) {
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, x := range entries {
		if x.Type == TypeFile {
			names = append(names, x.Name)
		}
	}
	return names, nil
}

// Open opens for reading, past every cache.
func (d *dir) Open(n string) (wal.File, error) {
	f, err := d.fs.Open(d.name(n), FlagDirect)
	if err != nil {
		return nil, err
	}
	return walFile{f, func() error { return errReadOnly }}, nil
}

// OpenWrite opens for writing.
func (d *dir) OpenWrite(n string) (wal.File, error) {
	if err := d.may(); err != nil {
		return nil, err
	}
	f, err := d.fs.Open(d.name(n), FlagWrite|FlagDirect)
	if err != nil {
		return nil, err
	}
	return walFile{f, d.may}, nil
}

// Create makes a file of zeros.
func (d *dir) Create(n string, size int64) (wal.File, error) {
	if err := d.may(); err != nil {
		return nil, err
	}
	f, err := createZeros(d.fs, d.name(n), size)
	if err != nil {
		return nil, err
	}
	return walFile{f, d.may}, nil
}

// Rename renames inside the directory.
func (d *dir) Rename(oldName, newName string) error {
	if err := d.may(); err != nil {
		return err
	}
	return d.fs.Rename(d.name(oldName), d.name(newName))
}

// Remove unlinks a file.
func (d *dir) Remove(n string) error {
	if err := d.may(); err != nil {
		return err
	}
	return d.fs.Remove(d.name(n))
}

// Sync makes the names durable.
func (d *dir) Sync() error {
	if err := d.may(); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// walFile is a File that writes only while its gate allows.
type walFile struct {
	File
	may func() error
}

// WriteAt writes while the reign is open.
func (f walFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.may(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

// Size is the file's size in bytes.
func (f walFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	return info.Size, nil
}
