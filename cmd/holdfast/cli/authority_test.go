// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// TestSecureOffer: a volume without an authority gets one, once, and a join string.
func TestSecureOffer(t *testing.T) {
	x := newOlder(t)
	if r := run("", "", "join", "--volume", x.dir); r.code != 1 && r.code != 5 || !strings.Contains(r.errs, "holdfast secure offer makes one") {
		t.Errorf("join without an authority: %+v", r)
	}
	if r := run("", "", "secure", "status", "--volume", x.dir); !strings.Contains(r.out, "to offer TLS, type holdfast secure offer --volume "+x.dir) {
		t.Errorf("got %+v", r)
	}
	var before string
	for range 2 {
		if r := run("", "", "secure", "offer", "--volume", x.dir); r.code != 0 || !strings.Contains(r.out, "clients are offered TLS") {
			t.Fatalf("got %+v", r)
		}
		b, err := os.ReadFile(filepath.Join(x.dir, "ca.crt"))
		if err != nil || before != "" && string(b) != before {
			t.Errorf("%v: ca.crt was %q and is %q", err, before, b)
		}
		before = string(b)
	}
	r := run("", "", "join", "--volume", x.dir)
	addresses, pin, err := join.Parse(strings.TrimSpace(r.out))
	block, _ := pem.Decode([]byte(before))
	ca, caErr := x509.ParseCertificate(block.Bytes)
	if err != nil || caErr != nil || strings.Join(addresses, " ") != "h:1 i:1" || pin != join.Pin(ca) || r.code != 0 {
		t.Errorf("got %+v: %v, %v", r, err, caErr)
	}
	if r := run("", "", "fsck", "--volume", x.dir); strings.Contains(r.out, "ca.crt") || strings.Contains(r.out, "secrets") || strings.Contains(r.out, "keys.json") {
		t.Errorf("fsck says %s", r.out)
	}
	if r := x.require("--clients"); r.code == 0 || !strings.Contains(r.errs, "server 1 does not answer clients over TLS") {
		t.Errorf("required of clients, and no server runs: %+v", r)
	}
	if r := x.require("--clients", "--force"); r.code != 0 || !strings.Contains(r.out, "clients of other hosts are served over TLS only") {
		t.Errorf("got %+v", r)
	}
	x.wants("none none", false)
	if r := run("", "", "fsck", "--volume", x.dir); strings.Contains(r.out, "client-tls") {
		t.Errorf("fsck says %s", r.out)
	}
	if err := os.Chmod(filepath.Join(x.dir, "secrets", "ca.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", "secure", "offer", "--volume", x.dir); r.code == 0 || !strings.Contains(r.errs, "chmod -R go= DIR/secrets") {
		t.Errorf("got %+v", r)
	}
	if r := run("", "", "fsck", "--volume", x.dir); !strings.Contains(r.out, "others than its owner may read") {
		t.Errorf("fsck says %s", r.out)
	}
}

// TestInitOffersTLS to clients from the start.
func TestInitOffersTLS(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h"); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	if r := run("", "", "join", "--volume", dir); r.code != 0 || !strings.HasPrefix(r.out, "holdfast://h:7601/?pin=") {
		t.Errorf("got %+v", r)
	}
}

// TestSecureRotateCA: no server runs, so none has to follow.
func TestSecureRotateCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	if r := run("", "", "init", "--volume", dir, "--server", "1=127.0.0.1:1"); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	joined := func() string {
		t.Helper()
		r := run("", "", "join", "--volume", dir)
		if r.code != 0 {
			t.Fatalf("got %+v", r)
		}
		return strings.TrimSpace(r.out)
	}
	before := joined()
	for _, flag := range []string{"", "--now"} {
		args := []string{"secure", "rotate", "ca", "--volume", dir}
		if flag != "" {
			args = append(args, flag)
		}
		r := run("", "", args...)
		after := joined()
		if r.code != 0 || after == before || !strings.Contains(r.out, after) || strings.Contains(r.out, "recognizes the servers until") != (flag == "") {
			t.Errorf("%s: %+v, the join string is %s", flag, r, after)
		}
		before = after
		if r := run("", "", "fsck", "--volume", dir); strings.Contains(r.out, "ca.crt") || strings.Contains(r.out, "secrets") {
			t.Errorf("fsck says %s", r.out)
		}
	}
	// A rotation that ended before ca.crt was written.
	old, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if r := run("", "", "secure", "rotate", "ca", "--volume", dir); err != nil || r.code != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	before = joined()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), old, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", "fsck", "--volume", dir); !strings.Contains(r.out, "holdfast secure rotate ca") {
		t.Errorf("fsck says %s", r.out)
	}
	if r := run("", "", "secure", "rotate", "ca", "--volume", dir, "-o", "json"); r.code != 0 || !strings.Contains(r.out, before) {
		t.Errorf("a repeated call makes another authority: %+v, want %s", r, before)
	}
}

// TestRotationWaitsForServers: ca.crt is written when the server that runs shows the new authority.
func TestRotationWaitsForServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it was served
	dir := filepath.Join(t.TempDir(), "v")
	if r := run("", "", "init", "--volume", dir, "--server", "1="+l.Addr().String()+",127.0.0.1:1"); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	c, clusterErr := volume.ReadCluster(f)
	old, err := volume.ReadAuthority(f)
	if err = errors.Join(clusterErr, err); err != nil {
		t.Fatal(err)
	}
	asked := 0
	served := make(chan struct{})
	server := tls.NewListener(l, &tls.Config{NextProtos: []string{frames.Protocol}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		asked++
		if public, err := volume.ReadCertificate(f); err != nil || !bytes.Equal(public, old.Certificate) {
			t.Errorf("asked %d times, and ca.crt is written: %v", asked, err)
		}
		a, err := old, error(nil)
		if asked > 1 {
			if a, err = volume.ReadAuthority(f); err != nil {
				return nil, err
			}
		}
		issuer, err := certs.NewIssuer(c.ID, a)
		if err != nil {
			return nil, err
		}
		leaf, err := issuer.Issue(nil, time.Now())
		return &leaf, err
	}})
	go func() {
		defer close(served)
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake() // the command has the error
			c.Close()                     //nolint:errcheck // it was to be made
		}
	}()
	r := run("", "", "secure", "rotate", "ca", "--volume", dir)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-served
	if r.code != 0 || asked != 2 || !strings.Contains(r.errs, "waiting for server 1") {
		t.Errorf("the server was asked %d times: %+v", asked, r)
	}
	if public, err := volume.ReadCertificate(f); err != nil || bytes.Equal(public, old.Certificate) {
		t.Errorf("ca.crt is the old one: %v", err)
	}
}
