// SPDX-License-Identifier: Apache-2.0

package peertls

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxUnproven bounds how many connections there are at a time whose other side has not proved who it is.
const maxUnproven = 64

// unproven are those connections, the oldest first. Where there are too many, the oldest of the address that has the most is closed.
// So a stranger that opens many keeps no server on another address from connecting, and takes no descriptors from the volume.
type unproven struct {
	mu  sync.Mutex
	all []*newcomer
}

type newcomer struct {
	conn net.Conn
	from netip.Addr
}

// enter takes a connection in. leave is to be called when its other side is known, or it has ended.
func (u *unproven) enter(c net.Conn) (leave func()) {
	x := &newcomer{conn: c}
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		x.from = tcp.AddrPort().Addr().Unmap()
	}
	u.mu.Lock()
	u.all = append(u.all, x)
	var over *newcomer
	if len(u.all) > maxUnproven {
		over = u.most()
		u.remove(over)
	}
	u.mu.Unlock()
	if over != nil {
		over.conn.Close() //nolint:errcheck // its handshake ends with an error
	}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.remove(x)
	}
}

// most returns the oldest connection of the address that has the most. The caller holds mu.
func (u *unproven) most() (oldest *newcomer) {
	of := map[netip.Addr]int{}
	for _, x := range u.all {
		of[x.from]++
	}
	for _, x := range u.all {
		if oldest == nil || of[x.from] > of[oldest.from] {
			oldest = x
		}
	}
	return oldest
}

// remove forgets a connection, if it is there. The caller holds mu.
func (u *unproven) remove(x *newcomer) {
	u.all = slices.DeleteFunc(u.all, func(y *newcomer) bool { return x == y })
}
