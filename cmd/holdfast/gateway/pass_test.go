// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// gate is a gateway that runs before servers of the test.
type gate struct {
	*Gateway
	t       *testing.T
	said    *fakes
	addr    string
	stop    func() // and does not wait
	stopped chan struct{}
	ctx     context.Context
}

// open runs a gateway until the end of the test. Its connections go nowhere yet.
func open(t *testing.T, change func(*Options, *Gateway)) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, said: &fakes{say: map[string]*pb.StatusResponse{}}, addr: l.Addr().String(), stopped: make(chan struct{})}
	opt := Options{Connections: 100, PerAddress: 100, Log: zerolog.New(t.Output())}
	g.Gateway = newGateway(opt, new(counts), newSite(opt.Log))
	g.site.begin(nil, "", false, g.said.ask, func(*pb.StatusResponse) {})
	if change != nil {
		change(&g.opt, g.Gateway)
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	bounded := serve.Bounded(g.opt.Log, g.opt.Connections, g.opt.PerAddress, descriptors, func() { g.counts.refuse(tooMany) })
	go func() { g.run(g.ctx, bounded(l)); close(g.stopped) }()
	t.Cleanup(func() { g.stop(); <-g.stopped })
	return g
}

// lead has a server be the primary, and waits until connections go there.
func (g *gate) lead(addr string, epoch uint64) {
	g.t.Helper()
	g.said.set(addr, says(primary, epoch))
	g.site.learn([]string{addr})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for g.site.target().addr != addr {
		select {
		case <-tick.C:
		case <-g.t.Context().Done():
			g.t.Fatal("connections do not go to the primary")
		}
	}
}

// dial connects to the gateway. No read takes longer than limit.
func (g *gate) dial() *net.TCPConn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })    //nolint:errcheck // the end of the test
	c.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // reading says it
	return c.(*net.TCPConn)
}

// limit is far more than anything here takes.
const limit = 10 * time.Second

// backend is a server of the test.
type backend struct {
	t *testing.T
	l net.Listener
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the end of the test
	return &backend{t, l}
}

func (b *backend) addr() string { return b.l.Addr().String() }

// next returns the next connection, behind the preface.
func (b *backend) next() *net.TCPConn {
	b.t.Helper()
	b.l.(*net.TCPListener).SetDeadline(time.Now().Add(limit)) //nolint:errcheck // Accept says it
	c, err := b.l.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })    //nolint:errcheck // the end of the test
	c.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // reading says it
	preface := make([]byte, len(clientport.GatewayPreface))
	if _, err := io.ReadFull(c, preface); err != nil || string(preface) != clientport.GatewayPreface {
		b.t.Fatalf("a connection begins with %q, %v", preface, err)
	}
	return c.(*net.TCPConn)
}

func write(t *testing.T, c io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v, want %q", b[:n], err, want)
	}
}

// ends wants a connection to end, by the other side or by an error, without more.
func ends(t *testing.T, c io.Reader, what string) {
	t.Helper()
	var timeout net.Error
	if b, err := io.ReadAll(c); len(b) > 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s: read %q, %v", what, b, err)
	}
}

// What both sides say arrives once, as it is, and so does the end of each half.
func TestPassesOn(t *testing.T) {
	g, b := open(t, nil), newBackend(t)
	g.lead(b.addr(), 1)
	sent, back := make([]byte, 3<<20), make([]byte, 5<<20)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(sent) //nolint:errcheck // never fails
	source.Read(back) //nolint:errcheck // never fails
	c := g.dial()
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(1+len(rest)/2, len(rest))
			c.Write(rest[:n]) //nolint:errcheck // the other side compares
			rest = rest[n:]
		}
		c.CloseWrite() //nolint:errcheck // likewise
	}()
	s := b.next()
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the server got %d bytes of %d, %v", len(got), len(sent), err)
	}
	go func() {
		s.Write(back) //nolint:errcheck // the other side compares
		s.Close()     //nolint:errcheck // likewise
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, back) {
		t.Errorf("the client got %d bytes of %d, %v", len(got), len(back), err)
	}
	if up, down := g.counts.toServer.Load(), g.counts.toClient.Load(); up != uint64(len(sent)) || down != uint64(len(back)) {
		t.Errorf("%d and %d bytes are counted", up, down)
	}
}

// A client that has gone is gone for its server, too: what it waits for is ended there.
func TestClientThatHasGone(t *testing.T) {
	g, b := open(t, nil), newBackend(t)
	g.lead(b.addr(), 1)
	c := g.dial()
	write(t, c, "LOCK,db\n")
	s := b.next()
	read(t, s, "LOCK,db\n")
	c.SetLinger(0) //nolint:errcheck // a reset
	c.Close()      //nolint:errcheck // a reset
	ends(t, s, "the server's side")
}

// A server that has ended a connection holds it no longer than a moment, even if the client never says anything more.
func TestServerThatEnds(t *testing.T) {
	g, b := open(t, nil), newBackend(t)
	g.lead(b.addr(), 1)
	c := g.dial()
	write(t, c, "QUIT\n")
	s := b.next()
	read(t, s, "QUIT\n")
	write(t, s, "BYE\n")
	s.Close() //nolint:errcheck // its end is tested
	read(t, c, "BYE\n")
	ends(t, c, "the client's side")
	await(t, lingerWait+limit, "the connection to end", func() bool { return g.counts.open.Load() == 0 })
}

// await waits until something holds.
func await(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := time.After(limit); !holds(); {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// A client that says nothing costs no server anything.
func TestASilentClientReachesNoServer(t *testing.T) {
	g, b := open(t, nil), newBackend(t)
	g.lead(b.addr(), 1)
	silent := g.dial()
	await(t, limit, "the silent one to be taken", func() bool { return g.counts.open.Load() == 1 })
	c := g.dial()
	write(t, c, "OWN,db\n")
	read(t, b.next(), "OWN,db\n")
	write(t, silent, "OWN,other\n")
	read(t, b.next(), "OWN,other\n")
}

// Where a server takes no connection, the next one gets it, whole: nothing was said to the first.
func TestTheNextServerTakesIt(t *testing.T) {
	g, dead, b := open(t, nil), newBackend(t), newBackend(t)
	dead.l.Close() //nolint:errcheck // so nobody listens
	g.lead(dead.addr(), 1)
	c := g.dial()
	write(t, c, "OWN,db\n")
	g.lead(b.addr(), 2)
	read(t, b.next(), "OWN,db\n")
}

// Where no server takes a connection in time, its client is told so, and that nothing was done.
func TestNoServer(t *testing.T) {
	g := open(t, func(_ *Options, g *Gateway) { g.patience = 100 * time.Millisecond })
	c := g.dial()
	write(t, c, "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "SECONDARY_MODE") || !strings.Contains(string(body), "nothing was done") {
		t.Errorf("%d: %s, %v", r.StatusCode, body, err)
	}
	if n := g.counts.refused[noServer].Load(); n != 1 {
		t.Errorf("%d are counted", n)
	}
}

// Where servers are known by a certificate, plain text never leaves the gateway, and TLS does.
func TestPlainTextIsRefused(t *testing.T) {
	g, b := open(t, func(_ *Options, g *Gateway) { g.site.requireTLS() }), newBackend(t)
	g.lead(b.addr(), 1)
	c := g.dial()
	write(t, c, "OWN,db\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "DENIED: ") || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	c = g.dial()
	write(t, c, "\x16\x03\x01hello")
	read(t, b.next(), "\x16\x03\x01hello")
}

// TestPlainTextIsRefusedLater: a gateway that learns by what its servers are known while a connection waits for one refuses it as well.
func TestPlainTextIsRefusedLater(t *testing.T) {
	g, b := open(t, nil), newBackend(t)
	g.lead(b.addr(), 1)
	c := g.dial()
	await(t, limit, "the connection", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.mu.links) == 1
	})
	g.mu.Lock() // without which no server is attached
	write(t, c, "OWN,db\n")
	server, err := b.l.Accept()
	g.site.requireTLS()
	g.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()                      //nolint:errcheck // the end of the test
	server.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // reading says it
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "DENIED: ") || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	ends(t, server, "the server's side")
}

// When another server is primary, connections to the one before end: at once where it does not answer, else after its last words.
func TestConnectionsFollowThePrimary(t *testing.T) {
	for _, answers := range []bool{false, true} {
		t.Run(fmt.Sprintf("answers=%v", answers), func(t *testing.T) {
			g, first, second := open(t, nil), newBackend(t), newBackend(t)
			g.lead(first.addr(), 1)
			c := g.dial()
			write(t, c, "LOCK,db\n")
			s := first.next()
			if !answers {
				g.said.set(first.addr(), nil)
				await(t, limit, "the primary to be silent", func() bool {
					g.site.mu.Lock()
					defer g.site.mu.Unlock()
					return !g.site.mu.views[0].answers
				})
			}
			began := time.Now()
			g.lead(second.addr(), 2)
			if answers {
				write(t, s, "last words\n")
				read(t, c, "last words\n")
			}
			ends(t, c, "the client's side")
			if took := time.Since(began); answers != (took >= lastWords) {
				t.Errorf("it ends after %v", took)
			}
			read(t, s, "LOCK,db\n")
			ends(t, s, "the server's side")
			c = g.dial()
			write(t, c, "LOCK,db\n")
			read(t, second.next(), "LOCK,db\n")
			if n := g.counts.cut.Load(); n != 1 || g.counts.failovers.Load() != 1 {
				t.Errorf("%d are cut, after %d failovers", n, g.counts.failovers.Load())
			}
		})
	}
}

// A connection that is being made while another server becomes primary does not stay with the one before.
func TestALateConnectionGoesElsewhere(t *testing.T) {
	g := open(t, nil)
	first, second := newBackend(t), newBackend(t)
	g.lead(first.addr(), 1)
	k := &link{client: g.dial()}
	g.lead(second.addr(), 2)
	if g.attach(k, g.dial(), first.addr()) || k.server != nil {
		t.Error("it goes to the former primary")
	}
	if !g.attach(k, g.dial(), second.addr()) {
		t.Error("it does not go to the primary")
	}
}

// More connections than are permitted are refused, and those before go on.
func TestConnectionsAreBounded(t *testing.T) {
	g, b := open(t, func(o *Options, _ *Gateway) { o.Connections = 1 }), newBackend(t)
	g.lead(b.addr(), 1)
	c := g.dial()
	write(t, c, "OWN,db\n")
	s := b.next()
	read(t, s, "OWN,db\n")
	ends(t, g.dial(), "the second connection")
	write(t, s, "not held\n")
	read(t, c, "not held\n")
	if n := g.counts.refused[tooMany].Load(); n != 1 {
		t.Errorf("%d are counted", n)
	}
}

// At the end the gateway takes no more connections, and those that are open have their time, but no more: neither those that
// say nothing.
func TestDrain(t *testing.T) {
	g, b := open(t, func(o *Options, _ *Gateway) { o.Drain = time.Second }), newBackend(t)
	g.lead(b.addr(), 1)
	silent, c := g.dial(), g.dial()
	write(t, c, "LOCK,db\n")
	s := b.next()
	read(t, s, "LOCK,db\n")
	began := time.Now()
	g.stop()
	write(t, s, "granted\n")
	read(t, c, "granted\n")
	ends(t, c, "the client's side")
	ends(t, silent, "the silent one")
	<-g.stopped
	if took := time.Since(began); took < g.opt.Drain || took > g.opt.Drain+limit/2 {
		t.Errorf("it ends after %v", took)
	}
	if c, err := net.Dial("tcp", g.addr); err == nil {
		c.Close() //nolint:errcheck // it should not be there
		t.Error("the gateway still listens")
	}
}

// The probes say whether the gateway is of use, and the metrics what it does.
func TestHealth(t *testing.T) {
	g, b := open(t, nil), newBackend(t)
	h := (&cells{first: g.Gateway, counts: g.counts}).health(g.ctx)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for _, step := range []struct {
		do         func()
		live, code int
		message    string
	}{
		{func() {}, 200, 503, "no server is known to be primary"},
		{func() { g.lead(b.addr(), 1) }, 200, 200, "the primary answers"},
		{func() { g.stop() }, 200, 503, "the gateway ends"},
	} {
		step.do()
		if code, _ := get("/livez"); code != step.live {
			t.Errorf("/livez: %d", code)
		}
		if code, body := get("/readyz"); code != step.code || !strings.Contains(body, step.message) {
			t.Errorf("/readyz: %d: %s, want %d: %s", code, body, step.code, step.message)
		}
	}
	code, body := get("/metrics")
	for _, want := range []string{
		"holdfast_gateway_connections 0", "holdfast_gateway_primary_known ", `holdfast_gateway_refused_total{reason="no_server"} 0`,
		`holdfast_gateway_bytes_total{to="client"} 0`, "holdfast_gateway_failovers_total 0", "go_goroutines",
	} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("/metrics: %d, without %s", code, want)
		}
	}
}

// A site that is none, and an address that is in use, end the gateway with an error.
func TestRunRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the end of the test
	for _, x := range []struct {
		opt  Options
		want string
	}{
		{Options{Site: []string{"holdfast://h:1"}}, "site: join string"},
		{Options{Site: []string{"h:1"}, Listen: l.Addr().String()}, "in use"},
		{Options{Site: []string{"h:1"}, Listen: "127.0.0.1:0", Metrics: l.Addr().String()}, "in use"},
	} {
		x.opt.Log = zerolog.Nop()
		if err := Run(t.Context(), x.opt); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v", x.opt.Site, err)
		}
	}
}
