// SPDX-License-Identifier: Apache-2.0

package holdfasttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/fencing"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
)

// acquire gets a lock that nobody else has.
func acquire(t *testing.T, c *clientlib.Client, lock clientlib.LockName) *clientlib.Lock {
	t.Helper()
	l, err := c.Acquire(t.Context(), lock, clientlib.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// lost waits for the end of a lock and returns why it is lost.
func lost(t *testing.T, l *clientlib.Lock) *clientlib.LostError {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(time.Minute):
		t.Fatal("the holder does not learn of it")
	}
	e, ok := errors.AsType[*clientlib.LostError](context.Cause(l.Context()))
	if !ok {
		t.Fatalf("the lock ended with %v", context.Cause(l.Context()))
	}
	return e
}

// sizes runs a test with one server and with three.
func sizes(t *testing.T, f func(*testing.T, *holdfasttest.Server)) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("servers=%d", n), func(t *testing.T) {
			t.Parallel()
			f(t, holdfasttest.Start(t, holdfasttest.Servers(n)))
		})
	}
}

// Clients of every kind reach the servers at their ports.
func TestEveryKindOfClient(t *testing.T) {
	sizes(t, func(t *testing.T, s *holdfasttest.Server) {
		l := acquire(t, s.Client(), "a")
		if r, err := l.Append(t.Context(), "log", []byte("line\n")); err != nil || r.Offset != 0 {
			t.Errorf("append: %+v, %v", r, err)
		}
		for _, addr := range s.Endpoints() {
			r, err := http.Post("http://"+addr+"/v1/acquire", "application/json", strings.NewReader(`{"lock":"a","ttl":"30s"}`))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			r.Body.Close() //nolint:errcheck // it was read
			if err != nil || r.StatusCode != http.StatusLocked || !strings.Contains(string(body), fmt.Sprintf(`"token":%d`, l.Token())) {
				t.Errorf("HTTP: %s, %s, %v", r.Status, body, err)
			}
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, "LOCK,a,me\nQUIT\n")
			answer, err := io.ReadAll(c)
			c.Close() //nolint:errcheck // it was read
			if err != nil || string(answer) != "FAIL\nSUCCESS\n" {
				t.Errorf("lines: %q, %v", answer, err)
			}
		}
		own, err := clientlib.New(clientlib.Options{Endpoints: s.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close() //nolint:errcheck // it is nil
		if info, err := own.Get(t.Context(), "a"); err != nil || info.Holder == nil || info.Holder.Token != l.Token() {
			t.Errorf("another client sees %+v, %v", info, err)
		}
	})
}

// A lease that runs out: the holder learns why, and the next one in the queue has the lock.
func TestExpire(t *testing.T) {
	sizes(t, func(t *testing.T, s *holdfasttest.Server) {
		l, other := acquire(t, s.Client(), "a"), acquire(t, s.Client(), "b")
		next := make(chan *clientlib.Lock, 1)
		waiter := s.NewClient(clientlib.Options{})
		go func() {
			l, err := waiter.Acquire(t.Context(), "a", clientlib.AcquireOptions{Wait: clientlib.Forever})
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		queued(t, s, "a")
		s.Expire("a")
		e := lost(t, l)
		if e.Reason != clientlib.LossExpired && e.Reason != clientlib.LossRefused || e.Token != l.Token() {
			t.Errorf("lost: %v", e)
		}
		if got := <-next; got == nil || got.Token() <= l.Token() {
			t.Error("the next one in the queue does not have the lock under a higher token")
		}
		if err := other.Renew(t.Context()); err != nil {
			t.Errorf("another lock: %v", err)
		}
		if _, err := l.Append(t.Context(), "log", []byte("late")); !errors.Is(err, clientlib.ErrLost) {
			t.Errorf("append under the old token: %v", err)
		}
	})
}

// queued waits until a request waits for a lock.
func queued(t *testing.T, s *holdfasttest.Server, lock clientlib.LockName) {
	t.Helper()
	for {
		info, err := s.Client().Get(t.Context(), lock)
		if err != nil {
			t.Fatal(err)
		}
		if info.QueueLength > 0 {
			return
		}
	}
}

func TestExpireEndsAllThatShare(t *testing.T) {
	s := holdfasttest.Start(t)
	var all []*clientlib.Lock
	for range 3 {
		l, err := s.Client().Acquire(t.Context(), "a", clientlib.AcquireOptions{Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	s.Expire("a")
	for _, l := range all {
		if e := lost(t, l); e.Reason != clientlib.LossExpired && e.Reason != clientlib.LossRefused {
			t.Errorf("lost: %v", e)
		}
	}
}

func TestBreak(t *testing.T) {
	sizes(t, func(t *testing.T, s *holdfasttest.Server) {
		l := acquire(t, s.Client(), "a")
		s.Break("a", "moving")
		if e := lost(t, l); e.Reason != clientlib.LossBroken || e.Message != "moving" {
			t.Errorf("lost: %v", e)
		}
	})
}

// While time advances, who has long leases keeps them, and who has short ones loses them, here and there.
func TestAdvance(t *testing.T) {
	s := holdfasttest.Start(t)
	short, err := s.Client().Acquire(t.Context(), "short", clientlib.AcquireOptions{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	long, err := s.Client().Acquire(t.Context(), "long", clientlib.AcquireOptions{TTL: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Minute)
	if e := lost(t, short); e.Reason != clientlib.LossExpired && e.Reason != clientlib.LossNotRenewed {
		t.Errorf("lost: %v", e)
	}
	if left := time.Until(long.Expires()); left > 4*time.Minute {
		t.Errorf("%v are left of the long lease", left)
	}
	if err := long.Renew(t.Context()); err != nil {
		t.Errorf("the long lease: %v", err)
	}
}

// A client without a network loses its lock by its own clock; the service grants it to another one.
func TestCutOff(t *testing.T) {
	s := holdfasttest.Start(t)
	holder := s.NewClient(clientlib.Options{Log: nil})
	l, err := holder.Acquire(t.Context(), "a", clientlib.AcquireOptions{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.CutOff(holder)
	s.Advance(2 * time.Second)
	if e := lost(t, l); e.Reason != clientlib.LossNotRenewed {
		t.Errorf("lost: %v", e)
	}
	next := acquire(t, s.Client(), "a")
	s.Rejoin(holder)
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, holder, "a")
}

// A service that is silent answers nobody, and everybody afterwards.
func TestPause(t *testing.T) {
	sizes(t, func(t *testing.T, s *holdfasttest.Server) {
		l := acquire(t, s.Client(), "a")
		s.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := l.Renew(ctx); err == nil {
			t.Error("a paused service renews")
		}
		s.Resume()
		if err := l.Renew(t.Context()); err != nil {
			t.Errorf("after Resume: %v", err)
		}
	})
}

// A lock outlives the server that granted it.
func TestFailover(t *testing.T) {
	sizes(t, func(t *testing.T, s *holdfasttest.Server) {
		l := acquire(t, s.Client(), "a")
		before, err := s.Client().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			s.Failover()
			if r, err := l.Append(t.Context(), "log", []byte("x")); err != nil || r.Offset != int64(i) {
				t.Errorf("append %d: %+v, %v", i, r, err)
			}
		}
		after, err := s.Client().Status(t.Context())
		if err != nil || after.Epoch < before.Epoch+3 {
			t.Errorf("epoch %d became %d: %v", before.Epoch, after.Epoch, err)
		}
	})
}

// Of three servers, two go on without the third; alone, the only one is silent.
func TestPartition(t *testing.T) {
	sizes(t, func(t *testing.T, s *holdfasttest.Server) {
		l := acquire(t, s.Client(), "a")
		s.Partition()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if len(s.Endpoints()) == 3 {
			ctx = t.Context()
		}
		if _, err := l.Append(ctx, "log", []byte("x")); (err == nil) != (len(s.Endpoints()) == 3) {
			t.Errorf("append: %v", err)
		}
		s.Heal()
		if err := l.Renew(t.Context()); err != nil {
			t.Errorf("after Heal: %v", err)
		}
	})
}

const rules = `
[[rule]]
who = ["service:billing", "group:ops"]
may = ["acquire", "read", "append"]
locks = ["billing/**"]
`

// With rules, a client is who its credential says; proofs are verified by the servers' keys.
func TestRules(t *testing.T) {
	s := holdfasttest.Start(t, holdfasttest.Rules(rules))
	stranger := s.NewClient(clientlib.Options{})
	if _, err := stranger.Acquire(t.Context(), "billing/job", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrUnauthenticated) {
		t.Errorf("without a credential: %v", err)
	}
	billing := s.NewClient(clientlib.Options{Credential: s.As("service:billing")})
	l := acquire(t, billing, "billing/job")
	if _, err := billing.Acquire(t.Context(), "payroll", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrPermissionDenied) {
		t.Errorf("a lock of others: %v", err)
	}
	acquire(t, s.NewClient(clientlib.Options{Credential: s.As("user:ann", "group:ops")}), "billing/other")
	proof, err := l.Proof(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Keys().Verify("billing/job", proof.Text)
	if err != nil || p.Token != l.Token() || p.Identity != "service:billing" {
		t.Errorf("proof: %+v, %v", p, err)
	}
	if _, err := s.Keys().Verify("billing/job", proof.Text+"x"); !errors.Is(err, fencing.ErrForged) {
		t.Errorf("a forged proof: %v", err)
	}
	s.Break("billing/job", "")
	if e := lost(t, l); e.Reason != clientlib.LossBroken {
		t.Errorf("lost: %v", e)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/v1/locks/billing/job", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+s.Credential("service:billing"))
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close() //nolint:errcheck // it is not read
	if r.StatusCode != http.StatusOK {
		t.Errorf("HTTP with a credential: %s", r.Status)
	}
}

// fatal is a test that notes that it was ended.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fatal) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// What cannot be done ends the test and says why.
func TestWhatCannotBeDone(t *testing.T) {
	foreign, err := clientlib.New(clientlib.Options{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close() //nolint:errcheck // it is nil
	for want, f := range map[string]func(testing.TB){
		"use 1, 3, 5 or 7":   func(tb testing.TB) { holdfasttest.Start(tb, holdfasttest.Servers(2)) },
		"rules":              func(tb testing.TB) { holdfasttest.Start(tb, holdfasttest.Rules("who")) },
		"is not held":        func(tb testing.TB) { holdfasttest.Start(tb).Expire("a") },
		"break":              func(tb testing.TB) { holdfasttest.Start(tb).Break("a", "") },
		"goes forward only":  func(tb testing.TB) { holdfasttest.Start(tb).Advance(-1) },
		"use a client of":    func(tb testing.TB) { holdfasttest.Start(tb).CutOff(foreign) },
		"credential of":      func(tb testing.TB) { holdfasttest.Start(tb).Credential("") },
		"budget and attempt": func(tb testing.TB) { holdfasttest.Start(tb).NewClient(clientlib.Options{Budget: -1}) },
	} {
		t.Run(want, func(t *testing.T) {
			tb := &fatal{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				f(tb)
			}()
			<-done
			if !strings.Contains(tb.said, "holdfasttest: ") || !strings.Contains(tb.said, want) {
				t.Errorf("it said %q", tb.said)
			}
		})
	}
}

// Nothing of a server runs after its test, whatever the test did.
func TestNothingIsLeft(t *testing.T) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := goroutines()
	t.Run("it", func(t *testing.T) {
		sizes(t, func(t *testing.T, s *holdfasttest.Server) {
			acquire(t, s.Client(), "a")
			waiter := s.NewClient(clientlib.Options{})
			go waiter.Acquire(t.Context(), "a", clientlib.AcquireOptions{Wait: clientlib.Forever}) //nolint:errcheck // it does not get it
			queued(t, s, "a")
			r, err := http.Get(s.URL() + "/v1/locks/a?primary_only=true")
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close() //nolint:errcheck // it is not read
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			s.Failover()
			s.CutOff(waiter)
			s.Pause()
			s.Partition()
		})
	})
	deadline := time.Now().Add(time.Minute)
	for goroutines() > before && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := goroutines(); n > before {
		all := make([]byte, 1<<20)
		t.Errorf("%d goroutines became %d:\n%s", before, n, all[:runtime.Stack(all, true)])
	}
}

// goroutines counts those with a frame of the product, but for tests of this package.
func goroutines() (n int) {
	all := make([]byte, 1<<22)
	all = all[:runtime.Stack(all, true)]
	for g := range strings.SplitSeq(string(all), "\n\n") {
		if strings.Contains(g, "holdfast-lock/holdfast/") && !strings.Contains(g, "holdfasttest_test.") {
			n++
		}
	}
	return n
}

// passing is a test that ends when the benchmark says so.
type passing struct {
	testing.TB
	ends []func()
}

func (p *passing) Cleanup(f func()) { p.ends = append(p.ends, f) }

// A start is so fast that each test can have a server of its own.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		p := &passing{TB: b}
		holdfasttest.Start(p)
		b.StopTimer()
		for _, f := range p.ends {
			f()
		}
		b.StartTimer()
	}
}
