// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// The words of the serving clock.
const (
	Tick     = tick
	Lateness = lateness
)

// ServingClock is the clock that deadlines are counted on.
type ServingClock = servingClock

// Advance moves the clock.
func (c *ServingClock) Advance(now time.Time, stalled bool) time.Duration {
	return c.advance(now, stalled)
}

// KeptAfterPolls is what the core loop keeps when clients that are in no record
// are heard once a second for a number of rounds.
func KeptAfterPolls(clients, rounds int) (heard, timers int) {
	p := &Primary{opt: Options{Timing: cluster.DefaultTiming()}}
	c := newCore(p, locktable.New(), wal.Position{})
	for round := range rounds {
		c.now = time.Duration(round) * time.Second
		for i := range clients {
			c.hear(cluster.ClientID(fmt.Sprintf("c%d", i)))
		}
		c.sweep()
	}
	return len(c.heard), len(c.timers)
}

// KeptAfterGrants is what the core loop keeps when one client takes and
// releases a lock many times.
func KeptAfterGrants(n int) (leases, timers int) {
	p := &Primary{opt: Options{Timing: cluster.DefaultTiming()}}
	c := newCore(p, locktable.New(), wal.Position{})
	for range n {
		q := &locktable.Request{Op: locktable.OpAcquire, Client: "~c", ID: 1, Lock: "l", TTL: time.Minute}
		grant := q
		recs, d := c.table.Decide(grant, 1, locktable.FileFacts{}, nil)
		c.apply(recs, nil)
		recs, _ = c.table.Decide(&locktable.Request{Op: locktable.OpRelease, Client: "~r", ID: 1, Lock: "l", Token: d.Outcome.Token}, 1, locktable.FileFacts{}, nil)
		c.apply(recs, nil)
		c.cur.reset(c.cur.End())
		c.sweep()
	}
	return len(c.leases), len(c.timers)
}
