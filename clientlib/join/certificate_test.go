// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// office issues certificates of clients.
type office struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newOffice(t *testing.T, name string) *office {
	t.Helper()
	o := &office{t: t}
	o.cert, o.key = o.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, time.Now().AddDate(90, 0, 0))
	return o
}

// sign completes a certificate and signs it, the first one by itself.
func (o *office) sign(c *x509.Certificate, end time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
	o.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), end.AddDate(-99, 0, 0), end
	parent, signer := c, key
	if o.cert != nil {
		parent, signer = o.cert, o.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return c, key
}

// issue returns a certificate until then, and its key, in PEM.
func (o *office) issue(name string, end time.Time) (cert, key []byte) {
	o.t.Helper()
	c, private := o.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, end)
	k, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		o.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k})
}

func (o *office) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(o.cert)
	return p
}

// asks makes a configuration ask for certificates of the office.
func (o *office) asks(c *tls.Config) *tls.Config {
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, o.pool()
	return c
}

// greet serves a connection: it says who the client is.
func greet(c net.Conn, config *tls.Config) {
	s := tls.Server(c, config)
	if err := s.Handshake(); err == nil {
		said := "nobody"
		if shown := s.ConnectionState().PeerCertificates; len(shown) > 0 {
			said = shown[0].Subject.CommonName
		}
		io.WriteString(s, said) //nolint:errcheck // the reader would miss it
		io.Copy(io.Discard, s)  //nolint:errcheck // until the client has read it
	}
	s.Close() //nolint:errcheck // the client has the error
}

// greeting returns a connection to a server on loopback that greets clients.
func greeting(t *testing.T, config *tls.Config) join.Dialer {
	t.Helper()
	return loopback(t, func(c net.Conn) { greet(c, config) })
}

// loopback returns a connection to a server on loopback, which serves each client on its own.
func loopback(t *testing.T, serve func(net.Conn)) join.Dialer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the end of the test
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
}

// files writes a certificate and its key, and returns their names.
func files(t *testing.T, cert, key []byte) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

// heard returns what a server says first to a client.
func heard(ctx context.Context, trust *join.Trust, d join.Dialer) (string, error) {
	c, err := trust.Dialer(frames.Protocol, d)(ctx, "h1:7601")
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // it was read
	if _, err := c.Write([]byte("preface")); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// A certificate is shown to a server that asks, and each reason for which it is not taken has an error that says it.
func TestCertificateIsShown(t *testing.T) {
	s, ca, foreign := newSite(t, 1), newOffice(t, "our authority"), newOffice(t, "another authority")
	s.file("ca.crt", string(s.a.Certificate))
	cert, key := ca.issue("db", time.Now().Add(time.Hour))
	otherCert, otherKey := foreign.issue("db", time.Now().Add(time.Hour))
	oldCert, oldKey := ca.issue("db", time.Now().Add(-time.Hour))
	good, goodKey := files(t, cert, key)
	other, otherKeyFile := files(t, otherCert, otherKey)
	old, oldKeyFile := files(t, oldCert, oldKey)
	config := func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{s.leaf(time.Now())}, NextProtos: []string{frames.Protocol}}
	}
	asking, silent := greeting(t, ca.asks(config())), greeting(t, config())
	for name, x := range map[string]struct {
		c       join.Certificate
		to      join.Dialer
		want    string
		err     string // part of the error
		refused bool
	}{
		"it is known":         {join.CertificateFiles(good, goodKey), asking, "db", "", false},
		"nobody asks for it":  {join.CertificateFiles(good, goodKey), silent, "nobody", "", false},
		"there is none":       {nil, asking, "nobody", "", false},
		"it returns none":     {func() (*tls.Certificate, error) { return nil, nil }, asking, "nobody", "", false},
		"of another":          {join.CertificateFiles(other, otherKeyFile), asking, "", `issued by "CN=another authority", which is no authority of the server's --client-ca`, true},
		"it has expired":      {join.CertificateFiles(old, oldKeyFile), asking, "", `expired certificate: it was issued to "CN=db" by "CN=our authority", and is good from`, true},
		"the key is of other": {join.CertificateFiles(good, otherKeyFile), asking, "", "the client's certificate " + good + " with the key " + otherKeyFile + ": tls: private key does not match public key", false},
		"it is not there":     {join.CertificateFiles("/not/there.crt", goodKey), asking, "", "the client's certificate: open /not/there.crt: no such file", false},
		"its key is not":      {join.CertificateFiles(good, "/not/there.key"), asking, "", "the key of the client's certificate: open /not/there.key: no such file", false},
		"it is empty":         {func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }, asking, "", "there is none in it", false},
	} {
		_, trust := resolve(t, s.dir)
		trust.Show(x.c)
		got, err := heard(t.Context(), trust, x.to)
		if got != x.want || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) || errors.Is(err, join.ErrCertificateRefused) != x.refused {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "TLS with h1:7601: ") {
			t.Errorf("%s: it does not say with whom: %v", name, err)
		}
	}
	(*join.Trust)(nil).Show(join.CertificateFiles(good, goodKey)) // in plain text there is none
}

// A certificate that was replaced in its files is shown with the next connection.
func TestCertificateFilesAreReadAgain(t *testing.T) {
	s, ca := newSite(t, 1), newOffice(t, "our authority")
	s.file("ca.crt", string(s.a.Certificate))
	cert, key := ca.issue("first", time.Now().Add(time.Hour))
	certFile, keyFile := files(t, cert, key)
	_, trust := resolve(t, s.dir)
	trust.Show(join.CertificateFiles(certFile, keyFile))
	to := greeting(t, ca.asks(&tls.Config{Certificates: []tls.Certificate{s.leaf(time.Now())}}))
	for _, name := range []string{"first", "second"} {
		cert, key := ca.issue(name, time.Now().Add(time.Hour))
		if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got, err := heard(t.Context(), trust, to); got != name || err != nil {
			t.Errorf("%q, %v; want %s", got, err, name)
		}
	}
}

// A client that writes to a server which has refused its certificate and is gone learns why all the same.
func TestRefusedBeforeAWrite(t *testing.T) {
	s, ca := newSite(t, 1), newOffice(t, "our authority")
	s.file("ca.crt", string(s.a.Certificate))
	_, trust := resolve(t, s.dir)
	cert, key := ca.issue("db", time.Now().Add(-time.Hour))
	trust.Show(join.CertificateFiles(files(t, cert, key)))
	c, err := trust.Dialer(frames.Protocol, greeting(t, ca.asks(&tls.Config{Certificates: []tls.Certificate{s.leaf(time.Now())}})))(t.Context(), "h1:7601")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it has ended
	for err == nil {
		_, err = c.Write(make([]byte, 16<<10))
	}
	if !errors.Is(err, join.ErrCertificateRefused) || !strings.Contains(err.Error(), "expired certificate") {
		t.Error(err)
	}
}

// A server that closes the connection without an alert is told of, too; one that was heard may close it as it likes.
func TestClosedAfterACertificate(t *testing.T) {
	s, ca := newSite(t, 1), newOffice(t, "our authority")
	s.file("ca.crt", string(s.a.Certificate))
	cert, key := ca.issue("db", time.Now().Add(time.Hour))
	_, trust := resolve(t, s.dir)
	trust.Show(join.CertificateFiles(files(t, cert, key)))
	config := ca.asks(&tls.Config{Certificates: []tls.Certificate{s.leaf(time.Now())}})
	for said, want := range map[string]string{"": "which it may have refused: its log says why", "hello": "EOF"} {
		closing := func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				c := tls.Server(there, config)
				_ = c.Handshake()       // the client has the error
				io.WriteString(c, said) //nolint:errcheck // the reader would miss it
				there.Close()           //nolint:errcheck // a pipe
			}()
			return here, nil
		}
		c, err := trust.Dialer(frames.Protocol, closing)(t.Context(), "h1:7601")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadFull(c, make([]byte, 100))
		if err == nil || !strings.Contains(err.Error(), want) || said == "" && errors.Is(err, io.EOF) {
			t.Errorf("after %q: %v", said, err)
		}
		c.Close() //nolint:errcheck // a pipe
	}
}

// A connection ends when the certificate that was shown on it has been renewed, before it expires; else it stays.
func TestConnectionsFollowARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ca := newSite(t, 1), newOffice(t, "our authority")
		s.file("ca.crt", string(s.a.Certificate))
		pair := func(name string, lasting time.Duration) *tls.Certificate {
			cert, key := ca.issue(name, time.Now().Add(lasting))
			c, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			c.Leaf = nil // as programs may have it
			return &c
		}
		var now atomic.Pointer[tls.Certificate]
		now.Store(pair("first", 4*time.Hour))
		_, trust := resolve(t, s.dir)
		var failing atomic.Bool
		trust.Show(func() (*tls.Certificate, error) {
			if failing.Load() {
				return nil, errors.New("it is replaced just now")
			}
			return now.Load(), nil
		})
		config := ca.asks(&tls.Config{Certificates: []tls.Certificate{s.leaf(time.Now())}, SessionTicketsDisabled: true})
		to := func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go greet(there, config)
			return here, nil
		}
		open := func(want string) (c net.Conn) {
			c, err := trust.Dialer(frames.Protocol, to)(t.Context(), "h1:7601")
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 100)
			if n, err := c.Read(b); string(b[:n]) != want || err != nil {
				t.Errorf("%q, %v; want %s", b[:n], err, want)
			}
			return c
		}
		began := time.Now()
		c := open("first")
		time.Sleep(150 * time.Minute) // it was looked for after 2 h
		failing.Store(true)
		time.Sleep(31 * time.Minute) // and after 3 h
		failing.Store(false)
		now.Store(pair("second", 24*time.Hour))
		_ = c.SetReadDeadline(time.Now().Add(12 * time.Hour)) // a pipe's
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("there is something to read")
		}
		if after := time.Since(began); after != 210*time.Minute {
			t.Errorf("it ends after %v", after)
		}
		c = open("second")
		c.Close() //nolint:errcheck // a pipe
		c.Close() //nolint:errcheck // as a caller may
		now.Store(pair("third", 48*time.Hour))
		time.Sleep(72 * time.Hour)
	})
}
