// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
)

// gate is a gateway, with the processes that run at its address one after the other.
type gate struct {
	t             *testing.T
	c             *cluster.Cluster
	addr, metrics string
	site          string
	log           string
	cmd           *exec.Cmd
}

// newGate starts a gateway of a site, "" for the addresses of the servers.
func newGate(t *testing.T, c *cluster.Cluster, site string) *gate {
	t.Helper()
	base := cluster.FreePorts(t)
	g := &gate{t: t, c: c, addr: fmt.Sprintf("127.0.0.1:%d", base), metrics: fmt.Sprintf("127.0.0.1:%d", base+1), site: site, log: filepath.Join(t.TempDir(), "gateway.log")}
	if site == "" {
		g.site = strings.Join(c.Endpoints(), ",")
	}
	g.start()
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			b, _ := os.ReadFile(g.log)
			t.Logf("the log of the gateway at %s:\n%s", g.addr, b)
		}
	})
	cluster.Await(t, cluster.Patience, "the gateway to find the primary", g.ready)
	return g
}

func (g *gate) start() {
	g.t.Helper()
	f, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the process has its own descriptor
	g.cmd = g.c.Command("gateway", "--site", g.site, "--listen", g.addr, "--metrics-listen", g.metrics)
	g.cmd.Stderr = f
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// kill ends the process as kill -9 does.
func (g *gate) kill() {
	_ = g.cmd.Process.Kill() // it may have ended
	_ = g.cmd.Wait()         // which says how
}

// ready reports whether the gateway is ready.
func (g *gate) ready() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.metrics+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	resp.Body.Close() //nolint:errcheck // the code says it
	return resp.StatusCode == http.StatusOK
}

// onlyThrough returns a dialer that reaches gateways alone, as where servers are in another network, and fails the test at any other address.
func onlyThrough(t *testing.T, gates []*gate) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if !slices.ContainsFunc(gates, func(g *gate) bool { return g.addr == addr }) {
			t.Errorf("a client goes around its gateways, to %s", addr)
			return nil, errors.New("out of reach")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
}

// through returns the options of clients that know gateways alone.
func through(t *testing.T, gates []*gate) clientlib.Options {
	o := clientlib.Options{Dialer: onlyThrough(t, gates), Budget: 2 * cluster.Patience}
	for _, g := range gates {
		o.Endpoints = append(o.Endpoints, g.addr)
	}
	return o
}

// TestGatewaysAndPrimariesDie kills gateways and primaries by turns under load. The clients know two gateways, and reach no server: what they
// append is there exactly once all the same.
func TestGatewaysAndPrimariesDie(t *testing.T) {
	needFaults(t)
	gatewaysAndPrimariesDie(t, 10, 2<<20)
}

// TestGatewaySmoke is the same in a few seconds.
func TestGatewaySmoke(t *testing.T) { gatewaysAndPrimariesDie(t, 2, 100<<10) }

func gatewaysAndPrimariesDie(t *testing.T, turns, text int) {
	c := cluster.Start(t, options())
	gates := []*gate{newGate(t, c, ""), newGate(t, c, "")}
	b := newBattleOn(t, c, sourceText(t, text), 4, *faultSeed)
	for i, w := range b.workers {
		o := through(t, gates)
		o.Holder.Command = holderName(i)
		client, err := clientlib.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() }) //nolint:errcheck // the servers may be gone
		w.Client = client
	}
	_, stop := b.work(t.Context())
	for turn := range turns {
		traffic.Rest(t.Context(), 300*time.Millisecond)
		g := gates[turn%len(gates)]
		g.kill()
		traffic.Rest(t.Context(), 300*time.Millisecond)
		if !b.nemesis.Strike(t.Context()) {
			t.Fatalf("I15: no primary within %v", cluster.Patience)
		}
		g.start()
		cluster.Await(t, cluster.Patience, "the gateway to find the primary", g.ready)
	}
	traffic.Rest(t.Context(), time.Second)
	stop()
	b.end(t)
	if appends, _, _, _ := b.ledger.Count(); appends == 0 {
		t.Error("nothing was appended through the gateways")
	}
}

// TestIdentitiesThroughAGateway: a gateway on the servers' host, run by the servers' user, passes on who its clients are, over TLS that reaches
// to the servers, and lends them nothing of its own: neither its user, nor that the servers take plain text of their own host.
func TestIdentitiesThroughAGateway(t *testing.T) {
	needFaults(t)
	opt := options()
	opt.Servers = 1
	sockets := t.TempDir()
	socket := filepath.Join(sockets, "s")
	opt.Args = []string{"--unix", socket}
	b := &besieged{Cluster: cluster.Start(t, opt), t: t}
	b.run("access", "set", "--policy", "strict")
	b.ci, b.join = b.run("key", "create", "ci"), b.run("join")
	cluster.Await(t, cluster.Patience, "TLS to be required", func() bool {
		_, err := b.Run("secure", "require", "--clients", "--volume", b.Dir())
		return err == nil
	})
	secured, open := newGate(t, b.Cluster, b.join), newGate(t, b.Cluster, "")
	for _, g := range []*gate{secured, open} { // TLS passes through either
		endpoint := strings.Replace(b.join, b.Server(1).Member.Client, g.addr, 1)
		o := with(endpoint, b.ci)
		o.Dialer = onlyThrough(t, []*gate{g})
		c, err := clientlib.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // the end of the test
		var l *clientlib.Lock
		cluster.Await(t, cluster.Patience, "the service to get its lock", func() bool {
			l, err = c.Acquire(t.Context(), "service/ci/build", clientlib.AcquireOptions{TTL: time.Minute})
			return err == nil
		})
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := c.Acquire(t.Context(), "elsewhere", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrPermissionDenied) {
			t.Errorf("a lock that the rules do not allow: %v", err)
		}
		nameless, err := clientlib.New(clientlib.Options{Endpoints: []string{endpoint}, Budget: cluster.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nameless.Close() }) //nolint:errcheck // the end of the test
		if _, err := nameless.Acquire(t.Context(), "service/ci/build", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrUnauthenticated) {
			t.Errorf("without a credential: %v", err)
		}
	}
	// Plain text: the gateway refuses it where it knows the servers, and else the server does, though the gateway is on its host.
	cluster.Await(t, cluster.Patience, "the server to require TLS", func() bool {
		http.DefaultClient.CloseIdleConnections() // those that are open go on
		code, _ := b.ask("http://"+open.addr, b.ci, "GET", "/v1/whoami", "")
		return code == http.StatusBadRequest
	})
	for _, g := range []*gate{secured, open} {
		if code, body := b.ask("http://"+g.addr, b.ci, "GET", "/v1/whoami", ""); code != http.StatusBadRequest || !strings.Contains(body, "TLS") {
			t.Errorf("plain text: %d: %s", code, body)
		}
	}
	if code, body := b.ask("http://"+b.Server(1).Member.Client, b.ci, "GET", "/v1/whoami", ""); code != http.StatusOK {
		t.Errorf("plain text of the server's own host: %d: %s", code, body)
	}
	// This user is known by the socket, and not behind a gateway's preface.
	if who := whoAt(t, socket, ""); !strings.Contains(who, `"via":"socket"`) {
		t.Errorf("by the socket: %s", who)
	}
	if who := whoAt(t, socket, clientport.GatewayPreface); strings.Contains(who, `"via":"socket"`) || !strings.Contains(who, "400 Bad Request") {
		t.Errorf("by the socket, behind a gateway's preface: %s", who)
	}
}

// whoAt asks a server at a socket who asks, behind a text.
func whoAt(t *testing.T, socket, first string) string {
	t.Helper()
	return talk(t, "unix", socket, first+"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "\r\n\r\n{")
}

// talk sends a text, and returns what comes back, up to where it has this in it, or to its end.
func talk(t *testing.T, network, addr, text, until string) string {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it was read
	if err := c.SetDeadline(time.Now().Add(cluster.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for b := make([]byte, 4096); !strings.Contains(string(all), until); {
		n, err := c.Read(b)
		all = append(all, b[:n]...)
		if err != nil {
			break
		}
	}
	return string(all)
}

// TestEveryFrontEndThroughAGateway speaks every protocol with one port of a gateway.
func TestEveryFrontEndThroughAGateway(t *testing.T) {
	c := cluster.Start(t, options())
	g := newGate(t, c, "")
	get := func(path, headers string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n"
	}
	for what, x := range map[string][2]string{
		"lines":     {"LOCK,db,me\n", "SUCCESS\n"},
		"HTTP":      {"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n{\"lock\":\"from/curl\",\"ttl\":5000}", `"status":`},
		"the page":  {get("/", ""), "<html"},
		"events":    {get("/v1/watch?prefix=", "Accept: text/event-stream\r\n"), "event: "},
		"WebSocket": {get("/v1/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), "101 Switching Protocols"},
		"readiness": {get("/readyz", ""), "200 OK"},
	} {
		if got := talk(t, "tcp", g.addr, x[0], x[1]); !strings.Contains(got, x[1]) {
			t.Errorf("%s: %.300q", what, got)
		}
	}
	session, err := clientlib.New(through(t, []*gate{g})) // over a session
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() }) //nolint:errcheck // the end of the test
	l, err := session.Acquire(t.Context(), "a/session", clientlib.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range session.Watch(t.Context(), clientlib.WatchOptions{Lock: "a/session"}) { // over gRPC
		if err != nil || e.Reset == nil {
			t.Errorf("a watch: %+v, %v", e, err)
		}
		break
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	next := fmt.Sprint(c.AwaitPrimary(cluster.Patience).Member.ID%3 + 1)
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "through a gateway"},
		{[]string{"handover", "--to", next}, "server " + next + " takes over"},
		{[]string{"status"}, "server " + next + " is primary"},
		{[]string{"run", "a/command", "--", "echo", "it ran"}, "it ran"},
		{[]string{"member", "ls"}, c.Server(3).Member.Client},
	} {
		out, err := c.Run(append(x.args, "--endpoints", g.addr)...)
		if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit || !strings.Contains(out, x.want) {
			t.Errorf("%v: %v: %s", x.args, err, out)
		}
	}
}

// TestGatewayCosts tells how long one client takes to acquire and release a lock, with and without a gateway, by turns.
func TestGatewayCosts(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	ways := []*clientlib.Client{newClient(t, c), nil}
	client, err := clientlib.New(through(t, []*gate{newGate(t, c, "")}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the servers may be gone
	ways[1] = client
	took := make([][]time.Duration, len(ways))
	for range 400 {
		for i, c := range ways {
			began := time.Now()
			l, err := c.Acquire(t.Context(), "cost", clientlib.AcquireOptions{Wait: clientlib.Forever})
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	direct, through := took[0][len(took[0])/2], took[1][len(took[1])/2]
	t.Logf("one client acquires and releases in %v, and through a gateway in %v: %.2f times as long", direct, through, float64(through)/float64(direct))
}
