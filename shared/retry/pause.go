// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

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
	// storagePatience is how long a call goes on that a primary refuses because of its storage: a
	// full disk is reported and not waited for.
	storagePatience = time.Second
)

// Pauses computes the pauses between the attempts of one call: full jitter, so that clients which
// failed together do not come back together.
type Pauses struct {
	Random   func() uint64 // must not be nil
	failures int
	paused   time.Duration // so far
}

// Rest pauses for d, or until ctx ends, and reports whether ctx is still alive.
func Rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Next returns the pause after one more failure. A server that said when to come back is not asked
// before, but for more than maxRetryAfter; the jitter comes on top of that. Takeover is set while
// a server is known to be taking over.
func (p *Pauses) Next(retryAfter time.Duration, takeover bool) time.Duration {
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

// jitter returns a random duration in (0, d].
func (p *Pauses) jitter(d time.Duration) time.Duration {
	return 1 + time.Duration(p.Random()%uint64(d))
}

// StorageRefusals counts how long one call has been refused because of the primary's storage.
type StorageRefusals struct{ since time.Time }

// Enough notes the error of an attempt that began at a time, and reports whether storage has been
// the reason for so long that the caller should be told.
func (r *StorageRefusals) Enough(err error, began time.Time) bool {
	if !errors.Is(err, wire.ErrStorageUnavailable) {
		return false
	}
	if r.since.IsZero() {
		r.since = began
	}
	return time.Since(r.since) >= storagePatience
}
