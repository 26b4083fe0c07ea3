// SPDX-License-Identifier: Apache-2.0

// Package vfs is the interface through which servers and tools reach the shared filesystem.
//
// The protocol depends on what FS and File promise: when a write is durable, which calls may answer
// from a cache, and that reads of a file that was opened with FlagDirect come from the storage.
// Package osfs implements them on the operating system, package volumetest on a simulated disk that
// loses, delays and caches. The functions read and write files whole, in blocks or in pieces.
package vfs

import (
	"errors"
	"io"
	"unsafe"
)

// FS is one server's access to the shared directory. Names are relative to the volume's root, clean and
// slash-separated; "." is the root.
//
// Errors wrap those of the system, so errors.Is(err, fs.ErrNotExist) and
// errors.Is(err, syscall.ENOSPC) work. After an error it is not known whether the
// call took effect: on a network filesystem it may have, or may do so later.
// All methods are safe for concurrent use.
type FS interface {
	// Kind returns the kind of the filesystem, on which the effect of FlagDirect depends.
	Kind() Kind
	// Space returns the free space. It may hang although all other calls work.
	Space() (Space, error)
	// Open opens a regular file. It never follows a symbolic link in any part
	// of the name and refuses everything but regular files.
	Open(name string, flag Flag) (File, error)
	// Mkdir creates one directory. It returns an error that wraps fs.ErrExist if the name is taken.
	Mkdir(name string) error
	// MkdirPrivate creates one directory that only its owner may look into. Its errors are those of Mkdir.
	MkdirPrivate(name string) error
	// Rename moves a file or directory. A directory moved onto a directory that
	// is not empty fails. A file moved onto a file replaces it.
	Rename(oldName, newName string) error
	// Link makes a hard link. It returns an error that wraps fs.ErrExist if newName is taken.
	Link(oldName, newName string) error
	// Remove unlinks a file or removes an empty directory.
	Remove(name string) error
	// ReadDir lists a directory in order of names.
	ReadDir(name string) ([]Entry, error)
	// Lstat returns what a name leads to, without following symbolic links.
	Lstat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// TryLock takes the flock of an existing file, opened O_RDWR without
	// creating it. It returns an error that wraps ErrLocked if another process holds it.
	TryLock(name string) (Lock, error)
	// Replace writes a file atomically: a temporary beside it, fsync, rename
	// over the name, fsync of the directory. It is for views only: nothing may depend on a file that is
	// replaced, because caches may lead its name to an older one.
	Replace(name string, write func(io.Writer) error) error
}

// File is an open regular file. ReadAt and WriteAt keep the contracts of
// io.ReaderAt and io.WriterAt. With Direct set, offsets, lengths and the
// address of the buffer must be multiples of BlockSize (see AlignedBuffer).
type File interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes content and metadata durable (fsync).
	Sync() error
	// Datasync makes content durable, and the metadata needed to read it (fdatasync).
	Datasync() error
	// Stat returns the attributes of the open file. On network filesystems it asks the server, not a cache.
	Stat() (Info, error)
	Close() error
}

// Lock is a held flock. It stays with its open file when the file is renamed.
type Lock interface {
	Unlock() error
}

// ErrLocked means that another process holds a flock.
var ErrLocked = errors.New("locked by another process")

// Flag is a set of options with which a file is opened.
type Flag uint8

// The open flags. Reading is always allowed.
const (
	// FlagRead opens for reading only.
	FlagRead Flag = 0
	// FlagWrite opens for reading and writing.
	FlagWrite Flag = 1 << iota
	// FlagCreate creates the file, which must not exist (O_CREAT|O_EXCL); it implies FlagWrite.
	FlagCreate
	// FlagDirect bypasses the caches of a network filesystem
	// (O_DIRECT|O_DSYNC); it changes nothing on a single-host filesystem.
	FlagDirect
	// FlagDsync makes each write durable before it returns on a network
	// filesystem (O_DSYNC); it changes nothing on a single-host filesystem.
	FlagDsync
	// FlagPrivate, with FlagCreate, creates a file that only its owner may read.
	FlagPrivate
)

// Kind is the kind of filesystem that holds the volume.
type Kind struct {
	// Name is the type that statfs returns: "ext4", "nfs", "fuse", ….
	Name string
	// Network is true if several hosts may cache, so that FlagDirect is needed.
	Network bool
}

// Space is the free space of a filesystem, in bytes.
type Space struct {
	// Free is what any user may use, Left what is not used: some filesystems reserve a part for root.
	Free, Left int64
}

// Info describes a file or directory.
type Info struct {
	Inode uint64
	Size  int64
	Nlink uint64
	Type  Type
	// Mode holds the permission bits.
	Mode uint32
	// Unchanged is true for an empty file that was never written, truncated or moved since it
	// was created. Only File.Stat sets it, on single-host filesystems that record when a file was
	// created; else it is false.
	Unchanged bool
}

// Type is what a name leads to.
type Type uint8

// The types. Everything but files and directories is refused everywhere.
const (
	TypeOther Type = iota
	TypeFile
	TypeDir
)

// Entry is one name of a directory.
type Entry struct {
	Name string
	Type Type
}

// BlockSize is the unit of direct I/O: offsets, lengths and buffer addresses
// are multiples of it. 4096 satisfies every filesystem in the table of docs/filesystems.md.
const BlockSize = 4096

// AlignedBuffer returns a zeroed buffer of n bytes whose address is a multiple of BlockSize.
func AlignedBuffer(n int) []byte {
	raw := make([]byte, n+BlockSize)
	skip := 0
	if rest := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % BlockSize); rest != 0 {
		skip = BlockSize - rest
	}
	return raw[skip : skip+n : skip+n]
}
