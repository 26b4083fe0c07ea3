// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// holding is a service whose rules are set by a test, in a bubble. Sleeping there orders nothing for the race detector, so what the
// goroutine of the lines and the test share is guarded.
type holding struct {
	t     *testing.T
	s     *Service
	rules atomic.Pointer[access.Rules]
	began time.Time
	mu    struct {
		sync.Mutex
		// went has what went on, and refused what was refused, each with the time since the beginning, and the advice.
		went, refused []string
	}
}

func (x *holding) Authenticate(string) (*access.Caller, error) { return nil, errors.New("nobody asks") }
func (x *holding) Known(string) bool                           { return false }
func (x *holding) PassOn(*access.Caller) string                { return "" }
func (x *holding) Rules() *access.Rules                        { return x.rules.Load() }

func (x *holding) limits(limits map[string]any) {
	x.t.Helper()
	f := &access.File{Rules: []access.Rule{{Who: []string{"*"}, May: []access.Verb{access.Read, access.Append}, Locks: []string{"**"}}}}
	if limits != nil {
		f.Quotas = []access.Quota{{Who: []string{"*"}, Limits: limits}}
	}
	r, err := access.Compile(f, x.rules.Load().Version()+1)
	if err != nil {
		x.t.Fatal(err)
	}
	x.rules.Store(r)
}

// inHolding runs a test with limits.
func inHolding(t *testing.T, limits map[string]any, test func(x *holding)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &holding{t: t, began: time.Now()}
		x.s = &Service{opt: Options{Authenticator: x, Usage: &Usage{}, MaxHold: maxHold}}
		x.limits(limits)
		test(x)
	})
}

// connAddr is the address of a connection.
type connAddr string

func (connAddr) Network() string  { return "test" }
func (a connAddr) String() string { return string(a) }

func caller(name string) *access.Caller { return &access.Caller{Identity: "user:" + name} }

// ask hands in requests of a caller by a connection, and notes what becomes of them, under a name and their places.
func (x *holding) ask(who, conn, name string, sizes ...int) {
	p := x.s.Permission(caller(who), connAddr(conn))
	at := func() time.Duration { return time.Since(x.began).Round(time.Millisecond) }
	proceed := func(from, to int) {
		for i := from; i < to; i++ {
			x.wentOn(fmt.Sprint(name, i, " ", at()))
		}
	}
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	if p.TakeAll(len(sizes), sum) { // as front ends do
		proceed(0, len(sizes))
		return
	}
	proceed(0, p.Take(sizes, &Held{
		Proceed: proceed,
		Refuse: func(i int, err error) {
			e, _ := errors.AsType[*wire.Error](err)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.mu.refused = append(x.mu.refused, fmt.Sprint(name, i, " ", at(), " ", e.Status, " ", e.RetryAfter.Round(time.Millisecond)))
		},
	}))
}

// wentOn notes what went on.
func (x *holding) wentOn(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.went = append(x.mu.went, what)
}

// pass has so much time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// tells wants these to have gone on, and these to have been refused, since it was asked last.
func (x *holding) tells(went, refused []string) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Equal(x.mu.went, went) {
		x.t.Errorf("%q went on, want %q", x.mu.went, went)
	}
	if !slices.Equal(x.mu.refused, refused) {
		x.t.Errorf("%q were refused, want %q", x.mu.refused, refused)
	}
	x.mu.went, x.mu.refused = nil, nil
}

// TestHeldInTheirTurn: what exceeds a rate goes on in its order, at that rate, and is refused only where it would wait for longer than a
// second. Another identity waits for nothing.
func TestHeldInTheirTurn(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(4)}, func(x *holding) {
		x.ask("a", "c", "x", 0, 0, 0, 0, 0, 0, 0, 0, 0)
		x.ask("b", "d", "other", 0)
		x.tells([]string{"x0 0s", "x1 0s", "x2 0s", "x3 0s", "other0 0s"}, []string{"x7 0s LIMITED 1s", "x8 0s LIMITED 1.25s"})
		pass(100 * time.Millisecond)
		x.ask("a", "e", "y", 0, 0) // behind x, though by another connection
		x.tells(nil, []string{"y1 100ms LIMITED 1.15s"})
		pass(2 * time.Second)
		x.tells([]string{"x4 250ms", "x5 500ms", "x6 750ms", "y0 1s"}, nil)
		if u := x.s.opt.Usage; u.mu.serving || u.holds.Load() || len(u.mu.lines) > 0 || u.heldOf("user:a") {
			t.Error("lines are served in which nothing is")
		}
		x.ask("a", "c", "z", 0)
		x.tells([]string{"z0 2.1s"}, nil)
	})
}

// TestHeldForTheirBytes: an append waits for room for its bytes, and so does what comes after it.
func TestHeldForTheirBytes(t *testing.T) {
	inHolding(t, map[string]any{"append_bytes_per_s": int64(4 * cluster.MaxAppend)}, func(x *holding) {
		one := cluster.MaxAppend
		x.ask("a", "c", "x", one, one, one, one, one, 0, one, 5*one)
		x.tells([]string{"x0 0s", "x1 0s", "x2 0s", "x3 0s"}, []string{"x7 0s LIMITED 1.75s"})
		pass(time.Second)
		x.tells([]string{"x4 250ms", "x5 250ms", "x6 500ms"}, nil)
	})
}

// TestNothingOvertakesWhatIsHeld: not even while it is handed on, nor when the quota is lifted.
func TestNothingOvertakesWhatIsHeld(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(1000)}, func(x *holding) {
		p := x.s.Permission(caller("a"), nil)
		p.Take(make([]int, 1000), &Held{})
		handed := make(chan struct{})
		if n := p.Take([]int{0}, &Held{Proceed: func(int, int) { <-handed; x.wentOn("first") }}); n != 0 {
			t.Fatal("it is not held")
		}
		pass(100 * time.Millisecond) // there is room, and first is on its way
		x.ask("a", "c", "x", 0)
		x.limits(nil)
		x.ask("a", "c", "y", 0)
		x.tells(nil, nil)
		close(handed)
		pass(100 * time.Millisecond)
		x.tells([]string{"first", "x0 100ms", "y0 100ms"}, nil)
	})
}

// TestLowerRateRefusesWhatIsHeld: nothing is held for longer than a second.
func TestLowerRateRefusesWhatIsHeld(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(10)}, func(x *holding) {
		p := x.s.Permission(caller("a"), nil)
		p.Take(make([]int, 10), &Held{})
		x.ask("a", "c", "y", 0, 0, 0)
		x.limits(map[string]any{"requests_per_s": int64(1)})
		x.ask("a", "c", "z", 0)
		pass(5 * time.Second)
		x.tells([]string{"y0 1s"}, []string{"z0 0s LIMITED 4s", "y1 1s LIMITED 1s", "y2 1s LIMITED 2s"})
	})
}

// TestLinesAreBounded: for each connection and each identity, and in bytes.
func TestLinesAreBounded(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(100_000)}, func(x *holding) {
		held := func(who, conn string, sizes ...int) (n int) {
			p := x.s.Permission(caller(who), connAddr(conn))
			n = len(sizes)
			p.Take(sizes, &Held{Proceed: func(int, int) {}, Refuse: func(int, error) { n-- }})
			return n
		}
		for _, who := range []string{"a", "b"} {
			p := x.s.Permission(caller(who), nil)
			p.Take(make([]int, 100_000), &Held{})
		}
		for i, want := range []int{maxHeldOfConn, maxHeldOfConn, maxHeldOfConn, maxHeldOfConn, 0} {
			if n := held("a", fmt.Sprint(i), make([]int, 1000)...); n != want {
				t.Errorf("of connection %d, %d are held, want %d", i, n, want)
			}
		}
		large := make([]int, 20)
		for i := range large {
			large[i] = cluster.MaxAppend
		}
		if n := held("b", "c", large...); n != maxHeldBytes/cluster.MaxAppend {
			t.Errorf("%d large appends are held", n)
		}
		pass(time.Second)
		if n := held("a", "0", make([]int, 1000)...); n != 1000 {
			t.Errorf("later, %d go on", n)
		}
	})
}

// TestConnectionHasOneBound however its requests came: by a session's messages, or by calls of their own.
func TestConnectionHasOneBound(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(100_000)}, func(x *holding) {
		p := x.s.Permission(caller("a"), connAddr("c"))
		p.Take(make([]int, 100_000), &Held{})
		requests := make([]int, maxHeldOfConn)
		size := func(int) (int, bool) { return 0, true }
		Filter(&p, requests, size, func([]int) {}, func(_ int, err error) { t.Error(err) })
		ctx, cancel := callOf(x.t, "a")
		defer cancel()
		ask := func(conn string) error {
			ctx := serving.WithRemote(ctx, connAddr(conn))
			_, err := x.s.permission(ctx).await(ctx, 0)
			return err
		}
		if err := ask("c"); !errors.Is(err, wire.ErrLimited) {
			t.Errorf("by the same connection: %v", err)
		}
		if err := ask("d"); err != nil {
			t.Errorf("by another connection: %v", err)
		}
	})
}

// TestWaitEndsWithItsCall: whoever goes leaves the line, and spends nothing.
func TestWaitEndsWithItsCall(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(2)}, func(x *holding) {
		ctx, cancel := callOf(x.t, "a")
		p := x.s.permission(ctx)
		p.Take(make([]int, 2), &Held{})
		type result struct {
			waited bool
			err    error
		}
		done := make(chan result, 1)
		go func() {
			waited, err := p.await(ctx, 0)
			done <- result{waited, err}
		}()
		pass(100 * time.Millisecond)
		cancel()
		if r := <-done; !errors.Is(r.err, wire.ErrLimited) || !r.waited {
			t.Errorf("%+v", r)
		}
		pass(400 * time.Millisecond)
		x.ask("a", "c", "x", 0)
		x.tells([]string{"x0 500ms"}, nil)
	})
}

// TestRulesAreAskedAfterAWait: who may no more is not let on.
func TestRulesAreAskedAfterAWait(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(2)}, func(x *holding) {
		ctx, cancel := callOf(x.t, "a")
		defer cancel()
		p := x.s.permission(ctx)
		p.Take(make([]int, 2), &Held{})
		done := make(chan error, 1)
		go func() { done <- x.s.permission(ctx).admit(ctx, access.Read, "l", "") }()
		pass(100 * time.Millisecond)
		forbidding, err := access.Compile(&access.File{}, 9)
		if err != nil {
			t.Fatal(err)
		}
		x.rules.Store(forbidding)
		if err := <-done; !errors.Is(err, wire.ErrPermissionDenied) {
			t.Error(err)
		}
	})
}

// TestOneRequestCountsOnce however much is asked for it, and not where another server has counted it.
func TestOneRequestCountsOnce(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(1)}, func(x *holding) {
		ctx, cancel := callOf(x.t, "a")
		defer cancel()
		began := time.Now()
		admitted := func(ctx context.Context) error { return x.s.permission(ctx).admit(ctx, access.Read, "l", "") }
		one := OneRequest(ctx)
		for range 3 {
			if err := admitted(OneRequest(one)); err != nil {
				t.Error(err)
			}
		}
		if err := admitted(OneRequest(ctx)); !errors.Is(err, wire.ErrLimited) {
			t.Errorf("another request: %v", err)
		}
		passed := caller("a")
		passed.PassedOn = true
		if err := admitted(serving.WithCaller(ctx, passed)); err != nil || time.Since(began) > 0 {
			t.Errorf("passed on: %v, after %v", err, time.Since(began))
		}
		// What was refused was not counted: it counts when it is asked again.
		two := OneRequest(ctx)
		if err := admitted(two); !errors.Is(err, wire.ErrLimited) {
			t.Errorf("too fast: %v", err)
		}
		pass(time.Second)
		if err := admitted(two); err != nil {
			t.Error(err)
		}
		if err := admitted(ctx); !errors.Is(err, wire.ErrLimited) {
			t.Errorf("after it: %v", err)
		}
	})
}

// TestCallThatEndsInItsTurnIsNotExecuted: it is not there any more when it may go on.
func TestCallThatEndsInItsTurnIsNotExecuted(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(40)}, func(x *holding) {
		ctx, cancel := callOf(x.t, "a")
		defer cancel()
		p := x.s.permission(ctx)
		p.Take(make([]int, 40), &Held{})
		p.Take([]int{0}, &Held{Proceed: func(int, int) { cancel() }}) // the next one has left the line, too, by then
		if err := x.s.permission(ctx).admit(ctx, access.Read, "l", ""); !errors.Is(err, wire.ErrLimited) {
			t.Errorf("%v", err)
		}
	})
}

// TestHeldUntilEnough: what is held is refused once others wait for it, and what comes then is not held.
func TestHeldUntilEnough(t *testing.T) {
	inHolding(t, map[string]any{"requests_per_s": int64(2)}, func(x *holding) {
		ctx, cancel := callOf(x.t, "a")
		defer cancel()
		p := x.s.permission(ctx)
		p.Take(make([]int, 2), &Held{})
		enough := make(chan struct{})
		hasty := HoldUntil(ctx, enough)
		done := make(chan error, 1)
		go func() { done <- x.s.permission(hasty).admit(hasty, access.Read, "l", "") }()
		pass(100 * time.Millisecond)
		close(enough)
		if err := <-done; !errors.Is(err, wire.ErrLimited) || time.Since(x.began) != 100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(x.began), err)
		}
		if err := x.s.permission(hasty).admit(hasty, access.Read, "l", ""); !errors.Is(err, wire.ErrLimited) || time.Since(x.began) != 100*time.Millisecond {
			t.Errorf("another one, after %v: %v", time.Since(x.began), err)
		}
		pass(400 * time.Millisecond) // they have spent nothing
		if err := x.s.permission(hasty).admit(hasty, access.Read, "l", ""); err != nil {
			t.Error(err)
		}
	})
}

// callOf returns the context of a call of a caller, and what ends it.
func callOf(t *testing.T, who string) (context.Context, context.CancelFunc) {
	return context.WithCancel(serving.WithCaller(t.Context(), caller(who)))
}
