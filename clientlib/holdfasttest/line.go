// SPDX-License-Identifier: Apache-2.0

package holdfasttest

import (
	"net"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/nettest"
)

// line is a connection on which nothing travels while one of the gates is cut. Nothing is lost by that: a Write waits,
// as one does into a full buffer.
type line struct {
	net.Conn
	gates  []*nettest.Gate
	once   sync.Once
	closed chan struct{}
}

func through(c net.Conn, gates ...*nettest.Gate) net.Conn {
	return &line{Conn: c, gates: gates, closed: make(chan struct{})}
}

// pass waits until all gates are open, or returns false because the connection is closed.
func (l *line) pass() bool {
	for _, g := range l.gates {
		select {
		case <-g.Open():
		case <-l.closed:
			return false
		}
	}
	return true
}

// Read implements net.Conn.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if !l.pass() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (l *line) Write(p []byte) (int, error) {
	if !l.pass() {
		return 0, net.ErrClosed
	}
	return l.Conn.Write(p)
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}
