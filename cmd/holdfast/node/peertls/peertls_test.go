// SPDX-License-Identifier: Apache-2.0

package peertls_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// share is a volume for servers that speak to each other.
type share struct {
	t *testing.T
	*volumetest.Disk
	said *bytes.Buffer
}

func newShare(t *testing.T, required bool) *share {
	t.Helper()
	s := &share{t: t, Disk: volumetest.New(1), said: &bytes.Buffer{}}
	h := s.host(9)
	err := h.Mkdir("servers")
	if required {
		err = errors.Join(err, volume.RequireTLS(h))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *share) host(id int) *volumetest.Host { return s.Host(id, volumetest.ProfileLocal()) }

// on returns the keys of a new process of a server, on a machine.
func (s *share) on(h *volumetest.Host, id cluster.ServerID) *peertls.Keys {
	s.t.Helper()
	k, err := peertls.New(peertls.Options{Self: id, Members: cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}}, FS: h, Log: zerolog.New(s.said)})
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

// server returns the keys of a new process of a server, which are on the volume.
func (s *share) server(id cluster.ServerID) *peertls.Keys {
	s.t.Helper()
	k := s.on(s.host(int(id)), id)
	k.Keep()
	return k
}

// end is what one side has of a connection.
type end struct {
	conn net.Conn
	info peertls.Info
	err  error
}

func shake(conn net.Conn, handshake func() (net.Conn, credentials.AuthInfo, error)) (e end) {
	c, info, err := handshake()
	if e.err = err; err != nil {
		if !errors.Is(err, credentials.ErrConnDispatched) {
			conn.Close()
		}
		return e
	}
	e.conn, e.info = c, info.(peertls.Info)
	return e
}

// accept has a server accept a connection.
func accept(k *peertls.Keys, conn net.Conn) <-chan end {
	done := make(chan end, 1)
	go func() {
		done <- shake(conn, func() (net.Conn, credentials.AuthInfo, error) { return k.Server().ServerHandshake(conn) })
	}()
	return done
}

// dialed has one server dial another one, as a member, and returns both ends. What a server in plain text
// does is left to it.
func dialed(t *testing.T, from, to *peertls.Keys, as cluster.ServerID) (client, server end) {
	t.Helper()
	a, b := pipe()
	accepted := accept(to, b)
	redial := func(context.Context, string) (net.Conn, error) {
		c, d := pipe()
		accepted = accept(to, d)
		return c, nil
	}
	client = shake(a, func() (net.Conn, credentials.AuthInfo, error) {
		return from.Client(as, redial).ClientHandshake(t.Context(), "", a)
	})
	if client.err == nil && client.info.Plain {
		go client.conn.Write([]byte("PRI")) //nolint:errcheck // the other side may close it
	}
	server = <-accepted
	if client.err == nil {
		// Over TLS 1.3, who dials is done before the other side has looked.
		if server.err != nil {
			_, client.err = client.conn.Read(make([]byte, 1))
		}
		client.conn.Close()
	}
	return client, server
}

// pipe returns a connection whose writes do not wait for their reader.
func pipe() (net.Conn, net.Conn) {
	a, b := newBuffered(), newBuffered()
	return &half{in: a, out: b}, &half{in: b, out: a}
}

type buffered struct {
	mu     sync.Mutex
	bytes  bytes.Buffer
	closed bool
	wake   chan struct{}
}

func newBuffered() *buffered { return &buffered{wake: make(chan struct{}, 1)} }

func (b *buffered) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

type half struct {
	net.Conn // no deadlines
	in, out  *buffered
}

func (h *half) Write(p []byte) (n int, err error) {
	h.out.change(func() {
		if n = len(p); h.out.closed {
			n, err = 0, net.ErrClosed
			return
		}
		h.out.bytes.Write(p)
	})
	return n, err
}

func (h *half) Read(p []byte) (int, error) {
	for {
		h.in.mu.Lock()
		n, _ := h.in.bytes.Read(p)
		closed := h.in.closed
		h.in.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case closed:
			return 0, io.EOF
		}
		<-h.in.wake
	}
}

func (h *half) Close() error {
	h.in.change(func() { h.in.closed = true })
	h.out.change(func() { h.out.closed = true })
	return nil
}

func (h *half) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 7} }
func (h *half) LocalAddr() net.Addr              { return h.RemoteAddr() }
func (h *half) SetDeadline(time.Time) error      { return nil }
func (h *half) SetReadDeadline(time.Time) error  { return nil }
func (h *half) SetWriteDeadline(time.Time) error { return nil }

func TestServersKnowEachOther(t *testing.T) {
	s := newShare(t, true)
	one, two := s.server(1), s.server(2)
	for range 2 {
		c, a := dialed(t, one, two, 2)
		if c.err != nil || a.err != nil || c.info.Plain || a.info.Plain || c.info.Server != 2 || a.info.Server != 1 {
			t.Fatalf("got %+v and %+v", c, a)
		}
	}
	if c, a := dialed(t, one, s.server(2), 2); c.err != nil || a.err != nil {
		t.Errorf("after a restart: %v, %v", c.err, a.err)
	}
	if c, a := dialed(t, one, two, 2); c.err != nil || a.err != nil {
		t.Errorf("the process before, which was paused: %v, %v", c.err, a.err)
	}
	if c, _ := dialed(t, one, s.server(3), 2); c.err == nil {
		t.Error("server 3 was taken for server 2")
	}
}

// TestStrangersAreToldApart: a process with a key of its own, which is on no volume or on a copy.
func TestStrangersAreToldApart(t *testing.T) {
	s, copied := newShare(t, true), newShare(t, true)
	one := s.server(1)
	for id := cluster.ServerID(1); id <= 3; id++ {
		other := copied.server(id)
		other.Strangers().Close()
		if c, _ := dialed(t, one, other, id); c.err == nil || !strings.Contains(c.err.Error(), "another volume") {
			t.Errorf("a process that is not server %d was taken for it: %v", id, c.err)
		}
	}
	two := copied.server(2)
	dir := "servers/1.tls-" + one.ID().String()
	if err := copied.Write(dir, 0, nil); err != nil { // it knows the real ones
		t.Fatal(err)
	}
	got := make(chan net.Conn, 1)
	go func() {
		c, err := one.Strangers().Accept()
		if err == nil {
			got <- c
		}
		close(got)
	}()
	_, a := dialedStranger(t, two, one, 1)
	if !errors.Is(a.err, credentials.ErrConnDispatched) {
		t.Fatalf("a stranger was accepted: %+v", a)
	}
	if c := <-got; c == nil {
		t.Error("the stranger got no answer")
	} else {
		c.Close()
	}
}

// dialedStranger is dialed where the connection goes to Strangers.
func dialedStranger(t *testing.T, from, to *peertls.Keys, as cluster.ServerID) (client, server end) {
	t.Helper()
	a, b := pipe()
	accepted := accept(to, b)
	client = shake(a, func() (net.Conn, credentials.AuthInfo, error) {
		return from.Client(as, nil).ClientHandshake(t.Context(), "", a)
	})
	return client, <-accepted
}

// TestStrangersAreFew: they take no more than their places, and leave these when they are closed.
func TestStrangersAreFew(t *testing.T) {
	s, other := newShare(t, true), newShare(t, true)
	one, two := s.server(1), other.server(2)
	if err := other.Write("servers/1.tls-"+one.ID().String(), 0, nil); err != nil {
		t.Fatal(err)
	}
	conns := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := one.Strangers().Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	defer one.Strangers().Close()
	for i := range 8 {
		if _, a := dialedStranger(t, two, one, 1); !errors.Is(a.err, credentials.ErrConnDispatched) {
			t.Fatalf("stranger %d: %v", i+1, a.err)
		}
	}
	if _, a := dialedStranger(t, two, one, 1); a.err == nil || errors.Is(a.err, credentials.ErrConnDispatched) {
		t.Errorf("the ninth stranger has a place: %v", a.err)
	}
	if c, a := dialed(t, s.server(3), one, 1); c.err != nil || a.err != nil {
		t.Errorf("a server beside strangers: %v, %v", c.err, a.err)
	}
	(<-conns).Close()
	if _, a := dialedStranger(t, two, one, 1); !errors.Is(a.err, credentials.ErrConnDispatched) {
		t.Errorf("a stranger after another one left: %v", a.err)
	}
}

// TestSilentStrangerLeaves: it says nothing after its handshake, and its place is another one's after a while.
// from is a connection from another address.
type from struct {
	net.Conn
	host byte
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, f.host), Port: 7} }

// TestSilentConnectionsAreFew: the oldest of the address that has the most goes, and servers connect all the time.
func TestSilentConnectionsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(t, true)
		one, two := s.server(1), s.server(2)
		var ends []net.Conn
		var open []<-chan end
		silent := func(host byte) {
			a, b := pipe()
			ends = append(ends, a)
			open = append(open, accept(one, from{b, host}))
			synctest.Wait()
		}
		left := func() (n int) {
			for _, e := range open {
				if len(e) == 0 {
					n++
				}
			}
			return n
		}
		silent(1) // slow, and alone
		for range 200 {
			silent(2)
			if client, server := dialed(t, two, one, 1); client.err != nil || server.err != nil {
				t.Fatalf("a server among them: %v, %v", client.err, server.err)
			}
		}
		if n := left(); n != 63 && n != 64 { // a server's came for a moment when all had places
			t.Errorf("%d connections are open", n)
		}
		if len(open[0]) > 0 {
			t.Error("the only one of its address was closed")
		}
		if len(open[1]) == 0 || len(open[200]) > 0 {
			t.Error("it was not the oldest that went")
		}
		for _, c := range ends {
			c.Close()
		}
		synctest.Wait()
		if n := left(); n != 0 {
			t.Errorf("%d wait for connections that have ended", n)
		}
	})
}

func TestSilentStrangerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := newShare(t, true), newShare(t, true)
		one, two := s.server(1), other.server(2)
		if err := other.Write("servers/1.tls-"+one.ID().String(), 0, nil); err != nil {
			t.Fatal(err)
		}
		a, b := pipe()
		accepted := accept(one, b)
		go two.Client(1, nil).ClientHandshake(t.Context(), "", a) //nolint:errcheck // it is not used
		c, err := one.Strangers().Accept()
		if err != nil || !errors.Is((<-accepted).err, credentials.ErrConnDispatched) {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Time{}); err != nil { // as gRPC does
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := io.ReadAll(a); err != nil || time.Since(began) > 6*time.Second {
			t.Errorf("it stays for %v, %v", time.Since(began), err)
		}
	})
}

// TestEmptiedVolumeSaysNothing: a server that does not find its own key either takes nobody for a stranger: that one
// would believe it.
func TestEmptiedVolumeSaysNothing(t *testing.T) {
	s, other := newShare(t, true), newShare(t, true)
	one, two := s.server(1), other.server(2)
	name := "servers/1.tls-" + one.ID().String()
	if err := errors.Join(other.Write(name, 0, nil), s.Remove(name), one.Strangers().Close()); err != nil {
		t.Fatal(err)
	}
	_, a := dialedStranger(t, two, one, 1)
	if a.err == nil || !strings.Contains(a.err.Error(), "does not say, or not in time") {
		t.Errorf("got %+v", a)
	}
}

// forged returns a configuration of an attacker with a key of its own.
func forged(t *testing.T, id int64) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(id)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestHandshakesOfOthersAreRefused(t *testing.T) {
	s := newShare(t, true)
	one := s.server(1)
	one.Strangers().Close()
	for name, change := range map[string]func(*tls.Config){
		"no certificate":             func(c *tls.Config) { c.Certificates = nil },
		"TLS 1.2":                    func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		"a certificate of no server": func(c *tls.Config) { *c = *forged(t, 1<<40) },
	} {
		config := forged(t, 2)
		change(config)
		a, b := pipe()
		accepted := accept(one, b)
		go func() {
			if c := tls.Client(a, config); c.Handshake() == nil {
				_, _ = c.Read(make([]byte, 1))
			}
		}()
		if e := <-accepted; e.err == nil || errors.Is(e.err, credentials.ErrConnDispatched) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if !strings.Contains(s.said.String(), "127.0.0.2:7") {
		t.Errorf("nothing is logged: %s", s.said)
	}
}

// TestNothingIsResumed: a client that keeps tickets gets none, so each connection shows its key.
func TestNothingIsResumed(t *testing.T) {
	one := newShare(t, true).server(1)
	config := forged(t, 2)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	config.ServerName = "x"
	go func() {
		for {
			c, err := one.Strangers().Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("x"))
			c.Close()
		}
	}()
	defer one.Strangers().Close()
	for range 3 {
		a, b := pipe()
		accepted := accept(one, b)
		c := tls.Client(a, config)
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		<-accepted
		if c.ConnectionState().DidResume {
			t.Error("a connection was resumed")
		}
	}
}

// TestKeyThatShowsLate: another server's machine remembers that the name was missing, until its cache forgets.
func TestKeyThatShowsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(t, true)
		far := s.Host(1, volumetest.ProfileNetwork())
		one, two := s.on(far, 1), s.on(s.host(2), 2)
		one.Keep()
		if found, err := volume.HasKey(far, 2, two.ID()); found || err != nil {
			t.Fatalf("before it is there: %v, %v", found, err)
		}
		two.Keep()
		if c, _ := dialed(t, one, two, 2); c.err == nil {
			t.Error("a name was found that the cache hides: this test tests nothing")
		}
		time.Sleep(volumetest.ProfileNetwork().Stale + time.Second)
		if c, a := dialed(t, one, two, 2); c.err != nil || a.err != nil {
			t.Errorf("after that: %v, %v", c.err, a.err)
		}
	})
}

// TestVolumeHangs: processes that know each other connect at once, others are refused after a bounded time, whatever their
// number, and are known once the volume is back.
func TestVolumeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(t, true)
		h := s.host(1)
		one, two := s.on(h, 1), s.server(2)
		one.Keep()
		if c, a := dialed(t, two, one, 1); c.err != nil || a.err != nil {
			t.Fatal(c.err, a.err)
		}
		three := s.server(3)
		gate, hung := volumetest.NewGate(), new(atomic.Int64)
		h.SetHook(func(volumetest.Call) volumetest.Action { hung.Add(1); return volumetest.Pause(gate) })
		began := time.Now()
		for range 10 {
			if c, a := dialed(t, two, one, 1); c.err != nil || a.err != nil {
				t.Errorf("processes that know each other: %v, %v", c.err, a.err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("processes that know each other waited %v for the volume", took)
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, a := dialed(t, three, one, 1); a.err == nil || errors.Is(a.err, credentials.ErrConnDispatched) {
					t.Errorf("accepted without the volume: %+v", a)
				}
				if c, _ := dialed(t, one, three, 3); c.err == nil {
					t.Error("dialed without the volume")
				}
			})
		}
		synctest.Wait()
		if c, a := dialed(t, two, one, 1); c.err != nil || a.err != nil || time.Since(began) > 0 {
			t.Errorf("processes that know each other, while others are looked for: %v, %v, after %v", c.err, a.err, time.Since(began))
		}
		all.Wait()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the volume was waited for %v", took)
		}
		if n := hung.Load(); n > 8 || n == 0 {
			t.Errorf("%d look-ups hang at a time", n)
		}
		h.SetHook(nil)
		gate.Resume()
		synctest.Wait()
		if c, a := dialed(t, three, one, 1); c.err != nil || a.err != nil {
			t.Errorf("when the volume is back: %v, %v", c.err, a.err)
		}
	})
}

// TestPlainTextWhileItIsAllowed: servers of older versions, and one whose key is not on the volume, speak
// plain text; all others TLS.
func TestPlainTextWhileItIsAllowed(t *testing.T) {
	s := newShare(t, false)
	one, two, late := s.server(1), s.server(2), s.on(s.host(3), 3)
	if c, a := dialed(t, one, two, 2); c.err != nil || a.err != nil || c.info.Plain || a.info.Plain || a.info.Server != 1 {
		t.Errorf("two servers of this version: %+v, %+v", c, a)
	}
	if c, a := dialed(t, late, one, 1); c.err != nil || a.err != nil || !c.info.Plain || !a.info.Plain || a.info.Server != 0 {
		t.Errorf("from one without a key: %+v, %+v", c, a)
	}
	a, b := pipe()
	accepted := accept(late, b)
	if _, err := a.Write([]byte{0x16, 3, 1}); err != nil {
		t.Fatal(err)
	}
	if e := <-accepted; e.err != nil || !e.info.Plain {
		t.Errorf("TLS to one without a key: %+v", e)
	} else if first, err := io.ReadAll(io.LimitReader(e.conn, 3)); err != nil || !bytes.Equal(first, []byte{0x16, 3, 1}) {
		t.Errorf("it reads %v, %v: the first byte is lost", first, err)
	}
}

// old answers like a server of an older version: it speaks first, and no TLS.
func old(conn net.Conn) {
	_, _ = conn.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 64, 0})
	_, _ = conn.Read(make([]byte, 1))
}

// TestPlainTextAfterTLS: who dials a server of an older version finds out and dials again, unless TLS is required.
func TestPlainTextAfterTLS(t *testing.T) {
	for _, required := range []bool{false, true} {
		one := newShare(t, required).server(1)
		dials := 0
		redial := func(_ context.Context, addr string) (net.Conn, error) {
			if dials++; addr != "127.0.0.2:7" {
				t.Errorf("dialed %s again", addr)
			}
			a, b := pipe()
			go old(b)
			return a, nil
		}
		a, b := pipe()
		go old(b)
		c := shake(a, func() (net.Conn, credentials.AuthInfo, error) {
			return one.Client(2, redial).ClientHandshake(t.Context(), "", a)
		})
		if required && (c.err == nil || dials > 0) || !required && (c.err != nil || !c.info.Plain || dials != 1) {
			t.Errorf("TLS required %v: %+v after %d more dials", required, c, dials)
		}
	}
}

// TestSilenceAfterTLS: one that was dialed again in plain text and says nothing is given up when the time for connecting is over, and
// one that speaks may be silent later.
func TestSilenceAfterTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newShare(t, false).server(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, speaks := range []bool{false, true} {
			a, b := pipe()
			go old(b)
			again, far := net.Pipe()
			c := shake(a, func() (net.Conn, credentials.AuthInfo, error) {
				return one.Client(2, func(context.Context, string) (net.Conn, error) { return again, nil }).ClientHandshake(ctx, "", a)
			})
			if c.err != nil || !c.info.Plain {
				t.Fatalf("got %+v", c)
			}
			if speaks {
				go far.Write([]byte{7}) //nolint:errcheck // the other end reads it
				if _, err := c.conn.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
			ended := make(chan error, 1)
			go func() { _, err := c.conn.Read(make([]byte, 1)); ended <- err }()
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case err := <-ended:
				if speaks || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it has spoken %v: %v", speaks, err)
				}
			default:
				if !speaks {
					t.Error("a connection on which nobody speaks is waited for without end")
				}
			}
			if err := errors.Join(c.conn.Close(), far.Close()); err != nil {
				t.Error(err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
		}
	})
}

// TestAttackerCannotDowngrade: a server with a wrong key, or one that ends the handshake, gets no plain text even while that is
// allowed: it is no server of an older version.
func TestAttackerCannotDowngrade(t *testing.T) {
	s := newShare(t, false)
	one := s.server(1)
	for name, attack := range map[string]func(net.Conn){
		"a wrong key": func(c net.Conn) { _ = tls.Server(c, forged(t, 2)).Handshake() },
		"no answer":   func(c net.Conn) { c.Close() },
	} {
		a, b := pipe()
		go attack(b)
		if c := shake(a, func() (net.Conn, credentials.AuthInfo, error) {
			return one.Client(2, func(context.Context, string) (net.Conn, error) {
				t.Errorf("%s: dialed again", name)
				return nil, io.EOF
			}).ClientHandshake(t.Context(), "", a)
		}); c.err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestPlainTextEnds: when TLS is required, connections in plain text are closed, and no new ones are accepted.
func TestPlainTextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(t, false)
		one := s.server(1)
		open := func() (net.Conn, end) {
			a, b := pipe()
			accepted := accept(one, b)
			if _, err := a.Write([]byte("PRI * HTTP/2.0")); err != nil {
				t.Fatal(err)
			}
			return a, <-accepted
		}
		a, e := open()
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: e.info})
		if e.err != nil || one.Admit(ctx, 2) != nil {
			t.Fatalf("in plain text: %+v, %v", e, one.Admit(ctx, 2))
		}
		if err := volume.RequireTLS(s.host(9)); err != nil {
			t.Fatal(err)
		}
		one.Keep()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection in plain text lives on: %v", err)
		}
		if one.Admit(ctx, 2) == nil {
			t.Error("a message that came on it is admitted")
		}
		if _, e := open(); e.err == nil || !strings.Contains(e.err.Error(), "requires TLS") {
			t.Errorf("a new connection in plain text: %+v", e)
		}
		if err := s.Remove("servers/tls-required"); err != nil {
			t.Fatal(err)
		}
		if one.Keep(); !one.Required() {
			t.Error("a process forgets that TLS is required")
		}
	})
}

// TestAdmit: a message counts if it comes from whom it names.
func TestAdmit(t *testing.T) {
	one := newShare(t, true).server(1)
	for _, x := range []struct {
		info credentials.AuthInfo
		ok   bool
	}{
		{peertls.Info{Server: 2}, true},
		{peertls.Info{Server: 3}, false},
		{peertls.Info{}, false},
		{peertls.Info{Plain: true}, false},
		{nil, false},
	} {
		if err := one.Admit(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: x.info}), 2); (err == nil) != x.ok {
			t.Errorf("%+v: %v", x.info, err)
		}
	}
	if one.Admit(t.Context(), 0) == nil || one.Admit(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: peertls.Info{}}), 0) == nil {
		t.Error("a message of server 0 is admitted")
	}
}

// TestKeyCannotBeWritten: the server runs, offers no TLS, says why once, and tries again.
func TestKeyCannotBeWritten(t *testing.T) {
	s := newShare(t, true)
	s.SetReadOnly(true)
	one, two := s.server(1), s.on(s.host(2), 2)
	for range 3 {
		one.Keep()
	}
	if n := strings.Count(s.said.String(), "cannot make its key known"); n != 1 || !strings.Contains(s.said.String(), syscall.EROFS.Error()) {
		t.Errorf("it said so %d times: %s", n, s.said)
	}
	s.SetReadOnly(false)
	two.Keep()
	if c, _ := dialed(t, two, one, 1); c.err == nil {
		t.Error("a key was offered that is not on the volume")
	}
	a, b := pipe()
	b.Close()
	if _, _, err := one.Client(2, nil).ClientHandshake(t.Context(), "", a); err == nil || !strings.Contains(err.Error(), "own key is not on the volume yet") {
		t.Errorf("it dialed with a key that is not on the volume: %v", err)
	}
	one.Keep()
	if c, a := dialed(t, two, one, 1); c.err != nil || a.err != nil {
		t.Errorf("when it is: %v, %v", c.err, a.err)
	}
}

// TestKeyThatGoesIsWrittenAgain: others that start later have to find it.
func TestKeyThatGoesIsWrittenAgain(t *testing.T) {
	s := newShare(t, true)
	one := s.server(1)
	if err := s.Remove("servers/1.tls-" + one.ID().String()); err != nil {
		t.Fatal(err)
	}
	one.Keep()
	if c, a := dialed(t, s.server(2), one, 1); c.err != nil || a.err != nil {
		t.Errorf("%v, %v", c.err, a.err)
	}
}

func TestDisowned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newShare(t, true).server(1)
		if _, age := one.Disowned(); age != 0 {
			t.Error("from the start")
		}
		one.Told(2, true)
		time.Sleep(time.Second)
		one.Told(2, true)
		one.Told(3, false)
		if by, age := one.Disowned(); by != 2 || age != time.Second {
			t.Errorf("got %d, %v", by, age)
		}
		one.Told(2, false)
		if _, age := one.Disowned(); age != 0 {
			t.Errorf("after it is known: %v", age)
		}
	})
}

// A member whose cache hides the key for a moment may end before it sees the key; one that has the volume
// says so for longer.
func TestDisownedByOneThatHasEnded(t *testing.T) {
	for said, want := range map[time.Duration]bool{time.Second: false, 59 * time.Second: false, time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			one := newShare(t, true).server(1)
			for began := time.Now(); time.Since(began) <= said; time.Sleep(100 * time.Millisecond) {
				one.Told(2, true)
			}
			time.Sleep(2 * time.Second)
			if by, _ := one.Disowned(); by != 2 {
				t.Errorf("said for %v: two seconds later by %d", said, by)
			}
			time.Sleep(time.Hour)
			if by, _ := one.Disowned(); (by == 2) != want {
				t.Errorf("said for %v: an hour later by %d", said, by)
			}
			one.Told(2, true)
			if by, age := one.Disowned(); by != 2 || (age > time.Hour) != want {
				t.Errorf("said for %v: said again by %d, for %v", said, by, age)
			}
			one.Told(2, false)
			if by, _ := one.Disowned(); by != 0 {
				t.Errorf("said for %v: by %d which knows it", said, by)
			}
		})
	}
}

// TestKeysOfTheList: the key of a server counts from when it is listed, and not when it was removed, however well it was known.
func TestKeysOfTheList(t *testing.T) {
	s := newShare(t, true)
	one, four := s.server(1), s.server(4)
	one.Strangers().Close() // nobody is answered there
	four.Strangers().Close()
	known := func(when string, want bool) {
		t.Helper()
		if c, a := dialed(t, four, one, 1); (c.err == nil && a.err == nil) != want {
			t.Errorf("%s: %v, %v", when, c.err, a.err)
		}
		if c, a := dialed(t, one, four, 4); (c.err == nil && a.err == nil) != want {
			t.Errorf("%s, dialed: %v, %v", when, c.err, a.err)
		}
	}
	known("before it is added", false)
	one.Follow(cluster.Members{{ID: 1}, {ID: 4, Joining: true}})
	known("it joins", true)
	one.Told(4, true)
	if by, _ := one.Disowned(); by != 4 {
		t.Errorf("server %d does not know this one", by)
	}
	one.Follow(cluster.Members{{ID: 1}, {ID: 2}})
	known("it was removed", false)
	if by, _ := one.Disowned(); by != 0 {
		t.Errorf("the word of server %d counts, which was removed", by)
	}
}
