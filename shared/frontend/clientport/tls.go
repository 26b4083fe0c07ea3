// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// handshakeWait is how long a handshake may take.
const handshakeWait = 5 * time.Second

// The protocols of HTTP, as the handshake names them.
const (
	protocolHTTP = "http/1.1"
	protocolGRPC = "h2"
)

// TLS says how a port serves TLS. One of the certificates is not nil.
type TLS struct {
	// Own is the certificate by which the client library knows servers. A client that names no server gets it.
	Own *tls.Certificate
	// Outside is one that others know, for the names that it has, and for those that neither has.
	Outside *tls.Certificate
	// Clients are the authorities of certificates that a client may show; nil = none is asked for.
	Clients *x509.CertPool
}

// certificate returns the certificate for a client.
func (t *TLS) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	switch {
	case t.Outside == nil:
		return t.Own, nil
	case t.Own == nil:
		return t.Outside, nil
	case hello.ServerName == "" || hello.SupportsCertificate(t.Outside) != nil && hello.SupportsCertificate(t.Own) == nil:
		return t.Own, nil
	}
	return t.Outside, nil
}

// ServeTLS has the port serve TLS like this from now on, beside plain text; none, if there is no certificate. Connections
// that are open keep what they have.
func (p *Port) ServeTLS(t TLS) {
	if t.Own == nil && t.Outside == nil {
		p.secure.Store(nil)
		return
	}
	least := uint16(tls.VersionTLS13)
	if p.oldTLS.Load() {
		least = tls.VersionTLS12
	}
	wants := tls.NoClientCert
	if t.Clients != nil {
		wants = tls.VerifyClientCertIfGiven
	}
	p.secure.Store(&tls.Config{
		GetCertificate: t.certificate, ClientAuth: wants, ClientCAs: t.Clients, MinVersion: least,
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
	errTLSWithin = errors.New("TLS, or a gateway, within TLS")
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
	w := &working{Computing: conns.Compute(c, p.computing)}
	s := tls.Server(w, config)
	err := s.Handshake()
	if w.Done(); err != nil {
		return nil, nil, undecided, p.refuseTLS(c, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	_ = c.SetReadDeadline(over)
	w.known = &serving.KnownAddr{Addr: serving.PlainAddr(c.RemoteAddr()), TLS: true, Gateway: serving.ThroughGateway(c.RemoteAddr())}
	if verified := s.ConnectionState().VerifiedChains; len(verified) > 0 {
		w.known.Caller = CallerOf(verified[0][0])
	}
	first, class, err := readFirst(s, nil)
	if class == overTLS || class == gateway {
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
		said := "no TLS with a client"
		if _, ok := errors.AsType[*tls.CertificateVerificationError](why); ok {
			said = "a client's certificate is not of an authority of --client-ca, or has expired: it is refused"
		}
		p.log.Warn().Err(why).Int("refused", n).Stringer("from", c.RemoteAddr()).Msg(said)
	}
	return why
}

// working is a connection whose handshake has a place while this side computes. After the handshake it is the connection beneath.
type working struct {
	*conns.Computing
	known *serving.KnownAddr // set before other goroutines have the connection
}

// RemoteAddr implements net.Conn.
func (c *working) RemoteAddr() net.Addr {
	if c.known != nil {
		return c.known
	}
	return c.Conn.RemoteAddr()
}

// maxSubject bounds the name of a certificate, in bytes.
const maxSubject = 512

// CallerOf returns the client whose certificate this is: cert: and its first URI, else its first DNS name, else its common
// name. It returns nil where that is none that people can read.
func CallerOf(c *x509.Certificate) *access.Caller {
	name := c.Subject.CommonName
	if len(c.URIs) > 0 {
		name = c.URIs[0].String()
	} else if len(c.DNSNames) > 0 {
		name = c.DNSNames[0]
	}
	if name == "" || len(name) > maxSubject || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil
	}
	return &access.Caller{Identity: "cert:" + name, Via: "certificate", Issued: c.NotBefore, Expires: c.NotAfter}
}
