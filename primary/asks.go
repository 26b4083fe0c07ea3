// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// ask is the grace of a holder who was asked to let go. Like a lease it is counted
// afresh by each reign, so that a failover shortens nobody's.
type ask struct {
	lock  cluster.LockName
	token cluster.Token
	until time.Duration // on the serving clock
	place uint64
}

func askPlace(a *ask) *uint64 { return &a.place }

// countAsk begins to count a grace, in the place of one that was counted before.
func (c *core) countAsk(lock cluster.LockName, token cluster.Token, until time.Duration) {
	c.endAsk(token)
	a := &ask{lock: lock, token: token, until: until}
	c.asked[token] = a
	c.asks.add(a, until)
}

func (c *core) endAsk(token cluster.Token) {
	if a := c.asked[token]; a != nil {
		c.asks.remove(a)
		delete(c.asked, token)
	}
}

// lookAtAsk breaks the grant when the grace is over.
func (c *core) lookAtAsk(a *ask) {
	if a.until > c.now {
		c.asks.add(a, a.until)
		return
	}
	delete(c.asked, a.token)
	c.apply(c.table.DecideGrace(a.lock, a.token, c.p.Epoch(), c.recs[:0]), nil)
}

// grace is what is left to the holder of a grant who was asked to let go.
func (c *core) grace(token cluster.Token) time.Duration {
	if a := c.asked[token]; a != nil {
		return max(0, a.until-c.now)
	}
	return 0
}

// asksTo lists what holders of a client are asked.
func (c *core) asksTo(client cluster.ClientID) (asks []locktable.Ask) {
	if len(c.asked) == 0 {
		return nil
	}
	for a := range c.table.Asks() {
		if l := c.table.Lease(a.Lock, a.Token); l != nil && l.Client().ID() == client {
			a.Remaining = c.grace(a.Token)
			asks = append(asks, a)
		}
	}
	return asks
}
