// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// trustedDir is where TestMain has put the key of an authority that this process trusts.
const trustedDir = "HOLDFAST_TEST_TRUSTED"

// TestMain has the process trust an authority: which ones it does is read once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "join")
	if err != nil {
		panic(err)
	}
	a, err := certs.Draw(cluster.ID{9})
	for name, text := range map[string][]byte{"ca.crt": a.Certificate, "ca.key": a.Key} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err = errors.Join(err, os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "ca.crt")), os.Setenv("SSL_CERT_DIR", dir), os.Setenv(trustedDir, dir)); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// fromOutside returns a certificate for names, of the authority that this process trusts, or of itself.
func fromOutside(t *testing.T, trusted bool, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	parent, signer := leaf, key
	if trusted {
		pair, err := tls.LoadX509KeyPair(filepath.Join(os.Getenv(trustedDir), "ca.crt"), filepath.Join(os.Getenv(trustedDir), "ca.key"))
		if err != nil {
			t.Fatal(err)
		}
		parent, signer = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listening returns a connection to a server on loopback that has this certificate: a client that refuses it does so before it has
// read all that the server writes, which a pipe does not bear.
func listening(t *testing.T, c tls.Certificate) join.Dialer {
	t.Helper()
	return loopback(t, func(on net.Conn) {
		s := tls.Server(on, &tls.Config{Certificates: []tls.Certificate{c}})
		_ = s.Handshake() // the client has the error
		s.Close()         //nolint:errcheck // it was to be made
	})
}

// With https://, a server is believed by its name, and is of no cluster.
func TestOutside(t *testing.T) {
	addresses, trust := resolve(t, "https://h1:7601,h2:7602/")
	if !slices.Equal(addresses, []string{"h1:7601", "h2:7602"}) || trust.Plain() {
		t.Errorf("%q, plain text: %v", addresses, trust.Plain())
	}
	if more, _ := resolve(t, "https://h1:7601", "https://h2:7602"); !slices.Equal(more, addresses) {
		t.Errorf("%q", more)
	}
	for name, x := range map[string]struct {
		c    tls.Certificate
		want string // part of the error
	}{
		"a server":              {fromOutside(t, true, "h1"), ""},
		"another name":          {fromOutside(t, true, "h2"), "not h1"},
		"nobody's":              {fromOutside(t, false, "h1"), "SSL_CERT_FILE"},
		"a cluster's, they say": {fromOutside(t, true, "h1", join.ServerName(cluster.ID{1}.String())), "use what holdfast join prints"},
	} {
		c, err := trust.Dialer(join.HTTP, listening(t, x.c))(t.Context(), "h1:7601")
		switch {
		case x.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case x.want != "" && (!errors.Is(err, join.ErrUntrusted) || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
		if err == nil {
			if id := join.ClusterOf(c.(*tls.Conn).ConnectionState()); id != "" {
				t.Errorf("%s: of cluster %q", name, id)
			}
			c.Close() //nolint:errcheck // it was looked at
		}
	}
	plain := func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		there.Close() //nolint:errcheck // a pipe
		return here, nil
	}
	if _, err := asked(t, trust, plain); !errors.Is(err, join.ErrNoTLS) {
		t.Errorf("a server without TLS: %v", err)
	}
	for _, bad := range [][]string{{"https://"}, {"https://h1"}, {"https://h1:7601/v1"}, {"https://h1:7601", "h2:7601"}, {"https://a@h1:7601"}, {"https://h1:7601,"}} {
		if _, _, err := join.Resolve(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}
