// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// allows wants so many of the requests to go on now, and the last of them after a time.
func allows(t *testing.T, u *Usage, who string, l *access.Limits, sizes []int, want int, last time.Duration) {
	t.Helper()
	x := u.take(who, l, sizes, nil, time.Now())
	if x.now != want {
		t.Errorf("%s: %d of %d go on, want %d", who, x.now, len(sizes), want)
	}
	bytes := int64(0)
	for _, n := range sizes[x.now:] {
		bytes += int64(n)
	}
	if wait := advised(x.after(len(sizes)-x.now, bytes)); x.now < len(sizes) && wait.Round(time.Millisecond) != last {
		t.Errorf("%s: the last one may come in %v, want %v", who, wait, last)
	}
}

// TestRates: each identity has a second's worth at once, and then its rate; each request that is too much comes after the one before it.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, ten := &Usage{}, &access.Limits{Requests: 10}
		allows(t, u, "a", ten, make([]int, 15), 10, 500*time.Millisecond)
		allows(t, u, "a", ten, make([]int, 1), 0, 100*time.Millisecond)
		allows(t, u, "b", ten, make([]int, 10), 10, 0)
		time.Sleep(500 * time.Millisecond)
		allows(t, u, "a", ten, make([]int, 6), 5, 100*time.Millisecond)
		time.Sleep(time.Hour)
		allows(t, u, "a", ten, make([]int, 11), 10, 100*time.Millisecond)
		allows(t, u, "a", ten, make([]int, 1000), 0, maxWait)
		more := &access.Limits{Requests: 1000} // other rules
		time.Sleep(time.Second)
		allows(t, u, "a", more, make([]int, 1001), 10, 991*time.Millisecond)
		time.Sleep(time.Second)
		allows(t, u, "a", more, make([]int, 1001), 1000, time.Millisecond)
	})
}

// TestRateOfBytes: one append of the largest size always goes on, and what appends nothing is not held up.
func TestRateOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, l := &Usage{}, &access.Limits{AppendBytes: cluster.MaxAppend / 4}
		allows(t, u, "a", l, []int{0, cluster.MaxAppend, 0}, 3, 0)
		allows(t, u, "a", l, []int{0, 1, 0}, 1, minWait)
		allows(t, u, "a", l, []int{cluster.MaxAppend / 2}, 0, 2*time.Second)
		time.Sleep(2 * time.Second)
		allows(t, u, "a", l, []int{cluster.MaxAppend / 2, cluster.MaxAppend / 4}, 1, time.Second)
		both := &access.Limits{AppendBytes: cluster.MaxAppend / 4, Requests: 2}
		time.Sleep(time.Hour)
		allows(t, u, "a", both, []int{1, 1, 1}, 2, 500*time.Millisecond)
		time.Sleep(time.Hour) // what the bytes refuse is no request
		allows(t, u, "a", both, []int{cluster.MaxAppend, 1}, 1, minWait)
		allows(t, u, "a", both, []int{0}, 1, 0)
	})
}

// remembered returns how many identities are remembered.
func remembered(u *Usage) (n int) {
	u.all.Range(func(any, any) bool { n++; return true })
	return n
}

// TestUsageIsForgotten: identities that use nothing go where there are many, and no others.
func TestUsageIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, l := &Usage{}, &access.Limits{Requests: 1}
		if !u.enterSession("sits", "s", 1) || u.enterSession("sits", "t", 1) || !u.enterWatch("looks", 1) || u.enterWatch("looks", 1) {
			t.Error("one and no more")
		}
		for i := range 20 * fewUsers {
			allows(t, u, fmt.Sprint(i), l, make([]int, 1), 1, 0)
			if time.Sleep(10 * time.Millisecond); i%fewUsers == 0 && remembered(u) > 2*fewUsers {
				t.Fatalf("%d are remembered", remembered(u))
			}
		}
		allows(t, u, "busy", l, make([]int, 1), 1, 0)
		for i := range 50 * fewUsers {
			u.lock(fmt.Sprint("x", i), time.Now()).mu.Unlock()
		}
		allows(t, u, "busy", l, make([]int, 1), 0, time.Second)
		if u.enterSession("sits", "t", 1) || u.enterWatch("looks", 1) {
			t.Error("a session or a watch was forgotten")
		}
		u.leaveSession("sits", "s")
		u.leaveWatch("looks")
		if !u.enterSession("sits", "t", 1) || !u.enterWatch("looks", 1) {
			t.Error("a place is not free again")
		}
	})
}

// besideOneTooFast returns a service at which one caller is over its rate, and whose request is held for as long as the test runs; another
// one has no limits, and a third one a rate that it does not reach.
func besideOneTooFast(tb testing.TB) (s *Service, over, free, within *access.Caller) {
	tb.Helper()
	rules, err := access.Compile(&access.File{
		Rules: []access.Rule{{Who: []string{"*"}, May: []access.Verb{access.Read}, Locks: []string{"**"}}},
		Quotas: []access.Quota{
			{Who: []string{"user:over"}, Limits: map[string]any{"requests_per_s": int64(1)}},
			{Who: []string{"user:within"}, Limits: map[string]any{"requests_per_s": int64(1 << 40), "append_bytes_per_s": int64(1 << 40)}},
		},
	}, 1)
	if err != nil {
		tb.Fatal(err)
	}
	x := &holding{}
	x.rules.Store(rules)
	s = &Service{opt: Options{Authenticator: x, Usage: &Usage{}, MaxHold: time.Hour}}
	over, free, within = caller("over"), caller("free"), caller("within")
	p, held := s.Permission(over, nil), make(chan struct{})
	p.Take([]int{0}, &Held{})
	p.Take([]int{0, 0}, &Held{Proceed: func(int, int) { <-held }})
	tb.Cleanup(func() { close(held) })
	if !s.opt.Usage.heldOf(over.Name()) {
		tb.Fatal("nothing is held")
	}
	return s, over, free, within
}

// TestOthersPayNothing while one identity is over its rate: who has no limits, or is within them, allocates nothing, and takes no mutex that
// another identity has.
func TestOthersPayNothing(t *testing.T) {
	s, over, free, within := besideOneTooFast(t)
	u := s.opt.Usage
	for _, who := range []*access.Caller{free, within} {
		p := s.Permission(who, nil)
		ask := func() {
			if !p.TakeAll(3, 100) {
				t.Errorf("%s may not go on", who.Name())
			}
			if waited, err := p.await(t.Context(), 0); waited || err != nil {
				t.Errorf("%s waits: %v, %v", who.Name(), waited, err)
			}
		}
		ask() // it is known from now on
		x := u.lock(over.Name(), time.Now())
		u.mu.Lock()
		done := make(chan float64, 1)
		go func() { done <- testing.AllocsPerRun(100, ask) }()
		select {
		case n := <-done:
			if n > 0 {
				t.Errorf("%s allocates %v times", who.Name(), n)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s waits for a mutex", who.Name())
		}
		u.mu.Unlock()
		x.mu.Unlock()
		if p := s.Permission(who, nil); p.Boundless() != (who == free) {
			t.Errorf("%s: %v", who.Name(), p.Boundless())
		}
	}
}

// BenchmarkBesideOneTooFast measures the admission of others while one identity is over its rate.
func BenchmarkBesideOneTooFast(b *testing.B) {
	s, _, free, within := besideOneTooFast(b)
	for name, who := range map[string]*access.Caller{"without limits": free, "within limits": within} {
		b.Run(name, func(b *testing.B) {
			p := s.Permission(who, nil)
			b.ReportAllocs()
			for b.Loop() {
				if !p.TakeAll(1, 0) {
					b.Fatal("it may not go on")
				}
			}
		})
	}
}
