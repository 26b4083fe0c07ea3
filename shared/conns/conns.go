// SPDX-License-Identifier: Apache-2.0

// Package conns has what the ports of a server share: a listener for connections that another one accepted, and a count of
// refused ones that tells when to log it.
package conns

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Listener is a net.Listener whose connections come from Put. Make it with NewListener.
type Listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewListener returns an open Listener.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Put gives a connection to whoever accepts next, and waits for that. After Close it closes the connection.
func (l *Listener) Put(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		c.Close() //nolint:errcheck // nobody serves it
	}
}

// Accept implements net.Listener. After Close it returns net.ErrClosed, and never another error.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It returns nil; further calls do nothing.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener. It has no address of its own: see the connections.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }

// Refusals counts what was refused for one reason. The zero value is ready for use, by several goroutines.
type Refusals struct {
	mu     sync.Mutex
	untold int       // that no log line told of
	said   time.Time // when the latest did
}

// Count counts one more. It returns how many a log line is to tell of now, 0 if one did so less than every ago.
func (r *Refusals) Count(every time.Duration) (tell int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.untold++; !r.said.IsZero() && time.Since(r.said) < every {
		return 0
	}
	tell, r.untold, r.said = r.untold, 0, time.Now()
	return tell
}

// Host returns the host that a connection over TCP is from, or the zero value: what comes from this host, such as from a proxy,
// speaks for many, and what did not come over TCP is of this host.
func Host(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}
