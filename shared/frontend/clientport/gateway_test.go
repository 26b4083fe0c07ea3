// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// loopback is where a gateway on the server's own host is.
func loopback() net.Addr { return host("127.0.0.1") }

// What a gateway passes on is served like what comes without one, whatever is spoken, and comes from another host.
func TestPassedOn(t *testing.T) {
	for says, want := range map[string]Class{
		frames.Preface: Sessions, "GET / HTTP/1.1\r\n": HTTP, "PRI * HTTP/2.0\r\n": GRPC, "LOCK,db,me\n": Text,
	} {
		for _, pieces := range []int{1, 100} {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				c := s.dialFrom(loopback())
				text := GatewayPreface + says
				go func() {
					for rest := text; rest != ""; {
						n := min(pieces, len(rest))
						io.WriteString(c, rest[:n]) //nolint:errcheck // the reader would miss it
						rest = rest[n:]
					}
				}()
				got := <-s.taken
				b := make([]byte, len(says))
				if _, err := io.ReadFull(got.conn, b); err != nil || got.class != want || string(b) != says {
					t.Errorf("%q: class %d read %q, %v", says, got.class, b, err)
				}
				from := got.conn.RemoteAddr()
				if !serving.ThroughGateway(from) || !serving.Overheard(from) || serving.PlainAddr(from).String() != loopback().String() {
					t.Errorf("%q is from %+v", says, from)
				}
			})
		}
	}
}

// The user who runs a gateway lends it nothing: behind the preface, it does not matter by whose socket a connection came.
func TestAGatewayLendsNoUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		of := &serving.KnownAddr{Addr: &net.UnixAddr{Name: "/run/holdfast.sock", Net: "unix"}, Caller: &access.Caller{Identity: "user:holdfast"}}
		say(t, s.dialFrom(of), "QUIT\n")
		if got := <-s.taken; serving.CallerAt(got.conn.RemoteAddr()) == nil {
			t.Error("without a gateway, the user is not known")
		}
		say(t, s.dialFrom(of), GatewayPreface+"QUIT\n")
		got := <-s.taken
		if who := serving.CallerAt(got.conn.RemoteAddr()); who != nil || !serving.Overheard(got.conn.RemoteAddr()) {
			t.Errorf("through a gateway, it is %v", who)
		}
	})
}

// Where TLS is required, a gateway on the server's own host opens no way for plain text of other hosts.
func TestPlainTextThroughAGatewayIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		s.RequireTLS()
		c := s.dialFrom(loopback())
		go io.WriteString(c, GatewayPreface+"OWN,db\n") //nolint:errcheck // the port does not read all of it
		c.SetReadDeadline(time.Now().Add(byeWait / 2))  //nolint:errcheck // a pipe
		line, err := bufio.NewReader(c).ReadString('\n')
		if !strings.HasPrefix(line, "DENIED: TLS is required") {
			t.Errorf("%q, %v", line, err)
		}
		say(t, s.dialFrom(loopback()), "QUIT\n")
		if got := s.next(); got.class != Text {
			t.Errorf("plain text of this host is of class %d", got.class)
		}
	})
}

// TLS reaches from the client to the server, through the gateway, and so does the client's certificate.
func TestTLSThroughAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, authority := open(t), newIssuer(t)
		s.ServeTLS(TLS{Own: new(certificate(t)), Clients: authority.pool()})
		s.RequireTLS()
		shown := authority.issue(&x509.Certificate{DNSNames: []string{"backup.example"}})
		raw := s.dialFrom(loopback())
		say(t, raw, GatewayPreface)
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}})
		go io.WriteString(c, "QUIT\n") //nolint:errcheck // the reader would miss it
		got := <-s.taken
		from := got.conn.RemoteAddr()
		if who := serving.CallerAt(from); got.class != Text || who.Name() != "cert:backup.example" {
			t.Errorf("class %d of %v", got.class, who)
		}
		if !serving.ThroughGateway(from) || serving.Overheard(from) {
			t.Errorf("it is from %+v", from)
		}
	})
}

// A preface is the first thing on a connection, once: a client cannot say it, inside TLS neither.
func TestPrefaceOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		twice := s.dialFrom(loopback())
		say(t, twice, GatewayPreface+GatewayPreface)
		inside := s.dialFrom(loopback())
		c := tls.Client(inside, offering())
		go io.WriteString(c, GatewayPreface+"QUIT\n") //nolint:errcheck // the port closes
		synctest.Wait()
		go io.Copy(io.Discard, c) //nolint:errcheck // until the port closes
		time.Sleep(time.Second)
		synctest.Wait()
		if s.has(0); len(s.taken) != 0 || !gone(twice) {
			t.Errorf("%d are served", len(s.taken))
		}
	})
}

// A gateway says in the client's own words why it does not pass a connection on.
func TestOpeningRefused(t *testing.T) {
	why := errors.New("no way")
	refused := func(t *testing.T, says string, refuse func(Opening, net.Conn)) string {
		t.Helper()
		here, there := net.Pipe()
		defer here.Close() //nolint:errcheck // a pipe
		go func() {
			defer there.Close() //nolint:errcheck // a pipe
			if o, err := ReadOpening(there); err != nil || o.Plain() != !strings.HasPrefix(says, tlsHandshake) {
				t.Errorf("%q: %+v, %v", says, o, err)
			} else {
				refuse(o, there)
			}
		}()
		say(t, here, says)
		b, _ := io.ReadAll(here)
		return string(b)
	}
	none := func(o Opening, c net.Conn) { o.NoServer(c, why) }
	plain := func(o Opening, c net.Conn) { o.RefusePlain(c, why) }
	for _, x := range []struct {
		says   string
		refuse func(Opening, net.Conn)
		code   int
		status string
	}{
		{"GET / HTTP/1.1\r\n", none, http.StatusServiceUnavailable, `{"status":"SECONDARY_MODE","message":"no way"}`},
		{"GET / HTTP/1.1\r\n", plain, http.StatusBadRequest, `{"status":"INVALID_ARGUMENT","message":"no way"}`},
	} {
		r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(refused(t, x.says, x.refuse))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); err != nil || r.StatusCode != x.code || strings.TrimSpace(string(b)) != x.status || !r.Close {
			t.Errorf("%d, %s, %v", r.StatusCode, b, err)
		}
	}
	if got := refused(t, "QUIT\n", none); got != "ERROR\n" {
		t.Errorf("a line: %q", got)
	}
	if got := refused(t, "QUIT\n", plain); got != "DENIED: no way\n" {
		t.Errorf("a line in plain text: %q", got)
	}
	if got := refused(t, "\x16\x03\x01", none); got != "" {
		t.Errorf("TLS: %q", got)
	}
	kind, _, _, err := frames.NewReader(strings.NewReader(refused(t, frames.Preface, none)), 1<<12).Next()
	if kind != frames.Settings || err != nil {
		t.Errorf("a session is not told to come again: kind %d, %v", kind, err)
	}
	here, there := net.Pipe()
	go io.WriteString(here, GatewayPreface) //nolint:errcheck // a pipe
	if _, err := ReadOpening(there); !errors.Is(err, errGatewayWithin) {
		t.Errorf("a gateway before a gateway: %v", err)
	}
}
