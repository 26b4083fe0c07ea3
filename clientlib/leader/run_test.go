// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

var errWork = errors.New("the work failed")

// over waits for the end of a leader's context.
func over(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
		t.Error("the context lives for an hour")
	}
}

func TestRunTakesTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		var leading atomic.Int32
		var terms [2]int
		var last atomic.Uint64 // token
		done := make(chan error, 2)
		for i := range 2 {
			e := w.process(clientlib.Options{}).election(leader.Options{Value: "v"})
			go func() {
				done <- e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
					if before := last.Swap(uint64(l.Token())); leading.Add(1) != 1 || uint64(l.Token()) <= before {
						t.Errorf("%d lead, token %d comes after %d", leading.Load(), l.Token(), before)
					}
					terms[i]++
					defer leading.Add(-1)
					select {
					case <-time.After(2 * time.Second):
					case <-ctx.Done():
					}
					return nil
				})
			}()
		}
		time.Sleep(time.Minute)
		cancel()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run ended with %v", err)
			}
		}
		if terms[0] < 14 || terms[1] < 14 {
			t.Errorf("in a minute they led %v times, 2 s each", terms)
		}
	})
}

func TestRunDoesNotSpin(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		terms := 0
		w.process(clientlib.Options{}).election(leader.Options{}).Run(ctx, func(context.Context, *leader.Leadership) error { //nolint:errcheck // it is ctx's
			terms++
			return nil
		})
		if terms < 9 || terms > 11 {
			t.Errorf("%d terms in 10 s", terms)
		}
	})
}

func TestRunEndsWithAnErrorOfTheWork(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.process(clientlib.Options{}).election(leader.Options{})
		if err := e.Run(t.Context(), func(context.Context, *leader.Leadership) error { return errWork }); err != errWork {
			t.Errorf("Run ended with %v", err)
		}
		if _, err := e.Leader(t.Context()); !errors.Is(err, leader.ErrNoLeader) {
			t.Errorf("it did not resign: %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			e.Run(t.Context(), func(context.Context, *leader.Leadership) error { panic("oh") }) //nolint:errcheck // it panics
		}()
		if _, err := e.Leader(t.Context()); !errors.Is(err, leader.ErrNoLeader) {
			t.Errorf("it did not resign when the work panicked: %v", err)
		}
	})
}

// TestRunGoesOnAfterALoss: an error of the work is the loss's then.
func TestRunGoesOnAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.process(clientlib.Options{})
		e := p.election(leader.Options{OnOverrun: func(*leader.Leadership) { t.Error("an overrun of work that stopped in time") }})
		var terms []*leader.Leadership
		err := e.Run(t.Context(), func(ctx context.Context, l *leader.Leadership) error {
			if terms = append(terms, l); len(terms) == 3 {
				return errWork
			}
			if len(terms) == 1 { // cut off for longer than the Budget
				p.net.Cut()
				time.AfterFunc(time.Minute, p.net.Mend)
			} else if err := p.c.Break(t.Context(), "svc", clientlib.BreakOptions{}); err != nil {
				t.Error(err)
			}
			over(t, ctx)
			if l.Deadline().Before(time.Now()) {
				t.Errorf("term %d: the context ended behind the deadline", len(terms))
			}
			return context.Cause(ctx)
		})
		if err != errWork || len(terms) != 3 {
			t.Fatalf("Run ended with %v after %d terms", err, len(terms))
		}
		for i, want := range []error{leader.ErrNotRenewed, clientlib.ErrLost, leader.ErrResigned} {
			if got := context.Cause(terms[i].Context()); !errors.Is(got, want) {
				t.Errorf("term %d ended with %v, want %v", i+1, got, want)
			}
		}
	})
}

// TestWorkMayTakeItsTimeToStop when Run is told to end: the lease is kept alive.
func TestWorkMayTakeItsTimeToStop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var stopped time.Time
		done := make(chan error, 1)
		go func() {
			done <- a.election(leader.Options{}).Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
				<-ctx.Done()
				time.Sleep(3 * ttl)
				stopped = time.Now()
				return nil
			})
		}()
		time.Sleep(time.Second)
		cancel()
		leads(t, b.election(leader.Options{}), "")
		if stopped.IsZero() || time.Since(stopped) > time.Second {
			t.Errorf("the next one leads when the work has stopped since %v", stopped)
		}
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestOverrun(t *testing.T) {
	for _, x := range []struct {
		name string
		lose func(p, other *process, l *leader.Leadership)
	}{
		{"cut off", func(p, _ *process, _ *leader.Leadership) { p.net.Cut() }},
		{"broken", func(_, other *process, _ *leader.Leadership) {
			other.c.Break(context.Background(), "svc", clientlib.BreakOptions{}) //nolint:errcheck // it is seen
		}},
		{"slept", func(p, _ *process, _ *leader.Leadership) {
			p.net.Cut()
			p.clock.sleep(time.Hour)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
				overran := make(chan time.Time, 9)
				e := a.election(leader.Options{OnOverrun: func(l *leader.Leadership) {
					if l.Context().Err() == nil {
						t.Error("an overrun of somebody who leads")
					}
					overran <- time.Now()
				}})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				terms := 0
				err := e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
					terms++
					time.Sleep(time.Second)
					x.lose(a, b, l)
					over(t, ctx)
					deadline := l.Deadline()
					time.Sleep(time.Until(deadline) - time.Millisecond)
					if synctest.Wait(); len(overran) != 0 && time.Until(deadline) > 0 {
						t.Errorf("it overran %v before the deadline", time.Until(deadline))
					}
					time.Sleep(10 * ttl)
					if len(overran) != 1 {
						t.Fatalf("it overran %d times", len(overran))
					}
					if at := <-overran; at.Sub(deadline).Abs() > time.Second/2 {
						t.Errorf("it overran at %v, the deadline was %v", at, deadline)
					}
					cancel()
					return nil
				})
				if !errors.Is(err, context.Canceled) || terms != 1 {
					t.Errorf("Run ended with %v after %d terms", err, terms)
				}
			})
		})
	}
}

// TestWorkThatStopsInTimeDoesNotOverrun, also when it stops long after its context ended
// for another reason.
func TestWorkThatStopsInTimeDoesNotOverrun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.process(clientlib.Options{})
		var overran atomic.Bool
		e := p.election(leader.Options{OnOverrun: func(*leader.Leadership) { overran.Store(true) }})
		ctx, cancel := context.WithCancel(t.Context())
		e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error { //nolint:errcheck // it is ctx's
			cancel()
			time.Sleep(ttl)
			p.net.Cut()
			began := time.Now()
			time.Sleep(time.Until(l.Deadline()) - time.Millisecond)
			if time.Since(began) < ttl/2 {
				t.Errorf("the lease was not kept alive: %v were left", time.Since(began))
			}
			return nil
		})
		if synctest.Wait(); overran.Load() {
			t.Error("it overran")
		}
	})
}

func TestRunReturnsARefusal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.process(clientlib.Options{})
		e := p.election(leader.Options{TTL: time.Hour}) // more than the service allows
		if err := e.Run(t.Context(), nil); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("Run ended with %v", err)
		}
		p.c.Close() //nolint:errcheck // it cannot fail
		if err := p.election(leader.Options{}).Run(t.Context(), nil); !errors.Is(err, clientlib.ErrClosed) {
			t.Errorf("Run with a closed client ended with %v", err)
		}
	})
}

// TestLeaderThatIsAskedLetsGo: another one leads when the work has stopped, and nothing is
// taken away.
func TestLeaderThatIsAskedLetsGo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped := make(chan time.Time, 2)
		done := make(chan error, 1)
		go func() {
			e := a.election(leader.Options{OnOverrun: func(*leader.Leadership) { t.Error("the lock was taken") }})
			done <- e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
				began := time.Now()
				over(t, ctx)
				if ctx.Err() == nil || len(stopped) == 1 {
					return nil
				}
				if why := context.Cause(ctx); !errors.Is(why, leader.ErrAsked) || time.Since(began) > 6*time.Second {
					t.Errorf("after %v the context ended with %v", time.Since(began), why)
				}
				time.Sleep(2 * ttl)
				stopped <- time.Now()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Second)
		next := make(chan time.Time, 1)
		go func() {
			l := leads(t, b.election(leader.Options{}), "")
			next <- time.Now()
			time.Sleep(time.Second)
			if err := l.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(4 * time.Second)
		if err := b.c.Break(t.Context(), "svc", clientlib.BreakOptions{Grace: time.Minute, Actor: "ann", Reason: "moving"}); err != nil {
			t.Fatal(err)
		}
		select {
		case at := <-next:
			if len(stopped) != 1 || at.Sub(<-stopped) > 100*time.Millisecond {
				t.Errorf("the next one leads at %v", at)
			}
			stopped <- at
		case <-time.After(time.Hour):
			t.Error("nobody else leads")
		}
		time.Sleep(5 * time.Second)
		if got, err := b.election(leader.Options{}).Leader(t.Context()); err != nil || !got.Present() {
			t.Errorf("who was asked does not lead again: %+v, %v", got, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// overrunning is in the environment of a test binary that is to overrun.
const overrunning = "HOLDFAST_ELECTION_OVERRUN"

// TestOverrunEndsTheProcess where nothing else was asked for.
func TestOverrunEndsTheProcess(t *testing.T) {
	if os.Getenv(overrunning) != "" {
		w := newWorld()
		p := w.process(clientlib.Options{})
		e := p.election(leader.Options{TTL: time.Second})
		e.Run(t.Context(), func(context.Context, *leader.Leadership) error { //nolint:errcheck // it does not return
			p.net.Cut()
			select {}
		})
		t.Fatal("it went on")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run", "^TestOverrunEndsTheProcess$")
	cmd.Env = append(os.Environ(), overrunning+"=1")
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != leader.OverrunExitCode || !strings.Contains(string(out), `leadership of "svc"`) {
		t.Errorf("%v\n%s", err, out)
	}
}
