// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package peergrpc

import (
	"context"
	"net"
)

// dial connects. Elsewhere than on Linux, breaking a connection that nobody
// acknowledges (unackedWait) is left to the system's own time.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: connectWait}
	return d.DialContext(ctx, "tcp", addr)
}
