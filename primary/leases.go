// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"maps"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// tick is how often the core loop runs when nothing happens.
	tick = 50 * time.Millisecond
	// lateness is how late the core loop may be before its clock stands still.
	lateness = 100 * time.Millisecond
)

// servingClock counts the time in which this term could have served: it is
// monotonic and stands still while the core loop was late, while storage stalls and
// without a quorum. All deadlines are counted on it, so no client loses a lease to
// a pause of the server. Its zero is the moment the term began to serve.
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

const (
	// leaseGrain is how late a lease or a waiter may be examined.
	leaseGrain = 16 * time.Millisecond
	// adoptStep is how many adopted locks and clients one round begins to count.
	adoptStep = 2048
	// maxExpired is how many clients are remembered whose leases ended.
	maxExpired = 4096
	// expireStep is how many leases, waiters and clients one round examines.
	expireStep = 1024
)

// clientGrain is how late a client may be examined. The wheel reaches further than the
// retention, so that a client is never examined before its time: from when it was counted is
// known from its place only.
func clientGrain(retention time.Duration) time.Duration {
	return max(time.Second, 2*retention/wheelSlots)
}

func leasePlace(l *locktable.Lease) *uint64 { return &l.Place }

func clientPlace(p *locktable.Presence) *uint64 { return &p.Place }

func waiterPlace(w *waiter) *uint64 { return &w.place }

// waitKey identifies a waiter by its request.
type waitKey struct {
	client  cluster.ClientID
	request cluster.RequestID
}

// waiter is a waiting request as the core loop counts it.
type waiter struct {
	key      waitKey
	place    uint64 // in the wheel
	ttl      time.Duration
	began    time.Duration // on the serving clock: of the wait, or of this term where that is later
	since    time.Duration // likewise: when it was renewed last
	deadline time.Duration // on the serving clock; negative for none
	calls    []*call       // open calls that wait for it
}

// adoption is how far the core loop is with counting what it adopted. The fields of the
// table's leases and clients begin with zero, so every lease counts as granted at the zero of
// this term's serving clock and every client as unheard, whether it was counted yet or not.
type adoption struct {
	under  bool
	lock   cluster.LockName
	token  cluster.Token // of one of the lock's holders
	place  waitKey       // in the lock's queue
	client cluster.ClientID
}

// adoptSome begins to count the next n of the leases, waiters and clients of the adopted
// table, afresh: each with its full time, from the zero of this term's serving clock.
// It goes on between the rounds, so that a term with many begins to serve at once. Nothing
// ends too early by that, and all are counted long before the first of them is due.
func (c *core) adoptSome(n int) {
	if n = c.adoptQueue(n); n <= 0 {
		return
	}
	a := &c.adopting
	for l := range c.table.Leases(a.lock, a.token) {
		another := l.Lock() != a.lock
		a.lock, a.token = l.Lock(), l.Token()
		if l.Token() != 0 && l.Place == 0 {
			c.leases.add(l, c.deadline(l))
		}
		n--
		if another {
			a.place = waitKey{}
			n = c.adoptQueue(n)
		}
		if n <= 0 {
			return
		}
	}
	for p := range c.table.Presences(c.adopting.client) {
		if n <= 0 {
			return
		}
		n--
		c.adopting.client = p.ID()
		c.countClient(p, 0)
	}
	c.adopting = adoption{}
}

// adoptQueue goes on with the queue of the lock that was begun last, and returns how many more
// the round may count.
func (c *core) adoptQueue(n int) int {
	a := &c.adopting
	for w := range c.table.WaitersBehind(a.lock, a.place.client, a.place.request) {
		if n <= 0 {
			break
		}
		n--
		a.place = waitKey{w.Client, w.Request}
		c.adoptWaiter(&w)
	}
	return n
}

// adoptWaiter begins to count a waiter that is older than this term, unless it is counted.
func (c *core) adoptWaiter(w *locktable.Waiter) {
	key := waitKey{w.Client, w.Request}
	if _, ok := c.waits[key]; !ok {
		c.countWaiter(key, w.TTL, w.Wait, 0)
	}
}

// waiter returns the waiter of a request, nil if it does not wait.
func (c *core) waiter(key waitKey) *waiter {
	if w := c.waits[key]; w != nil || !c.adopting.under {
		return w
	}
	for w := range c.table.WaitsOf(key.client) {
		if w.Request == key.request {
			c.adoptWaiter(&w)
		}
	}
	return c.waits[key]
}

func (c *core) addLease(lock cluster.LockName, token cluster.Token) {
	l := c.table.Lease(lock, token)
	l.Granted = c.now
	if d := l.MaxHold(); d > 0 {
		c.limits[token] = c.now + min(d, noLimit-c.now)
	}
	c.leases.add(l, c.deadline(l))
}

// noLimit is later than any time on a serving clock.
const noLimit = time.Duration(1<<63 - 1)

// limit returns when a grant ends however often it is renewed. An adopted one has its whole
// MaxHold again.
func (c *core) limit(l *locktable.Lease) time.Duration {
	if l.MaxHold() == 0 {
		return noLimit
	}
	if at, ok := c.limits[l.Token()]; ok {
		return at
	}
	return l.MaxHold()
}

// countWaiter begins to count a waiter that was enqueued at since.
func (c *core) countWaiter(key waitKey, ttl, wait, since time.Duration) {
	w := &waiter{key: key, ttl: ttl, began: since, since: since, deadline: -1}
	if wait >= 0 {
		w.deadline = since + wait
	}
	c.waits[key] = w
	c.mostWaits = max(c.mostWaits, len(c.waits))
	c.waiters.add(w, c.nextLook(w))
}

// heardAt returns when a client was heard last, on the serving clock; false if it was not heard
// in this term.
func heardAt(p *locktable.Presence) (at time.Duration, heard bool) {
	if p == nil || p.Heard == 0 {
		return 0, false
	}
	return p.Heard - 1, true
}

// deadline returns when a lease ends: its TTL after the grant or after its client was last
// heard, whichever is later, but not after limit. So one keep-alive renews all a client holds,
// except what is renewed by heartbeats: there Granted moves with each.
func (c *core) deadline(l *locktable.Lease) time.Duration {
	from := l.Granted
	if !l.Heartbeat() {
		heard, _ := heardAt(l.Client())
		from = max(from, heard)
	}
	return min(from+l.TTL(), c.limit(l))
}

// waiterDeadline returns when a waiter without a live client is removed.
func (c *core) waiterDeadline(w *waiter) time.Duration {
	heard, _ := heardAt(c.table.Presence(w.key.client))
	from := max(w.since, heard)
	for _, x := range w.calls {
		if !x.abandoned.Load() {
			from = c.now
		}
	}
	return from + w.ttl
}

// nextLook returns when a waiter has to be examined next.
func (c *core) nextLook(w *waiter) time.Duration {
	at := c.waiterDeadline(w)
	if w.deadline >= 0 {
		at = min(at, w.deadline)
	}
	return at
}

// heldUntil returns a message on how long a lock is held unless it is released, "" if it is not
// held under the token.
func (c *core) heldUntil(lock cluster.LockName, token cluster.Token) string {
	l := c.table.Lease(lock, token)
	if l == nil {
		return ""
	}
	left := max(0, c.deadline(l)-c.now).Round(time.Millisecond)
	return fmt.Sprintf("the lease of its holder ends in %v, unless it is renewed or given back before", left)
}

// touch records that a client of the table was heard. One that is not in the table yet is
// recorded with its next request after its first record.
func (c *core) touch(id cluster.ClientID) {
	if p := c.table.Presence(id); p != nil {
		p.Heard = c.now + 1 // 0 stands for a client that was not heard in this term
	}
}

// hearOf starts the retention of a client that a record named, if it is not counted yet.
func (c *core) hearOf(id cluster.ClientID) {
	if p := c.table.Presence(id); p != nil {
		c.countClient(p, c.now)
	}
}

func (c *core) countClient(p *locktable.Presence, since time.Duration) {
	if p.Place == 0 && !p.ID().Anonymous() {
		c.clients.add(p, since+c.p.opt.Timing.ClientRetention)
	}
}

// hearHolder records that a live token was used: its lease's client counts as heard, whoever
// used it. It returns the lease, nil if the token is not live.
func (c *core) hearHolder(lock cluster.LockName, token cluster.Token) *locktable.Lease {
	l := c.table.Lease(lock, token)
	if l != nil {
		l.Client().Heard = c.now + 1
		if l.Heartbeat() {
			l.Granted = c.now
		}
	}
	return l
}

// tellLeft sets the TTL of an answer to what is left of the lease, unless the grant is new. That
// is less than the whole TTL near the end of a MaxHold, and where only heartbeats renew the lease.
func (c *core) tellLeft(out *locktable.Outcome) {
	if out.TTL > 0 && (out.Repeat || out.Token != out.LSN.Token()) {
		out.TTL = c.leftOf(out.Lock, out.Token)
	}
}

// leftOf returns what is left of the lease of a token, 0 if it is not live.
func (c *core) leftOf(lock cluster.LockName, token cluster.Token) time.Duration {
	l := c.table.Lease(lock, token)
	if l == nil {
		return 0
	}
	return max(0, c.deadline(l)-c.now)
}

func (c *core) renew(x *call) {
	out := locktable.Outcome{Status: cluster.StatusOK, Lock: x.req.Lock, Token: x.req.Token, Epoch: c.p.Epoch()}
	if why := c.table.DeniesToken(x.req.Lock, x.req.Token, x.req.Identity); why != "" {
		out.Status, out.Message = cluster.StatusPermissionDenied, why
		c.answer(x, out)
		return
	}
	if why, has := c.table.Own().Refuses(x.req.Lock, ""); why != "" {
		out.Status, out.Message, out.Cell = cluster.StatusWrongCell, why, has
		c.answer(x, out)
		return
	}
	l := c.hearHolder(x.req.Lock, x.req.Token)
	if l != nil {
		out.TTL, out.Client = max(0, c.deadline(l)-c.now), l.Client().ID()
		if l.MaxHold() > 0 {
			out.HoldLeft = max(time.Millisecond, c.limit(l)-c.now)
		}
		if a, ok := c.table.AskOf(x.req.Lock, x.req.Token); ok {
			a.Remaining = c.grace(a.Token)
			out.Ask = &a
		}
	} else {
		out.Status, out.Message = cluster.StatusInvalidToken, "the token is not the live one of this lock"
	}
	c.answer(x, out)
}

func (c *core) keepAlive(x *call) {
	id := x.req.Client
	if id.Opened() && c.table.Presence(id) == nil {
		out := locktable.Outcome{Status: cluster.StatusStaleRequest, Client: id, Message: "the client was forgotten: open a new one"}
		c.answer(x, c.estranged(id, out))
		return
	}
	if why := c.table.DeniesClient(id, x.req.Identity); why != "" {
		c.answer(x, locktable.Outcome{Status: cluster.StatusPermissionDenied, Client: id, Message: why})
		return
	}
	if x.alive.belief.PlacesOnly {
		c.hearPlaces(id)
	} else {
		c.touch(id)
		x.alive.asks = c.asksTo(id)
		if c.differs(id, x.alive.belief) {
			c.tellLate(id)
			x.alive.grants = []locktable.Grant{} // not nil: a client that holds nothing has to learn that, too
			for g := range c.table.Held(id) {
				x.alive.grants = append(x.alive.grants, g)
			}
		}
	}
	c.answer(x, locktable.Outcome{Status: cluster.StatusOK, Client: id, Epoch: c.p.Epoch(), LSN: c.table.LSN()})
}

// differs reports whether a client holds something else than it believes. A digest shows more
// than a number: one grant may have ended and another begun.
func (c *core) differs(id cluster.ClientID, b serving.Belief) bool {
	if b.Digest != nil {
		return c.table.DigestOf(id) != *b.Digest
	}
	return b.Held >= 0 && c.table.HeldBy(id) != b.Held
}

// hearPlaces renews what a client waits for.
func (c *core) hearPlaces(id cluster.ClientID) {
	for x := range c.table.WaitsOf(id) {
		if w := c.waiter(waitKey{id, x.Request}); w != nil {
			w.since = c.now
		}
	}
}

// dropGivenUp removes what a client waits for below its low-water mark, as far as the batch
// has room: the rest follows with its next request.
func (c *core) dropGivenUp(id cluster.ClientID) {
	for !c.full() {
		recs := c.table.DecideGivenUp(id, c.p.Epoch(), c.recs[:0])
		if len(recs) == 0 || !c.apply(recs, nil) {
			return
		}
	}
}

// behindItself reports whether a request did not get the lock because its own client holds it.
// Such a request renews its place and nothing else: otherwise it would keep alive that very
// grant, which the client may have forgotten, and so never be granted.
func (c *core) behindItself(q *locktable.Request, d *locktable.Decision) bool {
	return q.Op == locktable.OpAcquire && (d.Pending || d.Outcome.Status == cluster.StatusHeld) && c.table.Holds(q.Client, q.Lock)
}

// expire ends what is overdue, as far as the batch has room. It examines a bounded number of
// entries, because those that were renewed take time and no room; overdue is set if there may
// be more. Leases, waiters and clients take turns, so that none of them is late because many
// of another kind end together.
func (c *core) expire() {
	c.overdue = true
	for looks := 0; looks < expireStep && !c.full(); {
		before := looks
		if l, ok := c.leases.due(c.now); ok {
			c.lookAtLease(l)
			looks++
		}
		if a, ok := c.asks.due(c.now); ok {
			c.lookAtAsk(a)
			looks++
		}
		if w, ok := c.waiters.due(c.now); ok {
			c.lookAtWaiter(w)
			looks++
		}
		if p, ok := c.clients.due(c.now); ok {
			c.lookAtClient(p)
			looks++
		}
		if c.forgetMarks() {
			looks++
		}
		if looks == before {
			c.overdue = false
			return
		}
	}
}

// Jump ends leases before their time.
type Jump struct {
	// By is how much of every lease, wait and grace passes at once.
	By time.Duration
	// Lock is the lock whose leases all end now; "" for none.
	Lock cluster.LockName
}

// jump ends what is over after a Jump. What is read after it shows that. Without a quorum leases are not counted, and
// what a full batch leaves ends a round later.
func (c *core) jump(x Jump) {
	if !c.p.quorum.Load() || c.resigning {
		return
	}
	c.clock.elapsed += x.By
	c.now += x.By
	var over []cluster.Token
	for g := range c.table.Grants(x.Lock) {
		over = append(over, g.Token)
	}
	for _, token := range over {
		c.endLease(c.table.Lease(x.Lock, token))
	}
	c.expire()
}

func (c *core) lookAtLease(l *locktable.Lease) {
	if at := c.deadline(l); at > c.now {
		c.leases.add(l, at)
		return
	}
	c.endLease(l)
}

// endLease ends a grant whose lease is over.
func (c *core) endLease(l *locktable.Lease) {
	reason := ""
	if c.limit(l) <= c.now {
		reason = fmt.Sprintf("it was held for %v, the most it may", l.MaxHold())
	} else {
		c.silent = c.silence(l)
		c.noteExpired(l.Client().ID())
	}
	c.apply(c.table.DecideExpire(l.Lock(), l.Token(), reason, c.p.Epoch(), c.recs[:0]), nil)
	c.silent = nil
}

func (c *core) lookAtWaiter(w *waiter) {
	if at := c.nextLook(w); at > c.now {
		c.waiters.add(w, at)
		return
	}
	c.apply(c.table.DecideWaitTimeout(w.key.client, w.key.request, c.p.Epoch(), c.recs[:0]), nil)
}

func (c *core) lookAtClient(p *locktable.Presence) {
	heard, _ := heardAt(p)
	retention := c.p.opt.Timing.ClientRetention
	if at := heard + retention; at > c.now {
		c.clients.add(p, at)
		return
	}
	recs := c.table.DecideForget(p.ID(), c.p.Epoch(), c.recs[:0])
	if len(recs) == 0 { // it holds or waits
		c.clients.add(p, c.now+retention)
		return
	}
	c.apply(recs, nil)
}

// noteExpired records for a while that a lease ended for want of a renewal.
func (c *core) noteExpired(id cluster.ClientID) {
	if id.Anonymous() {
		return // its grants are not renewed by keep-alives
	}
	if len(c.expired) >= maxExpired {
		clear(c.expired)
	}
	c.expired[id] = c.now
}

// tellLate logs that a client renewed after its lease had ended: its renewal was late.
func (c *core) tellLate(id cluster.ClientID) {
	if at, ok := c.expired[id]; ok {
		delete(c.expired, id)
		c.p.opt.Log.Info().Str("client", string(id)).Dur("late_by", c.now-at).Msg("a keep-alive came after a lease of its client had ended")
	}
}

// endCounting is called before a record is applied: what the record ends is counted no more.
func (c *core) endCounting(r *locktable.Record) {
	switch r.Kind {
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		if l := c.table.Lease(r.Lock, r.Token); l != nil {
			c.leases.remove(l)
			delete(c.limits, r.Token)
			c.tallyHold(r, l)
		}
		c.endAsk(r.Token)
	case locktable.KindForgetClient:
		if p := c.table.Presence(r.Client); p != nil {
			c.clients.remove(p)
		}
	case locktable.KindForceClear:
		c.leases.clear()
		clear(c.limits)
		c.asks.clear()
		clear(c.asked)
	}
}

// shrinkWaits shrinks a map that was far larger. So memory follows the present number of waiters.
func (c *core) shrinkWaits() {
	if c.mostWaits > 4096 && len(c.waits) < c.mostWaits/8 {
		c.waits, c.mostWaits = maps.Collect(maps.All(c.waits)), len(c.waits)
	}
}

// silence is what the server knows of a lease that was not renewed, for the log.
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

// releaseRequest is the grace of a holder that was asked to release. Like a lease it is counted
// afresh by each term, so that a failover shortens none.
type releaseRequest struct {
	lock  cluster.LockName
	token cluster.Token
	until time.Duration // on the serving clock
	place uint64
}

func askPlace(a *releaseRequest) *uint64 { return &a.place }

// countAsk begins to count a grace, in place of an earlier one for the same token.
func (c *core) countAsk(lock cluster.LockName, token cluster.Token, until time.Duration) {
	c.endAsk(token)
	a := &releaseRequest{lock: lock, token: token, until: until}
	c.asked[token] = a
	c.asks.add(a, until)
}

func (c *core) endAsk(token cluster.Token) {
	if a := c.asked[token]; a != nil {
		c.asks.remove(a)
		delete(c.asked, token)
	}
}

// lookAtAsk breaks the grant if the grace is over.
func (c *core) lookAtAsk(a *releaseRequest) {
	if a.until > c.now {
		c.asks.add(a, a.until)
		return
	}
	delete(c.asked, a.token)
	c.apply(c.table.DecideGrace(a.lock, a.token, c.p.Epoch(), c.recs[:0]), nil)
}

// grace returns how long the holder that was asked to release has left, 0 if it was not asked.
func (c *core) grace(token cluster.Token) time.Duration {
	if a := c.asked[token]; a != nil {
		return max(0, a.until-c.now)
	}
	return 0
}

// asksTo returns the Asks to holders of a client.
func (c *core) asksTo(client cluster.ClientID) (asks []locktable.Ask) {
	if len(c.asked) == 0 {
		return nil
	}
	for a := range c.table.Asks() {
		if l := c.table.Lease(a.Lock, a.Token); l != nil && l.Client().ID() == client {
			a.Remaining = c.grace(a.Token)
			asks = append(asks, a)
		}
	}
	return asks
}
