// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// The protocols that a client names in the handshake (ALPN).
const (
	// GRPC is HTTP/2, which is nothing but gRPC here.
	GRPC = "h2"
	// HTTP is HTTP/1.1, and WebSocket.
	HTTP = "http/1.1"
)

// ErrNoTLS means that the server at an address serves no TLS.
var ErrNoTLS = errors.New("it serves none: the volume has no certificate authority yet (holdfast secure offer makes one), the server is of an older version, or it is just stopping")

// ErrUntrusted means that whoever answers at an address is not known to be a server of the cluster.
var ErrUntrusted = errors.New("not a server of this cluster")

// Trust recognizes the servers of a cluster. It is safe for use by several goroutines.
type Trust struct {
	// outside is true if servers have certificates of authorities that this machine trusts, for the names that are dialed, and nothing
	// else is known of them.
	outside bool

	pin  string // or
	path string // of the authority's certificate, as messages name it
	file bool   // path can be read again
	name string // that servers have; "" = that of any cluster of the authority

	certificate Certificate // that this client shows; nil = none

	ca      atomic.Pointer[x509.Certificate] // nil with a pin, and while there is no file
	looking atomic.Bool                      // a goroutine reads the file
}

// WithCertificate returns the Trust of who knows the authority's certificate, and the cluster's ID.
func WithCertificate(ca *x509.Certificate, clusterID string) *Trust {
	t := &Trust{name: ServerName(clusterID), path: "the volume's " + certificateFile}
	t.ca.Store(ca)
	return t
}

// load reads the authority's certificate, if it is there.
func (t *Trust) load() error {
	b, err := os.ReadFile(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the certificate of the cluster's authority: %w", err)
	}
	ca, err := ParseCertificate(b)
	if err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	t.ca.Store(ca)
	return nil
}

// Plain reports whether servers are to be asked in plain text: there is nothing to recognize them by. On a volume this
// may change while the client lives, but only to false: a look at the file begins, and the next call knows.
func (t *Trust) Plain() bool {
	if t == nil {
		return true
	}
	if t.outside || t.pin != "" || t.ca.Load() != nil {
		return false
	}
	t.look()
	return true
}

// look begins to read the authority's certificate again.
func (t *Trust) look() {
	if t.file && t.looking.CompareAndSwap(false, true) {
		go func() { // a share that hangs delays nobody
			defer t.looking.Store(false)
			_ = t.load() // what cannot be read is tried again with the next connection
		}()
	}
}

// Endpoints returns those of another cluster, by what a server tells that is trusted by t: addresses, and the pin of its authority, "" if it is
// served in plain text. They are never in plain text where that server had to prove who it is.
func (t *Trust) Endpoints(addresses []string, pin string) ([]string, error) {
	for _, a := range addresses {
		if _, _, err := net.SplitHostPort(a); err != nil || Whole(a) { // such as the path of a volume, which is none of theirs
			return nil, fmt.Errorf("%q is no address of a server", a)
		}
	}
	switch {
	case t != nil && t.outside:
		all := make([]string, len(addresses))
		for i, a := range addresses {
			all[i] = outside + a
		}
		return all, nil
	case pin != "":
		text := Text(addresses, pin)
		_, _, err := Parse(text)
		return []string{text}, err
	case !t.Plain():
		return nil, errors.New("it is served in plain text, and who told of it is not")
	}
	return addresses, nil
}

// Dialer connects to an address.
type Dialer = func(ctx context.Context, address string) (net.Conn, error)

// Dialer returns a Dialer that speaks TLS over connections of next, for a protocol, where servers are to be asked so.
func (t *Trust) Dialer(protocol string, next Dialer) Dialer {
	if t == nil {
		return next
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		plain := t.Plain()
		c, err := next(ctx, address)
		if err != nil || plain {
			return c, err
		}
		config, shown := t.config(address, protocol), &showing{address: address, certificate: t.certificate}
		if t.certificate != nil {
			config.GetClientCertificate = shown.get
		}
		secured := tls.Client(c, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			c.Close() //nolint:errcheck // nothing was said
			return nil, explain(address, err)
		}
		return shown.secured(secured), nil
	}
}

// config returns the configuration of a client that names this protocol to the server at an address.
func (t *Trust) config(address, protocol string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, DynamicRecordSizingDisabled: true,
		VerifyConnection: t.verify,
	}
	if t.outside {
		c.ServerName, _, _ = net.SplitHostPort(address) // without one, the handshake fails
	} else {
		c.InsecureSkipVerify = true // by the name that was dialed: verify asks for that of the cluster
	}
	return c
}

// verify returns an error that wraps ErrUntrusted unless the other side has a certificate of this cluster's authority.
func (t *Trust) verify(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return fmt.Errorf("%w: it has no certificate", ErrUntrusted)
	}
	leaf, ca, name := cs.PeerCertificates[0], t.ca.Load(), t.name
	if t.outside { // the rest is verified; but nobody outside may say of which cluster a server is, see ClusterOf
		if clusterName(leaf) != ServerName(noCluster) {
			return fmt.Errorf("%w: it shows the certificate of a volume's own authority, not one from outside: use what holdfast join prints, or --ca", ErrUntrusted)
		}
		return nil
	}
	if t.pin != "" {
		for _, c := range cs.PeerCertificates[1:] {
			if Pin(c) == t.pin && c.IsCA {
				ca = c
			}
		}
		if ca == nil {
			return fmt.Errorf("%w: no certificate that it shows has the pin of the join string, so that string is of another cluster, or somebody else answers", ErrUntrusted)
		}
		name = clusterName(leaf)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(ca)
	for _, c := range cs.PeerCertificates[1:] { // by which that authority vouches for a later one
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if _, foreign := errors.AsType[x509.UnknownAuthorityError](err); foreign && t.path != "" {
		t.look() // there may be another one by now: the next connection knows
		return fmt.Errorf("%w: its certificate is not signed by the authority in %s, so this address is of another cluster, or somebody else answers", ErrUntrusted, t.path)
	}
	if err == nil {
		err = leaf.VerifyHostname(name)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return nil
}

// clusterName returns the name of a cluster that a certificate has. If it has none, what it returns is in no certificate.
func clusterName(leaf *x509.Certificate) string {
	for _, name := range leaf.DNSNames {
		id, ok := strings.CutSuffix(name, nameSuffix)
		if b, err := hex.DecodeString(id); ok && err == nil && len(b) == 16 {
			return name
		}
	}
	return ServerName(noCluster)
}

const noCluster = "no-cluster"

// ClusterOf returns the ID of the cluster that a server has proved to be of over a connection that a Trust made, "" if
// that is not known.
func ClusterOf(cs tls.ConnectionState) string {
	if len(cs.PeerCertificates) == 0 {
		return ""
	}
	id, _ := strings.CutSuffix(clusterName(cs.PeerCertificates[0]), nameSuffix)
	if id == noCluster {
		return ""
	}
	return id
}

// isClosed reports whether an error says that the other side has closed the connection.
func isClosed(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) })
}

// StateOf returns what the handshake on a connection of a Trust's Dialer has shown; false where it is in plain text.
func StateOf(c net.Conn) (tls.ConnectionState, bool) {
	if s, ok := c.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return s.ConnectionState(), true
	}
	return tls.ConnectionState{}, false
}

// explain says what a failed handshake means. It hides that the other side closed the connection: that means less after
// a handshake has begun than before.
func explain(address string, err error) error {
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case unverified:
		return fmt.Errorf("TLS with %s: %w: %v (the file that SSL_CERT_FILE names has the authorities that are trusted)", address, ErrUntrusted, err)
	case errors.Is(err, ErrUntrusted):
		return fmt.Errorf("TLS with %s: %w", address, err)
	case errors.Is(err, ErrCertificateRefused):
		return fmt.Errorf("TLS with %s: %w", address, err)
	case isClosed(err), noTLS:
		return fmt.Errorf("TLS with %s: %w (%v)", address, ErrNoTLS, err)
	}
	return fmt.Errorf("TLS with %s: %v", address, err)
}
