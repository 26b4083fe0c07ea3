// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mkdir makes a directory in login/ of an open volume. It is not os.Root's Mkdir, which has to be allowed to read each directory
// on the way: login/ cannot be listed.
func mkdir(root *os.Root, nonce string) (remove func(), err error) {
	volume, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer volume.Close() //nolint:errcheck // a directory's descriptor
	login, err := unix.Openat(int(volume.Fd()), directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: directory, Err: err}
	}
	if err := unix.Mkdirat(login, nonce, 0o700); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mkdir", Path: directory + "/" + nonce, Err: err}, unix.Close(login))
	}
	remove = func() {
		_ = unix.Unlinkat(login, nonce, unix.AT_REMOVEDIR) // what stays is removed by the servers
		_ = unix.Close(login)
	}
	if err := unix.Fchmodat(login, nonce, 0o700, 0); err != nil { // whatever the umask is
		remove()
		return nil, &os.PathError{Op: "chmod", Path: directory + "/" + nonce, Err: err}
	}
	return remove, nil
}
