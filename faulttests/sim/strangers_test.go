// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// TestStrangersOverFailovers has strangers try all that they can with the IDs and tokens of clients,
// while primaries crash, come back from the log and from warm tables, and hand over. Every request
// of a client is executed once all the same, and none of a stranger.
func TestStrangersOverFailovers(t *testing.T) {
	const rounds = 12
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			disk := volumetest.New(seed)
			s := newScenario(t, disk, volumetest.ProfileLocal())
			s.Random = chacha(seed)
			if _, err := volume.Init(t.Context(), disk.Host(9, s.Profile), Members(), chacha(seed+1)); err != nil {
				t.Fatal(err)
			}
			s.Pace, s.Clocks, s.Strangers = pace, seed, true
			c := startCluster(t, s, seed, rounds)
			c.one(t, "start")
			time.Sleep(2 * time.Second)
			c.Kill(1)
			second, _ := c.one(t, "server 1 crashed")
			time.Sleep(2 * time.Second)
			if err := c.Start(1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			c.Terminate(second)
			c.one(t, "a handover")
			if err := c.Start(second); err != nil {
				t.Fatal(err)
			}
			c.finish(t, rounds)
			if n := c.denied.Load(); n < 3*rounds*4*3 {
				t.Errorf("seed %d: only %d requests of strangers were refused", seed, n)
			}
		})
	}
}
