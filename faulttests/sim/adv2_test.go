// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The word of a primary that has resigned, which comes when somebody else has long reigned.
func TestAdvLateNominationEndsNoHealthyReign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		first, _ := c.one(t, "start")
		old := c.epoch()
		time.Sleep(time.Second)
		to, err := c.server(first).node.Handover(t.Context(), 2)
		if err != nil || to != 2 {
			t.Fatal(to, err)
		}
		time.Sleep(20 * time.Second)
		id, _ := c.one(t, "after the handover")
		before := c.epoch()
		err = c.server(3).node.HandleHandover(cluster.Epoch(old - 1)) // 20 s late
		time.Sleep(10 * time.Second)
		now, _ := c.one(t, "afterwards")
		t.Logf("server %d reigned in epoch %d; the word of epoch %d came (%v); server %d reigns in epoch %d", id, before-1, old-1, err, now, c.epoch()-1)
		if now != id || c.epoch() != before {
			t.Errorf("a healthy reign was ended by a word that is older than it")
		}
		c.End()
		c.Shutdown()
	})
}
