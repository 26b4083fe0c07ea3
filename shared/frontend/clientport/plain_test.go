// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// CloseWrite does what a pipe can.
func (f from) CloseWrite() error { return nil }

func (s *site) dialFrom(addr net.Addr) net.Conn {
	here, there := net.Pipe()
	s.t.Cleanup(func() { here.Close() }) //nolint:errcheck // a pipe
	s.l.conns <- from{there, addr}
	return here
}

func host(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 5} }

// farewellOf is what a client in plain text is told that begins like this.
func farewellOf(t *testing.T, s *site, first string) string {
	t.Helper()
	c := s.dialFrom(host("192.0.2.1"))
	go io.WriteString(c, first)                    //nolint:errcheck // the port does not read all of it
	c.SetReadDeadline(time.Now().Add(byeWait / 2)) //nolint:errcheck // a pipe
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Errorf("%q is told nothing: %v", first, err)
	}
	return string(b[:n])
}

// Where TLS is required, plain text of other hosts is refused in its own words, within a second; that of this host, and
// TLS, are served.
func TestPlainTextIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		old := s.dialFrom(host("192.0.2.1"))
		say(t, old, "QUIT\n")
		x := s.next()
		s.RequireTLS()
		if said := farewellOf(t, s, "OWN,db\n"); !strings.HasPrefix(said, "DENIED: TLS is required") || !strings.HasSuffix(said, "\n") {
			t.Errorf("%q", said)
		}
		r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(farewellOf(t, s, "GET / HTTP/1.1\r\n\r\n"))), nil)
		var body struct{ Status, Message string }
		if err != nil || json.NewDecoder(r.Body).Decode(&body) != nil || r.StatusCode != 400 || !r.Close || body.Status != "INVALID_ARGUMENT" || !strings.Contains(body.Message, "https://") {
			t.Errorf("%+v, %v, %+v", r, err, body)
		}
		kind, b, _, err := frames.NewReader(strings.NewReader(farewellOf(t, s, frames.Preface)), 1<<12).Next()
		var end pb.SessionResponse
		if err != nil || kind != frames.Message || proto.Unmarshal(b, &end) != nil || !strings.Contains(end.GetEnd().GetMessage(), "holdfast join") {
			t.Errorf("kind %d, %v, %v", kind, err, &end)
		}
		farewellOf(t, s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[:maxFirst])
		time.Sleep(byeWait)
		s.has(0)
		if len(s.taken) > 0 {
			t.Error("a front end was given one")
		}
		for _, addr := range []net.Addr{host("127.0.0.1"), host("127.8.8.8"), host("::1"), host("::ffff:127.0.0.1"), &net.UnixAddr{Name: "s", Net: "unix"}} {
			say(t, s.dialFrom(addr), "QUIT\n")
			if got := s.next(); got.class != Text {
				t.Errorf("%v: class %d", addr, got.class)
			}
		}
		c := tls.Client(s.dialFrom(host("192.0.2.1")), offering(frames.Protocol))
		say(t, c, frames.Preface)
		if got := s.next(); got.class != Sessions {
			t.Errorf("class %d over TLS", got.class)
		}
		go io.WriteString(old, "more") //nolint:errcheck // the reader would miss it
		if b, err := io.ReadAll(io.LimitReader(x.conn, 9)); string(b) != "QUIT\nmore" || err != nil {
			t.Errorf("what was open reads %q, %v", b, err)
		}
	})
}

// Whoever does not read why it is refused has a second, and its place for no longer.
func TestRefusalIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		s.RequireTLS()
		deaf, chatty := s.dialFrom(host("192.0.2.1")), s.dialFrom(host("192.0.2.2"))
		say(t, deaf, "QUIT\n")
		say(t, chatty, "QUIT\n")
		go io.Copy(io.Discard, chatty) //nolint:errcheck // until it is closed
		go func() {
			for {
				if _, err := io.WriteString(chatty, "x"); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		s.has(2)
		time.Sleep(byeWait)
		s.has(0)
		if !gone(deaf) {
			t.Error("it is open")
		}
		time.Sleep(time.Second) // until the chatty one notices
	})
}

// elsewhere is a listener whose connections come from another host.
type elsewhere struct{ net.Listener }

func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return away{c.(*net.TCPConn)}, nil
}

type away struct{ *net.TCPConn }

func (away) RemoteAddr() net.Addr { return host("192.0.2.1") }

// Libraries show what they are told.
func TestLibrariesTellWhyTheyAreRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := New(zerolog.Nop(), nil)
	p.RequireTLS()
	go p.Serve(elsewhere{l}) //nolint:errcheck // the end of the test
	defer p.Close()          //nolint:errcheck // never fails
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	if err := conn.Invoke(t.Context(), "/none/None", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "TLS is required") {
		t.Errorf("gRPC: %v", err)
	}
	r, err := http.Post("http://"+l.Addr().String()+"/v1/acquire", "text/plain", strings.NewReader(strings.Repeat("x", 32<<10)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close() //nolint:errcheck // it was read
	if b, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(b), "TLS is required") {
		t.Errorf("HTTP: %s, %v", b, err)
	}
}
