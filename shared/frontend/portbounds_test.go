// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// frame returns a message of a session's connection.
func frame(kind frames.Kind, m proto.Message) string {
	b, _ := proto.Marshal(m) // cannot fail
	return string(frames.Append(nil, kind, b))
}

// longFrame is the beginning of a frame that is longer than any.
func longFrame() string {
	b := []byte(frame(frames.Message, &pb.SessionRequest{}))
	binary.BigEndian.PutUint32(b, 1<<31-1)
	return string(b)
}

// What one client may send and how long it may take are bounded, whatever it speaks, also where it needs no credential.
func TestBoundsOfAConnection(t *testing.T) {
	const web = " HTTP/1.1\r\nHost: localhost\r\n"
	greeting := frames.Preface + frame(frames.Settings, &pb.Settings{Version: 1})
	hello := frame(frames.Message, &pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c"}})
	for name, x := range map[string]struct {
		sends   string
		answer  string        // a part of it
		closed  time.Duration // 0 = at once
		atLeast bool          // it may take up to twice as long
	}{
		"nothing":             {closed: time.Minute},
		"half a method":       {sends: "GE", closed: time.Minute},
		"HTTP: a long header": {sends: "GET /v1/status" + web + "X: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", answer: "HTTP/1.1 431 "},
		"HTTP: a slow header": {sends: "GET /v1/status" + web, closed: 5 * time.Second},
		"HTTP: a long body":   {sends: "POST /v1/acquire" + web + "Content-Length: 70000\r\n\r\n" + strings.Repeat(" ", 70000), answer: "HTTP/1.1 413 ", closed: 2 * time.Minute},
		"HTTP: a slow body":   {sends: "POST /v1/acquire" + web + "Content-Length: 7\r\n\r\n{", answer: "HTTP/1.1 400 ", closed: 30 * time.Second},
		"HTTP: a slow chunk":  {sends: "POST /v1/acquire" + web + "Transfer-Encoding: chunked\r\n\r\n7\r\n{", answer: "HTTP/1.1 400 ", closed: 30 * time.Second},
		"HTTP: nothing more":  {sends: "GET /v1/status" + web + "\r\n", answer: "HTTP/1.1 200 ", closed: 2 * time.Minute},
		"WebSocket: nothing": {
			sends: opening("WebSocket", ""), answer: "HTTP/1.1 101 ", closed: 30 * time.Second, atLeast: true,
		},
		"lines: a long one":           {sends: "OWN," + strings.Repeat("x", 1100) + "\nOWN,l\n", answer: "INVALID_FORMAT\n"},
		"lines: no end":               {sends: "OWN,l", closed: 10 * time.Second},
		"lines: nothing more":         {sends: "OWN,l\n", answer: "NONE\n", closed: 15 * time.Minute},
		"sessions: no settings":       {sends: frames.Preface, closed: 10 * time.Second},
		"sessions: half the settings": {sends: greeting[:len(greeting)-1], closed: 10 * time.Second},
		"sessions: a long frame":      {sends: greeting + longFrame()},
		"sessions: half a frame":      {sends: greeting + hello[:len(hello)-1], closed: 15 * time.Second, atLeast: true},
		"sessions: nothing more":      {sends: greeting + hello, closed: 15 * time.Second, atLeast: true},
		"sessions: two":               {sends: greeting + hello + hello, answer: "a connection has one session"},
		"sessions: none": {
			sends: greeting + frame(frames.Message, &pb.SessionRequest{Operations: []*pb.Operation{{}}}), answer: "begins with a hello",
		},
		"gRPC: no settings":  {sends: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", closed: 10 * time.Second},
		"gRPC: nothing more": {sends: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", closed: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, stop := servePort(t, service.New(startPrimary(t), service.Options{}))
				here, err := l.dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				c := &heard{Conn: here, began: time.Now()}
				go io.WriteString(c, x.sends) //nolint:errcheck // the answer would be missed
				all, err := io.ReadAll(c)     // in the end it is closed
				if err != nil || !strings.Contains(string(all), x.answer) {
					t.Errorf("heard %q, %v; want %q", all, err, x.answer)
				}
				// Sessions end with a word, which may take two seconds to be read.
				if _, ended := c.what(); ended < x.closed || ended > x.closed+3*time.Second && !(x.atLeast && ended <= 2*x.closed) {
					t.Errorf("closed after %v, want %v", ended, x.closed)
				}
				c.Close() //nolint:errcheck // a pipe
				stop()
			})
		})
	}
}

// A connection of gRPC has so many calls and streams at a time, and one more waits; what is too long is refused.
func TestBoundsOfGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := servePort(t, service.New(startPrimary(t), service.Options{}))
		defer stop()
		here, err := l.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("passthrough:///s", grpc.WithContextDialer(onlyOnce(here)), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // it says only that it is closed already
		c := pb.NewLockServiceClient(conn)
		long := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 17<<10))
		if _, err := c.Status(long, &pb.StatusRequest{}); err == nil {
			t.Error("long metadata are taken")
		}
		if _, err := c.FileAppend(t.Context(), &pb.FileAppendRequest{Data: make([]byte, cluster.MaxAppend+65<<10)}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a long message: %v", err)
		}
		first, end := context.WithCancel(t.Context())
		for i := range grpcapi.MaxStreams {
			ctx := t.Context()
			if i == 0 {
				ctx = first
			}
			if _, err := c.Watch(ctx, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}}); err != nil {
				t.Fatal(i, err)
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Status(soon, &pb.StatusRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("one more: %v", err)
		}
		end()
		if _, err := c.Status(t.Context(), &pb.StatusRequest{}); err != nil {
			t.Errorf("in the place of one: %v", err)
		}
	})
}

// The connection of a client that has closed its half ends, whatever it speaks.
func TestHalfClosedConnectionsEnd(t *testing.T) {
	l, stop := servePort(t, service.New(startPrimary(t), service.Options{}))
	defer stop()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close() //nolint:errcheck // a listener
	for protocol, x := range map[string]struct{ sends, answer string }{
		"nothing":   {"", ""},
		"a word":    {"GE", ""},
		"lines":     {opening("lines", ""), "NONE\n"},
		"HTTP":      {opening("HTTP", ""), "HTTP/1.1 200 "},
		"WebSocket": {opening("WebSocket", ""), "HTTP/1.1 101 "},
		"sessions":  {opening("sessions", ""), "c0"},
		"gRPC":      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", ""},
	} {
		c, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // it has ended
		there, err := tcp.Accept()
		if err != nil {
			t.Fatal(err)
		}
		l.conns <- there
		if _, err := io.WriteString(c, x.sends); err != nil {
			t.Error(err)
		}
		b := []byte(nil)
		if x.answer != "" { // who leaves at once may leave no answer behind
			b = make([]byte, 1<<10)
			n, _ := c.Read(b)
			b = b[:n]
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // Read would say so
		rest, err := io.ReadAll(c)
		if all := string(b) + string(rest); errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(all, x.answer) {
			t.Errorf("%s: %q, %v", protocol, all, err)
		}
	}
}
