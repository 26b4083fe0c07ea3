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

// InParent makes a call on the directory that a name is in, as the methods do.
func (f *FS) InParent(name string, do func(dir int) error) error {
	return f.inParent("test", name, func(dir int, _ string) error { return do(dir) })
}
