// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// refLock is a lock as promised to its users: phase-fair turns for shared and exclusive requests.
type refLock struct {
	holds []refHold
	queue []refPlace
}

// refHold is a live grant.
type refHold struct {
	token  cluster.Token
	owner  request
	shared bool
	asked  cluster.LSN // of the Ask to the holder
	actor  string
	// since is when it was granted, and lease how long it lasts at least, in milliseconds; since
	// is 0 where the log does not say.
	since, lease int64
	// ttl is that of the lease, and maxHold how long it lasts at most; 0 = without end.
	ttl, maxHold time.Duration
	slot         cluster.Slot // what it is for
	// limit is how many permits the lock has, and weight how many this grant takes; 0 = none.
	limit, weight uint32
}

// leaseSlack is how much earlier than its lease, in milliseconds, a grant may end by the time
// of day: that may be corrected a little while a lease runs.
const leaseSlack = 100

// leaseOf is how long a grant lasts at the least, in milliseconds: renewals are not in the
// log, and only make it longer.
func leaseOf(r *locktable.Record) int64 {
	lease := r.TTL
	if r.MaxHold > 0 {
		lease = min(lease, r.MaxHold)
	}
	return lease.Milliseconds()
}

// refPlace is one in line.
type refPlace struct {
	request
	shared bool
	turn   bool         // one of a phase that has begun
	slot   cluster.Slot // what it waits for
	// limit and weight are as in refHold.
	limit, weight uint32
	passed        int // exclusive holders that were granted before this shared request
}

func (x *reference) lock(name cluster.LockName) *refLock {
	l, ok := x.locks[name]
	if !ok {
		l = &refLock{}
		x.locks[name] = l
	}
	return l
}

// vanish keeps the map as small as the state.
func (x *reference) vanish(name cluster.LockName) {
	if l := x.locks[name]; len(l.holds) == 0 && len(l.queue) == 0 {
		delete(x.locks, name)
	}
}

// hold is the live grant under a token, nil if there is none.
func (l *refLock) hold(token cluster.Token) *refHold {
	i := slices.IndexFunc(l.holds, func(h refHold) bool { return h.token == token })
	if i < 0 {
		return nil
	}
	return &l.holds[i]
}

// alone reports whether the lock is held exclusively.
func (l *refLock) alone() bool {
	return slices.ContainsFunc(l.holds, func(h refHold) bool { return !h.shared })
}

func (l *refLock) find(who request) int {
	return slices.IndexFunc(l.queue, func(p refPlace) bool { return p.request == who })
}

// loner returns the index of the first exclusive request in the queue, -1 if there is none.
func (l *refLock) loner() int {
	return slices.IndexFunc(l.queue, func(p refPlace) bool { return !p.shared })
}

// next returns the index of the request whose turn it is, -1 if there is none.
func (l *refLock) next() int {
	if len(l.queue) > 0 && l.queue[0].limit > 0 { // strictly in order
		if l.full(l.queue[0].limit, l.queue[0].weight) {
			return -1
		}
		return 0
	}
	if i := slices.IndexFunc(l.queue, func(p refPlace) bool { return p.turn }); i >= 0 {
		return i
	}
	if len(l.holds) > 0 {
		return -1
	}
	return l.loner()
}

// opens begins the phase of all waiting shared requests.
func (l *refLock) opens() {
	for i := range l.queue {
		l.queue[i].turn = l.queue[i].shared
	}
}

// full reports whether so many permits more are too many.
func (l *refLock) full(limit, weight uint32) bool {
	sum := uint64(weight)
	for _, h := range l.holds {
		sum += uint64(h.weight)
	}
	return sum > uint64(limit)
}

// disagrees reports whether somebody holds the lock, or waits for it, with another limit.
func (l *refLock) disagrees(limit uint32) bool {
	return slices.ContainsFunc(l.holds, func(h refHold) bool { return h.limit != limit }) ||
		slices.ContainsFunc(l.queue, func(p refPlace) bool { return p.limit != limit })
}

// limited judges what a grant or a place takes of a limit.
func (l *refLock) limited(r *locktable.Record, bad badFunc) {
	limit, weight := r.Permit.Limit, r.Permit.Weight
	if l.disagrees(limit) {
		bad(I1, "lock %s is used with another limit than %d", r.Lock, limit)
	}
	if (limit > 0) != (weight > 0) || weight > limit || limit > 0 && r.Mode != locktable.ModeShared {
		bad(I1, "it takes %d of %d permits of lock %s", weight, limit, r.Lock)
	}
}

// enters reports whether a request which has no place need not wait.
func (l *refLock) enters(shared bool, limit, weight uint32) bool {
	if limit > 0 {
		return len(l.queue) == 0 && !l.full(limit, weight)
	}
	return len(l.queue) == 0 && (len(l.holds) == 0 || shared && !l.alone())
}

func (x *reference) grant(r *locktable.Record, bad badFunc) {
	l, who, shared := x.lock(r.Lock), request{r.Client, r.Request}, r.Mode == locktable.ModeShared
	x.counts[I1]++
	x.counts[I11]++
	if l.alone() || !shared && len(l.holds) > 0 {
		bad(I1, "lock %s is held under token %d by %v", r.Lock, l.holds[0].token, l.holds[0].owner)
	}
	l.limited(r, bad)
	limit, weight := r.Permit.Limit, r.Permit.Weight
	if limit > 0 {
		x.permits++
	}
	if limit > 0 && l.full(limit, weight) {
		bad(I1, "%d more of the %d permits of lock %s are not free: %d hold it", weight, limit, r.Lock, len(l.holds))
	}
	i := l.find(who)
	switch {
	case i < 0 && !l.enters(shared, limit, weight):
		bad(I11, "lock %s goes to %v, who did not wait, before %d who do", r.Lock, who, len(l.queue))
	case i >= 0 && i != l.next():
		bad(I11, "lock %s goes to %v, but it is the turn of number %d of %d in line", r.Lock, who, l.next(), len(l.queue))
	case i >= 0 && shared && l.queue[i].passed > 1:
		bad(I11, "%d held lock %s alone while %v waited to share it", l.queue[i].passed, r.Lock, who)
	}
	if i >= 0 {
		if p := l.queue[i]; p.shared != shared || p.limit != limit || p.weight != weight {
			bad(I11, "%v waited for lock %s in another mode", who, r.Lock)
		}
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	l.holds = append(l.holds, refHold{token: cluster.Token(r.LSN), owner: who, shared: shared, since: r.Time, lease: leaseOf(r), ttl: r.TTL, maxHold: r.MaxHold, slot: r.Slot, limit: limit, weight: weight})
	x.remember(r, bad)
	for j := range l.queue {
		if !shared {
			l.queue[j].passed++
		}
	}
	x.execute(r, i >= 0, bad)
}

// remember keeps the last token of a lock that remembers it. A grant after a token is the next one behind that token.
func (x *reference) remember(r *locktable.Record, bad badFunc) {
	if r.Slot != "" && x.slots[r.Lock].Compare(r.Slot) >= 0 {
		bad(I1, "lock %s is granted for slot %s, and %s is done", r.Lock, r.Slot, x.slots[r.Lock])
	}
	last, marked := x.marks[r.Lock]
	if r.After != 0 && (!marked || last != r.After) {
		bad(I1, "lock %s is granted because nobody had it after token %d, and it was granted under %d last (0: it is not known)", r.Lock, r.After, last)
	}
	if marked || r.Remember {
		x.marks[r.Lock] = cluster.Token(r.LSN)
	}
}

func (x *reference) enqueue(r *locktable.Record, bad badFunc) {
	l, who, shared := x.lock(r.Lock), request{r.Client, r.Request}, r.Mode == locktable.ModeShared
	l.limited(r, bad)
	if l.enters(shared, r.Permit.Limit, r.Permit.Weight) {
		bad(I11, "%v waits for lock %s, which is free", who, r.Lock)
	}
	if l.find(who) >= 0 {
		bad(I7, "%v has two places in the queue of %s", who, r.Lock)
	}
	if x.wasDone(who) {
		bad(I7, "%v was executed before and waits now", who)
	}
	turn := shared && r.Permit.Limit == 0 && !l.alone() && l.loner() < 0 // a phase is being granted
	l.queue = append(l.queue, refPlace{request: who, shared: shared, turn: turn, slot: r.Slot, limit: r.Permit.Limit, weight: r.Permit.Weight})
	x.raise(r)
}

// live finds the grant that a record is about.
func (x *reference) live(r *locktable.Record, bad badFunc) (*refLock, *refHold) {
	l := x.lock(r.Lock)
	x.counts[I1]++
	h := l.hold(r.Token)
	if h == nil {
		bad(I1, "token %d of lock %s is not live, %d others are", r.Token, r.Lock, len(l.holds))
		h = &refHold{}
	}
	return l, h
}

func (x *reference) end(r *locktable.Record, bad badFunc) {
	l, h := x.live(r, bad)
	if r.Kind == locktable.KindBreak && r.Request == 0 && (h.asked == 0 || r.Actor != h.actor) {
		bad(I1, "token %d of lock %s is broken for %q, but its holder was not asked by them", r.Token, r.Lock, r.Actor)
	}
	if r.Kind == locktable.KindExpire && h.since != 0 && r.Time < h.since+h.lease-leaseSlack {
		bad(I4, "token %d of lock %s expired %d ms after it was granted, its lease is of %d ms", r.Token, r.Lock, r.Time-h.since, h.lease)
	}
	if r.Slot != "" {
		if h.slot != r.Slot {
			bad(I1, "slot %s of lock %s is done under token %d, which was for %q", r.Slot, r.Lock, r.Token, h.slot)
		}
		if x.slots[r.Lock] = r.Slot; x.marks[r.Lock] == 0 && !h.shared {
			if _, marked := x.marks[r.Lock]; !marked {
				x.marks[r.Lock] = r.Token
			}
		}
	}
	alone := l.alone()
	l.holds = slices.DeleteFunc(l.holds, func(h refHold) bool { return h.token == r.Token })
	if alone {
		l.opens()
	}
	x.vanish(r.Lock)
	if r.Kind != locktable.KindExpire {
		x.execute(r, false, bad)
	}
}

// say is about the holder of a live grant.
func (x *reference) say(r *locktable.Record, bad badFunc) {
	l, h := x.live(r, bad)
	switch r.Kind {
	case locktable.KindAsk:
		h.asked, h.actor = r.LSN, r.Actor
	case locktable.KindExtend:
		if x.counts[I4]++; r.TTL < h.ttl || h.maxHold > 0 && r.TTL > h.maxHold {
			bad(I4, "the lease of token %d of lock %s is of %v, and becomes %v; it may be held for %v", r.Token, r.Lock, h.ttl, r.TTL, h.maxHold)
		}
		h.ttl = r.TTL
		if r.Time != 0 && h.maxHold == 0 { // to extend is to use the token, which renews the lease
			h.since, h.lease = r.Time, r.TTL.Milliseconds()
		}
	case locktable.KindDowngrade:
		if h.shared || h.limit > 0 {
			bad(I1, "token %d of lock %s is shared already", r.Token, r.Lock)
		}
		h.shared = true
		l.opens()
	}
	x.execute(r, false, bad)
}

// leave takes a waiter out. A cancelled request that does not wait is executed
// as nothing: it must not run later.
func (x *reference) leave(r *locktable.Record, bad badFunc) {
	who := request{r.Client, r.Request}
	waited := false
	if r.Lock != "" {
		l := x.lock(r.Lock)
		i := l.find(who)
		if waited = i >= 0; !waited {
			bad(I11, "%v does not wait for lock %s", who, r.Lock)
		} else {
			left := l.queue[i]
			l.queue = slices.Delete(l.queue, i, i+1)
			if !left.shared && !l.alone() && l.loner() < 0 {
				l.opens() // no exclusive request is left
			}
		}
		x.vanish(r.Lock)
	}
	x.execute(r, waited, bad)
}
