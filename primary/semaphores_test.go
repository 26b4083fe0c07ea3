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

// permits asks for some of four permits, and waits for them.
func permits(client cluster.ClientID, id cluster.RequestID, weight uint32) *locktable.Request {
	q := acquire(client, id, "l", locktable.WaitForever)
	q.Permit = locktable.Permit{Limit: 4, Weight: weight}
	return q
}

// TestSemaphoresNeedTheirLevel: below it, no lock has a limit.
func TestSemaphoresNeedTheirLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.SemaphoresLevel - 1); err != nil {
			t.Fatal(err)
		}
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.sees(permits("a", 1, 1), cluster.StatusInvalidArgument)
		if out, err := x.p.Raise(t.Context(), locktable.SemaphoresLevel); err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("raised: %v, %v", out, err)
		}
		x.ok(permits("a", 1, 1))
	})
}

// TestSemaphoresOutliveTheirTerm: after a failover the holders have their permits, a repeat is told them, and permits whose leases end go to the
// first in line.
func TestSemaphoresOutliveTheirTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		first, second := x.ok(permits("a", 1, 1)).Token, x.ok(permits("b", 1, 2)).Token
		x.later(permits("c", 1, 3))
		x.later(permits("d", 1, 1))
		x.ok(acquire("e", 9, "other", 0)) // so the places are in the log, too
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		if out := y.ok(permits("b", 1, 2)); !out.Repeat || out.Token != second || out.Permit != (locktable.Permit{Limit: 4, Weight: 2}) {
			t.Errorf("a repeat: %+v", out)
		}
		try := permits("f", 1, 1)
		try.Wait = 0
		if out := y.sees(try, cluster.StatusHeld); out.Holder == nil || out.Holder.Taken != 3 || out.Holder.Permit.Limit != 4 || out.Holder.Token != first {
			t.Errorf("what is taken, with a queue: %+v", out.Holder)
		}
		other := permits("f", 2, 1)
		other.Permit.Limit = 5
		if out := y.sees(other, cluster.StatusOtherLimit); out.Permit.Limit != 4 {
			t.Errorf("another limit: %+v", out)
		}
		c, e := y.later(permits("c", 1, 3)), y.later(permits("d", 1, 1)) // their places are there
		y.ok(release("b", 2, "l", second))
		if out := <-c; out.Status != cluster.StatusOK || out.Permit.Weight != 3 {
			t.Errorf("the first in line: %+v", out)
		}
		began := time.Now()
		if out := <-e; out.Status != cluster.StatusOK || time.Since(began) < 20*time.Second {
			t.Errorf("the next one, when the lease of another permit has ended: %+v after %v", out, time.Since(began))
		}
		y.read(func(v serving.View) {
			if l, _ := v.Table.Lock("l"); l.Taken > l.Limit || l.Limit != 4 {
				t.Errorf("%+v", l)
			}
		})
	})
}
