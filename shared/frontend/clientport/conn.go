// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"
)

// readFirst reads until the class is known of a connection of which these bytes were read. It returns an error if that is over before.
func readFirst(c io.Reader, begun []byte) (first []byte, class Class, err error) {
	first = append(make([]byte, 0, roomFirst), begun...)
	for {
		if class := classify(first); class != undecided {
			return first, class, nil
		}
		if err != nil {
			return nil, undecided, err
		}
		var n int
		n, err = c.Read(first[len(first):roomFirst])
		first = first[:len(first)+n]
	}
}

// tcp is what servers use of a TCP connection beside net.Conn: to send a file without copying it, to close one half,
// to notice a host that vanished.
type tcp interface {
	net.Conn
	io.ReaderFrom
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

// withFirst returns c, on which these bytes are read again, first. Its turn ends when it is read further, or closed. Unproven
// says where it is from; nil = c does. Ended is called when it is closed, unless it is nil.
// NetConn of what it returns is c, as soon as the first bytes were read.
func withFirst(c net.Conn, first []byte, t *turn, u *unproven, ended func()) net.Conn {
	switch c := c.(type) {
	case tcp:
		return &tcpConn{c, start{first, t, u, ended}}
	case *tls.Conn:
		return &tlsConn{c, start{first, t, u, ended}}
	}
	return &conn{c, start{first, t, u, ended}}
}

// start is what the port knows of a connection.
type start struct {
	first    []byte // what is left of them; of the goroutine that reads
	turn     *turn
	unproven *unproven
	ended    func() // may be called again; nil = nobody wants to know
}

type conn struct {
	net.Conn
	start
}

func (c *conn) Read(b []byte) (int, error) { return c.readAgain(c.Conn, b) }
func (c *conn) Close() error               { c.over(); return c.Conn.Close() }
func (c *conn) RemoteAddr() net.Addr       { return c.remote(c.Conn) }
func (c *conn) NetConn() net.Conn          { return c.beneath(c, c.Conn) }

type tcpConn struct {
	tcp
	start
}

func (c *tcpConn) Read(b []byte) (int, error) { return c.readAgain(c.tcp, b) }
func (c *tcpConn) Close() error               { c.over(); return c.tcp.Close() }
func (c *tcpConn) RemoteAddr() net.Addr       { return c.remote(c.tcp) }
func (c *tcpConn) NetConn() net.Conn          { return c.beneath(c, c.tcp) }

type tlsConn struct {
	*tls.Conn
	start
}

func (c *tlsConn) Read(b []byte) (int, error) { return c.readAgain(c.Conn, b) }
func (c *tlsConn) Close() error               { c.over(); return c.Conn.Close() }
func (c *tlsConn) RemoteAddr() net.Addr       { return c.remote(c.Conn) }
func (c *tlsConn) NetConn() net.Conn          { return c.beneath(c, c.Conn) }

// over is called when the connection ends.
func (s *start) over() {
	s.turn.end()
	s.unproven.stop()
	if s.ended != nil {
		s.ended()
	}
}

func (s *start) remote(c net.Conn) net.Addr {
	if s.unproven != nil {
		return &s.unproven.from
	}
	return c.RemoteAddr()
}

func (s *start) readAgain(c net.Conn, b []byte) (int, error) {
	if len(s.first) == 0 {
		s.turn.end() // the front end has begun, and waits for the client
		return c.Read(b)
	}
	n := copy(b, s.first)
	if s.first = s.first[n:]; len(s.first) == 0 {
		s.first = nil // their memory is not needed for as long as the connection
	}
	return n, nil
}

func (s *start) beneath(c, under net.Conn) net.Conn {
	if len(s.first) > 0 {
		return c
	}
	return under
}
