// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/serving"
)

// issuer is an authority for certificates of clients.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err == nil {
		ca, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{t, ca, key}
}

func (i *issuer) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(i.cert)
	return p
}

// issue completes a certificate and signs it.
func (i *issuer) issue(c *x509.Certificate) tls.Certificate {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour).Truncate(time.Second)
	}
	c.SerialNumber, c.NotBefore = big.NewInt(2), c.NotAfter.Add(-24*time.Hour)
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, i.cert, key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Who shows a certificate of the right authority is known by it, until it expires; nobody has to show one.
func TestClientCertificate(t *testing.T) {
	ca := newIssuer(t)
	good := &x509.Certificate{Subject: pkix.Name{CommonName: "db"}, DNSNames: []string{"db.example.org"}}
	for name, x := range map[string]struct {
		cert *x509.Certificate
		want string
	}{
		"none":         {nil, ""},
		"a DNS name":   {good, "cert:db.example.org"},
		"a URI":        {&x509.Certificate{DNSNames: []string{"x"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "td", Path: "/db"}, {Scheme: "x", Host: "y"}}}, "cert:spiffe://td/db"},
		"a common one": {&x509.Certificate{Subject: pkix.Name{CommonName: "db"}}, "cert:db"},
		"no name":      {&x509.Certificate{}, ""},
		"an odd name":  {&x509.Certificate{Subject: pkix.Name{CommonName: "a\nb"}}, ""},
		"a long name":  {&x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("x", 2*maxSubject)}}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t)
			s.ServeTLS(TLS{Own: new(certificate(t)), Clients: ca.pool()})
			config := offering()
			if x.cert != nil {
				config.Certificates = []tls.Certificate{ca.issue(x.cert)}
			}
			c := tls.Client(s.dial(), config)
			go c.Write([]byte("QUIT\n")) //nolint:errcheck // the reader would miss it
			got := s.next()
			is := serving.CallerAt(got.conn.RemoteAddr())
			if known, ok := got.conn.RemoteAddr().(*serving.KnownAddr); !ok || !known.TLS {
				t.Errorf("%s: nobody knows that it is TLS", name)
			}
			if is.Name() != x.want || is != nil && (is.Via != "certificate" || !is.Expires.Equal(x.cert.NotAfter) || !is.Issued.Equal(x.cert.NotBefore) || is.Groups != nil || is.Operator) {
				t.Errorf("%s: it is %+v, want %s", name, is, x.want)
			}
			got.conn.Close() //nolint:errcheck // a pipe
		})
	}
}

// A certificate of another authority, one that has expired, and one of a server is refused, and the log says why. A port that
// has no authorities asks for none.
func TestClientCertificateThatIsRefused(t *testing.T) {
	ca := newIssuer(t)
	for name, cert := range map[string]tls.Certificate{
		"foreign":  newIssuer(t).issue(&x509.Certificate{Subject: pkix.Name{CommonName: "db"}}),
		"expired":  ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "db"}, NotAfter: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"a server": ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "db"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := open(t)
			s.log = zerolog.New(&log)
			show := func() error {
				config := offering()
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
				c := tls.Client(s.dial(), config)
				go c.Write([]byte("QUIT\n"))                       //nolint:errcheck // the reader would miss it
				_ = c.SetReadDeadline(time.Now().Add(time.Second)) // a pipe's
				_, err := c.Read(make([]byte, 1))
				return err
			}
			s.ServeTLS(TLS{Own: new(certificate(t)), Clients: ca.pool()})
			if err := show(); err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if !strings.Contains(log.String(), "not of an authority of --client-ca") {
				t.Errorf("%s: the log says %s", name, log.String())
			}
			s.ServeTLS(TLS{Own: new(certificate(t))})
			go show() //nolint:errcheck // it is served
			got := s.next()
			if is := serving.CallerAt(got.conn.RemoteAddr()); is != nil {
				t.Errorf("%s: without authorities, it is %+v", name, is)
			}
			got.conn.Close() //nolint:errcheck // a pipe
		})
	}
}

// The library, which names no server, gets the volume's certificate; others that of the name that they ask for.
func TestWhichCertificate(t *testing.T) {
	ca := newIssuer(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	own, outside := ca.issue(&x509.Certificate{DNSNames: []string{"h1", "ID.holdfast"}, ExtKeyUsage: usage}), ca.issue(&x509.Certificate{DNSNames: []string{"lock.example.org"}, ExtKeyUsage: usage})
	both := TLS{Own: &own, Outside: &outside}
	for _, x := range []struct {
		t    TLS
		name string
		want *tls.Certificate
	}{
		{both, "", &own}, {both, "h1", &own}, {both, "id.holdfast", &own}, {both, "lock.example.org", &outside}, {both, "other", &outside},
		{TLS{Own: &own}, "other", &own}, {TLS{Outside: &outside}, "", &outside},
	} {
		hello := &tls.ClientHelloInfo{ServerName: x.name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}, SupportedCurves: []tls.CurveID{tls.CurveP256}}
		if got, err := x.t.certificate(hello); got != x.want || err != nil {
			t.Errorf("%q gets the other one, %v", x.name, err)
		}
	}
}

func FuzzCallerOf(f *testing.F) {
	f.Add("db", "", "")
	f.Add("db\n", "h", "spiffe://td/x")
	f.Fuzz(func(t *testing.T, common, dns, uri string) {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: common}}
		if dns != "" {
			c.DNSNames = []string{dns}
		}
		if u, err := url.Parse(uri); err == nil && uri != "" {
			c.URIs = []*url.URL{u}
		}
		if is := CallerOf(c); is != nil && (len(is.Identity) <= len("cert:") || strings.ContainsAny(is.Identity, "\r\n\x00") || is.Operator) {
			t.Errorf("it is %q", is.Identity)
		}
	})
}
