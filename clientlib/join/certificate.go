// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Certificate returns the certificate by which a client proves who it is, with its key; nil = it has none. It is called for each
// handshake in which a server asks for one, and from time to time while a connection lasts, by several goroutines.
type Certificate = func() (*tls.Certificate, error)

// ErrCertificateRefused means that a server refuses the certificate that this client has shown.
var ErrCertificateRefused = errors.New("the server refuses the certificate of this client")

// alertWait is how long an alert is waited for where the other side has closed the connection already.
const alertWait = 100 * time.Millisecond

// minRecheck is the shortest time after which a connection looks for a renewed certificate.
const minRecheck = 10 * time.Second

// CertificateFiles returns the Certificate that is in two files in PEM: with those of the authorities between it and one that servers know
// in the first, and its key in the second. They are read each time, so a renewed one is shown with the next connection.
func CertificateFiles(cert, key string) Certificate {
	return func() (*tls.Certificate, error) {
		chain, err := os.ReadFile(cert)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate: %w", err)
		}
		private, err := os.ReadFile(key)
		if err != nil {
			return nil, fmt.Errorf("the key of the client's certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(chain, private)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate %s with the key %s: %w", cert, key, err)
		}
		return &pair, nil
	}
}

// Show has connections that are made from now on show a certificate where a server asks for one. Without TLS none is shown.
func (t *Trust) Show(c Certificate) {
	if t != nil {
		t.certificate = c
	}
}

// showing is a connection that is being made, whose server may ask for a certificate.
type showing struct {
	address     string
	certificate Certificate
	shown       *x509.Certificate // nil = none was
}

// get returns what is shown, for tls.Config.GetClientCertificate. A certificate that the server would refuse is told here.
func (s *showing) get(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c, err := s.certificate()
	if err != nil {
		return nil, err
	}
	if c == nil {
		return &tls.Certificate{}, nil
	}
	leaf, err := leafOf(c)
	if err != nil {
		return nil, fmt.Errorf("the client's certificate: %w", err)
	}
	if err := asked.SupportsCertificate(c); err != nil {
		return nil, fmt.Errorf("%w: it was issued by %q, which is no authority of the server's --client-ca: %w", ErrCertificateRefused, leaf.Issuer, err)
	}
	s.shown = leaf
	return c, nil
}

func leafOf(c *tls.Certificate) (*x509.Certificate, error) {
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	if len(c.Certificate) == 0 {
		return nil, errors.New("there is none in it")
	}
	return x509.ParseCertificate(c.Certificate[0])
}

// shownConn is a connection over TLS on which this client has shown a certificate. With TLS 1.3, a client learns only from what it reads
// first that the server refuses it. When the certificate has been renewed, the connection ends, so that the next one shows the new one: a
// server knows a caller by what it saw in the handshake, and only until that expires.
type shownConn struct {
	*tls.Conn
	*showing
	heard atomic.Bool
	end   chan struct{} // is closed by the first Close
	ended atomic.Bool
}

// secured returns the connection after its handshake: c itself, where no certificate was shown on it.
func (s *showing) secured(c *tls.Conn) net.Conn {
	if s.shown == nil {
		return c
	}
	x := &shownConn{Conn: c, showing: s, end: make(chan struct{})}
	go x.renew()
	return x
}

// renew ends the connection when there is a certificate that is good for longer: it looks when half of the time that the shown one has left
// is over.
func (c *shownConn) renew() {
	for {
		t := time.NewTimer(max(time.Until(c.shown.NotAfter)/2, minRecheck))
		select {
		case <-c.end:
			t.Stop()
			return
		case <-t.C:
		}
		if now, err := c.certificate(); err == nil && now != nil { // else it may be replaced just now
			if leaf, err := leafOf(now); err == nil && leaf.NotAfter.After(c.shown.NotAfter) {
				c.Close() //nolint:errcheck // who reads it has the error
				return
			}
		}
	}
}

// Read implements net.Conn.
func (c *shownConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, c.explain(err)
}

// Write implements net.Conn. After an error, what the server has said before it closed the connection is read for the reason.
func (c *shownConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil || c.heard.Load() || c.ended.Load() {
		return n, err
	}
	_ = c.SetReadDeadline(time.Now().Add(alertWait)) // it may have said nothing
	if _, why := c.Conn.Read(make([]byte, 1)); isAlert(why) {
		err = why
	}
	err = c.explain(err)
	c.Close() //nolint:errcheck // nobody reads on where a byte is missing
	return n, err
}

// isAlert reports whether an error is an alert of the other side.
func isAlert(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error"
}

// explain returns what an error means before anything was read: a server that refuses a certificate says so, and closes the connection.
func (c *shownConn) explain(err error) error {
	if err == nil || c.heard.Load() || c.ended.Load() {
		return err
	}
	if isAlert(err) {
		return fmt.Errorf("TLS with %s: %w: %w: it was issued to %q by %q, and is good from %s to %s", c.address, ErrCertificateRefused, err,
			c.shown.Subject, c.shown.Issuer, c.shown.NotBefore.Format(time.RFC3339), c.shown.NotAfter.Format(time.RFC3339))
	}
	if isClosed(err) {
		return fmt.Errorf("TLS with %s: the server has closed the connection after it was shown a certificate, which it may have refused: its log says why (%v)", c.address, err)
	}
	return err
}

// Close implements net.Conn.
func (c *shownConn) Close() error {
	if c.ended.CompareAndSwap(false, true) {
		close(c.end)
	}
	return c.Conn.Close()
}
