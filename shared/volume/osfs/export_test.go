// SPDX-License-Identifier: Apache-2.0

package osfs

import "github.com/holdfast-lock/holdfast/shared/volume/vfs"

// OpenNetwork opens a local directory by the rules for network filesystems.
func OpenNetwork(root string) (*FS, error) {
	f, err := Open(root)
	if err == nil {
		f.kind = vfs.Kind{Name: "local as network", Network: true}
	}
	return f, err
}

// KindByMagic is the table of filesystems.
func KindByMagic(magic uint32) vfs.Kind { return kindByMagic(magic) }

// BytesOf is how many bytes so many blocks have.
func BytesOf(blocks uint64, unit int64) int64 { return bytesOf(blocks, unit) }
