// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clientCertificate writes a certificate of this name that is its own authority, and ends then, and its key.
func clientCertificate(t *testing.T, name string, end time.Time) (certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-24 * time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	if err := errors.Join(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

// TestCommandsShowACertificate: a command, what runs under its lock, and a client of its configuration are who their certificate says,
// although this user could sign himself a ticket; and a command says why a server takes a certificate not.
func TestCommandsShowACertificate(t *testing.T) {
	cert, key := clientCertificate(t, "db", time.Now().Add(time.Hour))
	old, oldKey := clientCertificate(t, "old", time.Now().Add(-time.Hour))
	foreign, foreignKey := clientCertificate(t, "foreign", time.Now().Add(time.Hour))
	both := filepath.Join(t.TempDir(), "clients.pem")
	var authorities []byte
	for _, name := range []string{cert, old} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		authorities = append(authorities, b...)
	}
	if err := os.WriteFile(both, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	c := startConfigured(t, "client-ca = \""+both+"\"\n")
	c.endpoints = c.dir
	if out := c.do("", "whoami"); !strings.Contains(out, "an operator") {
		t.Errorf("without a certificate: %s", out)
	}
	flags := []string{"--cert", cert, "--cert-key", key}
	if out := c.do("", append(flags, "whoami")...); !strings.Contains(out, "cert:db (certificate)") || !strings.Contains(out, "the credential expires at ") {
		t.Errorf("with flags: %s", out)
	}
	under := os.Getenv(binaryEnv) + ` whoami -o json; ` + os.Getenv(binaryEnv) + ` renew under-it -o json`
	if out := c.do("", append(flags, "run", "under-it", "--", "sh", "-c", under)...); !strings.Contains(out, `"identity":"cert:db"`) || !strings.Contains(out, `"status":"OK"`) {
		t.Errorf("what runs under its lock: %s", out)
	}
	if out := c.do("", "history", "under-it", "-o", "json"); !strings.Contains(out, `"identity":"cert:db"`) {
		t.Errorf("whose the lock was: %s", out)
	}
	for name, x := range map[string]struct {
		flags []string
		want  string
	}{
		"expired":    {[]string{"--cert", old, "--cert-key", oldKey}, "expired certificate: it was issued to"},
		"foreign":    {[]string{"--cert", foreign, "--cert-key", foreignKey}, "which is no authority of the server's --client-ca"},
		"plain text": {[]string{"--cert", cert, "--cert-key", key, "--endpoints", c.client}, "a certificate is shown over TLS only"},
	} {
		if r := c.try("", append(x.flags, "--timeout", "1s", "whoami")...); r.code == 0 || !strings.Contains(r.errs, x.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
