// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// ReadFile opens a small file with flag and reads it whole.
func ReadFile(fsys FS, name string, flag Flag) (b []byte, err error) {
	f, err := fsys.Open(name, flag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, info.Size))
}

// CreateFile creates a file, which must not exist, with this content, and syncs it. Its name is
// durable after FS.SyncDir of its directory.
func CreateFile(fsys FS, name string, content []byte) error {
	return WriteFile(fsys, name, FlagCreate, content)
}

// WriteFile opens a file with flag, writes this content to its beginning, and syncs it. An error that
// wraps fs.ErrExist means that FlagCreate found a file.
func WriteFile(fsys FS, name string, flag Flag, content []byte) (err error) {
	f, err := fsys.Open(name, flag)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Sync()
}

// CreateZeros creates a file of size bytes, which must not exist, and syncs it. It writes the zeros,
// so that later writes need no new space. The file that it returns is open with FlagWrite and FlagDirect.
func CreateZeros(fsys FS, name string, size int64) (_ File, err error) {
	f, err := fsys.Open(name, FlagCreate|FlagDirect)
	if err != nil {
		return nil, err
	}
	// Memory that was never written is one shared page of the kernel, and the NFS
	// client does not merge requests that have the same page: 4096 WRITEs for 16 MiB instead of 128.
	zeros := AlignedBuffer(int(min(size, 1<<20)))
	clear(zeros)
	for off := int64(0); off < size; off += int64(len(zeros)) {
		n := min(size-off, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], off); err != nil {
			return nil, errors.Join(fmt.Errorf("zero-fill %s: %w", name, err), f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(fmt.Errorf("sync %s: %w", name, err), f.Close())
	}
	return f, nil
}

// RemoveTree removes a directory and everything below it. A name that another process removes meanwhile is no error.
func RemoveTree(fsys FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, x := range entries {
		name := dir + "/" + x.Name
		if x.Type == TypeDir {
			err = RemoveTree(fsys, name)
		} else {
			err = fsys.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fsys.Remove(dir)
}

// IsFull reports whether an error means a full disk or an exhausted quota.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// A read that returns something invalid may have met another process's write. The reader tries up to
// Retries times, with RetryPause between, before it accepts the result.
const (
	Retries    = 3
	RetryPause = 100 * time.Millisecond
)

// AllZero reports whether b holds nothing but zeros.
func AllZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// ReadBlock fills b from off. Returns io.ErrUnexpectedEOF if the file has fewer bytes.
func ReadBlock(f File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Pause waits for d. Returns the context's cause if that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// DirectReader reads at any offset and length of a file that was opened with FlagDirect.
type DirectReader struct{ File File }

// ReadAt implements io.ReaderAt: it reads the blocks that hold the bytes.
func (d DirectReader) ReadAt(b []byte, off int64) (int, error) {
	before := off % BlockSize
	blocks := AlignedBuffer(int((before + int64(len(b)) + BlockSize - 1) &^ (BlockSize - 1)))
	n, err := d.File.ReadAt(blocks, off-before)
	if n = copy(b, blocks[min(int64(n), before):n]); n == len(b) {
		return n, nil
	}
	if err == nil {
		err = io.EOF
	}
	return n, err
}

// ReadBlockFile reads a file of one block, past the caches if flag has FlagDirect.
func ReadBlockFile(fsys FS, name string, flag Flag) (b []byte, err error) {
	f, err := fsys.Open(name, flag&FlagDirect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b = AlignedBuffer(BlockSize)
	return b, ReadBlock(f, b, 0)
}

// IgnoreMissing returns err, but nil for an error that wraps fs.ErrNotExist.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
