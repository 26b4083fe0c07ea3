// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// markAge is after how long a mark is forgotten that no record made or changed. A term counts it anew from its beginning, like
	// every age: a mark that lives longer does no harm, one that is forgotten too early does.
	markAge = 90 * 24 * time.Hour
	// markLooks is how often within that time the core loop looks at the end of the log.
	markLooks = 32
)

// markLook is the end of the log at a moment of the serving clock: what was last changed before is older.
type markLook struct {
	at  time.Duration
	lsn cluster.LSN
}

// forgetMarks forgets some of the marks whose time is over; false if there are none.
func (c *core) forgetMarks() bool {
	if n := len(c.looks); n == 0 || c.now >= c.looks[n-1].at+markAge/markLooks {
		c.looks = append(c.looks, markLook{c.now, c.table.LSN()})
	}
	oldest := c.looks[0]
	if c.now < oldest.at+markAge {
		return false
	}
	recs := c.table.DecideForgetMarks(oldest.lsn, c.p.Epoch(), c.recs[:0])
	if len(recs) == 0 {
		c.looks = c.looks[1:]
		return false
	}
	return c.apply(recs, nil)
}
