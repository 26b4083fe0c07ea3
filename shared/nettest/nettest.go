// SPDX-License-Identifier: Apache-2.0

// Package nettest is a network that tests cut and mend: connections in memory that pass
// gates, in virtual time or out of it.
package nettest

import (
	"net"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/wake"
)

// Gate lets what is behind it reach the network, or not. It is safe for use by several goroutines.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

// NewGate makes an open gate.
func NewGate() *Gate {
	g := &Gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// Cut stops everything that travels, until Mend: as with TCP, nothing is lost then.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

// Mend lets everything travel.
func (g *Gate) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// Open is closed when the gate is open, or when it will be next.
func (g *Gate) Open() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// line is a connection through gates. What is written waits in a buffer, as with sockets.
type line struct {
	net.Conn
	gates  []*Gate
	once   sync.Once
	closed chan struct{}
	queued wake.Signal // there is something to send

	mu  sync.Mutex
	out []byte
}

// Through is one end of a connection, and what it sends and receives passes the gates. It has
// a goroutine until it is closed.
func Through(c net.Conn, gates ...*Gate) net.Conn {
	l := &line{Conn: c, gates: gates, closed: make(chan struct{}), queued: wake.NewSignal()}
	go l.send()
	return l
}

// pass waits until all gates are open.
func (l *line) pass() error {
	for _, g := range l.gates {
		select {
		case <-g.Open():
		case <-l.closed:
			return net.ErrClosed
		}
	}
	return nil
}

// Read implements net.Conn.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if e := l.pass(); e != nil {
		return 0, e
	}
	return n, err
}

// Write implements net.Conn. It never waits.
func (l *line) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.out = append(l.out, p...)
	l.mu.Unlock()
	l.queued.Notify()
	return len(p), nil
}

// send sends what is queued until the line is closed.
func (l *line) send() {
	for {
		select {
		case <-l.queued:
		case <-l.closed:
			return
		}
		if l.pass() != nil {
			return
		}
		l.mu.Lock()
		b := l.out
		l.out = nil
		l.mu.Unlock()
		if _, err := l.Conn.Write(b); err != nil {
			return // who reads will hear of it
		}
	}
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}
