// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// On NFS every file is opened for direct I/O, so that no server gives a delegation of it, and is
// then read and written as the caller asked for.
func TestOpenAsksNFSForNoDelegation(t *testing.T) {
	fsys, err := OpenNetwork(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // it was only read
	fsys.kind.Name = nfs
	for flag, name := range map[vfs.Flag]string{vfs.FlagCreate: "made", vfs.FlagCreate | vfs.FlagDirect: "direct"} {
		f, err := fsys.Open(name, flag)
		if err != nil {
			t.Skipf("this filesystem has no direct I/O: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for flag, direct := range map[vfs.Flag]bool{
		vfs.FlagRead: false, vfs.FlagWrite: false, vfs.FlagWrite | vfs.FlagDsync: false,
		vfs.FlagDirect: true, vfs.FlagWrite | vfs.FlagDirect: true,
	} {
		if fsys.openFlags(flag)&unix.O_DIRECT == 0 {
			t.Errorf("flag %v: a delegation would be given", flag)
		}
		f, err := fsys.open(unix.AT_FDCWD, fsys.path+"/made", "made", flag)
		if err != nil {
			t.Fatal(err)
		}
		err = f.control("fcntl", func(fd int) error {
			got, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if got&unix.O_DIRECT != 0 != direct || got&unix.O_NONBLOCK != 0 {
				t.Errorf("flag %v: the file is open with %#x", flag, got)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if l, err := fsys.TryLock("made"); err != nil {
		t.Error(err)
	} else if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}
