// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package login

import (
	"errors"
	"os"
)

// mkdir fails: only Linux opens a directory that cannot be listed.
func mkdir(*os.Root, string) (remove func(), err error) {
	return nil, errors.New("only programs on Linux log in by the filesystem: use a key")
}
