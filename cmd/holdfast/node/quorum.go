// SPDX-License-Identifier: Apache-2.0

package node

import "time"

// quorum is for how long a primary has missed the pings of a majority. Its owner is supervise.
type quorum struct {
	heard  time.Time     // when there was a majority last
	looked time.Time     // the last look
	slept  time.Duration // the longest time since heard in which this process should have looked and did not
	woke   time.Time     // the last look that came later than a whole storage timeout; zero: none did
}

// look records whether there is a majority now. A timer asks for it at least every so often: look returns
// how late that was, 0 or less if it was not. Storage is the storage timeout.
func (q *quorum) look(now time.Time, every, storage time.Duration, majority bool) (late time.Duration) {
	late = now.Sub(q.looked) - every
	q.looked = now
	if late > storage {
		q.woke = now
	}
	q.slept = max(q.slept, late)
	if majority {
		q.heard, q.slept = now, 0
	}
	return late
}

// silent returns for how long there has been no majority.
func (q *quorum) silent(now time.Time) time.Duration { return now.Sub(q.heard) }

// stalled reports whether the last check of the volume, so long ago, is overdue. While this process
// slept it could not check, and a primary that wakes up has to have the time for it.
func (q *quorum) stalled(now time.Time, check, storage time.Duration) bool {
	return min(check, now.Sub(q.woke)) > storage
}

// lost reports whether there has been no majority for so long, while this process listened, that the
// term should end. The longest time in which it did not is left out, but no other: so a primary that
// runs in short spells, and hears no other server, steps down all the same.
func (q *quorum) lost(now time.Time, timeout, allowance time.Duration) bool {
	return q.silent(now)-q.slept > timeout+allowance
}
