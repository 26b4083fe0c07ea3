// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestClientAddresses(t *testing.T) {
	now := cluster.Member{ID: 1, Client: "h:1", Peer: "h:2"}
	before := cluster.Member{ID: 1, Client: "h:1", OldHTTP: "h:3", Peer: "h:2"}
	for _, x := range []struct {
		m    cluster.Member
		opt  Options
		want string
	}{
		{now, Options{}, "h:1"},
		{now, Options{Bind: "0.0.0.0"}, "0.0.0.0:1"},
		{now, Options{Bind: "::"}, "[::]:1"},
		{now, Options{Listen: "i:4"}, "i:4"},
		{now, Options{Listen: "i:4", Bind: "0.0.0.0", Also: []string{"i:5", ":6"}}, "i:4 i:5 :6"},
		{before, Options{}, "h:1 h:3"},
		{before, Options{Listen: "i:4", Bind: "0.0.0.0", Also: []string{"i:5"}}, "i:4 0.0.0.0:3 i:5"},
	} {
		if got, err := clientAddresses(x.m, &x.opt); strings.Join(got, " ") != x.want || err != nil {
			t.Errorf("%+v, %+v: %q, %v, want %s", x.m, x.opt, got, err, x.want)
		}
	}
}

// asked sends bytes and returns the first line of the answer, or why there is none.
func asked(t *testing.T, addr, what string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()                                //nolint:errcheck // it was read
	c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // Read would say so
	if _, err := io.WriteString(c, what); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// everything asks at an address in every way that a server knows.
func everything(t *testing.T, ctx context.Context, addr string) {
	t.Helper()
	for what, want := range map[string]string{
		"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n": "HTTP/1.1 200 OK",
		"OWN,a\n":              "NONE",
		"NO,a\n":               "INVALID_COMMAND",
		"\x16\x03\x01":         "EOF",
		"LOCK a\r\nLOCK,a,b\n": "HTTP/1.1 400 Bad Request",
	} {
		if got := asked(t, addr, what); got != want {
			t.Errorf("%s: %q is answered %q, want %q", addr, what, got, want)
		}
	}
	overFrames(t, addr)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	if r, err := pb.NewLockServiceClient(conn).Status(ctx, &pb.StatusRequest{}); err != nil || r.GetServerId() != 1 {
		t.Errorf("%s over gRPC: %v, %v", addr, r, err)
	}
	c, _, err := websocket.Dial(ctx, "ws://"+addr+"/v1/ws", nil)
	if err != nil {
		t.Fatalf("%s over WebSocket: %v", addr, err)
	}
	defer c.CloseNow() //nolint:errcheck // it was read
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":1,"op":"ping"}`)); err != nil {
		t.Error(err)
	}
	if _, b, err := c.Read(ctx); err != nil || !strings.Contains(string(b), `"id":1`) {
		t.Errorf("%s over WebSocket: %s, %v", addr, b, err)
	}
}

// overFrames begins a session, and wants the settings of the server.
func overFrames(t *testing.T, addr string) {
	t.Helper()
	settings, err := proto.Marshal(&pb.Settings{Version: frames.Version})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()                                //nolint:errcheck // it was read
	c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // Next would say so
	if _, err := c.Write(frames.Append([]byte(frames.Preface), frames.Settings, settings)); err != nil {
		t.Fatal(err)
	}
	var theirs pb.Settings
	kind, b, _, err := frames.NewReader(c, 1<<10).Next()
	if err := errors.Join(err, proto.Unmarshal(b, &theirs)); err != nil || kind != frames.Settings || theirs.GetServerId() != 1 {
		t.Errorf("%s over frames: %d, %v, %v", addr, kind, &theirs, err)
	}
}

// Every address for clients serves all of them: that of CLUSTER, a second one that CLUSTER has from before, and one
// that a flag adds. A connection that says nothing delays no end.
func TestOnePortForAllClients(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	m := makeVolume(t, dir, true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	also := l.Addr().String()
	l.Close() //nolint:errcheck // its port is what counts
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Server: 1, Volume: dir, DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Also: []string{also}, Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel),
		})
	}()
	defer http.DefaultClient.CloseIdleConnections()
	await(t, m, 0, ended)
	limited, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	all := []string{m.Client, m.OldHTTP, also}
	for _, addr := range all {
		everything(t, limited, addr)
	}
	silent, err := net.Dial("tcp", m.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // it says nothing
	signal := errors.New("a signal")
	stop(signal)
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
	if slices.ContainsFunc(all, func(addr string) bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close() //nolint:errcheck // it should not be
		}
		return err == nil
	}) {
		t.Error("it still listens")
	}
}

// The port for metrics has connections of its own, and few: whoever takes them all keeps no client out, and what neither asks nor
// reads there is cut off.
func TestMetricsPortHasRoomOfItsOwn(t *testing.T) {
	p := newProbes(&httpapi.Handler{})
	if p.ReadTimeout != probeWait || p.WriteTimeout != probeWait || p.ReadHeaderTimeout <= 0 || p.IdleTimeout <= 0 {
		t.Errorf("on the port for metrics a request may take %v to come, and %v to be answered", p.ReadTimeout, p.WriteTimeout)
	}
	dir := filepath.Join(t.TempDir(), "volume")
	m := makeVolume(t, dir, false)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics := l.Addr().String()
	l.Close() //nolint:errcheck // its port is what counts
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Server: 1, Volume: dir, DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Metrics: metrics, Log: zerolog.New(t.Output()).Level(zerolog.ErrorLevel),
		})
	}()
	await(t, m, 0, ended)
	var held []net.Conn
	for range mostProbes {
		c, err := net.Dial("tcp", metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // it says nothing
		held = append(held, c)
	}
	const alive = "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	if got := asked(t, metrics, alive); strings.HasPrefix(got, "HTTP") {
		t.Errorf("of %d connections one more is answered %q", mostProbes, got)
	}
	if got := asked(t, m.Client, alive); got != "HTTP/1.1 200 OK" {
		t.Errorf("meanwhile clients are answered %q", got)
	}
	for _, c := range held {
		c.Close() //nolint:errcheck // it makes room
	}
	limited, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for got := ""; got != "HTTP/1.1 200 OK"; { // as soon as the server has seen one end
		if got = asked(t, metrics, alive); limited.Err() != nil {
			t.Fatalf("with room again it is answered %q", got)
		}
	}
	stop(errors.New("a signal"))
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
