// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// inRoot calls do with the root's descriptor, which stays open until do returns, whatever Close does meanwhile: the
// number could soon be that of another directory.
func (f *FS) inRoot(do func(root int) error) error {
	c, err := f.dir.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if c.Control(func(fd uintptr) { inner = do(int(fd)) }) != nil {
		return fs.ErrClosed // it returns no other error
	}
	return inner
}

// walk calls do with the descriptor of a directory, for the *at calls.
func (f *FS) walk(name string, do func(dir int) error) error {
	return f.inRoot(func(root int) error {
		dir, done := root, func() {}
		if name == "." {
			return do(dir)
		}
		for part := range strings.SplitSeq(name, "/") {
			next, err := openPart(dir, part)
			done()
			if err != nil {
				return err
			}
			// Nothing is lost where closing an O_PATH descriptor fails.
			dir, done = next, func() { _ = unix.Close(next) }
		}
		defer done()
		return do(dir)
	})
}

// openPart opens one component, which must be a directory and no symbolic link.
func openPart(dir int, part string) (int, error) {
	fd, err := openat(dir, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) {
		var st unix.Stat_t
		if unix.Fstatat(dir, part, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return 0, unix.ELOOP
		}
	}
	return fd, err
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// inParent calls do with the directory that a name is in and its last component.
func (f *FS) inParent(op, name string, do func(dir int, base string) error) error {
	if err := valid(name); err != nil {
		return pathError(op, name, err)
	}
	return pathError(op, name, f.walk(path.Dir(name), func(dir int) error {
		return retry(func() error { return do(dir, path.Base(name)) })
	}))
}

// inParents is inParent for two names.
func (f *FS) inParents(op, oldName, newName string, do func(int, string, int, string) error) error {
	from, oldRest := f.elsewhere(oldName)
	to, newRest := f.elsewhere(newName)
	if from != to {
		return &os.LinkError{Op: op, Old: oldName, New: newName, Err: unix.EXDEV}
	}
	if from != f {
		return from.inParents(op, oldRest, newRest, do)
	}
	var inner error
	outer := f.inParent(op, oldName, func(oldDir int, oldBase string) error {
		inner = f.inParent(op, newName, func(newDir int, newBase string) error {
			return do(oldDir, oldBase, newDir, newBase)
		})
		return nil
	})
	if outer != nil {
		return outer
	}
	if inner != nil {
		err, _ := errors.AsType[*fs.PathError](inner)
		return &os.LinkError{Op: op, Old: oldName, New: newName, Err: err.Err}
	}
	return nil
}

// valid refuses names that are not clean, relative and below the root.
func valid(name string) error {
	if name == "." || !fs.ValidPath(name) {
		return unix.EINVAL
	}
	return nil
}

// openDir opens a directory for reading and syncing.
func (f *FS) openDir(op, name string) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, pathError(op, name, unix.EINVAL)
	}
	var fd int
	err := f.walk(name, func(dir int) (err error) {
		fd, err = openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		return err
	})
	if err != nil {
		return nil, pathError(op, name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// retry repeats a call that a signal interrupted, as package os does.
func retry(call func() error) error {
	for {
		err := call()
		if err != unix.EINTR {
			return err
		}
	}
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
