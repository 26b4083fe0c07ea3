// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// onLoopback serves a fake cluster of three over real connections.
func onLoopback(t *testing.T) (*fakeCluster, []*fakeServer, []*grpc.Server) {
	t.Helper()
	f := newFakeCluster()
	var fakes []*fakeServer
	var real []*grpc.Server
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, g := f.server(l.Addr().String()), grpc.NewServer()
		pb.RegisterLockServiceServer(g, s)
		go g.Serve(l)
		t.Cleanup(g.Stop)
		fakes, real = append(fakes, s), append(real, g)
	}
	return f, fakes, real
}

func dialLoopback(t *testing.T, fakes []*fakeServer, o Options) *Client {
	t.Helper()
	for _, s := range fakes {
		o.Endpoints = append(o.Endpoints, s.addr)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestKilledPrimary(t *testing.T) {
	f, fakes, real := onLoopback(t)
	c := dialLoopback(t, fakes, Options{})
	l, err := c.Acquire(t.Context(), "a", AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.setPrimary(nil)
	real[0].Stop()
	time.AfterFunc(150*time.Millisecond, func() { f.setPrimary(fakes[2]) })
	began := time.Now()
	if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
		t.Fatal(err)
	}
	d := time.Since(began)
	t.Logf("takeover 150 ms, next answer after %v", d)
	if d > time.Second {
		t.Errorf("the append took %v", d)
	}
}

func TestKilledPrimaryWhileWaiting(t *testing.T) {
	f, fakes, real := onLoopback(t)
	c := dialLoopback(t, fakes, Options{})
	f.mu.Lock()
	f.grant(fakeKey{"other", 1}, "a", 10_000)
	f.mu.Unlock()
	type result struct {
		l   *Lock
		err error
	}
	got := make(chan result, 1)
	go func() {
		l, err := c.Acquire(t.Context(), "a", AcquireOptions{Wait: Forever})
		got <- result{l, err}
	}()
	for len(f.attempts("acquire")) == 0 {
		<-time.After(time.Millisecond)
	}
	f.setPrimary(fakes[1])
	real[0].Stop()
	for len(f.attempts("acquire")) == 1 {
		<-time.After(time.Millisecond)
	}
	f.end("a")
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	if a := f.attempts("acquire"); a[0].id != a[len(a)-1].id {
		t.Errorf("attempts %+v", a)
	}
	if err := r.l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPausedPrimaryOnTheNetwork(t *testing.T) {
	f, fakes, _ := onLoopback(t)
	c := dialLoopback(t, fakes, Options{})
	l, err := c.Acquire(t.Context(), "a", AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer fakes[0].pause()()
	time.AfterFunc(300*time.Millisecond, func() { f.setPrimary(fakes[1]) })
	began := time.Now()
	if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
		t.Fatal(err)
	}
	d := time.Since(began)
	t.Logf("takeover 300 ms, next answer after %v", d)
	if d > 1500*time.Millisecond {
		t.Errorf("the append took %v", d)
	}
}

func TestKeepAliveMayListMoreThanFourMegabytes(t *testing.T) {
	f, fakes, _ := onLoopback(t)
	c := dialLoopback(t, fakes, Options{})
	l, err := c.Acquire(t.Context(), "a", AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := c.servers.primary() // who answers nobody while that is made, maybe until a keep-alive is due
	const locks = 100_000
	f.mu.Lock()
	for i := range locks {
		f.grant(fakeKey{string(l.owner), uint64(1000 + i)}, fmt.Sprintf("%060d", i), 10_000)
	}
	f.mu.Unlock()
	r, err := p.stub.KeepAlive(t.Context(), &pb.KeepAliveRequest{ClientId: string(l.owner), Held: heldUnknown})
	if err != nil || len(r.GetGrants()) != locks+1 {
		t.Errorf("%d grants, %v", len(r.GetGrants()), err)
	}
}

func TestStatusWithoutPrimary(t *testing.T) {
	f, fakes, real := onLoopback(t)
	c := dialLoopback(t, fakes, Options{})
	f.setPrimary(nil)
	real[0].Stop()
	s, err := c.Status(t.Context())
	if err != nil || s.Role != "replica" {
		t.Errorf("status %+v, %v", s, err)
	}
}

func TestNoGoroutineIsLeftAfterClose(t *testing.T) {
	_, fakes, _ := onLoopback(t)
	c := dialLoopback(t, fakes, Options{})
	if _, err := c.Acquire(t.Context(), "a", AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Acquire(ctx, "a", AcquireOptions{Wait: Forever, TTL: time.Second}); err == nil {
		t.Error("got the lock twice")
	}
	c.Close()
	c.Close() // again is fine
	deadline := time.Now().Add(time.Minute)
	for {
		left := ours(t)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left after Close:\n%s", left)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// ours lists the goroutines that the library started. What gRPC's servers run
// here calls the fakes, not the library.
func ours(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		t.Fatal(err)
	}
	var left []string
	for g := range strings.SplitSeq(all.String(), "\n\n") {
		for _, name := range []string{"clientlib.(*Client)", "clientlib.(*leaseRenewer)", "clientlib.(*servers)", "grpc.(*ccBalancerWrapper)", "transport.(*http2Client)"} {
			if strings.Contains(g, name) {
				left = append(left, g)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}

// What no connection carries is refused at once, with a session or without: it is not
// tried until the budget is used up, and did not happen for sure.
func TestTextThatNoConnectionCarries(t *testing.T) {
	const bad = "caf\xe9"
	_, fakes, _ := onLoopback(t) // without sessions
	c := dialLoopback(t, fakes, Options{})
	l, err := c.Acquire(t.Context(), "a", AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, acquired := c.Acquire(t.Context(), "b", AcquireOptions{Metadata: bad})
	for name, err := range map[string]error{
		"acquire":      acquired,
		"set metadata": l.SetMetadata(t.Context(), bad),
		"break":        c.Break(t.Context(), "a", BreakOptions{Actor: "me", Reason: bad}),
		"break by":     c.Break(t.Context(), "a", BreakOptions{Actor: bad, Reason: "it hangs"}),
	} {
		if e, ok := errors.AsType[*CallError](err); !ok || !errors.Is(err, wire.ErrInvalidArgument) || e.Unknown || e.Tries != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
