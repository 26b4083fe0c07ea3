// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// selfSigned returns a certificate of this name, which is its own authority, and its key, in PEM.
func selfSigned(t *testing.T, name string, usage x509.ExtKeyUsage) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixMicro()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	k, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k})
}

// outsideFiles are the files of an outside.
func outsideFiles(t *testing.T) (o outside, put func(cert, key, ca []byte)) {
	dir := t.TempDir()
	o = newOutside(&Options{Live: NewLive(Live{TLSFiles: TLSFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}}), Log: zerolog.Nop()})
	return o, func(cert, key, ca []byte) {
		t.Helper()
		for name, b := range map[string][]byte{o.files().Cert: cert, o.files().Key: key, o.files().ClientCA: ca} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Files are taken when they are good, together; what was taken stays until then.
func TestOutside(t *testing.T) {
	a, aKey := selfSigned(t, "a", x509.ExtKeyUsageServerAuth)
	b, bKey := selfSigned(t, "b", x509.ExtKeyUsageServerAuth)
	o, put := outsideFiles(t)
	now := time.Now()
	if _, err := o.look(now); err == nil {
		t.Error("a start without the files")
	}
	put(a, bKey, a)
	if _, err := o.look(now); err == nil || !strings.Contains(err.Error(), "tls.key") {
		t.Errorf("a start with a key of another certificate: %v", err)
	}
	var log bytes.Buffer
	o.log = zerolog.New(&log)
	for _, x := range []struct {
		name          string
		cert, key, ca []byte
		changed       bool
		is            []byte
		said          string
	}{
		{"the first", a, aKey, a, true, a, ""},
		{"the same", a, aKey, a, false, a, ""},
		{"half of the next", b, aKey, a, false, a, "stay as they were"},
		{"half of it still", b, aKey, a, false, a, ""},
		{"the next", b, bKey, a, true, b, "there are new"},
		{"no certificate", []byte("x"), bKey, a, false, b, "stay as they were"},
		{"no authority", a, aKey, []byte("x"), false, b, "ca.crt"},
		{"an authority", a, aKey, b, true, a, "there are new"},
	} {
		put(x.cert, x.key, x.ca)
		log.Reset()
		if changed, err := o.look(now); (changed || err != nil) && !o.looked.Equal(now) {
			t.Errorf("%s: it looks too soon: %v, %v", x.name, changed, err)
		}
		now = now.Add(outsideEvery)
		changed, err := o.look(now)
		if x.name == "the first" { // it was taken at once
			changed = o.leaf != nil
		}
		block, _ := pem.Decode(x.is)
		if err != nil || changed != x.changed || o.leaf == nil || !bytes.Equal(o.leaf.Certificate[0], block.Bytes) || o.clients == nil {
			t.Errorf("%s: %v, %v", x.name, changed, err)
		}
		if said := log.String(); !strings.Contains(said, x.said) || x.said == "" && said != "" {
			t.Errorf("%s: the log says %q", x.name, said)
		}
	}
	none := newOutside(&Options{Live: NewLive(Live{})})
	if changed, err := none.look(now); changed || err != nil {
		t.Errorf("no files: %v, %v", changed, err)
	}
}

// No handshake fails while certificates are swapped.
func TestOutsideSwappedUnderLoad(t *testing.T) {
	a, aKey := selfSigned(t, "a", x509.ExtKeyUsageServerAuth)
	b, bKey := selfSigned(t, "b", x509.ExtKeyUsageServerAuth)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a)
	roots.AppendCertsFromPEM(b)
	o, put := outsideFiles(t)
	put(a, aKey, a)
	p := clientport.New(zerolog.Nop(), nil)
	c := &clientTLS{outside: o, port: p}
	now := time.Now()
	swap := func() {
		if _, err := c.outside.look(now); err != nil {
			t.Error(err)
		}
		now = now.Add(outsideEvery)
		c.tellPort()
	}
	swap()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go p.Serve(l)   //nolint:errcheck // it ends with Close
	defer p.Close() //nolint:errcheck // never fails
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil || n < 10; n++ {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				s := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "a", InsecureSkipVerify: true})
				if err := s.Handshake(); err != nil {
					t.Errorf("a handshake: %v", err)
				}
				conn.Close() //nolint:errcheck // it was used
			}
		})
	}
	for i := range 50 {
		if i%2 == 0 {
			put(b, aKey, a) // a half
			swap()
			put(b, bKey, a)
		} else {
			put(a, aKey, b)
		}
		swap()
	}
	stop()
	load.Wait()
}

// Who shows a certificate to a server is known by it over HTTP, gRPC and in lines.
func TestCertificatesOfAServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	m := makeVolume(t, dir, false)
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	about, err := volume.ReadCluster(f)
	if err != nil {
		t.Fatal(err)
	}
	offer(t, f, about.ID)
	cert, key := selfSigned(t, "lock.example.org", x509.ExtKeyUsageServerAuth)
	shown, shownKey := selfSigned(t, "db.example.org", x509.ExtKeyUsageClientAuth)
	o, put := outsideFiles(t)
	put(cert, key, shown)
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Server: 1, Volume: dir, DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel),
			Live: NewLive(Live{TLSFiles: o.files()}),
		})
	}()
	await(t, m, 0, ended)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	pair, err := tls.X509KeyPair(shown, shownKey)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: roots, ServerName: "lock.example.org", Certificates: []tls.Certificate{pair}}
	known(t, m.Client, config)
	knownToTheLibrary(t, dir, shown, shownKey)
	stop(errors.New("a signal"))
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}

// knownToTheLibrary asks for whom the server takes the client library, whose sessions and calls show a certificate.
func knownToTheLibrary(t *testing.T, dir string, cert, key []byte) {
	t.Helper()
	const want = "cert:db.example.org"
	names := []string{filepath.Join(t.TempDir(), "client.crt"), filepath.Join(t.TempDir(), "client.key")}
	for i, text := range [][]byte{cert, key} {
		if err := os.WriteFile(names[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate := clientlib.CertificateFiles(names[0], names[1])
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{dir}, Certificate: certificate})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the end of the test
	l, err := c.Acquire(ctx, "by-the-library", clientlib.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Get(ctx, "by-the-library")
	if err != nil || info.Holder == nil || info.Holder.Identity != want || info.Holder.Token != l.Token() {
		t.Errorf("the library: %+v, %v", info, err)
	}
	caller, err := remote.New(remote.Options{Endpoints: []string{dir}, Certificate: certificate})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close() //nolint:errcheck // the end of the test
	r, err := remote.Read(ctx, caller, func(ctx context.Context, s pb.LockServiceClient) (*pb.WhoAmIResponse, error) {
		return s.WhoAmI(ctx, &pb.WhoAmIRequest{})
	})
	if err != nil || r.GetIdentity() != want || r.GetVia() != "certificate" {
		t.Errorf("a command: %v, %v", r, err)
	}
	foreign, foreignKey := selfSigned(t, "db.example.org", x509.ExtKeyUsageClientAuth)
	pair, err := tls.X509KeyPair(foreign, foreignKey)
	if err != nil {
		t.Fatal(err)
	}
	refused, err := clientlib.New(clientlib.Options{Endpoints: []string{dir}, Budget: time.Second, Certificate: func() (*tls.Certificate, error) { return &pair, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close() //nolint:errcheck // the end of the test
	if _, err := refused.Get(ctx, "by-the-library"); err == nil || !strings.Contains(err.Error(), "the server refuses the certificate of this client: remote error: tls: unknown certificate authority") {
		t.Errorf("with the certificate of another authority: %v", err)
	}
}

// known asks for whom the server takes a client.
func known(t *testing.T, addr string, config *tls.Config) {
	t.Helper()
	const want = "cert:db.example.org"
	transport := &http.Transport{TLSClientConfig: config.Clone()}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get("https://" + addr + "/v1/whoami")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if r.Body.Close(); err != nil || !strings.Contains(string(b), `"identity":"`+want+`"`) || !strings.Contains(string(b), `"via":"certificate"`) {
		t.Errorf("HTTP: %s, %v", b, err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	if r, err := pb.NewLockServiceClient(conn).WhoAmI(t.Context(), &pb.WhoAmIRequest{}); err != nil || r.GetIdentity() != want || r.GetExpiresUnixMs() == 0 {
		t.Errorf("gRPC: %v, %v", r, err)
	}
	line, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close() //nolint:errcheck // it was read
	if _, err := io.WriteString(line, "LOCK,by-certificate,me\n"); err != nil {
		t.Error(err)
	}
	if said, err := bufio.NewReader(line).ReadString('\n'); said != "SUCCESS\n" || err != nil {
		t.Errorf("lines: %q, %v", said, err)
	}
	l, err := pb.NewLockServiceClient(conn).GetLock(t.Context(), &pb.GetLockRequest{Lock: "by-certificate"})
	if err != nil || l.GetLock().GetGrant().GetHolder().GetIdentity() != want {
		t.Errorf("lines have the lock as %v, %v", l.GetLock().GetGrant(), err)
	}
}
