// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Magic numbers that x/sys/unix does not have, from the filesystems' sources.
const (
	magicGFS2   = 0x01161970
	magicLustre = 0x0bd00bd0
	magicGPFS   = 0x47504653
	magicBeeGFS = 0x19830326
	magicZFS    = 0x2fc12fc1
)

// kindOf asks the kernel which filesystem a directory is on.
func kindOf(dir *os.File) (vfs.Kind, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(dir.Fd()), &st) }); err != nil {
		return vfs.Kind{}, fmt.Errorf("statfs: %w", err)
	}
	return kindByMagic(uint32(st.Type)), nil
}

// kindByMagic trusts one kernel's caches only on filesystems known to belong
// to one kernel. The unknown count as networked: direct I/O is right everywhere.
func kindByMagic(magic uint32) vfs.Kind {
	switch magic {
	case unix.EXT4_SUPER_MAGIC: // ext2 and ext3 say the same
		return vfs.Kind{Name: "ext4"}
	case unix.XFS_SUPER_MAGIC:
		return vfs.Kind{Name: "xfs"}
	case unix.BTRFS_SUPER_MAGIC:
		return vfs.Kind{Name: "btrfs"}
	case unix.TMPFS_MAGIC:
		return vfs.Kind{Name: "tmpfs"}
	case unix.OVERLAYFS_SUPER_MAGIC:
		return vfs.Kind{Name: "overlayfs"}
	default:
		return vfs.Kind{Name: networkName(magic), Network: true}
	}
}

// nfs is the kind of NFS, of all versions.
const nfs = "nfs"

func networkName(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return nfs
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case magicGFS2:
		return "gfs2"
	case unix.OCFS2_SUPER_MAGIC:
		return "ocfs2"
	case magicLustre:
		return "lustre"
	case magicGPFS:
		return "gpfs"
	case magicBeeGFS:
		return "beegfs"
	case unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return "cifs"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "afs"
	case magicZFS:
		return "zfs"
	default:
		return fmt.Sprintf("unknown (%#x)", magic)
	}
}
