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
	p.secure.Store(&tls.Config{
		Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS13,
		// In order of preference: a browser offers both of HTTP, and WebSocket needs the first.
		NextProtos:                  []string{frames.Protocol, protocolHTTP, protocolGRPC},
		SessionTicketsDisabled:      true, // connections are few and long
		DynamicRecordSizingDisabled: true,
	})
}

var (
	errNoTLS     = errors.New("this volume has no certificate authority: type holdfast secure offer, or let clients connect without TLS")
	errTLSWithin = errors.New("TLS within TLS")
)

// inside makes the handshake on a connection, and returns what is spoken inside, until over. It does not close the
// connection.
func (p *Port) inside(c net.Conn, over time.Time) (net.Conn, Class, error) {
	config := p.secure.Load()
	if config == nil {
		return nil, undecided, p.refuseTLS(c, errNoTLS)
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
		return nil, undecided, p.refuseTLS(c, err)
	}
	switch s.ConnectionState().NegotiatedProtocol {
	case frames.Protocol:
		return s, Sessions, nil
	case protocolHTTP:
		return s, HTTP, nil
	case protocolGRPC:
		return s, GRPC, nil
	}
	_ = c.SetDeadline(over)
	first, class, err := readFirst(s)
	if class == overTLS {
		err = errTLSWithin
	}
	if err != nil {
		return nil, undecided, err
	}
	return &secured{s, first}, class, nil
}

// refuseTLS logs now and then that connections over TLS end before anything is spoken on them, and returns why.
func (p *Port) refuseTLS(c net.Conn, why error) error {
	if errors.Is(why, io.EOF) || errors.Is(why, net.ErrClosed) {
		return why // the client has gone, or another one has its place
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.refused++; !p.mu.said.IsZero() && time.Since(p.mu.said) < tlsEvery {
		return why
	}
	p.log.Warn().Err(why).Int("refused", p.mu.refused).Stringer("from", c.RemoteAddr()).Msg("no TLS with a client")
	p.mu.refused, p.mu.said = 0, time.Now()
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

// secured is a connection over TLS on which the first bytes are read again.
type secured struct {
	*tls.Conn
	first []byte // what is left of them; of the goroutine that reads
}

func (c *secured) Read(b []byte) (int, error) { return readAgain(&c.first, c.Conn, b) }

func (c *secured) NetConn() net.Conn { return beneath(c.first, c, c.Conn) }
