// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"slices"
	"sync"
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
type Usage struct {
	mu    sync.Mutex
	all   map[string]*usage // by identity, "" for all callers without one
	swept int               // how many were left at the last sweep
}

// usage is what one identity uses.
type usage struct {
	requests, bytes *rate.Limiter // nil before they are limited
	// sessions counts the connections of each session, by what tells it from others; watches are those that are served.
	sessions map[any]int
	watches  int
}

// of returns the usage of an identity. It is called with mu held.
func (u *Usage) of(identity string, now time.Time) *usage {
	x := u.all[identity]
	if x != nil {
		return x
	}
	if len(u.all) >= max(fewUsers, 2*u.swept) {
		for id, x := range u.all {
			if x.idle(now) {
				delete(u.all, id)
			}
		}
		u.swept = len(u.all)
	}
	if u.all == nil {
		u.all = map[string]*usage{}
	}
	x = &usage{sessions: map[any]int{}}
	u.all[identity] = x
	return x
}

// idle reports whether nothing is lost if the usage is forgotten.
func (x *usage) idle(now time.Time) bool {
	full := func(l *rate.Limiter) bool { return l == nil || l.TokensAt(now) >= float64(l.Burst()) }
	return len(x.sessions) == 0 && x.watches == 0 && full(x.requests) && full(x.bytes)
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

// take counts requests that append so many bytes each, and returns how many of them, from the first one on, may go on now.
// After them, wait returns after how long the request at an index may.
func (u *Usage) take(identity string, l *access.Limits, sizes []int, now time.Time) (n int, wait func(i int) time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x := u.of(identity, now)
	n = len(sizes)
	var missing, missingBytes float64 // what there is of each, to be set off
	var requests *rate.Limiter
	if l.Requests > 0 {
		requests = limiter(&x.requests, now, l.Requests, l.Requests)
		n = min(n, max(0, int(requests.TokensAt(now))))
	}
	if l.AppendBytes > 0 {
		r := limiter(&x.bytes, now, l.AppendBytes, max(l.AppendBytes, cluster.MaxAppend))
		left, sum := int(r.TokensAt(now)), 0
		for i, size := range sizes[:n] {
			if size > 0 && sum+size > left {
				n = i
				break
			}
			sum += size
		}
		r.AllowN(now, sum)
		missingBytes = r.TokensAt(now)
	}
	if requests != nil { // those that the bytes refuse cost nothing
		requests.AllowN(now, n)
		missing = requests.TokensAt(now)
	}
	return n, func(i int) time.Duration {
		after, bytes := 0.0, 0
		if l.Requests > 0 {
			after = (float64(i-n+1) - missing) / float64(l.Requests)
		}
		if l.AppendBytes > 0 {
			for _, size := range sizes[n : i+1] {
				bytes += size
			}
			after = max(after, (float64(bytes)-missingBytes)/float64(l.AppendBytes))
		}
		return min(max(minWait, time.Duration(after*float64(time.Second))), maxWait)
	}
}

// enterSession counts a connection of a session, and reports whether its identity may have that session. One that has several
// connections, as a client has that comes back before its old connection is known to be dead, counts once.
func (u *Usage) enterSession(identity string, session any, most int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	x := u.of(identity, time.Now())
	if most > 0 && x.sessions[session] == 0 && int64(len(x.sessions)) >= most {
		return false
	}
	x.sessions[session]++
	return true
}

func (u *Usage) leaveSession(identity string, session any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x := u.all[identity] // it is not idle before this
	if x.sessions[session]--; x.sessions[session] == 0 {
		delete(x.sessions, session)
	}
}

// enterWatch counts a watch, and reports whether its identity may have it.
func (u *Usage) enterWatch(identity string, most int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	x := u.of(identity, time.Now())
	if most > 0 && int64(x.watches) >= most {
		return false
	}
	x.watches++
	return true
}

func (u *Usage) leaveWatch(identity string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all[identity].watches--
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

// Take counts requests of the caller that append so many bytes each, and returns how many of them, from the first one on, may go
// on now. Refused returns why the request at an index after them may not. It is asked once for each message.
func (p *Permission) Take(sizes []int) (n int, refused func(i int) error) {
	l := p.Limits()
	if l == nil || l.Requests == 0 && l.AppendBytes == 0 || len(sizes) == 0 {
		return len(sizes), nil
	}
	n, wait := p.s.opt.Usage.take(p.caller.Name(), l, sizes, time.Now())
	return n, func(i int) error {
		p.s.opt.Tallies.Count(TallyLimited, "rate", "")
		after := wait(i)
		return &wire.Error{Status: cluster.StatusLimited, RetryAfter: after, Message: fmt.Sprintf(
			"%s is too fast: quotas of access version %d allow %s at a server; come again in %v", p.who(), p.rules.Version(), rates(l), after.Round(time.Millisecond))}
	}
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

// takeOne counts one request.
func (p *Permission) takeOne(size int) error {
	if n, refused := p.Take([]int{size}); n == 0 && refused != nil {
		return refused(0)
	}
	return nil
}

// admit is Check for a request that reads: it counts against the rate of the caller.
func (p *Permission) admit(v access.Verb, lock, file string) error {
	if err := p.Check(v, lock, file); err != nil {
		return err
	}
	return p.takeOne(0)
}

// admitPrefix is CheckPrefix likewise.
func (p *Permission) admitPrefix(v access.Verb, prefix string) error {
	if err := p.CheckPrefix(v, prefix); err != nil {
		return err
	}
	return p.takeOne(0)
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

// Filter takes those requests off that exceed the rate of the caller, and gives each of them to refuse with the reason. Size returns how
// many bytes a request appends, and false for one that is never limited. The order stays.
func Filter[R any](p *Permission, requests []R, size func(R) (bytes int, counts bool), refuse func(R, error)) []R {
	if p.Limits() == nil {
		return requests
	}
	var sizes []int
	for _, r := range requests {
		if n, counts := size(r); counts {
			sizes = append(sizes, n)
		}
	}
	n, refused := p.Take(sizes)
	if n == len(sizes) {
		return requests
	}
	i := -1
	return slices.DeleteFunc(requests, func(r R) bool {
		if _, counts := size(r); counts {
			i++
			if i >= n {
				refuse(r, refused(i))
				return true
			}
		}
		return false
	})
}
