// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// quotas are rules that a test changes.
type quotas struct {
	t     *testing.T
	rules atomic.Pointer[access.Rules]
}

func newQuotas(t *testing.T, all ...access.Quota) *quotas {
	q := &quotas{t: t}
	q.set(all...)
	return q
}

func (q *quotas) set(all ...access.Quota) {
	r, err := access.Compile(&access.File{Quotas: all}, q.rules.Load().Version()+1)
	if err != nil {
		q.t.Fatal(err)
	}
	q.rules.Store(r)
}

// each is a quota of each identity, and below one of a prefix.
func each(name string, most int64) access.Quota {
	return access.Quota{Who: []string{"*"}, Limits: map[string]any{name: most}}
}

func below(prefix, name string, most int64) access.Quota {
	return access.Quota{Prefix: prefix, Limits: map[string]any{name: most}}
}

// as has a request come from user:NAME, limited as front ends do it.
func (q *quotas) as(name string, r *locktable.Request) *locktable.Request {
	r.Identity = "user:" + name
	if l := q.rules.Load().Limits(&access.Caller{Identity: r.Identity}); l != nil {
		r.MostLocks, r.MostWaits = l.Locks, l.Waiters
	}
	return r
}

// agrees wants the counts to be those of the table.
func (x *term) agrees() {
	x.t.Helper()
	x.read(func(v serving.View) {
		if err := v.Quotas(); err != nil {
			x.t.Error(err)
		}
	})
}

// TestQuotaOfLocks: an identity has so many locks, counted with the places it waits in, and others theirs. What was executed before gets its
// answer, whatever the quota says now, and who has too many may renew and release.
func TestQuotaOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuotas(t, each("locks", 2))
		x := serve(t, newDisk(t), 1, primary.Options{Rules: q.rules.Load})
		defer x.end() //nolint:errcheck // it is stopped
		b := x.ok(q.as("bob", acquire("b", 1, "held", 0)))
		first := x.ok(q.as("al", acquire("a", 1, "l1", 0)))
		waits := x.later(q.as("al", acquire("a", 2, "held", time.Hour)))
		out := x.sees(q.as("al", acquire("a2", 1, "l2", 0)), cluster.StatusLimited)
		if out.TTL != 0 || !strings.Contains(out.Message, "user:al holds 1 locks and waits for 1: its quota is 2") || !strings.Contains(out.Message, "(access version 1)") {
			t.Errorf("%+v", out)
		}
		x.ok(q.as("bob", acquire("b", 2, "l2", 0)))
		x.sees(q.as("bob", acquire("b", 3, "l3", 0)), cluster.StatusLimited)
		x.sees(q.as("bob", acquire("b", 4, "held", 0)), cluster.StatusHeld) // that is why, and not the quota

		q.set(each("locks", 1)) // fewer than it has
		if again := x.ok(q.as("al", acquire("a", 1, "l1", 0))); !again.Repeat || again.Token != first.Token {
			t.Errorf("a repeat: %+v", again)
		}
		if out, err := x.p.Renew(serving.WithCaller(t.Context(), &access.Caller{Identity: "user:al"}), "l1", first.Token); err != nil || out.Status != cluster.StatusOK {
			t.Errorf("a renewal: %+v, %v", out, err)
		}
		x.unanswered(waits, "and it waits in a place that it had")
		x.ok(q.as("bob", release("b", 5, "held", b.Token)))
		if out := <-waits; out.Status != cluster.StatusOK {
			t.Errorf("%+v", out)
		}
		x.agrees()
		x.sees(q.as("al", acquire("a", 3, "l4", 0)), cluster.StatusLimited)
		x.ok(q.as("al", release("a", 4, "l1", first.Token)))
		x.sees(q.as("al", acquire("a", 3, "l4", 0)), cluster.StatusLimited)
		q.set()
		x.ok(q.as("al", acquire("a", 3, "l4", 0))) // the same request: its refusal is not remembered
		x.agrees()
	})
}

// TestQuotaOfWaiters: one more than may wait is refused, and may try.
func TestQuotaOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuotas(t, each("waiters", 1), below("p/", "waiters", 2), below("p/", "locks", 4))
		x := serve(t, newDisk(t), 1, primary.Options{Rules: q.rules.Load})
		defer x.end() //nolint:errcheck // it is stopped
		one, two := x.ok(q.as("bob", acquire("b", 1, "p/1", 0))), x.ok(q.as("bob", acquire("b", 2, "p/2", 0)))
		waits := x.later(q.as("al", acquire("a", 1, "p/1", time.Hour)))
		again := x.later(q.as("al", acquire("a", 1, "p/1", time.Hour))) // the same place
		if out := x.sees(q.as("al", acquire("a", 2, "p/2", time.Hour)), cluster.StatusLimited); !strings.Contains(out.Message, "user:al waits 1 times: its quota is 1 waiters") {
			t.Error(out.Message)
		}
		x.sees(q.as("al", acquire("a", 2, "p/2", 0)), cluster.StatusHeld)
		cas := x.later(q.as("ca", acquire("c", 1, "p/2", time.Hour)))
		if out := x.sees(q.as("di", acquire("d", 1, "p/2", time.Hour)), cluster.StatusLimited); !strings.Contains(out.Message, `below "p/"`) {
			t.Error(out.Message)
		}
		if out := x.sees(q.as("di", acquire("d", 2, "p/3", 0)), cluster.StatusLimited); !strings.Contains(out.Message, `below "p/", 2 locks are held and waited for 2 times`) {
			t.Error(out.Message)
		}
		x.ok(q.as("di", acquire("d", 2, "other", 0)))
		x.agrees()
		if out := x.do(q.as("ca", &locktable.Request{Op: locktable.OpCancel, Client: "c", Target: 1})); out.Status != cluster.StatusCancelled || (<-cas).Status != cluster.StatusCancelled {
			t.Errorf("%+v", out)
		}
		x.ok(q.as("bob", release("b", 3, "p/1", one.Token)))
		if out := <-waits; out.Status != cluster.StatusOK || (<-again).Token != out.Token {
			t.Errorf("%+v", out)
		}
		more := x.later(q.as("al", acquire("a", 3, "p/2", time.Hour)))
		x.unanswered(more, "though it waits for nothing else")
		x.ok(q.as("bob", release("b", 4, "p/2", two.Token)))
		<-more
		x.agrees()
	})
}

// TestQuotaOfBytes: an append that would make the files below a prefix too long is refused, and a shorter one goes on.
func TestQuotaOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		if err := d.Write("files/p/old", 0, []byte("eight...")); err != nil {
			t.Fatal(err)
		}
		q := newQuotas(t, below("p/", "file_bytes", 10))
		x := serve(t, d, 1, primary.Options{Rules: q.rules.Load})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c", 1, "l", 0))
		x.ok(appendTo("c", 2, "l", g.Token, "p/a", "12345"))
		x.ok(appendTo("c", 3, "l", g.Token, "other", "123456789012"))
		adopt := appendTo("c", 4, "l", g.Token, "p/old", "x")
		adopt.AdoptExisting = true
		out := x.sees(adopt, cluster.StatusLimited) // it has eight already
		if !strings.Contains(out.Message, `below "p/" have 5 bytes, and 8 more would be above the quota of 10`) {
			t.Error(out.Message)
		}
		x.ok(appendTo("c", 5, "l", g.Token, "p/b", "1234"))
		x.sees(appendTo("c", 6, "l", g.Token, "p/b", "12"), cluster.StatusLimited)
		x.ok(appendTo("c", 7, "l", g.Token, "p/b", "5"))
		x.sees(appendTo("c", 8, "l", g.Token, "p/b", "6"), cluster.StatusLimited)
		if out := x.ok(appendTo("c", 7, "l", g.Token, "p/b", "5")); !out.Repeat {
			t.Errorf("a repeat: %+v", out)
		}
		if content(d, "p/a")+content(d, "p/b") != "1234512345" {
			t.Errorf("%q, %q", content(d, "p/a"), content(d, "p/b"))
		}
		x.ok(unbind("c", 9, "l", g.Token, "p/a"))
		x.ok(appendTo("c", 8, "l", g.Token, "p/b", "6"))
		x.agrees()
	})
}

// TestQuotasAfterAFailover: the next term counts what it adopts, and so does one whose rules get quotas while it serves.
func TestQuotasAfterAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		q := newQuotas(t)
		x := serve(t, d, 1, primary.Options{Rules: q.rules.Load})
		const many = 5000 // more than one round counts
		done := make(chan locktable.Outcome, many)
		for i := range many {
			client, lock := cluster.ClientID(fmt.Sprint("a", i)), cluster.LockName(fmt.Sprint("p/", i))
			go func() { done <- x.do(q.as("al", acquire(client, 1, lock, 0))) }()
		}
		for range many {
			if out := <-done; out.Status != cluster.StatusOK {
				t.Fatal(out)
			}
		}
		waits := x.later(q.as("bob", acquire("b", 1, "p/1", time.Hour)))
		q.set(each("locks", many), below("p/", "waiters", 1))
		time.Sleep(time.Second)
		x.sees(q.as("al", acquire("z", 1, "l", 0)), cluster.StatusLimited)
		x.agrees()
		x.kill()
		<-waits
		y := serve(t, d, 2, primary.Options{Rules: q.rules.Load})
		defer y.end() //nolint:errcheck // it is stopped
		time.Sleep(100 * time.Millisecond)
		y.sees(q.as("al", acquire("z", 1, "l", 0)), cluster.StatusLimited)
		y.sees(q.as("ca", acquire("c", 1, "p/2", time.Hour)), cluster.StatusLimited)
		y.ok(q.as("bob", acquire("b", 2, "l", 0)))
		y.agrees()
	})
}
