// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const day = 24 * time.Hour

// after is a try for the lock, if nobody had it since it was granted under a token.
func after(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token) *locktable.Request {
	q := acquire(client, id, lock, 0)
	q.After = token
	return q
}

// TestMarksNeedTheirLevel: below it, nothing is remembered of a lock.
func TestMarksNeedTheirLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.MarksLevel - 1); err != nil {
			t.Fatal(err)
		}
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		q := acquire("a", 1, "l", 0)
		q.Remember = true
		x.sees(q, cluster.StatusInvalidArgument)
		x.sees(after("a", 2, "l", 1), cluster.StatusInvalidArgument)
		if out, err := x.p.Raise(t.Context(), locktable.MarksLevel); err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("raised: %v, %v", out, err)
		}
		x.ok(q)
	})
}

// TestMarksOutliveTheirTerm: a lock remembers its last token over failovers, for 90 days of one term.
func TestMarksOutliveTheirTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, jumps := newDisk(t), make(chan primary.Jump)
		x := serve(t, d, 1, primary.Options{})
		q := acquire("a", 1, "l", 0)
		q.Remember = true
		first := x.ok(q).Token
		x.ok(release("a", 2, "l", first))
		x.kill()
		y := serve(t, d, 2, primary.Options{Jumps: jumps})
		defer y.end() //nolint:errcheck // it is stopped
		second := y.ok(after("a", 3, "l", first)).Token
		y.ok(release("a", 4, "l", second))
		y.sees(after("b", 1, "l", first), cluster.StatusLockChanged)
		other := acquire("a", 5, "old", 0)
		other.Remember = true
		y.ok(release("a", 6, "old", y.ok(other).Token))
		jump := func(by time.Duration, want int) {
			t.Helper()
			jumps <- primary.Jump{By: by}
			time.Sleep(time.Second)
			y.read(func(v serving.View) {
				if n := v.Table.MarkCount(); n != want {
					t.Errorf("after %v more, %d locks remember something, want %d", by, n, want)
				}
			})
		}
		jump(3*day, 2)
		second = y.ok(after("a", 7, "l", second)).Token
		y.ok(release("a", 8, "l", second))
		jump(86*day, 2)
		jump(4*day, 1)
		y.sees(after("b", 2, "old", 1), cluster.StatusLockChanged)
		y.ok(after("b", 3, "l", second))
	})
}

// TestOnceAfterACrash: what is done is done for all that wait, also in the next term; who fails leaves it to the next one. A holder
// whose lease has ended marks nothing.
func TestOnceAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		once := func(client cluster.ClientID, id cluster.RequestID, slot cluster.Slot) *locktable.Request {
			q := acquire(client, id, "l", locktable.WaitForever)
			q.Slot = slot
			return q
		}
		done := func(client cluster.ClientID, id cluster.RequestID, token cluster.Token) *locktable.Request {
			q := release(client, id, "l", token)
			q.Done = true
			return q
		}
		first := x.ok(once("a", 1, "1")).Token
		b, c, e := x.later(once("b", 1, "1")), x.later(once("c", 1, "1")), x.later(once("e", 1, "2"))
		time.Sleep(31 * time.Second) // a is gone
		second := <-b
		if second.Status != cluster.StatusOK {
			t.Fatalf("the next one: %+v", second)
		}
		x.sees(done("a", 2, first), cluster.StatusInvalidToken)
		x.ok(done("b", 2, second.Token))
		if out := <-c; out.Status != cluster.StatusAlreadyDone {
			t.Errorf("who waits for what is done: %+v", out)
		}
		third := <-e
		if third.Status != cluster.StatusOK {
			t.Errorf("who waits for the next slot: %+v", third)
		}
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		if out := y.ok(done("b", 2, second.Token)); !out.Repeat {
			t.Errorf("a repeat: %+v", out)
		}
		y.sees(once("c", 1, "1"), cluster.StatusAlreadyDone)
		y.sees(once("d", 1, "1"), cluster.StatusAlreadyDone)
		y.ok(done("e", 2, third.Token))
		y.sees(once("d", 2, "2"), cluster.StatusAlreadyDone)
	})
}
