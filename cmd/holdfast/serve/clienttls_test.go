// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// offer gives a volume an authority, and returns what a program without our libraries trusts.
func offer(t *testing.T, f vfs.FS, id cluster.ID) *x509.CertPool {
	t.Helper()
	a, err := volume.OfferTLS(f, rand.Reader, func() (volume.Authority, error) { return certs.Draw(id) })
	if err != nil {
		t.Fatal(err)
	}
	return rootsOf(t, a)
}

// rootsOf returns what a program without our libraries trusts that knows an authority.
func rootsOf(t *testing.T, a volume.Authority) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Certificate) {
		t.Fatal("no certificate")
	}
	return roots
}

// awaitTLS waits for a server whose certificate is of an authority that config trusts.
func awaitTLS(t *testing.T, limited context.Context, addr string, config *tls.Config) {
	t.Helper()
	for {
		conn, err := (&tls.Dialer{Config: config}).DialContext(limited, "tcp", addr)
		if err == nil {
			conn.Close() //nolint:errcheck // it was to be made
			return
		}
		if limited.Err() != nil {
			t.Fatal(err)
		}
	}
}

// rotate gives a volume a new authority, and returns what a program without our libraries trusts then.
func rotate(t *testing.T, f vfs.FS, id cluster.ID) *x509.CertPool {
	t.Helper()
	a, err := volume.RotateAuthority(f, rand.Reader, false, func(old volume.Authority) (volume.Authority, error) {
		return certs.Succeed(id, old, time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	return rootsOf(t, a)
}

// TestOfferTLSToARunningServer: it serves TLS soon, for every kind of client, beside plain text.
func TestOfferTLSToARunningServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	m := makeVolume(t, dir, false)
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	c, err := volume.ReadCluster(f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	run := func() {
		ended <- Run(ctx, Options{Server: 1, Volume: dir, DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel)})
	}
	go run()
	defer http.DefaultClient.CloseIdleConnections()
	await(t, m, 0, ended)
	config := &tls.Config{RootCAs: offer(t, f, c.ID)}
	limited, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	awaitTLS(t, limited, m.Client, config)
	everythingOverTLS(t, limited, m.Client, config)
	everything(t, limited, m.Client)
	rotated := &tls.Config{RootCAs: rotate(t, f, c.ID)}
	awaitTLS(t, limited, m.Client, rotated)
	everythingOverTLS(t, limited, m.Client, rotated)
	everythingOverTLS(t, limited, m.Client, config)
	stop(errors.New("a signal"))
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, "secrets"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx = t.Context()
	run()
	if err := <-ended; !errors.Is(err, volume.ErrExposed) {
		t.Errorf("a start with a secret that others may read: %v", err)
	}
}

// everythingOverTLS asks in every way that clients without our libraries have.
func everythingOverTLS(t *testing.T, ctx context.Context, addr string, config *tls.Config) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	q, err := http.NewRequestWithContext(ctx, "GET", "https://"+addr+"/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := client.Do(q); err != nil || r.StatusCode != http.StatusOK || r.ProtoMajor != 1 {
		t.Errorf("HTTP: %+v, %v", r, err)
	} else {
		r.Body.Close() //nolint:errcheck // it is not read
	}
	c, _, err := websocket.Dial(ctx, "wss://"+addr+"/v1/ws", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatalf("WebSocket: %v", err)
	}
	defer c.CloseNow() //nolint:errcheck // it was read
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":1,"op":"ping"}`)); err != nil {
		t.Error(err)
	}
	if _, b, err := c.Read(ctx); err != nil || !strings.Contains(string(b), `"id":1`) {
		t.Errorf("WebSocket: %s, %v", b, err)
	}
	line, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close() //nolint:errcheck // it was read
	if _, err := io.WriteString(line, "OWN,a\n"); err != nil {
		t.Error(err)
	}
	if said, err := bufio.NewReader(line).ReadString('\n'); said != "NONE\n" || err != nil {
		t.Errorf("lines: %q, %v", said, err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	if r, err := pb.NewLockServiceClient(conn).Status(ctx, &pb.StatusRequest{}); err != nil || r.GetServerId() != 1 {
		t.Errorf("gRPC: %v, %v", r, err)
	}
}

// doorway is a port on loopback with its TLS.
type doorway struct {
	*clientTLS
	t    *testing.T
	addr string
	disk *volumetest.Disk
}

func newDoorway(t *testing.T) *doorway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &doorway{t: t, addr: l.Addr().String(), disk: volumetest.New(1)}
	d.clientTLS = &clientTLS{fs: d.disk.Host(1, volumetest.ProfileLocal()), id: cluster.ID{1}, hosts: []string{"lb"}, port: clientport.New(zerolog.Nop(), nil), log: zerolog.Nop(), outside: newOutside(&Options{Live: NewLive(Live{})})}
	if err := d.fs.Mkdir("servers"); err != nil {
		t.Fatal(err)
	}
	go d.port.Serve(l)                   //nolint:errcheck // until the end of the test
	t.Cleanup(func() { d.port.Close() }) //nolint:errcheck // never fails
	go func() {
		for {
			c, err := d.port.Listener(clientport.HTTP).Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello") //nolint:errcheck // the reader would miss it
			c.Close()                  //nolint:errcheck // it was used
		}
	}()
	return d
}

// shown returns the certificate that clients get.
func (d *doorway) shown() *x509.Certificate {
	d.t.Helper()
	c, err := tls.Dial("tcp", d.addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it was looked at
	return c.ConnectionState().PeerCertificates[0]
}

// TestCertificateIsMadeDaily, and nothing of the volume is needed for that.
func TestCertificateIsMadeDaily(t *testing.T) {
	d := newDoorway(t)
	now := time.Now()
	if err := d.keep(now); err != nil || d.issuer != nil {
		t.Fatalf("without an authority: %v", err)
	}
	offer(t, d.fs, d.id)
	if err := d.keep(now); err != nil {
		t.Fatal(err)
	}
	first := d.shown()
	if err := first.VerifyHostname("lb"); err != nil {
		t.Error(err)
	}
	d.fullName.Store(new("h9.example.org"))
	if err := d.keep(now); err != nil || d.shown().VerifyHostname("h9.example.org") != nil || d.shown().VerifyHostname("lb") != nil {
		t.Errorf("with the full name: %v, it has %q", err, d.shown().DNSNames)
	}
	first = d.shown()
	if err := d.keep(now); err != nil || !d.shown().Equal(first) {
		t.Errorf("it is made again for nothing, %v", err)
	}
	d.fs.(*volumetest.Host).SetHook(func(volumetest.Call) volumetest.Action { return volumetest.FailBefore(syscall.EIO) })
	if err := d.keep(now); err == nil {
		t.Error("a volume that cannot be read requires nothing")
	}
	if err := d.keep(now.Add(issueEvery)); err == nil || d.shown().Equal(first) {
		t.Errorf("after a day, and the volume cannot be read: %v", err)
	}
	now = now.Add(issueEvery)
	d.fs.(*volumetest.Host).SetHook(nil)
	rotate(t, d.fs, d.id)
	if err := d.keep(now); err != nil || d.shown().CheckSignatureFrom(d.issuer.Certificate()) != nil || d.number != 2 {
		t.Errorf("authority %d after a rotation: %v", d.number, err)
	}
	first = d.shown()
	if err := errors.Join(d.fs.Remove("secrets/ca.key"), d.fs.Remove("secrets/ca-2.key")); err != nil { // it never goes back
		t.Fatal(err)
	}
	if err := d.keep(now.Add(issueEvery - time.Minute)); err != nil || !d.shown().Equal(first) {
		t.Errorf("before a day has passed: %v, another one: %v", err, !d.shown().Equal(first))
	}
	if err := d.keep(now.Add(issueEvery)); err != nil || d.shown().Equal(first) || bytes.Equal(d.shown().RawSubjectPublicKeyInfo, first.RawSubjectPublicKeyInfo) {
		t.Errorf("after a day: %v", err)
	}
}

// TestForwardDials TLS where it is served, plain text where it is not, and nobody else.
func TestForwardDials(t *testing.T) {
	own, late, foreign := newDoorway(t), newDoorway(t), newDoorway(t)
	offer(t, own.fs, own.id)
	offer(t, foreign.fs, foreign.id)
	for _, d := range []*doorway{own, foreign} {
		if err := d.keep(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	said := func(from, to *doorway) string {
		c, err := from.dial(t.Context(), "tcp", to.addr)
		if err != nil {
			if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
				t.Errorf("%v does not say that nothing was sent", err)
			}
			return err.Error()
		}
		defer c.Close() //nolint:errcheck // it was read
		kind := "plain: "
		if _, ok := c.(*tls.Conn); ok {
			kind = "TLS: "
		}
		io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") //nolint:errcheck // it is answered anyhow
		b, err := io.ReadAll(io.LimitReader(c, 5))
		if err != nil {
			return err.Error()
		}
		return kind + string(b)
	}
	if got := said(own, own); got != "TLS: hello" {
		t.Error(got)
	}
	for _, x := range [][2]*doorway{{own, late}, {late, late}, {late, own}} {
		if got := said(x[0], x[1]); got != "plain: hello" {
			t.Error(got)
		}
	}
	if got := said(own, foreign); !strings.Contains(got, join.ErrUntrusted.Error()) {
		t.Error(got)
	}
	if err := errors.Join(volume.RequireClientTLS(own.fs), own.keep(time.Now())); err != nil {
		t.Fatal(err)
	}
	if got := said(own, late); !strings.Contains(got, join.ErrNoTLS.Error()) {
		t.Errorf("where TLS is required: %s", got)
	}
	if err := errors.Join(own.fs.Remove("servers/client-tls-required"), own.keep(time.Now())); err != nil || !own.required.Load() {
		t.Errorf("it was required, and is not any more: %v", err)
	}
	late.port.Close() //nolint:errcheck // never fails
	if got := said(own, late); !strings.Contains(got, "refused") {
		t.Error(got)
	}
}

func TestHostsOf(t *testing.T) {
	servers := cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:2"}, {ID: 2, Client: "h2:1", OldHTTP: "old:3", Peer: "p:2"}}
	got := hostsOf(servers, &Options{Listen: "l:1", Also: []string{":4", "a:5"}, Bind: "0.0.0.0", Names: []string{"lb", "bücher"}})
	for _, want := range []string{"h1", "h2", "old", "l", "a", "localhost", "127.0.0.1", "::1", "lb"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if slices.Contains(got, "") || slices.Contains(got, "bücher") || slices.Contains(got, "p") {
		t.Errorf("%q", got)
	}
	c := &clientTLS{hosts: got, peers: peerHosts(servers)}
	if known := c.known(); !slices.Contains(known, "p") || !slices.Contains(known, "h2") || slices.Contains(c.names(), "p") {
		t.Errorf("it is known as %q, and its certificate has %q", known, c.names())
	}
}

func TestFullName(t *testing.T) {
	for _, x := range []struct{ canonical, want string }{
		{"h1.example.org.", "h1.example.org"}, {"H1.Example.ORG", "h1.example.org"},
		{"h1.", ""}, {"h1", ""}, {"", ""}, {"localhost.", ""}, {"bank.example.", ""}, {"h1x.example.org.", ""}, {"x.h1.example.org.", ""}, {"h1.*.org.", ""},
	} {
		got := fullName(t.Context(), "h1", func(context.Context, string) (string, error) { return x.canonical, nil })
		if got != x.want {
			t.Errorf("%q makes it %q, want %q", x.canonical, got, x.want)
		}
	}
	if got := fullName(t.Context(), "h1", func(context.Context, string) (string, error) { return "h1.example.org", errors.New("away") }); got != "" {
		t.Errorf("after an error, it is %q", got)
	}
}

// A DNS that comes later, or hangs, is asked again; one that gives another host's name is.
func TestFullNameIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked, known := time.Now(), 0, ""
		learnFullName(t.Context(), "h1", func(ctx context.Context, name string) (string, error) {
			switch asked++; asked {
			case 1:
				<-ctx.Done()
				return "", ctx.Err()
			case 2:
				return "other.example.org.", nil
			}
			return name + ".example.org.", nil
		}, func(full string) { known = full })
		if took := time.Since(began); known != "h1.example.org" || asked != 3 || took != nameWait+2*nameEvery {
			t.Errorf("%q, after %d look-ups and %v", known, asked, took)
		}
		learnFullName(t.Context(), "h1.example.org", nil, nil) // it is the full one
		ended, end := context.WithCancel(t.Context())
		end()
		learnFullName(ended, "h1", func(ctx context.Context, _ string) (string, error) { return "", ctx.Err() }, nil)
	})
}
