// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const (
	// DefaultRate is how many plain releases a second get a line each.
	DefaultRate = 2000
	// maxCleared is how many grants that one record ends get a line each.
	maxCleared = 1 << 16
)

// Limiter lets a number of plain releases through in each second of the records'
// clock, and counts the others. It is deterministic.
type Limiter struct {
	rate   int64
	tokens int64 // in thousandths
	at     int64
}

// NewLimiter returns a Limiter for a rate per second. 0 means DefaultRate; a negative rate lets
// none through.
func NewLimiter(rate int) Limiter {
	if rate == 0 {
		rate = DefaultRate
	}
	return Limiter{rate: max(0, int64(rate)), tokens: 1000 * max(0, int64(rate))}
}

// allow reports whether one more passes at this time, in milliseconds.
func (l *Limiter) allow(now int64) bool {
	l.at = min(l.at, now) // the time of day may have been ahead
	if passed := now - l.at; passed > 0 {
		l.at = now
		l.tokens = min(1000*l.rate, l.tokens+min(passed, 1000)*l.rate)
	}
	if l.tokens < 1000 {
		return false
	}
	l.tokens -= 1000
	return true
}

// Observe adds what a record ends to b. The table is as before the record. Records come in
// order.
func (l *Limiter) Observe(t *locktable.Table, r *locktable.Record, b *Batch) {
	switch r.Kind {
	case locktable.KindGrant:
		b.succeed(t, r)
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		if g, live := t.Live(r.Lock, r.Token); live {
			l.Ended(t, &g, r, b)
		}
	case locktable.KindForceClear:
		n := 0
		for l := range t.Leases("", 0) {
			if l.Token() == 0 {
				continue
			}
			if n++; n > maxCleared {
				b.Skip(r.LSN, r.Time)
				continue
			}
			if g, live := t.Live(l.Lock(), l.Token()); live {
				b.Ends = append(b.Ends, endOf(t, &g, r, WhyCleared))
			}
		}
	}
}

// Ended is Observe for a record that ends the live grant g.
func (l *Limiter) Ended(t *locktable.Table, g *locktable.Grant, r *locktable.Record, b *Batch) {
	why := whyOf(g, r)
	if why == WhyReleased && !l.allow(r.Time) {
		b.Skip(r.LSN, r.Time)
		return
	}
	b.Ends = append(b.Ends, endOf(t, g, r, why))
}

func whyOf(g *locktable.Grant, r *locktable.Record) Why {
	switch {
	case r.Kind == locktable.KindExpire:
		return WhyExpired
	case r.Kind == locktable.KindBreak:
		return WhyBroken
	case r.Client == g.Client, r.Client.OneShot(): // a one-shot client uses a token that was passed on
		return WhyReleased
	default:
		return WhyReleasedByOther
	}
}

func endOf(t *locktable.Table, g *locktable.Grant, r *locktable.Record, why Why) End {
	e := End{
		LSN: r.LSN, Epoch: r.Epoch, Time: r.Time, Why: why,
		Lock: g.Lock, Token: g.Token, Granted: g.Epoch, Since: g.Since, Client: g.Client, Request: g.Request,
		TTL: g.TTL, Mode: g.Mode, Permit: g.Permit, Holder: g.Holder, Identity: g.Identity, Metadata: g.Metadata,
		Append: LastAppend(t, g),
	}
	switch why {
	case WhyBroken:
		e.Actor, e.Reason = r.Actor, r.Reason
	case WhyExpired:
		e.Reason = r.Reason // of another end than a missed renewal
	case WhyReleasedByOther:
		e.Actor = who(t, r.Client)
	}
	return e
}

// who describes a client to people: by the Holder of a lock that it holds.
func who(t *locktable.Table, id cluster.ClientID) string {
	for g := range t.Held(id) {
		if h := g.Holder; h != (locktable.Holder{}) {
			return fmt.Sprintf("%s (pid %d on %s, client %s)", h.Command, h.PID, h.Host, id)
		}
	}
	return string(id)
}

// succeed completes the end right before a grant to the next waiter. Both are in one frame.
func (b *Batch) succeed(t *locktable.Table, r *locktable.Record) {
	if len(b.Ends) == 0 {
		return
	}
	e := &b.Ends[len(b.Ends)-1]
	if e.LSN+1 != r.LSN || e.Lock != r.Lock {
		return
	}
	if v, ok := t.Lock(r.Lock); ok && v.QueueLength > 0 {
		e.Successor = r.LSN.Token()
	}
}

// LastAppend returns the last append under a live grant: what was appended to a file of its
// lock since it was granted was appended under it. An append to a file that was unbound or
// rotated since is not found.
func LastAppend(t *locktable.Table, g *locktable.Grant) (last Append) {
	for _, name := range t.FilesOf(g.Lock) {
		f, _ := t.File(name)
		if f.LastLength > 0 && f.LastLSN > cluster.LSN(g.Token) && f.LastLSN > last.LSN {
			last = Append{File: name, Offset: f.LastOffset, Length: f.LastLength, LSN: f.LastLSN}
		}
	}
	return last
}
