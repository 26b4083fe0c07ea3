// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Owned is an Info with whose it is and since when it has been there.
type Owned struct {
	vfs.Info
	UID uint32
	// Made is when it was made, by the clock of the filesystem; where that is not recorded, when it was last changed.
	// Changed is the latter.
	Made, Changed time.Time
}

// Owner describes a name, without following symbolic links. On network filesystems the attributes come from the server;
// the name itself may still come from a cache.
func (f *FS) Owner(name string) (o Owned, err error) {
	err = f.inParent("statx", name, func(dir int, base string) error {
		flags := unix.AT_SYMLINK_NOFOLLOW
		if f.kind.Network {
			flags |= unix.AT_STATX_FORCE_SYNC
		}
		var st unix.Statx_t
		if err := unix.Statx(dir, base, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
			return err
		}
		o.Info = info(st.Ino, int64(st.Size), uint64(st.Nlink), uint32(st.Mode))
		o.UID, o.Changed = st.Uid, moment(st.Mtime)
		if o.Made = o.Changed; st.Mask&unix.STATX_BTIME != 0 && st.Btime.Sec > 0 {
			o.Made = moment(st.Btime)
		}
		return nil
	})
	return o, err
}

func moment(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// SomeNames returns up to n names of a directory, in no order. To open a directory has the client of a network filesystem
// ask whether it has changed.
func (f *FS) SomeNames(name string, n int) ([]string, error) {
	dir, err := f.openDir("readdir", name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// LoginMode is the mode of a directory in which everybody may make names, and only the owner see those of others, or
// remove them.
const LoginMode = 0o1733

// MkdirLogin makes a directory with LoginMode, whatever the umask is, or gives one that is there this mode.
func (f *FS) MkdirLogin(name string) error {
	if err := f.mkdir(name, privateDirMode); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	dir, err := f.openDir("chmod", name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return pathError("chmod", name, retry(func() error { return unix.Fchmod(int(dir.Fd()), LoginMode) }))
}
