// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestLeaseLivesBy(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(x *term, round int, token cluster.Token)
		live bool
	}{
		{"nothing", func(*term, int, cluster.Token) {}, false},
		{"keep-alives of its client", func(x *term, _ int, _ cluster.Token) { x.keepAlive("c1", 1) }, true},
		{"keep-alives of another client", func(x *term, _ int, _ cluster.Token) { x.keepAlive("c2", 0) }, false},
		{"renewals of its token", func(x *term, _ int, token cluster.Token) {
			if out, err := x.p.Renew(context.Background(), "l", token); err != nil || out.Status != cluster.StatusOK {
				x.t.Errorf("renew: %v %v", out.Status, err)
			}
		}, true},
		{"renewals of another token", func(x *term, _ int, token cluster.Token) {
			if out, err := x.p.Renew(context.Background(), "l", token+1); err != nil || out.Status == cluster.StatusOK {
				x.t.Errorf("renew: %v %v", out.Status, err)
			}
		}, false},
		{"appends under its token by anybody", func(x *term, round int, token cluster.Token) {
			x.ok(appendTo("other", cluster.RequestID(round+1), "l", token, "f", "x"))
		}, true},
		{"other requests of its client", func(x *term, round int, _ cluster.Token) {
			x.ok(acquire("c1", cluster.RequestID(round+10), cluster.LockName("m/"+string(rune('a'+round))), 0))
		}, true},
		{"tries of its client to get that very lock", func(x *term, round int, _ cluster.Token) {
			x.sees(acquire("c1", cluster.RequestID(round+10), "l", 0), cluster.StatusHeld)
		}, false},
		{"its client's waiting behind it", func(x *term, round int, _ cluster.Token) {
			x.sees(acquire("c1", cluster.RequestID(round+10), "l", 5*time.Second), cluster.StatusWaitTimeout)
		}, false},
		{"keep-alives for places only", func(x *term, _ int, _ cluster.Token) { x.keepPlaces("c1") }, false},
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

// A command under a name of its own, behind a run that died with the lock: it asks again and
// again, and says that it lives. The grant of that run ends all the same, and the lock is its own.
func TestNobodyWaitsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("me", 1, "l", 0))
		began := time.Now()
		for {
			ctx, leave := context.WithTimeout(t.Context(), 2*time.Second)
			out, err := x.p.Do(ctx, acquire("me", 2, "l", locktable.WaitForever))
			leave()
			if err == nil && out.Status == cluster.StatusOK && out.Token != g.Token {
				break
			}
			if time.Since(began) > time.Hour {
				t.Fatalf("it waits for its own grant for an hour: %v %v", out.Status, err)
			}
			for range 2 { // longer than a lease: its place lives by this alone
				x.keepPlaces("me")
				time.Sleep(20 * time.Second)
			}
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("granted after %v", d)
		}
	})
}

// A waiter that was silent up to its grant has the lease's whole time all the same.
func TestLeaseStartsAtItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		held := x.ok(acquire("c1", 1, "l", 0))
		ctx, leave := context.WithCancel(t.Context())
		go x.p.Do(ctx, acquire("c2", 1, "l", locktable.WaitForever)) //nolint:errcheck // nobody waits for it
		time.Sleep(20 * time.Second)
		leave()
		x.keepAlive("c1", 1)
		x.keepAlive("c2", 0)
		time.Sleep(28 * time.Second)
		x.ok(release("c1", 2, "l", held.Token))
		var next cluster.Token
		x.read(func(v serving.View) {
			l, _ := v.Table.Lock("l")
			next = l.Grant.Token
		})
		time.Sleep(29 * time.Second)
		if _, live := x.remaining("l", next); !live {
			t.Error("it ended before its TTL was over")
		}
		time.Sleep(2 * time.Second)
		if _, live := x.remaining("l", next); live {
			t.Error("it has no end")
		}
	})
}

// A client that spoke in time is not punished for a loop that was late.
func TestQueuedRenewalsComeBeforeExpiries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		left, _ := x.remaining("l", g.Token)
		time.Sleep(left - 40*time.Millisecond)
		release, in := make(chan struct{}), make(chan struct{})
		go x.p.Read(context.Background(), func(serving.View) { close(in); <-release }) //nolint:errcheck // it only holds the loop
		<-in
		renewed := make(chan []locktable.Grant, 1)
		go func() { renewed <- x.keepAlive("c1", 1) }()
		time.Sleep(primary.Lateness - time.Millisecond)
		close(release)
		if grants := <-renewed; grants != nil {
			t.Errorf("the keep-alive found %v", grants)
		}
		if _, live := x.remaining("l", g.Token); !live {
			t.Error("the lease ended with its renewal in the queue")
		}
	})
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
		// As many, and others: where a digest is said, how many says nothing.
		for _, is := range []struct {
			tokens []cluster.Token
			listed bool
		}{{[]cluster.Token{a.Token, b.Token}, false}, {[]cluster.Token{b.Token, a.Token}, false}, {[]cluster.Token{a.Token, b.Token + 1}, true}, {nil, true}} {
			digest := cluster.Digest(0)
			for _, token := range is.tokens {
				digest = digest.With(token)
			}
			grants, _, out, err := x.p.KeepAlive(t.Context(), "c1", serving.Belief{Held: 2, Digest: &digest})
			if err != nil || out.Status != cluster.StatusOK || (grants != nil) != is.listed {
				t.Errorf("it believes %v: told of %v, %v %v", is.tokens, grants, out.Status, err)
			}
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
		if _, _, out, err := x.p.KeepAlive(t.Context(), opened.Client, serving.Belief{Held: 0}); err != nil || out.Status != cluster.StatusStaleRequest {
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
					x.read(func(v serving.View) {
						if state, out := v.Table.Lookup("c1", 1); state != locktable.RequestExecuted || out.Status != cluster.StatusWaitTimeout {
							t.Errorf("its request is %v with %v", state, out.Status)
						}
					})
				}
			})
		})
	}
}

func TestPlaceLivesByKeepAlivesForPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		x.ok(acquire("holder", 1, "l", 0))
		ctx, leave := context.WithCancel(t.Context())
		go x.p.Do(ctx, acquire("c1", 1, "l", locktable.WaitForever)) //nolint:errcheck // what becomes of its place is looked at
		time.Sleep(100 * time.Millisecond)
		leave()
		for range 12 {
			time.Sleep(20 * time.Second)
			x.keepAlive("holder", 1)
			x.keepPlaces("c1")
		}
		if queue := x.queue("l"); !slices.Equal(queue, []cluster.ClientID{"c1"}) {
			t.Errorf("in the queue: %v", queue)
		}
	})
}

// A client that could not cancel a request lets its low-water mark pass it.
func TestPlacesBelowTheMarkEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("holder", 1, "l", 0))
		given := x.later(acquire("c1", 1, "l", locktable.WaitForever))
		next := x.later(acquire("c2", 1, "l", locktable.WaitForever))
		q := acquire("c1", 2, "other", 0)
		q.LowWater = 2
		x.ok(q)
		synctest.Wait()
		select {
		case out := <-given:
			if out.Status != cluster.StatusCancelled {
				t.Errorf("who still waits below the mark is told %v", out.Status)
			}
		default:
			t.Error("the request below the mark waits on")
		}
		if queue := x.queue("l"); !slices.Equal(queue, []cluster.ClientID{"c2"}) {
			t.Errorf("in the queue: %v", queue)
		}
		x.ok(release("holder", 2, "l", g.Token))
		if out := <-next; out.Status != cluster.StatusOK {
			t.Errorf("the next one: %v", out.Status)
		}
	})
}

func TestNewTermCountsLeasesAndPlacesAfresh(t *testing.T) {
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
		y.read(func(v serving.View) {
			if v.Heard("c1") {
				t.Error("a client counts as heard that has not spoken in this term")
			}
		})
		y.keepAlive("c1", 1)
		y.read(func(v serving.View) {
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

// TestRepeatsOfAWaitAreBounded: the oldest is answered, and who waits gets the lock.
func TestRepeatsOfAWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c0", 1, "l", 0))
		var all []<-chan locktable.Outcome
		for range 40 {
			all = append(all, x.later(acquire("c1", 1, "l", locktable.WaitForever)))
			synctest.Wait()
		}
		x.ok(release("c0", 2, "l", g.Token))
		unknown := 0
		for i, answer := range all {
			switch out := <-answer; {
			case out.Status == cluster.StatusUnknown && i < 24:
				unknown++
			case out.Status != cluster.StatusOK || i < 24:
				t.Errorf("repeat %d: %v", i, out.Status)
			}
		}
		if unknown != 24 {
			t.Errorf("%d were told to ask again, want all but 16", unknown)
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

func TestHeldNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h, _ := watched(t, cluster.Timing{})
		defer x.end() //nolint:errcheck // it is stopped
		var losses []watch.Loss
		defer h.Losses("c1", 0, func(l []watch.Loss) { losses = append(losses, l...) })()
		q := acquire("c1", 1, "l", 0)
		q.TTL, q.MaxHold = 10*time.Second, 45*time.Second
		g := x.ok(q)
		waits := x.later(acquire("c2", 1, "l", locktable.WaitForever))
		for range 8 {
			time.Sleep(5 * time.Second)
			x.keepAlive("c1", 1)
		}
		x.unanswered(waits, "before the most that it may be held")
		if out, err := x.p.Renew(t.Context(), "l", g.Token); err != nil || out.TTL > 5*time.Second || out.TTL < 4*time.Second || out.HoldLeft != out.TTL {
			t.Errorf("a renewal near the end: %v left, %v of the most it may, %v", out.TTL, out.HoldLeft, err)
		}
		time.Sleep(5100 * time.Millisecond)
		if out := <-waits; out.Status != cluster.StatusOK {
			t.Errorf("the waiter: %v", out.Status)
		}
		h.Flush()
		if len(losses) != 1 || losses[0].Ended.GetReason() != pb.LossReason_LOSS_REASON_EXPIRED || losses[0].Ended.GetMessage() != "it was held for 45s, the most it may" {
			t.Errorf("told %v", losses)
		}
	})
}

// A repeated Acquire, and the Cancel of one that was granted, tell how long the grant lives
// if nothing else is heard.
func TestRepeatedAcquireTellsWhatIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*locktable.Request)
		want   time.Duration
	}{
		"renewed by the repeat": {func(*locktable.Request) {}, 10 * time.Second},
		"max hold":              {func(q *locktable.Request) { q.MaxHold = 10 * time.Second }, 2 * time.Second},
		"longer max hold":       {func(q *locktable.Request) { q.MaxHold = 15 * time.Second }, 7 * time.Second},
		"heartbeat":             {func(q *locktable.Request) { q.Heartbeat = true }, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end() //nolint:errcheck // it is stopped
				ask := func() *locktable.Request {
					q := acquire("c1", 1, "l", 0)
					q.TTL = 10 * time.Second
					test.change(q)
					return q
				}
				if out := x.ok(ask()); out.TTL != 10*time.Second {
					t.Errorf("the grant tells %v", out.TTL)
				}
				time.Sleep(8 * time.Second)
				out := x.ok(ask())
				if !out.Repeat || out.TTL > test.want || out.TTL < test.want-leaseLate {
					t.Errorf("the repeat tells a lease of %v, want %v", out.TTL, test.want)
				}
				if c := x.ok(&locktable.Request{Op: locktable.OpCancel, Client: "c1", Target: 1}); c.TTL > out.TTL || c.Token != out.Token {
					t.Errorf("a cancel tells %v of token %d, the repeat %v", c.TTL, c.Token, out.TTL)
				}
				waits, began := x.later(acquire("c2", 1, "l", locktable.WaitForever)), time.Now()
				if next := <-waits; next.Status != cluster.StatusOK || time.Since(began) < out.TTL {
					t.Errorf("another has it %v after the repeat told %v: %v", time.Since(began), out.TTL, next.Status)
				}
			})
		})
	}
}

// leaseLate is by how much a lease may be told shorter than it is.
const leaseLate = 50 * time.Millisecond

// TestOnlyHeartbeatsRenew a lease that asks for them: keep-alives of its client do not.
func TestOnlyHeartbeatsRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		q := acquire("c1", 1, "hung", 0)
		q.TTL, q.Heartbeat = 10*time.Second, true
		hung := x.ok(q)
		q = acquire("c1", 2, "works", 0)
		q.TTL, q.Heartbeat = 10*time.Second, true
		works := x.ok(q)
		plain := x.ok(acquire("c1", 3, "plain", 0))
		beat := func(x *term) {
			t.Helper()
			time.Sleep(4 * time.Second)
			x.keepAlive("c1", -1)
			if out, err := x.p.Renew(t.Context(), "works", works.Token); err != nil || out.Status != cluster.StatusOK || out.TTL != 10*time.Second {
				t.Errorf("a heartbeat: %+v, %v", out, err)
			}
		}
		beat(x)
		beat(x)
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		beat(y)
		if _, live := y.remaining("hung", hung.Token); !live {
			t.Error("the new term did not count the lease afresh")
		}
		for range 4 {
			beat(y)
		}
		if _, live := y.remaining("hung", hung.Token); live {
			t.Error("keep-alives renewed it")
		}
		for _, g := range []locktable.Outcome{works, plain} {
			if _, live := y.remaining(g.Lock, g.Token); !live {
				t.Errorf("lock %s was lost", g.Lock)
			}
		}
	})
}

// TestAdoptedGrantMayBeHeldAsLongAgain: the most it may be held is counted afresh.
func TestAdoptedGrantMayBeHeldAsLongAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		q := acquire("c1", 1, "l", 0)
		q.MaxHold = 40 * time.Second
		g := x.ok(q)
		time.Sleep(25 * time.Second)
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		for range 7 {
			time.Sleep(5 * time.Second)
			y.keepAlive("c1", 1)
		}
		if _, live := y.remaining("l", g.Token); !live {
			t.Error("ended too early")
		}
		time.Sleep(5100 * time.Millisecond)
		if _, live := y.remaining("l", g.Token); live {
			t.Error("not ended")
		}
	})
}

// Who has left the queue's front end is not heard when its place is granted: that would
// renew all that it holds.
func TestGrantToWhoHasLeftRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		own := x.ok(acquire("c2", 1, "own", 0))
		x.within(time.Second, acquire("c2", 2, "l", locktable.WaitForever)) //nolint:errcheck // it gives up
		time.Sleep(20 * time.Second)
		before, _ := x.remaining("own", own.Token)
		x.ok(release("c1", 2, "l", g.Token))
		after, live := x.remaining("own", own.Token)
		if !live || after > before {
			t.Errorf("a lease with %v left has %v after a grant that nobody waited for", before, after)
		}
		if x.queue("l") != nil {
			t.Error("the place is not granted")
		}
	})
}

// The log says of a lease that ended how long ago its client was heard, and whether this server's
// own timers were late meanwhile; and of a renewal that came afterwards, by how much.
func TestLogSaysWhoseTimerWasLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()                      //nolint:errcheck // it is stopped
		x.ok(acquire("c1", 1, "first", 0)) // for 30 s
		time.Sleep(35 * time.Second)
		if lines := x.log.having(`"lock":"first"`); len(lines) != 1 || !strings.Contains(lines[0], `"heard_ago":300`) || !strings.Contains(lines[0], `"own_timer_late_by":0`) {
			t.Errorf("of a client that was silent: %q", lines)
		}
		x.keepAlive("c1", 1)
		x.keepAlive("c1", 1)
		if lines := x.log.having("keep-alive came after"); len(lines) != 1 || !strings.Contains(lines[0], `"client":"c1","late_by":4`) {
			t.Errorf("of its late renewal: %q", lines)
		}
		x.ok(acquire("c2", 1, "second", 0))
		time.Sleep(10 * time.Second)
		x.p.TimerLate(time.Now(), 1500*time.Millisecond)
		time.Sleep(25 * time.Second)
		if lines := x.log.having(`"lock":"second"`); len(lines) != 1 || !strings.Contains(lines[0], `"own_timer_late_by":1500`) {
			t.Errorf("beside a late timer: %q", lines)
		}
		g := x.ok(acquire("c3", 1, "third", 0))
		x.ok(release("c3", 2, "third", g.Token))
		x.keepAlive("c3", 1)
		if lines := x.log.having("keep-alive came after"); len(lines) != 1 {
			t.Errorf("of a renewal of what was released: %q", lines)
		}
	})
}

// A request that raises its client's low-water mark takes the client's own place ahead of it
// out. Where that very place was what it had to wait for, it is granted at once, and has to
// be told so.
func TestARequestThatGivesUpThePlaceAheadOfItIsToldItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.ok(share("r", 1, "l", 0))
		given := x.later(acquire("c", 1, "l", time.Minute)) // waits to have it alone
		q := share("c", 5, "l", time.Minute)
		q.LowWater = 5
		out := x.do(q)
		if out.Status != cluster.StatusOK || out.Token == 0 {
			held := 0
			x.read(func(v serving.View) { held = v.Table.HeldBy("c") })
			t.Errorf("told %v %q; it holds %d locks", out.Status, out.Message, held)
		}
		if o := <-given; o.Status != cluster.StatusCancelled {
			t.Errorf("the place given up is told %v", o.Status)
		}
	})
}

// TestExtendedLeaseLastsLonger, over a failover too, and not beyond its longest time.
func TestExtendedLeaseLastsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		q := acquire("c1", 1, "l", 0)
		q.TTL, q.MaxHold = 10*time.Second, 50*time.Second
		g := x.ok(q)
		extend := func(id cluster.RequestID, ttl time.Duration) *locktable.Request {
			return &locktable.Request{Op: locktable.OpExtend, Client: "c1", ID: id, Lock: "l", Token: g.Token, TTL: ttl}
		}
		x.p.SetLevel(2)
		x.sees(extend(2, 30*time.Second), cluster.StatusInvalidArgument)
		x.p.SetLevel(3)
		time.Sleep(8 * time.Second)
		if out := x.ok(extend(2, 30*time.Second)); out.TTL != 30*time.Second || out.Repeat {
			t.Errorf("extended after 8 s: %+v", out)
		}
		time.Sleep(8 * time.Second)
		if out := x.ok(extend(2, 30*time.Second)); out.TTL != 30*time.Second || !out.Repeat {
			t.Errorf("a repeat, which renews: %+v", out)
		}
		time.Sleep(12 * time.Second)
		if out, err := x.p.Renew(t.Context(), "l", g.Token); err != nil || out.TTL > 22*time.Second || out.TTL < 21*time.Second {
			t.Errorf("a renewal after 28 s of 50: %v left, %v", out.TTL, err)
		}
		if out := x.ok(extend(3, 40*time.Second)); out.TTL > 22*time.Second || out.TTL < 21*time.Second {
			t.Errorf("an extension tells more than is left of the longest time: %v", out.TTL)
		}
		x.sees(extend(4, 51*time.Second), cluster.StatusInvalidArgument)
		x.sees(extend(4, 39*time.Second), cluster.StatusInvalidArgument)
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		time.Sleep(39 * time.Second)
		if left, live := y.remaining("l", g.Token); !live || left > time.Second {
			t.Errorf("39 s after a failover: %v left of 40 s, live %v", left, live)
		}
		time.Sleep(1100 * time.Millisecond)
		if _, live := y.remaining("l", g.Token); live {
			t.Error("the lease has not ended after its TTL")
		}
	})
}
