// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Open opens a regular file.
func (f *FS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if name == "." {
		return nil, pathError("open", name, unix.EISDIR)
	}
	if other, rest := f.elsewhere(name); other != f {
		return other.Open(rest, flag)
	}
	var out *file
	err := f.inParent("open", name, func(dir int, base string) (err error) {
		out, err = f.open(dir, base, name, flag)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (f *FS) open(dir int, base, name string, flag vfs.Flag) (*file, error) {
	direct := flag&vfs.FlagDirect != 0 && f.kind.Network
	// Without O_NONBLOCK a fifo would hold us until somebody writes to it.
	mode := uint32(fileMode)
	if flag&vfs.FlagPrivate != 0 {
		mode = privateFileMode
	}
	fd, err := openat(dir, base, unix.O_NOFOLLOW|unix.O_NONBLOCK|f.openFlags(flag), mode)
	if direct && errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%s does not do direct I/O, without which its caches cannot be trusted: %w", f.kind.Name, err)
	}
	if err != nil {
		return nil, err
	}
	err = regular(fd, direct)
	if err == nil && f.private {
		err = private(fd, filepath.Join(f.path, name))
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	opened := os.NewFile(uintptr(fd), name)
	raw, err := opened.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return &file{opened: opened, raw: raw, name: name, kind: f.kind, direct: direct}, nil
}

func (f *FS) openFlags(flag vfs.Flag) int {
	flags := unix.O_RDONLY
	if flag&(vfs.FlagWrite|vfs.FlagCreate) != 0 {
		flags = unix.O_RDWR
	}
	if flag&vfs.FlagCreate != 0 {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	if flag&vfs.FlagDirect != 0 && f.kind.Network {
		flags |= unix.O_DIRECT | unix.O_DSYNC
	}
	if flag&vfs.FlagDsync != 0 && f.kind.Network {
		flags |= unix.O_DSYNC
	}
	return flags | f.noDelegation()
}

// noDelegation has an NFS server give this machine no delegation of what it opens: Linux asks for
// none where a file is opened for direct I/O (fs/nfs/nfs4proc.c, nfs4_map_atomic_open_share; it
// needs NFS 4.1). With one, whoever opens the file after this machine has died waits until the
// server gives the machine up.
func (f *FS) noDelegation() int {
	if f.kind.Name != nfs {
		return 0
	}
	return unix.O_DIRECT
}

// regular refuses everything but regular files, and takes off what only the opening needed.
func regular(fd int, direct bool) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		flags &^= unix.O_NONBLOCK
		if !direct {
			flags &^= unix.O_DIRECT
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
		return err
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return fmt.Errorf("not a regular file: %w", unix.EINVAL)
	}
}

// private returns an error that wraps ErrNotPrivate unless an open file belongs to the user of this process, or to root, and nobody
// else may read or write it. The descriptor is asked, because its name may lead elsewhere by now.
func private(fd int, path string) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	switch me := os.Geteuid(); {
	case st.Uid != 0 && int(st.Uid) != me:
		return fmt.Errorf("%w: %s belongs to user %d and you are %d; see who put it there, then type: chown %d %s", ErrNotPrivate, path, st.Uid, me, me, path)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%w: %s has mode %o; type: chmod go= %s   (and if somebody may have read it, see docs/security.md on what has leaked)", ErrNotPrivate, path, st.Mode&0o777, path)
	}
	return nil
}

// file is an open regular file.
type file struct {
	opened *os.File
	raw    syscall.RawConn // of opened: its descriptor, safe against a concurrent Close
	name   string
	kind   vfs.Kind
	direct bool
}

// ReadAt reads until the buffer is full or the file ends.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if !f.direct {
		return f.opened.ReadAt(p, off)
	}
	total := 0
	for total < len(p) {
		n := 0
		err := f.control("read", func(fd int) (err error) {
			n, err = unix.Pread(fd, p[total:], off+int64(total))
			return err
		})
		if err != nil {
			return total, err
		}
		total += n
		// A read that ends inside a block has met the end of the file. Going
		// on from there would be misaligned, and EINVAL.
		if n == 0 || total < len(p) && total%vfs.BlockSize != 0 {
			return total, io.EOF
		}
	}
	return total, nil
}

// WriteAt writes all of p, or says how much.
func (f *file) WriteAt(p []byte, off int64) (int, error) { return f.opened.WriteAt(p, off) }

// Sync is fsync.
func (f *file) Sync() error { return f.opened.Sync() }

// Datasync is fdatasync.
func (f *file) Datasync() error { return f.control("fdatasync", unix.Fdatasync) }

// Stat describes the open file.
func (f *file) Stat() (vfs.Info, error) {
	var out vfs.Info
	err := f.control("stat", func(fd int) (err error) {
		out, err = describe(fd, "", unix.AT_EMPTY_PATH, f.kind)
		if err == nil && out.Size == 0 && !f.kind.Network {
			out.Unchanged = unchanged(fd)
		}
		return err
	})
	return out, err
}

// Close closes the descriptor. On network filesystems its error may be that
// of an earlier write.
func (f *file) Close() error { return f.opened.Close() }

// control makes a call that package os does not have.
func (f *file) control(op string, call func(fd int) error) error {
	var failed error
	err := f.raw.Control(func(fd uintptr) {
		failed = retry(func() error { return call(int(fd)) })
	})
	if err != nil {
		failed = fs.ErrClosed // the only way Control itself can fail
	}
	return pathError(op, f.name, failed)
}

// unchanged compares when a file was made with when it was last changed: every write, cut and
// rename moves the latter on, and no program can set it.
func unchanged(fd int) bool {
	const want = unix.STATX_BTIME | unix.STATX_CTIME
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, want, &st)
	return err == nil && st.Mask&want == want && st.Btime == st.Ctime
}

// describe is fstatat where one host's caches are the truth, and statx that
// asks the server where they are not.
func describe(dir int, name string, flags int, kind vfs.Kind) (vfs.Info, error) {
	if !kind.Network {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, flags); err != nil {
			return vfs.Info{}, err
		}
		return info(st.Ino, st.Size, uint64(st.Nlink), st.Mode), nil
	}
	var st unix.Statx_t
	if err := unix.Statx(dir, name, flags|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
		return vfs.Info{}, err
	}
	return info(st.Ino, int64(st.Size), uint64(st.Nlink), uint32(st.Mode)), nil
}

func info(inode uint64, size int64, nlink uint64, mode uint32) vfs.Info {
	out := vfs.Info{Inode: inode, Size: size, Nlink: nlink, Mode: mode & 0o7777}
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		out.Type = vfs.TypeFile
	case unix.S_IFDIR:
		out.Type = vfs.TypeDir
	}
	return out
}
