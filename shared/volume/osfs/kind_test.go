// SPDX-License-Identifier: Apache-2.0

package osfs

import (
	"math"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		magic uint32
		want  vfs.Kind
	}{
		{0xef53, vfs.Kind{Name: "ext4"}},
		{0x58465342, vfs.Kind{Name: "xfs"}},
		{0x9123683e, vfs.Kind{Name: "btrfs"}},
		{0x01021994, vfs.Kind{Name: "tmpfs"}},
		{0x794c7630, vfs.Kind{Name: "overlayfs"}},
		{0x6969, vfs.Kind{Name: "nfs", Network: true}},
		{0x00c36400, vfs.Kind{Name: "ceph", Network: true}},
		{0x65735546, vfs.Kind{Name: "fuse", Network: true}},
		{0x01161970, vfs.Kind{Name: "gfs2", Network: true}},
		{0x7461636f, vfs.Kind{Name: "ocfs2", Network: true}},
		{0x0bd00bd0, vfs.Kind{Name: "lustre", Network: true}},
		{0xfe534d42, vfs.Kind{Name: "cifs", Network: true}},
		{0x12345678, vfs.Kind{Name: "unknown (0x12345678)", Network: true}},
	} {
		if got := kindByMagic(c.magic); got != c.want {
			t.Errorf("%#x: %+v, want %+v", c.magic, got, c.want)
		}
	}
}

// TestSpaceOfAFilesystemWithoutABound: the bytes of so many blocks may be more than an int64 holds. That
// is much room, and not none.
func TestSpaceOfAFilesystemWithoutABound(t *testing.T) {
	for _, x := range []struct {
		blocks uint64
		unit   int64
		want   int64
	}{
		{0, 4096, 0},
		{3, 4096, 12288},
		{1 << 51, 4096, (math.MaxInt64 / 4096) * 4096},
		{1<<52 - 1, 4096, (math.MaxInt64 / 4096) * 4096},
		{math.MaxUint64, 1 << 20, (math.MaxInt64 >> 20) << 20},
		{math.MaxUint64, 1, math.MaxInt64},
		{7, 0, 0},
	} {
		if got := bytesOf(x.blocks, x.unit); got != x.want {
			t.Errorf("%d blocks of %d bytes: %d, want %d", x.blocks, x.unit, got, x.want)
		}
	}
}
