// SPDX-License-Identifier: Apache-2.0

// Package vfs is the interface through which servers and tools reach the shared filesystem.
//
// The protocol rests on what FS and File promise: when a write is durable, which calls may answer
// from a cache, and that a file which is opened with FlagDirect is read from the storage.
// Package osfs implements them on the operating system, package volumetest on a simulated disk that
// loses, delays and caches. The functions are what every user of an FS needs: files that are
// read and written whole, in blocks or in pieces.
package vfs

import (
	"errors"
	"io"
	"unsafe"
)

// FS is the seam through which all storage is reached: one server's view of
// the shared directory. Names are relative to the volume's root, clean and
// slash-separated; "." is the root.
//
// Errors wrap the system's, so errors.Is(err, fs.ErrNotExist) and
// errors.Is(err, syscall.ENOSPC) work. An error says nothing about whether the
// call took effect: on a network filesystem it may have, or may yet.
// All methods may be called from several goroutines.
type FS interface {
	// Kind says what the filesystem is, which decides how Direct opens behave.
	Kind() Kind
	// Space says how much room there is. It may hang where everything else is well.
	Space() (Space, error)
	// Open opens a regular file. It never follows a symbolic link in any part
	// of the name and refuses everything but regular files.
	Open(name string, flag Flag) (File, error)
	// Mkdir makes one directory; it fails with fs.ErrExist where the name is taken.
	Mkdir(name string) error
	// Rename moves a file or directory. A directory moved onto a directory that
	// is not empty fails. A file moved onto a file replaces it.
	Rename(oldName, newName string) error
	// Link makes a hard link and fails with fs.ErrExist where newName is taken.
	Link(oldName, newName string) error
	// Remove unlinks a file or removes an empty directory.
	Remove(name string) error
	// ReadDir lists a directory in order of names.
	ReadDir(name string) ([]Entry, error)
	// Lstat describes a name without following symbolic links.
	Lstat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// TryLock takes the flock of an existing file, opened O_RDWR without
	// creating it. It returns ErrLocked where somebody else holds it.
	TryLock(name string) (Lock, error)
	// Replace writes a file atomically: a temporary beside it, fsync, rename
	// over the name, fsync of the directory. For views only: a name that is
	// replaced carries no authority.
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
	// Stat describes the open file. On network filesystems it asks the server, not a cache.
	Stat() (Info, error)
	Close() error
}

// Lock is a held flock. It stays with its open file when the file is renamed.
type Lock interface {
	Unlock() error
}

// ErrLocked says that somebody else holds a flock.
var ErrLocked = errors.New("locked by another process")

// Flag says how a file is opened.
type Flag uint8

// The open flags. Reading is always allowed.
const (
	// FlagRead opens for reading only.
	FlagRead Flag = 0
	// FlagWrite opens for reading and writing.
	FlagWrite Flag = 1 << iota
	// FlagCreate makes the file, which must not exist (O_CREAT|O_EXCL); it implies FlagWrite.
	FlagCreate
	// FlagDirect bypasses the caches of a network filesystem
	// (O_DIRECT|O_DSYNC); it changes nothing on a single-host filesystem.
	FlagDirect
	// FlagDsync makes each write durable before it returns on a network
	// filesystem (O_DSYNC); it changes nothing on a single-host filesystem.
	FlagDsync
)

// Kind says what sort of filesystem holds the volume.
type Kind struct {
	// Name as statfs tells it: "ext4", "nfs", "fuse", ….
	Name string
	// Network is true where several hosts may cache, so that Direct opens are needed.
	Network bool
}

// Space is how much room a filesystem has, in bytes.
type Space struct {
	// Free is what anybody may use, Left what is not used: some keep a part for root.
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
	// Unchanged says of an empty file that nobody has written to it, cut it or moved it since it
	// was made. Only File.Stat tells, on single-host filesystems that know when a file was
	// made; else it is false.
	Unchanged bool
}

// Type is what a name leads to.
type Type uint8

// The types of names. Everything but files and directories is refused everywhere.
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
// are multiples of it. 4096 satisfies every filesystem in the table of README.md.
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
