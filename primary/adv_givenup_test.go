// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A request that raises its client's low-water mark takes the client's own place ahead of it
// out. Where that very place was what it had to wait for, it is granted at once, and has to
// be told so.
func TestAdvARequestThatGivesUpThePlaceAheadOfItIsToldItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		x.ok(share("r", 1, "l", 0))
		given := x.later(acquire("c", 1, "l", 60e9)) // waits to have it alone
		q := share("c", 5, "l", 60e9)
		q.LowWater = 5
		out := x.do(q)
		if out.Status != cluster.StatusOK || out.Token == 0 {
			held := 0
			x.read(func(v primary.View) { held = v.Table.HeldBy("c") })
			t.Errorf("told %v %q; it holds %d locks", out.Status, out.Message, held)
		}
		if o := <-given; o.Status != cluster.StatusCancelled {
			t.Errorf("the place given up is told %v", o.Status)
		}
	})
}
