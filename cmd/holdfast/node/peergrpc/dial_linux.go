// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// dial connects so that a connection whose bytes nobody acknowledges breaks soon.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: connectWait, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedWait.Milliseconds()))
		})
		if err != nil {
			return err
		}
		return failed
	}}
	return d.DialContext(ctx, "tcp", addr)
}
