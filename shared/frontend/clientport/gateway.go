// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"errors"
	"net"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// GatewayPreface is what a gateway (holdfast gateway) sends first on each connection that it passes on. Its first byte begins nothing else
// that a client says. What follows it is the client's, byte by byte.
//
// It is no proof of anything, and gives nothing: whoever sends it counts as a client of another host from then on, without the rights of the
// user that connected to a Unix socket. Server and clients use it to stay with the gateway.
const GatewayPreface = "\xf2HOLDG\x00\x01"

var errGatewayWithin = errors.New("a gateway behind a gateway says so twice")

// listen reads until the class of a connection is known. What it returns is the connection as its client made it: behind the preface of a
// gateway, if one passes it on.
func listen(c net.Conn) (_ net.Conn, first []byte, class Class, err error) {
	first, class, err = readFirst(c, nil)
	if err != nil || class != gateway {
		return c, first, class, err
	}
	c = passedOn(c)
	if first, class, err = readFirst(c, first[len(GatewayPreface):]); class == gateway {
		err = errGatewayWithin
	}
	return c, first, class, err
}

// passedOn returns a connection whose address says that a gateway passes it on, and not whose socket it came by.
func passedOn(c net.Conn) net.Conn {
	from := &serving.KnownAddr{Addr: serving.PlainAddr(c.RemoteAddr()), Gateway: true}
	if t, ok := c.(tcp); ok {
		return &passedTCP{t, from}
	}
	return &passed{c, from}
}

type passed struct {
	net.Conn
	from *serving.KnownAddr
}

// RemoteAddr implements net.Conn.
func (c *passed) RemoteAddr() net.Addr { return c.from }

// passedTCP keeps the further methods of a TCP connection.
type passedTCP struct {
	tcp
	from *serving.KnownAddr
}

// RemoteAddr implements net.Conn.
func (c *passedTCP) RemoteAddr() net.Addr { return c.from }

// Opening is how a client begins on a connection that a gateway is to pass on.
type Opening struct {
	// First are the bytes that were read.
	First []byte
	class Class
}

// ReadOpening reads until it is known what a client speaks. It returns an error if the connection, or its deadline, is over before.
func ReadOpening(c net.Conn) (Opening, error) {
	first, class, err := readFirst(c, nil)
	if class == gateway {
		err = errGatewayWithin
	}
	return Opening{first, class}, err
}

// Plain reports whether the client speaks plain text, and not TLS.
func (o Opening) Plain() bool { return o.class != overTLS }

// RefusePlain tells a client that speaks plain text why it must not. The connection is to be closed.
func (o Opening) RefusePlain(c net.Conn, why error) { o.refuse(c, inPlain(why)) }

// NoServer tells a client that there is no server for it, and that nothing was done. A client over TLS hears nothing, since a gateway does not
// speak that. The connection is to be closed.
func (o Opening) NoServer(c net.Conn, why error) {
	switch o.class {
	case overTLS:
	case Sessions:
		sayComeAgain(c, o.class)
	default:
		o.refuse(c, denial{why, pb.Status_STATUS_SECONDARY_MODE, codes.Unavailable, "ERROR"})
	}
}

func (o Opening) refuse(c net.Conn, x denial) {
	_ = turnAway(c, withFirst(c, o.First, nil, nil, nil), o.class, x) // which returns why
}
