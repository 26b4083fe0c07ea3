// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/session"
	"github.com/holdfast-lock/holdfast/shared/frontend/text"
	"github.com/holdfast-lock/holdfast/shared/frontend/ws"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// servePort serves all front ends of a service on one port, as a server does, until the function that it returns is called.
func servePort(t *testing.T, s *service.Service) (l *dialed, stop func()) {
	t.Helper()
	l = &dialed{conns: make(chan net.Conn), closed: make(chan struct{})}
	p := clientport.New(zerolog.Nop(), nil)
	p.DemandIdentity(s.DemandsIdentity)
	g := grpc.NewServer(grpcapi.Options()...)
	grpcapi.Register(g, s)
	h := httpapi.New(s, httpapi.Options{Log: zerolog.Nop()})
	sockets := ws.New(h.Door(), ws.Options{Log: zerolog.Nop()})
	web, mux := h.Server(), http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle(ws.Path, h.Authenticated(sockets))
	web.Handler = mux
	lines, v := text.New(h.Door()), session.New(s, zerolog.Nop())
	var all sync.WaitGroup
	for _, serve := range []func() error{
		func() error { return p.Serve(l) },
		func() error { return g.Serve(p.Listener(clientport.GRPC)) },
		func() error { return web.Serve(p.Listener(clientport.HTTP)) },
		func() error { return lines.Serve(p.Listener(clientport.Text)) },
		func() error { return v.Serve(p.Listener(clientport.Sessions)) },
	} {
		all.Go(func() { _ = serve() }) // it is stopped
	}
	return l, func() {
		p.Close() //nolint:errcheck // never fails
		v.Close()
		g.Stop()
		web.Close() //nolint:errcheck // the listener is closed already
		lines.Stop(t.Context())
		sockets.Stop(t.Context())
		all.Wait()
	}
}

// opening returns what a client says first in a protocol, with a credential, "" for none.
func opening(protocol, credential string) string {
	header := "Host: localhost\r\n"
	if credential != "" {
		header += "Authorization: Bearer " + credential + "\r\n"
	}
	switch protocol {
	case "lines":
		if credential != "" {
			return "AUTH," + credential + "\nOWN,l\n"
		}
		return "OWN,l\n"
	case "HTTP":
		return "GET /v1/status HTTP/1.1\r\n" + header + "\r\n"
	case "WebSocket":
		return "GET /v1/ws HTTP/1.1\r\n" + header + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	}
	settings, _ := proto.Marshal(&pb.Settings{Version: 1, Credential: credential})                      // cannot fail
	call, _ := proto.Marshal(&pb.SessionRequest{Calls: []*pb.Call{{Correlation: 1, Method: "Status"}}}) // cannot fail
	return string(frames.Append(frames.Append([]byte(frames.Preface), frames.Settings, settings), frames.Message, call))
}

// heard is what a client heard, and when its connection was ended by the server.
type heard struct {
	net.Conn
	began time.Time
	mu    sync.Mutex
	said  strings.Builder
	ended time.Duration
}

func (c *heard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.Write(b[:n])
	if err == io.EOF && c.ended == 0 {
		c.ended = max(1, time.Since(c.began))
	}
	return n, err
}

// what returns what it heard, and when the server ended it, 0 if it did not.
func (c *heard) what() (said string, ended time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.String(), c.ended
}

// Whatever a stranger speaks, and though he is answered what everybody may ask, his connection ends, with a word where the
// protocol has one. Who showed a credential stays, also with one that has expired since; and where strangers may do something, they stay.
func TestStrangersDoNotStay(t *testing.T) {
	for _, protocol := range []string{"sessions", "gRPC", "HTTP", "WebSocket", "lines"} {
		for _, who := range []string{"", "wrong", "alice", "late", "anonymous"} {
			t.Run(protocol+" of "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newCredentials(t)
					credential := who
					if who == "anonymous" {
						g.set(t, &access.File{Rules: []access.Rule{{Who: []string{"anonymous"}, May: []access.Verb{access.Read}, Locks: []string{"public/*"}}}})
						credential = ""
					}
					rules := g.rules.Load()
					if protocol == "WebSocket" && who == "" { // they come later: a stranger gets no WebSocket under them
						g.rules.Store(nil)
						time.AfterFunc(time.Second, func() { g.rules.Store(rules) })
					}
					l, stop := servePort(t, service.New(startPrimary(t), service.Options{Authenticator: g}))
					here, err := l.dial(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					c := &heard{Conn: here, began: time.Now()}
					if protocol == "gRPC" {
						defer callStatus(t, c, credential)()
					} else {
						go func() {
							_, err := io.WriteString(c, opening(protocol, credential))
							for protocol == "sessions" && err == nil { // who is silent is cut
								time.Sleep(4 * time.Second)
								_, err = c.Write(frames.Append(nil, frames.Ping, nil))
							}
						}()
						go io.Copy(io.Discard, c) //nolint:errcheck // as above
					}
					time.Sleep(20 * time.Second)
					synctest.Wait()
					said, ended := c.what()
					stranger := who == "" || who == "wrong"
					refused := who == "wrong" && protocol == "WebSocket" // over HTTP, which goes on
					if early := ended < 15*time.Second || ended > 18*time.Second; stranger == (ended == 0) || stranger && early {
						t.Errorf("ended after %v", ended)
					}
					word := map[string]string{"sessions": serving.Unproven, "WebSocket": serving.Unproven, "lines": "DENIED\nDENIED\n"}[protocol]
					if protocol == "lines" && who == "wrong" {
						word = "FAIL\n" + word
					}
					if stranger && !refused && !strings.HasSuffix(said, word) && !strings.Contains(said, serving.Unproven) {
						t.Errorf("it was told %q", said)
					}
					c.Close() //nolint:errcheck // a pipe
					stop()
					time.Sleep(5 * time.Second) // who pings notices
				})
			})
		}
	}
}

// callStatus asks for the status over gRPC.
func callStatus(t *testing.T, c net.Conn, credential string) (end func()) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///s", grpc.WithContextDialer(onlyOnce(c)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if credential != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+credential)
	}
	if _, err := pb.NewLockServiceClient(conn).Status(ctx, &pb.StatusRequest{}); err != nil {
		t.Error(err)
	}
	return func() { conn.Close() } //nolint:errcheck // it says only that it is closed already
}

// onlyOnce dials a connection that is there.
func onlyOnce(c net.Conn) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		if c == nil {
			return nil, net.ErrClosed
		}
		defer func() { c = nil }()
		return c, nil
	}
}

// From where too many credentials failed, a client library is told to come again with its own, and lines are an ERROR, not a FAIL.
func TestTooManyFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCredentials(t)
		l, stop := servePort(t, service.New(startPrimary(t), service.Options{Authenticator: g, Failures: &service.Failures{}}))
		say := func(protocol, credential string) string {
			here, there := net.Pipe()
			l.conns <- &elsewhere{there}
			c := &heard{Conn: here, began: time.Now()}
			go io.WriteString(c, opening(protocol, credential)) //nolint:errcheck // the answer would be missed
			go io.Copy(io.Discard, c)                           //nolint:errcheck // as above
			synctest.Wait()
			c.Close() //nolint:errcheck // a pipe
			said, _ := c.what()
			return said
		}
		for range 10 {
			if got := say("lines", "wrong"); got != "FAIL\nDENIED\n" {
				t.Errorf("a wrong credential: %q", got)
			}
		}
		if got := say("lines", "alice"); got != "ERROR\nDENIED\n" {
			t.Errorf("one more: %q", got)
		}
		if got := say("HTTP", "alice"); !strings.Contains(got, "more is told to who shows") { // a status is for everybody
			t.Errorf("HTTP: %q", got)
		}
		if got := say("WebSocket", "alice"); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "wait a second") {
			t.Errorf("WebSocket: %q", got)
		}
		kind, b, _, err := frames.NewReader(strings.NewReader(say("sessions", "alice")), 1<<10).Next()
		m := &pb.Settings{}
		if err := errors.Join(err, proto.Unmarshal(b, m)); kind != frames.Settings || m.GetRetryAfterMs() != 1000 || err != nil {
			t.Errorf("a client library: %v, %v", m, err)
		}
		if got := say("lines", "bob"); !strings.HasPrefix(got, "SUCCESS\n") { // known
			t.Errorf("a credential that was good before: %q", got)
		}
		time.Sleep(time.Second)
		if got := say("lines", "alice"); !strings.HasPrefix(got, "SUCCESS\n") {
			t.Errorf("a second later: %q", got)
		}
		stop()
	})
}

// elsewhere is a connection from another host.
type elsewhere struct{ net.Conn }

func (*elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// What a stranger announces, and may not do anyway, gets no memory: he is refused before it comes.
func TestStrangersGetNoMemory(t *testing.T) {
	for name, x := range map[string]struct {
		sends  func(credential string) string
		answer string
	}{
		"a body": {
			sends: func(credential string) string {
				header := ""
				if credential != "" {
					header = "Authorization: Bearer " + credential + "\r\n"
				}
				return "POST /v1/append?lock=l&token=1&file=f HTTP/1.1\r\nHost: localhost\r\n" + header + "Content-Length: 1048576\r\n\r\n"
			},
			answer: "HTTP/1.1 401 ",
		},
		"a WebSocket": {sends: func(credential string) string { return opening("WebSocket", credential) }, answer: "HTTP/1.1 401 "},
		"a frame": {sends: func(credential string) string {
			b := []byte(opening("sessions", credential) + frame(frames.Message, &pb.SessionRequest{}))
			binary.BigEndian.PutUint32(b[len(b)-frames.HeaderSize:], 1<<20)
			return string(b)
		}},
	} {
		for _, who := range []string{"", "alice"} {
			t.Run(name+" of "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, stop := servePort(t, service.New(startPrimary(t), service.Options{Authenticator: newCredentials(t)}))
					here, err := l.dial(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					c := &heard{Conn: here, began: time.Now()}
					go io.WriteString(c, x.sends(who)) //nolint:errcheck // the answer would be missed
					go io.Copy(io.Discard, c)          //nolint:errcheck // as above
					time.Sleep(time.Second)
					synctest.Wait()
					said, ended := c.what()
					if refused := ended > 0 || x.answer != "" && strings.HasPrefix(said, x.answer); refused != (who == "") {
						t.Errorf("it heard %q, and was closed after %v", said, ended)
					}
					c.Close() //nolint:errcheck // a pipe
					stop()
					time.Sleep(time.Second) // its server notices
				})
			})
		}
	}
}

// A client of the library that has shown its credential keeps its connection, and one that has none does not come again and
// again by itself.
func TestIdleClientsDoNotReconnect(t *testing.T) {
	for who, want := range map[string]error{"hfk_alice": nil, "": clientlib.ErrUnauthenticated} {
		synctest.Test(t, func(t *testing.T) {
			g := newCredentials(t)
			g.callers["hfk_alice"] = g.callers["alice"]
			l, stop := servePort(t, service.New(startPrimary(t), service.Options{Authenticator: g}))
			dial := func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := l.dial(ctx, addr)
				return &onThisHost{c}, err
			}
			c, err := clientlib.New(clientlib.Options{Endpoints: []string{"127.0.0.1:1"}, Dialer: dial, Credential: func(context.Context, string) (string, error) { return who, nil }})
			if err != nil {
				t.Fatal(err)
			}
			held, err := c.Acquire(t.Context(), "l", clientlib.AcquireOptions{})
			if !errors.Is(err, want) {
				t.Errorf("%q: %v", who, err)
			}
			before := l.dials.Load()
			time.Sleep(10 * time.Minute)
			if n := l.dials.Load() - before; n > 0 {
				t.Errorf("%q came again %d times", who, n)
			}
			if held != nil && held.Context().Err() != nil {
				t.Errorf("%q has lost the lock: %v", who, context.Cause(held.Context()))
			}
			c.Close() //nolint:errcheck // nothing is in flight
			stop()
			time.Sleep(time.Second)
		})
	}
}

// onThisHost is a connection to this host, which gets credentials without TLS.
type onThisHost struct{ net.Conn }

func (*onThisHost) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv6loopback, Port: 1} }
