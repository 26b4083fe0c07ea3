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

// taken wants so many of the requests to go on now, and the last of them after a time.
func taken(t *testing.T, u *Usage, who string, l *access.Limits, sizes []int, want int, last time.Duration) {
	t.Helper()
	n, wait := u.take(who, l, sizes, time.Now())
	if n != want {
		t.Errorf("%s: %d of %d go on, want %d", who, n, len(sizes), want)
	}
	if n < len(sizes) && wait(len(sizes)-1).Round(time.Millisecond) != last {
		t.Errorf("%s: the last one may come in %v, want %v", who, wait(len(sizes)-1), last)
	}
}

// TestRates: each identity has a second's worth at once, and then its rate; each request that is too much comes after the one before it.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, ten := &Usage{}, &access.Limits{Requests: 10}
		taken(t, u, "a", ten, make([]int, 15), 10, 500*time.Millisecond)
		taken(t, u, "a", ten, make([]int, 1), 0, 100*time.Millisecond)
		taken(t, u, "b", ten, make([]int, 10), 10, 0)
		time.Sleep(500 * time.Millisecond)
		taken(t, u, "a", ten, make([]int, 6), 5, 100*time.Millisecond)
		time.Sleep(time.Hour)
		taken(t, u, "a", ten, make([]int, 11), 10, 100*time.Millisecond)
		taken(t, u, "a", ten, make([]int, 1000), 0, maxWait)
		more := &access.Limits{Requests: 1000} // other rules
		time.Sleep(time.Second)
		taken(t, u, "a", more, make([]int, 1001), 10, 991*time.Millisecond)
		time.Sleep(time.Second)
		taken(t, u, "a", more, make([]int, 1001), 1000, time.Millisecond)
	})
}

// TestRateOfBytes: one append of the largest size always goes on, and what appends nothing is not held up.
func TestRateOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, l := &Usage{}, &access.Limits{AppendBytes: cluster.MaxAppend / 4}
		taken(t, u, "a", l, []int{0, cluster.MaxAppend, 0}, 3, 0)
		taken(t, u, "a", l, []int{0, 1, 0}, 1, minWait)
		taken(t, u, "a", l, []int{cluster.MaxAppend / 2}, 0, 2*time.Second)
		time.Sleep(2 * time.Second)
		taken(t, u, "a", l, []int{cluster.MaxAppend / 2, cluster.MaxAppend / 4}, 1, time.Second)
		both := &access.Limits{AppendBytes: cluster.MaxAppend / 4, Requests: 2}
		time.Sleep(time.Hour)
		taken(t, u, "a", both, []int{1, 1, 1}, 2, 500*time.Millisecond)
		time.Sleep(time.Hour) // what the bytes refuse is no request
		taken(t, u, "a", both, []int{cluster.MaxAppend, 1}, 1, minWait)
		taken(t, u, "a", both, []int{0}, 1, 0)
	})
}

// TestUsageIsForgotten: identities that use nothing go where there are many, and no others.
func TestUsageIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, l := &Usage{}, &access.Limits{Requests: 1}
		if !u.enterSession("sits", "s", 1) || u.enterSession("sits", "t", 1) || !u.enterWatch("looks", 1) || u.enterWatch("looks", 1) {
			t.Error("one and no more")
		}
		for i := range 20 * fewUsers {
			taken(t, u, fmt.Sprint(i), l, make([]int, 1), 1, 0)
			if time.Sleep(10 * time.Millisecond); len(u.all) > 2*fewUsers {
				t.Fatalf("%d are remembered", len(u.all))
			}
		}
		taken(t, u, "busy", l, make([]int, 1), 1, 0)
		for i := range 50 * fewUsers {
			u.of(fmt.Sprint("x", i), time.Now())
		}
		taken(t, u, "busy", l, make([]int, 1), 0, time.Second)
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
