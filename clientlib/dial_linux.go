// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// noticeBreaks has a connection break where what was sent is not acknowledged for unackedWait.
func noticeBreaks(network, _ string, c syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	return c.Control(func(fd uintptr) {
		// Without it a break is noticed later: by the time that a call may take.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedWait.Milliseconds()))
	})
}
