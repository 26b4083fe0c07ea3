// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"io"
	"net"
	"syscall"
)

// readFirst reads until the class of a connection is known. It returns an error if that is over before.
func readFirst(c io.Reader) (first []byte, class Class, err error) {
	first = make([]byte, 0, maxFirst)
	for {
		n, err := c.Read(first[len(first):maxFirst])
		first = first[:len(first)+n]
		if class := classify(first); class != undecided {
			return first, class, nil
		}
		if err != nil {
			return nil, undecided, err
		}
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

// withFirst returns c, on which these bytes are read again, first. NetConn of what it returns is c, as soon as they
// were.
func withFirst(c net.Conn, first []byte) net.Conn {
	if c, ok := c.(tcp); ok {
		return &tcpConn{c, first}
	}
	return &conn{c, first}
}

type conn struct {
	net.Conn
	first []byte // what is left of them; of the goroutine that reads
}

func (c *conn) Read(b []byte) (int, error) { return readAgain(&c.first, c.Conn, b) }

func (c *conn) NetConn() net.Conn { return beneath(c.first, c, c.Conn) }

type tcpConn struct {
	tcp
	first []byte // what is left of them; of the goroutine that reads
}

func (c *tcpConn) Read(b []byte) (int, error) { return readAgain(&c.first, c.tcp, b) }

func (c *tcpConn) NetConn() net.Conn { return beneath(c.first, c, c.tcp) }

func readAgain(first *[]byte, c net.Conn, b []byte) (int, error) {
	if len(*first) == 0 {
		return c.Read(b)
	}
	n := copy(b, *first)
	if *first = (*first)[n:]; len(*first) == 0 {
		*first = nil // their memory is not needed for as long as the connection
	}
	return n, nil
}

func beneath(first []byte, c, under net.Conn) net.Conn {
	if len(first) > 0 {
		return c
	}
	return under
}
