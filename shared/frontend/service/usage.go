// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// fewUsers is how many identities are remembered before those go that use nothing.
	fewUsers = 1024
	// minWait and maxWait bound what is advised to who exceeds a rate.
	minWait = time.Millisecond
	maxWait = 5 * time.Second
	// ReadRetry is after how long a read may come again that was refused as LIMITED, where its answer has no room for that. By
	// then a request of any rate goes on.
	ReadRetry = time.Second
)

// Usage counts what identities use of this server, as far as quotas limit that: requests and bytes of appends in a second,
// sessions and watches. (What they hold and wait for, the primary counts.) Services of a server share one. The zero value
// is ready for use by several goroutines.
//
// Renewals, releases, cancels and keep-alives are never counted: a quota takes no lock from anybody.
//
// No identity waits for another one here: each has a mutex of its own, and is found without one. A mutex that identities share is
// taken only when an identity is new, or when a line of held requests begins or ends.
type Usage struct {
	all sync.Map // of *usage, by identity, "" for all callers without one
	// holds is set while there are lines: who has no limits asks for little else.
	holds atomic.Bool

	sweeping struct {
		sync.Mutex
		known int // how many are in all
		swept int // how many were left at the last sweep
	}
	mu struct { // taken after that of a usage
		sync.Mutex
		lines   map[*usage]struct{} // those whose line has something
		serving bool                // serveLines runs
	}
}

// usage is what one identity uses.
type usage struct {
	// held is set while a request that comes now has others before it. It is changed with mu held.
	held atomic.Bool

	mu              sync.Mutex    // guards the rest
	forgotten       bool          // it is not in Usage.all any more
	requests, bytes *rate.Limiter // nil before they are limited
	line            line          // of requests that are held back
	// sessions counts the connections of each session, by what tells it from others; watches are those that are served.
	sessions map[any]int
	watches  int
}

// lock returns the usage of an identity, whose mutex it has taken.
func (u *Usage) lock(identity string, now time.Time) *usage {
	for {
		v, found := u.all.Load(identity)
		if !found {
			v = u.add(identity, now)
		}
		x := v.(*usage)
		if x.mu.Lock(); !x.forgotten {
			return x
		}
		x.mu.Unlock()
	}
}

// add returns the usage of an identity that had none. Where there are many, it forgets those that use nothing.
func (u *Usage) add(identity string, now time.Time) any {
	v, found := u.all.LoadOrStore(identity, &usage{sessions: map[any]int{}})
	if found {
		return v
	}
	u.sweeping.Lock()
	defer u.sweeping.Unlock()
	if u.sweeping.known++; u.sweeping.known <= max(fewUsers, 2*u.sweeping.swept) {
		return v
	}
	left := 0
	u.all.Range(func(id, other any) bool {
		if other == v || !other.(*usage).forget(now) {
			left++
		} else {
			u.all.Delete(id)
		}
		return true
	})
	u.sweeping.known, u.sweeping.swept = left, left
	return v
}

// forget marks a usage as forgotten if nothing is lost by that, and reports whether it did.
func (x *usage) forget(now time.Time) bool {
	full := func(l *rate.Limiter) bool { return l == nil || l.TokensAt(now) >= float64(l.Burst()) }
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgotten = len(x.sessions) == 0 && x.watches == 0 && !x.held.Load() && full(x.requests) && full(x.bytes)
	return x.forgotten
}

// limiter returns the limiter of a rate, by what the rules say now. Burst is what may come at once.
func limiter(of **rate.Limiter, now time.Time, perSecond, burst int64) *rate.Limiter {
	l, limit := *of, rate.Limit(perSecond)
	switch {
	case l == nil:
		l = rate.NewLimiter(limit, int(burst))
		*of = l
	case l.Limit() != limit:
		l.SetLimitAt(now, limit)
		l.SetBurstAt(now, int(burst))
	}
	return l
}

// limiters returns the limiters of the rates in l, nil for one that is not limited.
func (x *usage) limiters(l *access.Limits, now time.Time) (requests, bytes *rate.Limiter) {
	if l.Requests > 0 {
		requests = limiter(&x.requests, now, l.Requests, l.Requests)
	}
	if l.AppendBytes > 0 {
		bytes = limiter(&x.bytes, now, l.AppendBytes, max(l.AppendBytes, cluster.MaxAppend))
	}
	return requests, bytes
}

// takeAll is take for requests that append so many bytes together, where all of them may go on now; else it counts none and reports false.
func (x *usage) takeAll(l *access.Limits, requests, bytes int, now time.Time) bool {
	ofRequests, ofBytes := x.limiters(l, now)
	if ofBytes != nil && bytes > 0 && ofBytes.TokensAt(now) < float64(bytes) {
		return false
	}
	return (ofRequests == nil || ofRequests.AllowN(now, requests)) && (ofBytes == nil || ofBytes.AllowN(now, bytes))
}

// take counts requests that append so many bytes each, and returns how many of them, from the first one on, may go on now. After
// returns in how long so many of the others, which append so many bytes, may have gone on.
func (x *usage) take(l *access.Limits, sizes []int, now time.Time) (n int, after func(requests int, bytes int64) time.Duration) {
	n = len(sizes)
	var left, leftBytes float64 // what there is of each, to be set off
	ofRequests, ofBytes := x.limiters(l, now)
	if ofRequests != nil {
		n = min(n, max(0, int(ofRequests.TokensAt(now))))
	}
	if ofBytes != nil {
		most, sum := int(ofBytes.TokensAt(now)), 0
		for i, size := range sizes[:n] {
			if size > 0 && sum+size > most {
				n = i
				break
			}
			sum += size
		}
		ofBytes.AllowN(now, sum)
		leftBytes = ofBytes.TokensAt(now)
	}
	if ofRequests != nil { // those that the bytes refuse cost nothing
		ofRequests.AllowN(now, n)
		left = ofRequests.TokensAt(now)
	}
	perSecond, bytesPerSecond := l.Requests, l.AppendBytes
	return n, func(requests int, bytes int64) time.Duration {
		seconds := 0.0
		if perSecond > 0 {
			seconds = (float64(requests) - left) / float64(perSecond)
		}
		if bytesPerSecond > 0 && bytes > 0 {
			seconds = max(seconds, (float64(bytes)-leftBytes)/float64(bytesPerSecond))
		}
		return time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second))
	}
}

// advised returns when a request may come again that would have to wait for so long.
func advised(wait time.Duration) time.Duration { return min(max(minWait, wait), maxWait) }

// taken is what take has done with the requests of a message: the first ones go on now, those up to held wait in the line of their identity.
type taken struct {
	now, held int
	// ahead is what is in that line, and after when so many requests with so many bytes may have gone on.
	ahead      int
	aheadBytes int64
	after      func(requests int, bytes int64) time.Duration
}

// take counts requests of an identity that append so many bytes each, as far as they may go on now, and holds of the others those that may
// wait; none if h is nil.
func (u *Usage) take(identity string, l *access.Limits, sizes []int, h *Held, now time.Time) (t taken) {
	x := u.lock(identity, now)
	defer x.mu.Unlock()
	at := sizes
	if x.line.busy() { // nothing overtakes it
		at = nil
	}
	t.now, t.after = x.take(l, at, now)
	t.held = t.now
	if t.now < len(sizes) && h != nil {
		x.line.limits = *l
		t.held = u.hold(x, h, sizes, t.now, t.after, now)
	}
	t.ahead, t.aheadBytes = len(x.line.requests), x.line.bytes
	return t
}

// takeAll counts requests of an identity that append so many bytes together, if all of them may go on now, and reports whether they may.
func (u *Usage) takeAll(identity string, l *access.Limits, requests, bytes int, now time.Time) bool {
	x := u.lock(identity, now)
	defer x.mu.Unlock()
	return !x.line.busy() && x.takeAll(l, requests, bytes, now) // nothing overtakes the line
}

// heldOf reports whether a request of an identity that comes now has others before it.
func (u *Usage) heldOf(identity string) bool {
	if !u.holds.Load() {
		return false
	}
	x, known := u.all.Load(identity)
	return known && x.(*usage).held.Load()
}

// enterSession counts a connection of a session, and reports whether its identity may have that session. One that has several
// connections, as a client has that comes back before its old connection is known to be dead, counts once.
func (u *Usage) enterSession(identity string, session any, most int64) bool {
	x := u.lock(identity, time.Now())
	defer x.mu.Unlock()
	if most > 0 && x.sessions[session] == 0 && int64(len(x.sessions)) >= most {
		return false
	}
	x.sessions[session]++
	return true
}

func (u *Usage) leaveSession(identity string, session any) {
	x := u.lock(identity, time.Now()) // it was not forgotten before this
	defer x.mu.Unlock()
	if x.sessions[session]--; x.sessions[session] == 0 {
		delete(x.sessions, session)
	}
}

// enterWatch counts a watch, and reports whether its identity may have it.
func (u *Usage) enterWatch(identity string, most int64) bool {
	x := u.lock(identity, time.Now())
	defer x.mu.Unlock()
	if most > 0 && int64(x.watches) >= most {
		return false
	}
	x.watches++
	return true
}

func (u *Usage) leaveWatch(identity string) {
	x := u.lock(identity, time.Now())
	defer x.mu.Unlock()
	x.watches--
}

// Limits returns the limits of the caller, nil if quotas set none.
func (p *Permission) Limits() *access.Limits {
	if p.s.opt.Usage == nil || !p.look() {
		return nil
	}
	return p.limits
}

// Counts reports whether a request to the lock table counts against the rate of its caller: what only keeps or ends something does
// not. To open a client does, though everybody may who may do something.
func Counts(op locktable.Op) bool { return VerbOf(op) != access.Keep || op == locktable.OpOpenClient }

// LimitTo has the primary refuse a request if the caller has as much as it may.
func (p *Permission) LimitTo(q *locktable.Request) {
	q.MostLocks, q.MostWaits = 0, 0
	if l := p.Limits(); l != nil {
		q.MostLocks, q.MostWaits = l.Locks, l.Waiters
	}
}

// Boundless reports whether no rate limits the caller, and nothing of it is held since one did. What another server passed on was
// counted there.
func (p *Permission) Boundless() bool {
	if p.caller != nil && p.caller.PassedOn {
		return true
	}
	l := p.Limits()
	return (l == nil || l.Requests == 0 && l.AppendBytes == 0) && !p.s.opt.Usage.heldOf(p.caller.Name())
}

// TakeAll counts requests of the caller that append so many bytes together, if all of them may go on now; else it counts none and
// reports false, and Take or Filter has to say what becomes of them. It allocates nothing.
func (p *Permission) TakeAll(requests, bytes int) bool {
	if requests == 0 || p.Boundless() {
		return true
	}
	l := p.Limits()
	return l != nil && p.s.opt.Usage.takeAll(p.caller.Name(), l, requests, bytes, time.Now())
}

// Take counts requests of the caller that append so many bytes each, and returns how many of them, from the first one on, may go
// on now. The others are held for a moment, or refused at once, as h says. It is asked once for each message.
func (p *Permission) Take(sizes []int, h *Held) (n int) {
	if len(sizes) == 0 || p.Boundless() {
		return len(sizes)
	}
	l := p.Limits()
	if l == nil {
		l = &access.Limits{}
	}
	limits, rules, s, who := *l, p.rules, p.s, p.who() // p belongs to another goroutine than that of the lines
	h.most, h.conn = s.opt.MaxHold, p.from
	h.refused = func(after time.Duration) error {
		s.opt.Tallies.Count(TallyLimited, "rate", "")
		return &wire.Error{Status: cluster.StatusLimited, RetryAfter: after, Message: fmt.Sprintf(
			"%s is too fast: quotas of access version %d allow %s at a server; come again in %v", who, rules.Version(), rates(&limits), after.Round(time.Millisecond))}
	}
	t := p.s.opt.Usage.take(p.caller.Name(), l, sizes, h, time.Now())
	bytes := t.aheadBytes
	for i := t.held; i < len(sizes); i++ {
		bytes += int64(sizes[i])
		h.Refuse(i, h.refused(advised(t.after(t.ahead+i-t.held+1, bytes))))
	}
	return t.now
}

// who returns the caller for people.
func (p *Permission) who() string {
	if p.caller.Name() == "" {
		return "whoever has no credential"
	}
	return p.caller.Name()
}

// rates returns the rates for people.
func rates(l *access.Limits) string {
	text := ""
	if l.Requests > 0 {
		text = fmt.Sprintf("%d requests", l.Requests)
	}
	if l.AppendBytes > 0 {
		if text != "" {
			text += " and "
		}
		text += fmt.Sprintf("%d bytes of appends", l.AppendBytes)
	}
	return text + " a second"
}

// admit is Check for a request that reads: it counts against the rate of the caller, and may wait for that.
func (p *Permission) admit(ctx context.Context, v access.Verb, lock, file string) error {
	return p.count(ctx, 0, func() error { return p.Check(v, lock, file) })
}

// admitPrefix is CheckPrefix likewise.
func (p *Permission) admitPrefix(ctx context.Context, v access.Verb, prefix string) error {
	return p.count(ctx, 0, func() error { return p.CheckPrefix(v, prefix) })
}

// admitRequest is admit for a request to the lock table.
func (p *Permission) admitRequest(ctx context.Context, q *locktable.Request) error {
	check := func() error { return p.Check(VerbOf(q.Op), string(q.Lock), string(q.File)) }
	if !Counts(q.Op) {
		return check()
	}
	return p.count(ctx, len(q.Data), check)
}

// count counts a request that check permits, and that appends so many bytes. Check is asked again after a wait: the rules may have changed.
func (p *Permission) count(ctx context.Context, size int, check func() error) error {
	if err := check(); err != nil {
		return err
	}
	waited, err := p.await(ctx, size)
	if err == nil && waited {
		err = check()
	}
	return err
}

// EnterSession counts a session of the caller, which key tells from others; its connections share one place. It returns what
// ends that, once, or an error with LIMITED where quotas allow no further one.
func (p *Permission) EnterSession(key any) (leave func(), err error) {
	if p.s.opt.Usage == nil || !p.look() {
		return func() {}, nil
	}
	most := int64(0)
	if p.limits != nil {
		most = p.limits.Sessions
	}
	u, identity := p.s.opt.Usage, p.caller.Name()
	if !u.enterSession(identity, key, most) {
		return nil, p.full("sessions", most)
	}
	return func() { u.leaveSession(identity, key) }, nil
}

// enterWatch is EnterSession for a watch.
func (p *Permission) enterWatch() (leave func(), err error) {
	if p.s.opt.Usage == nil || !p.look() {
		return func() {}, nil
	}
	most := int64(0)
	if p.limits != nil {
		most = p.limits.Watches
	}
	u, identity := p.s.opt.Usage, p.caller.Name()
	if !u.enterWatch(identity, most) {
		return nil, p.full("watches", most)
	}
	return func() { u.leaveWatch(identity) }, nil
}

// full refuses one more of what a caller has as many of as it may.
func (p *Permission) full(what string, most int64) error {
	p.s.opt.Tallies.Count(TallyLimited, what, "")
	return &wire.Error{Status: cluster.StatusLimited, Message: fmt.Sprintf(
		"%s has %d %s at this server, as many as quotas of access version %d allow: end one, or have an administrator raise the quota", p.who(), most, what, p.rules.Version())}
}

// Filter takes those requests off that exceed the rate of the caller. Those that are held for a moment it gives to proceed when they may
// go on, the others to refuse with the reason; by another goroutine, or by the caller's before it returns. Size returns how many bytes a request appends, and false
// for one that is never limited. The order stays.
func Filter[R any](p *Permission, requests []R, size func(R) (bytes int, counts bool), proceed func([]R), refuse func(R, error)) []R {
	var sizes []int
	var counted []R
	for _, r := range requests {
		if n, counts := size(r); counts {
			sizes, counted = append(sizes, n), append(counted, r)
		}
	}
	n := p.Take(sizes, &Held{
		Proceed: func(from, to int) { proceed(counted[from:to]) }, Refuse: func(i int, err error) { refuse(counted[i], err) },
	})
	if n == len(sizes) {
		return requests
	}
	i := -1
	return slices.DeleteFunc(requests, func(r R) bool {
		_, counts := size(r)
		if counts {
			i++
		}
		return counts && i >= n
	})
}
