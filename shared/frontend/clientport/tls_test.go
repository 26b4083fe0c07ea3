// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func offering(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
}

// secure opens a port that serves TLS.
func secure(t *testing.T) *site {
	s := open(t)
	s.ServeTLS(TLS{Own: new(certificate(t))})
	return s
}

// What both sides agree on says what is spoken; else the first bytes inside do, as in plain text beside it.
func TestInsideTLS(t *testing.T) {
	for name, x := range map[string]struct {
		offers []string
		says   string
		want   Class
	}{
		"a session":                 {[]string{frames.Protocol}, frames.Preface, Sessions},
		"a session, and any other":  {[]string{"h2", "http/1.1", frames.Protocol}, frames.Preface, Sessions},
		"a browser":                 {[]string{"h2", "http/1.1"}, "GET / HTTP/1.1\r\n", HTTP},
		"gRPC":                      {[]string{"h2"}, "PRI * HTTP/2.0\r\n", GRPC},
		"says one, speaks another":  {[]string{"http/1.1"}, "LOCK,db,me\n", HTTP},
		"lines":                     {nil, "LOCK,db,me\n", Text},
		"HTTP that says nothing":    {nil, "GET / HTTP/1.1\r\n", HTTP},
		"a session without a word":  {nil, frames.Preface, Sessions},
		"gRPC that says nothing":    {nil, "PRI * HTTP/2.0\r\n", GRPC},
		"lines that come in pieces": {nil, "QUIT\n", Text},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := secure(t)
			c := tls.Client(s.dial(), offering(x.offers...))
			go func() {
				for i := range len(x.says) {
					io.WriteString(c, x.says[i:i+1]) //nolint:errcheck // the reader would miss it
					time.Sleep(time.Second)
				}
				time.Sleep(handshakeWait + firstWait) // until somebody reads
				c.CloseWrite()                        //nolint:errcheck // a pipe
			}()
			got := <-s.taken
			time.Sleep(handshakeWait + firstWait) // there is no deadline any more
			answered := make(chan string)
			go func() {
				b, _ := io.ReadAll(c)
				answered <- string(b)
			}()
			b, err := io.ReadAll(got.conn)
			if got.class != x.want || string(b) != x.says || err != nil {
				t.Errorf("%s: class %d read %q, %v", name, got.class, b, err)
			}
			say(t, got.conn, "bye")
			half, ok := got.conn.(interface{ CloseWrite() error })
			if !ok {
				t.Fatalf("%s: its half cannot be closed", name)
			}
			if err, said := half.CloseWrite(), <-answered; err != nil || said != "bye" {
				t.Errorf("%s: %q, and the end of its half: %v", name, said, err)
			}
			say(t, s.dial(), "QUIT\n")
			if got := s.next(); got.class != Text {
				t.Errorf("%s: plain text beside it is of class %d", name, got.class)
			}
			s.has(0)
		})
	}
}

// What is refused behind the first bytes: other protocols, older versions, TLS once more.
func TestTLSThatIsRefused(t *testing.T) {
	older := offering()
	older.MaxVersion = tls.VersionTLS12
	for name, config := range map[string]*tls.Config{"no protocol of ours": offering("spdy/3"), "TLS 1.2": older} {
		synctest.Test(t, func(t *testing.T) {
			s := secure(t)
			if err := tls.Client(s.dial(), config).Handshake(); err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if len(s.taken) > 0 || !strings.Contains(s.said.String(), "no TLS with a client") {
				t.Errorf("%s: %d taken, said %q", name, len(s.taken), s.said.String())
			}
			s.has(0)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		c := tls.Client(s.dial(), offering())
		say(t, c.NetConn(), "") // nothing yet
		if _, err := io.WriteString(c, "\x16\x03\x01"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("TLS within TLS is served")
		}
		if len(s.taken) > 0 {
			t.Error("a front end was given it")
		}
	})
}

// TLS 1.2 is for clients that know no other, where somebody has asked for that.
func TestTLS12(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		s.Port.TakeTLS12()
		c := certificate(t)
		s.Port.ServeTLS(TLS{Own: &c})
		for version, config := range map[uint16]*tls.Config{tls.VersionTLS12: offering(), tls.VersionTLS13: offering()} {
			config.MaxVersion = version
			c := tls.Client(s.dial(), config)
			if err := c.Handshake(); err != nil || c.ConnectionState().Version != version {
				t.Errorf("%s: %v", tls.VersionName(version), err)
			}
		}
		s.Port.RequireTLS()
		config := offering()
		config.MaxVersion, config.MinVersion = tls.VersionTLS11, tls.VersionTLS10
		if err := tls.Client(s.dial(), config).Handshake(); err == nil {
			t.Error("TLS 1.1 is taken")
		}
	})
}

// A handshake has its time, and so has what follows it.
func TestHandshakesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		stuck := s.dial()
		say(t, stuck, "\x16\x03")
		mute := tls.Client(s.dial(), offering())
		if err := mute.Handshake(); err != nil {
			t.Fatal(err)
		}
		s.has(2)
		time.Sleep(handshakeWait - time.Millisecond)
		s.has(2)
		time.Sleep(2 * time.Millisecond)
		s.has(1)
		if !gone(stuck) {
			t.Error("a handshake goes on")
		}
		time.Sleep(firstWait)
		s.has(0)
	})
}

// Whoever begins handshakes and does not go on keeps others out no longer than whoever says nothing, and none of
// them computes.
func TestSlowHandshakesKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		for i := range maxSilent {
			c := s.dial()
			if i%2 == 0 {
				say(t, c, "\x16\x03\x01\x02\x00\x01")
				continue
			}
			go func() { // takes nothing of the server's answer
				config := offering()
				hello := &oneWay{Conn: c}
				_ = tls.Client(hello, config).Handshake()
			}()
		}
		synctest.Wait()
		begun := time.Now()
		c := tls.Client(s.dial(), offering(frames.Protocol))
		go say(t, c, frames.Preface)
		if x := <-s.taken; x.class != Sessions {
			t.Errorf("class %d", x.class)
		}
		if took := time.Since(begun); took != leastWait {
			t.Errorf("it was taken after %v", took)
		}
		if n := len(s.computing); n != 0 {
			t.Errorf("%d compute", n)
		}
		time.Sleep(2 * time.Hour) // until the clients end
	})
}

// oneWay is a connection on which nothing is read.
type oneWay struct{ net.Conn }

func (o *oneWay) Read([]byte) (int, error) { time.Sleep(time.Hour); return 0, io.EOF }

// A new certificate is for those who come then.
func TestCertificateIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		var seen []string
		for range 2 {
			c := certificate(t)
			s.ServeTLS(TLS{Own: &c})
			conn := tls.Client(s.dial(), offering(frames.Protocol))
			if err := conn.Handshake(); err != nil {
				t.Fatal(err)
			}
			if got := conn.ConnectionState().PeerCertificates[0].Raw; string(got) != string(c.Certificate[0]) {
				t.Error("it shows another certificate")
			}
			say(t, conn, frames.Preface)
			seen = append(seen, conn.ConnectionState().NegotiatedProtocol)
			s.next()
		}
		if strings.Join(seen, " ") != "holdfast/1 holdfast/1" {
			t.Error(seen)
		}
	})
}

// gRPC works over a connection whose handshake is over already.
func TestGRPCOverTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := New(zerolog.Nop(), nil)
	p.ServeTLS(TLS{Own: new(certificate(t))})
	server := grpc.NewServer()
	go p.Serve(l)                     //nolint:errcheck // the end of the test
	go server.Serve(p.Listener(GRPC)) //nolint:errcheck // the end of the test
	defer p.Close()                   //nolint:errcheck // never fails
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(offering())))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	if err := conn.Invoke(t.Context(), "/none/None", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// stopping is a connection whose client says so many bytes and no more.
type stopping struct {
	net.Conn
	left int
}

func (c *stopping) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	if c.left -= n; n > 0 {
		if _, err := c.Conn.Write(b[:n]); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Wherever a client stops within its handshake, its connection is closed in time, and no place of a handshake is lost.
func TestHandshakeThatStopsAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		// stop has a client stop behind n bytes of a handshake, and returns when its connection ended, and how much was left.
		stop := func(n int) (took time.Duration, left int) {
			c := &stopping{s.dial(), n}
			defer c.Close() //nolint:errcheck // a pipe
			begun := time.Now()
			if x := tls.Client(c, offering(frames.Protocol)); x.Handshake() == nil {
				_, _ = x.Read(make([]byte, 1)) // until it ends
			}
			return time.Since(begun), c.left
		}
		_, left := stop(1 << 20)
		all := 1<<20 - left
		for n := range all + 1 {
			want := handshakeWait
			if n < len(tlsHandshake) || n == all {
				want = firstWait // it does not show that it is TLS, or is over, and nothing is said on it
			}
			if took, _ := stop(n); took > want {
				t.Errorf("a client that stops behind %d of %d bytes is closed after %v", n, all, took)
			}
			if s.has(0); len(s.computing) > 0 {
				t.Fatalf("a client that stops behind %d of %d bytes has a place", n, all)
			}
		}
	})
}
