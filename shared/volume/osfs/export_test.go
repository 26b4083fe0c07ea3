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
