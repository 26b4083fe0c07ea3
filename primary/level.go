// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// recordLevel returns the level that records may need: that of the cluster, or less where a server is reached that knows less.
func (c *core) recordLevel() uint32 {
	level := c.p.clusterLevel.Load()
	if reached := c.p.level.Load(); reached != 0 {
		level = min(level, reached)
	}
	return level
}

// raised notes that the cluster has a level. Of two raises, the lower one may be told last.
func (p *Primary) raised(level uint32) {
	p.clusterLevel.Raise(level)
	p.log.Raise(level)
}

// raise logs the new feature level of the cluster. It is answered when that is committed, like any request: from then on no
// binary that does not know the level takes this log over.
func (c *core) raise(x *call) {
	now, want := c.p.clusterLevel.Load(), x.req.Level
	switch {
	case want <= now:
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK, Message: fmt.Sprintf("the cluster has feature level %d already", now)})
		return
	case want > locktable.MaxLevel:
		c.answer(x, locktable.Outcome{Status: cluster.StatusInvalidArgument, Message: fmt.Sprintf(
			"feature level %d: the primary knows levels up to %d", want, locktable.MaxLevel)})
		return
	}
	if !c.apply(c.table.DecideLevel(want, c.p.opt.Version, c.p.Epoch(), c.recs[:0]), nil) {
		c.answer(x, serving.Unknown())
		return
	}
	done := x.done
	x.done = func(out locktable.Outcome) {
		if out.Status == cluster.StatusOK { // committed, and checked
			c.p.raised(want)
		}
		done(out)
	}
	c.answer(x, locktable.Outcome{Status: cluster.StatusOK, Message: fmt.Sprintf(
		"the cluster has feature level %d from now on: older binaries refuse it", want)})
}
