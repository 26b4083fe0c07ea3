// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// TryLock takes the flock of an existing regular file. The flock package opens
// by absolute path, which may lead elsewhere by now (the root was moved, a
// component became a symbolic link), so the file it locked is compared with
// the one that the name leads to from the root.
func (f *FS) TryLock(name string) (vfs.Lock, error) {
	if other, rest := f.elsewhere(name); other != f {
		return other.TryLock(rest)
	}
	if err := f.lockable(name); err != nil {
		return nil, pathError("lock", name, err)
	}
	// Without O_CREATE: a lock file that is gone must not come back. With
	// O_RDWR: NFS grants an exclusive lock to writers only.
	lock := flock.New(filepath.Join(f.path, filepath.FromSlash(name)), flock.SetFlag(os.O_RDWR|f.noDelegation()))
	switch got, err := lock.TryLock(); {
	case err != nil:
		return nil, pathError("lock", name, err)
	case !got:
		return nil, pathError("lock", name, vfs.ErrLocked)
	}
	if err := f.verify(lock, name); err != nil {
		return nil, pathError("lock", name, errors.Join(err, lock.Unlock()))
	}
	return lock, nil
}

// lockable refuses what Open would refuse.
func (f *FS) lockable(name string) error {
	found, err := f.Lstat(name)
	switch {
	case err != nil:
		return err
	case found.Type == vfs.TypeDir:
		return unix.EISDIR
	case found.Type != vfs.TypeFile:
		return unix.ELOOP
	default:
		return nil
	}
}

func (f *FS) verify(lock *flock.Flock, name string) error {
	locked, err := lock.Stat()
	if err != nil {
		return err
	}
	named, err := f.root.Lstat(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	if !os.SameFile(locked, named) {
		return fmt.Errorf("%s leads to another file than the volume's name: %w", lock.Path(), unix.ESTALE)
	}
	return nil
}
