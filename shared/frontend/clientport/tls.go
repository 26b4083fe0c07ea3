// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// handshakeWait is how long a handshake may take.
const handshakeWait = 5 * time.Second

// The protocols of HTTP, as the handshake names them.
const (
	protocolHTTP = "http/1.1"
	protocolGRPC = "h2"
)

// ServeTLS has the port serve TLS with this certificate from now on, beside plain text, instead of the one before.
// Connections that are open keep theirs.
func (p *Port) ServeTLS(c tls.Certificate) {
	least := uint16(tls.VersionTLS13)
	if p.oldTLS.Load() {
		least = tls.VersionTLS12
	}
	p.secure.Store(&tls.Config{
		Certificates: []tls.Certificate{c}, MinVersion: least,
		// In order of preference: a browser offers both of HTTP, and WebSocket needs the first.
		NextProtos:                  []string{frames.Protocol, protocolHTTP, protocolGRPC},
		SessionTicketsDisabled:      true, // connections are few and long
		DynamicRecordSizingDisabled: true,
	})
}

// TakeTLS12 has the port take TLS 1.2, too, with the next certificate.
func (p *Port) TakeTLS12() { p.oldTLS.Store(true) }

var (
	errNoTLS     = errors.New("this volume has no certificate authority: type holdfast secure offer, or let clients connect without TLS")
	errTLSWithin = errors.New("TLS within TLS")
)

// inside makes the handshake on a connection. It returns what is spoken inside, until over, and its first bytes. It does
// not close the connection.
func (p *Port) inside(c net.Conn, over time.Time) (_ net.Conn, first []byte, _ Class, _ error) {
	config := p.secure.Load()
	if config == nil {
		return nil, nil, undecided, p.refuseTLS(c, errNoTLS)
	}
	if t := time.Now().Add(handshakeWait); t.Before(over) {
		_ = c.SetDeadline(t)
	}
	w := &working{Conn: c, places: p.computing}
	s := tls.Server(w, config)
	w.begin()
	err := s.Handshake()
	w.end()
	if w.over = true; err != nil {
		return nil, nil, undecided, p.refuseTLS(c, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	_ = c.SetReadDeadline(over)
	first, class, err := readFirst(s)
	if class == overTLS {
		err = errTLSWithin
	}
	switch s.ConnectionState().NegotiatedProtocol {
	case frames.Protocol:
		class = Sessions
	case protocolHTTP:
		class = HTTP
	case protocolGRPC:
		class = GRPC
	}
	return s, first, class, err
}

// refuseTLS logs now and then that connections over TLS end before anything is spoken on them, and returns why.
func (p *Port) refuseTLS(c net.Conn, why error) error {
	if errors.Is(why, io.EOF) || errors.Is(why, net.ErrClosed) {
		return why // the client has gone, or another one has its place
	}
	if n := p.overTLS.Count(saidEvery); n > 0 {
		p.log.Warn().Err(why).Int("refused", n).Stringer("from", c.RemoteAddr()).Msg("no TLS with a client")
	}
	return why
}

// working is a connection whose handshake has a place while this side computes, and none while it waits for the
// client. After the handshake it is the connection beneath.
type working struct {
	net.Conn
	places chan struct{}
	over   bool // set before other goroutines have the connection
}

func (c *working) begin() { c.places <- struct{}{} }
func (c *working) end()   { <-c.places }

func (c *working) Read(b []byte) (int, error) {
	if !c.over {
		c.end()
		defer c.begin()
	}
	return c.Conn.Read(b)
}

func (c *working) Write(b []byte) (int, error) {
	if !c.over {
		c.end()
		defer c.begin()
	}
	return c.Conn.Write(b)
}
