// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// disk is what a guard needs of its filesystem. Names are absolute paths.
type disk interface {
	// mkdir makes one directory. It returns false if the directory is there already.
	mkdir(dir string) (made bool, err error)
	// syncDir makes the names in a directory durable.
	syncDir(dir string) error
	// lock takes the lock of a file, which it makes if need be. It returns ErrInUse if
	// another process has the lock.
	lock(name string) (unlock func() error, err error)
	readFile(name string) ([]byte, error)
	// create makes a new file, in the place of one that was left there.
	create(name string) (file, error)
	rename(from, to string) error
	// size returns the size of f in bytes. It fails if name does not lead to f.
	size(f file, name string) (int64, error)
}

// file is an open file. Every write goes to its end, wherever that is by then.
type file interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

// makeDir makes a directory and what is missing above it, and makes all their names durable,
// also of those that a process before this one made and could not sync. A guard that a power
// loss takes away with its directory is followed by a new one, which admits every old token.
func makeDir(d disk, dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	if err := makeDir(d, parent); err != nil {
		return err
	}
	made, err := d.mkdir(dir)
	if err != nil {
		return err
	}
	if err := d.syncDir(parent); made || !notOurs(err) {
		return err
	}
	return nil
}

// notOurs reports whether a directory that was there already cannot be synced because of
// what it is: then no guard made anything in it.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS)
}

// osDisk is the filesystem of the operating system.
type osDisk struct{}

func (osDisk) mkdir(dir string) (made bool, err error) {
	if err = os.Mkdir(dir, 0o700); err == nil {
		return true, nil
	}
	if info, statErr := os.Stat(dir); statErr == nil && info.IsDir() {
		return false, nil
	}
	return false, err
}

func (osDisk) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osDisk) lock(name string) (func() error, error) {
	l := flock.New(name)
	got, err := l.TryLock()
	if err != nil {
		return nil, err
	}
	if !got {
		return nil, ErrInUse
	}
	return l.Unlock, nil
}

func (osDisk) readFile(name string) ([]byte, error) { return os.ReadFile(name) }

func (osDisk) create(name string) (file, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) size(f file, name string) (int64, error) {
	opened, err := f.(*os.File).Stat()
	if err != nil {
		return 0, err
	}
	named, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	if !os.SameFile(opened, named) {
		return 0, fmt.Errorf("%s is another file by now", name)
	}
	return opened.Size(), nil
}
