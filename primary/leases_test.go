// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

func TestLeaseLivesBy(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(x *reign, round int, token cluster.Token)
		live bool
	}{
		{"nothing", func(*reign, int, cluster.Token) {}, false},
		{"keep-alives of its client", func(x *reign, _ int, _ cluster.Token) { x.keepAlive("c1", 1) }, true},
		{"keep-alives of another client", func(x *reign, _ int, _ cluster.Token) { x.keepAlive("c2", 0) }, false},
		{"renewals of its token", func(x *reign, _ int, token cluster.Token) {
			if out, err := x.p.Renew(context.Background(), "l", token); err != nil || out.Status != cluster.StatusOK {
				x.t.Errorf("renew: %v %v", out.Status, err)
			}
		}, true},
		{"renewals of another token", func(x *reign, _ int, token cluster.Token) {
			if out, err := x.p.Renew(context.Background(), "l", token+1); err != nil || out.Status == cluster.StatusOK {
				x.t.Errorf("renew: %v %v", out.Status, err)
			}
		}, false},
		{"appends under its token by anybody", func(x *reign, round int, token cluster.Token) {
			x.ok(appendTo("other", cluster.RequestID(round+1), "l", token, "f", "x"))
		}, true},
		{"other requests of its client", func(x *reign, round int, _ cluster.Token) {
			x.ok(acquire("c1", cluster.RequestID(round+10), cluster.LockName("m/"+string(rune('a'+round))), 0))
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				for round := range 3 {
					time.Sleep(20 * time.Second)
					if round > 0 && !test.live {
						break
					}
					test.use(x, round, g.Token)
				}
				if _, live := x.remaining("l", g.Token); live != test.live {
					t.Errorf("live: %v", live)
				}
			})
		})
	}
}

func TestKeepAliveThatDiffersListsGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		a := x.ok(acquire("c1", 1, "a", 0))
		b := x.ok(acquire("c1", 2, "b", 0))
		x.ok(acquire("c2", 1, "c", 0))
		if stray := x.keepAlive("c1", 2); stray != nil {
			t.Errorf("in step: %v", stray)
		}
		if stray := x.keepAlive("loser", 1); stray == nil || len(stray) > 0 {
			t.Errorf("of one that lost everything: %#v, want an empty list", stray)
		}
		had := map[cluster.LockName]cluster.Token{}
		for _, g := range x.keepAlive("c1", 1) {
			had[g.Lock] = g.Token
		}
		if want := map[cluster.LockName]cluster.Token{"a": a.Token, "b": b.Token}; !maps.Equal(had, want) {
			t.Errorf("one less: %v, want %v", had, want)
		}
		if stray := x.keepAlive("nobody", 0); len(stray) != 0 {
			t.Errorf("of a stranger: %v", stray)
		}
	})
}

func TestForgottenClientIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.ClientRetention = 10 * time.Minute
		x := serve(t, newDisk(t), 1, primary.Options{Timing: timing})
		defer x.end()
		opened := x.ok(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 7})
		holder := x.ok(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 8})
		g := x.ok(acquire(opened.Client, 1, "l", 0))
		x.ok(release(opened.Client, 2, "l", g.Token))
		held := x.ok(acquire(holder.Client, 1, "held", 0))
		for range 60 { // the second one is kept in use by its token, not by its client
			time.Sleep(20 * time.Second)
			if out, err := x.p.Renew(t.Context(), "held", held.Token); err != nil || out.Status != cluster.StatusOK {
				t.Fatalf("renew: %v %v", out.Status, err)
			}
		}
		if _, out, err := x.p.KeepAlive(t.Context(), opened.Client, 0); err != nil || out.Status != cluster.StatusStaleRequest {
			t.Errorf("keep-alive of a forgotten client: %v %v", out.Status, err)
		}
		x.sees(acquire(opened.Client, 3, "l", 0), cluster.StatusStaleRequest)
		x.keepAlive(holder.Client, 1)
	})
}

func TestWaiterLeaves(t *testing.T) {
	for _, test := range []struct {
		name  string
		wait  time.Duration
		open  bool // its call stays open
		alive bool // its client keeps alive
		after time.Duration
		want  bool // still in the queue by then
	}{
		{"with its deadline", 5 * time.Second, true, true, 6 * time.Second, false},
		{"not before its deadline", time.Minute, true, true, 50 * time.Second, true},
		{"when its client is silent", locktable.WaitForever, false, false, 33 * time.Second, false},
		{"not before its client's silence has lasted its TTL", locktable.WaitForever, false, false, 27 * time.Second, true},
		{"not while its client keeps alive", locktable.WaitForever, false, true, 3 * time.Minute, true},
		{"not while its call is open", locktable.WaitForever, true, false, 3 * time.Minute, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end()
				x.ok(acquire("holder", 1, "l", 0))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				go x.p.Do(ctx, acquire("c1", 1, "l", test.wait)) //nolint:errcheck // what becomes of its place is looked at
				time.Sleep(100 * time.Millisecond)
				if !test.open {
					leave()
				}
				for since := time.Duration(0); since < test.after; since += 9 * time.Second {
					time.Sleep(min(9*time.Second, test.after-since))
					x.keepAlive("holder", 1)
					if test.alive {
						x.keepAlive("c1", 0)
					}
				}
				if got := slices.Equal(x.queue("l"), []cluster.ClientID{"c1"}); got != test.want {
					t.Errorf("in the queue after %v: %v", test.after, got)
				}
				if !test.want {
					x.read(func(v primary.View) {
						if state, out := v.Table.Lookup("c1", 1); state != locktable.RequestExecuted || out.Status != cluster.StatusWaitTimeout {
							t.Errorf("its request is %v with %v", state, out.Status)
						}
					})
				}
			})
		})
	}
}

func TestNewReignCountsLeasesAndPlacesAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.later(acquire("c2", 1, "l", 20*time.Second))
		time.Sleep(15 * time.Second)
		x.kill()

		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		if left, live := y.remaining("l", g.Token); !live || left < 29*time.Second {
			t.Errorf("live %v, %v left of 30 s", live, left)
		}
		y.read(func(v primary.View) {
			if v.Heard("c1") {
				t.Error("a client counts as heard that has not spoken in this reign")
			}
		})
		y.keepAlive("c1", 1)
		y.read(func(v primary.View) {
			if !v.Heard("c1") {
				t.Error("a client that kept alive counts as not heard")
			}
		})
		again := y.later(acquire("c2", 1, "l", 20*time.Second))
		time.Sleep(15 * time.Second)
		y.unanswered(again, "before the deadline of its place, counted afresh")
		if out := <-again; out.Status != cluster.StatusWaitTimeout {
			t.Errorf("the waiter: %v", out.Status)
		}
	})
}

func TestCancelledWaiterIsAnsweredSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		x.ok(acquire("c0", 1, "l", 0))
		waiting := x.later(acquire("c1", 1, "l", locktable.WaitForever))
		x.sees(&locktable.Request{Op: locktable.OpCancel, Client: "c1", Target: 1}, cluster.StatusCancelled)
		if out := <-waiting; out.Status != cluster.StatusCancelled {
			t.Errorf("the waiter: %v", out.Status)
		}
		x.sees(acquire("c1", 1, "l", locktable.WaitForever), cluster.StatusCancelled)
	})
}

func TestBrokenLockGoesToTheFirstWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c0", 1, "l", 0))
		waiting := x.later(acquire("c1", 1, "l", locktable.WaitForever))
		x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "admin", ID: 1, Lock: "l", Actor: "an operator", Reason: "a test"})
		if out := <-waiting; out.Status != cluster.StatusOK || out.Token <= g.Token {
			t.Errorf("the waiter: %v, token %d after %d", out.Status, out.Token, g.Token)
		}
		x.sees(appendTo("c0", 2, "l", g.Token, "f", "x"), cluster.StatusInvalidToken)
	})
}
