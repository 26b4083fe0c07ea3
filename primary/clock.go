// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const (
	// tick is how often the core loop runs when nothing happens.
	tick = 50 * time.Millisecond
	// lateness is how late the core loop may be before its clock stands still.
	lateness = 100 * time.Millisecond
)

// overslept says by how much a timer of this process was late, and when.
type overslept struct {
	by time.Duration
	at time.Time
}

// TimerLate notes that a timer of this process, which waits for nothing else, was late by so
// much: the process did not run. The log says it of leases that end soon after.
func (p *Primary) TimerLate(now time.Time, by time.Duration) {
	p.overslept.Store(&overslept{by, now})
}

// silence is what this side knows of a lease that nobody renewed.
type silence struct {
	heardAgo time.Duration // on the serving clock
	late     time.Duration // of a timer of this process meanwhile
}

func (c *core) silence(l *locktable.Lease) *silence {
	s := &silence{heardAgo: c.now - (c.deadline(l) - l.TTL())}
	if x := c.p.overslept.Load(); x != nil && time.Since(x.at) <= s.heardAgo+x.by {
		s.late = x.by
	}
	return s
}

// servingClock counts the time in which this reign could have served: it is
// monotonic and stands still while the core loop was late, while storage stalls and
// without a quorum. All deadlines are counted on it, so nobody loses a lease to
// a pause of the server. Its zero is the moment the reign began to serve.
type servingClock struct {
	last    time.Time
	elapsed time.Duration
}

// advance moves the clock to now and returns it. While stalled it stands still.
func (c *servingClock) advance(now time.Time, stalled bool) time.Duration {
	step := now.Sub(c.last)
	c.last = now
	switch {
	case stalled || step < 0:
	case step > tick+lateness:
		c.elapsed += tick // the loop was asleep for the rest
	default:
		c.elapsed += step
	}
	return c.elapsed
}
