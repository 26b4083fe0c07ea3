// SPDX-License-Identifier: Apache-2.0

package clientlib

import "time"

const (
	backoffBase = 10 * time.Millisecond
	backoffCap  = 250 * time.Millisecond
	// takeoverCap bounds the pause while a takeover is known to be under way: it
	// will be over soon, and the next grant should not wait for us.
	takeoverCap = 12 * time.Millisecond
	// earlyCap bounds the pauses of the first second: most takeovers are over by then.
	earlyCap = 60 * time.Millisecond
	early    = time.Second
	// maxRetryAfter bounds what a server may ask for.
	maxRetryAfter = 5 * time.Second
)

// pauses is how long to pause before the next attempt: full jitter, so that
// clients which failed together do not come back together.
type pauses struct {
	failures int
	paused   time.Duration // so far
	random   func() uint64
}

// next is the pause after one more failure. A server that said when to come
// back is not asked before; only the jitter on top of that is ours.
func (p *pauses) next(retryAfter time.Duration, takeover bool) time.Duration {
	limit := backoffCap
	switch {
	case takeover:
		limit = takeoverCap
	case p.paused < early:
		limit = earlyCap
	}
	if retryAfter > 0 {
		return min(retryAfter, maxRetryAfter) + p.jitter(min(retryAfter, takeoverCap))
	}
	p.failures++
	// Past this the shift would overflow, and the cap has long been reached.
	d := p.jitter(min(limit, backoffBase<<min(p.failures-1, 16)))
	p.paused += d
	return d
}

// jitter is a random duration in (0, d].
func (p *pauses) jitter(d time.Duration) time.Duration {
	return 1 + time.Duration(p.random()%uint64(d))
}

// budget is what a call may still spend on looking for a primary that answers.
type budget struct{ left time.Duration }

// spend takes d off and says whether something is left.
func (b *budget) spend(d time.Duration) bool {
	b.left -= d
	return b.left > 0
}
