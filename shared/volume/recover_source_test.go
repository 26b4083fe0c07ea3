// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/volume"
)

// A fenced primary goes on writing to its own log, longer than its successor's,
// which it never acknowledges. Then the successor's START is torn.
func TestRecoverPrefersTheHigherOfTwoLogsThatContradict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		old := begin(t, d, 1)
		old.fill(3)
		fresh := begin(t, d, 2)
		fresh.acquire("acked")
		old.fill(12) // late
		if err := old.r.Check(); err == nil {
			t.Fatal("the old primary is not fenced")
		}
		old.kill()
		fresh.kill()
		if err := write("epochs/0000000002/fence", volume.StartOffset+100, "x")(d); err != nil {
			t.Fatal(err)
		}
		plan := recovered(t, d, recovery())
		if plan.Complete || plan.End != fresh.table.LSN() || !strings.Contains(plan.Source, "epochs/0000000002") || !strings.Contains(strings.Join(plan.Lost, "\n"), "the log of epochs/0000000001 has besides, up to LSN 15") {
			t.Errorf("%+v", plan)
		}
		x := begin(t, d, 3)
		if _, ok := x.table.Lock("acked"); !ok {
			t.Error("what the newer reign acknowledged is lost")
		}
	})
}
