// SPDX-License-Identifier: Apache-2.0

package wal

import "io"

// File is an open segment. Offsets, lengths and addresses of all reads and
// writes are multiples of BlockSize, so it may be open for direct I/O. A call that
// returns an error may have taken effect or not.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Datasync makes content durable, and the metadata needed to read it.
	Datasync() error
	// Sync makes content and all metadata durable.
	Sync() error
	// Size is the size in bytes, asked of the filesystem and not of a cache.
	Size() (int64, error)
	Close() error
}

// Dir is the directory of one epoch. Its methods may be called from several
// goroutines. Errors wrap the system's, so that errors.Is finds fs.ErrNotExist,
// syscall.ENOSPC and syscall.EDQUOT. A call that returns an error may have taken
// effect or not.
type Dir interface {
	// Names lists the names in any order.
	Names() ([]string, error)
	// Open opens for reading, anew each time and past the caches of a network filesystem.
	Open(name string) (File, error)
	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(name string) (File, error)
	// Create makes a file, which must not exist, of size bytes: zeros are
	// written, not allocated, and synced. The directory is not synced. A size of
	// 0 makes an empty file.
	Create(name string, size int64) (File, error)
	// Rename gives a file another name, which is free.
	Rename(oldName, newName string) error
	// Remove unlinks a file.
	Remove(name string) error
	// Sync makes the names durable.
	Sync() error
}
