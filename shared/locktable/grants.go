// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// lock is one lock with its holder, queue and files. There are many, so its size matters.
// A lock with several holders has one more of these for each further grant; that one has
// no queue and no files and is not in the index.
type lock struct {
	Lease   // of the live grant
	request cluster.RequestID
	// Neighbours among the grants of client, in token order.
	heldPrev, heldNext *lock
	*lockEntry
}

// grantParams are what many grants and places have in common. They are never changed.
type grantParams struct {
	epoch  cluster.Epoch
	ttl    time.Duration
	holder Holder
	mode   Mode

	heartbeat bool
	remember  bool
	permit    Permit
	maxHold   time.Duration
}

// lockEntry is what a lock has besides one plain holder. Most locks have nothing of it and
// share noEntry.
type lockEntry struct {
	head, tail *waiter
	queued     int32
	grant      *grantExtras              // of the live grant; nil if there is nothing
	sharing    *sharing                  // nil without further holders and shared waiters
	files      *sorted[cluster.FileName] // bound to this lock; nil if none
}

// grantExtras is what few grants have: metadata, a slot, and a request to release the lock. Once
// made, it stays until the grant ends.
type grantExtras struct {
	metadata string
	slot     cluster.Slot // what it is for
	ask      *Ask         // never changed; nil if the holder was not asked to release
	changed  cluster.LSN  // of the last change while an export was under way
}

// Ask is an operator's request to the holder of a lock: release it within Grace, or the
// grant is broken.
type Ask struct {
	Lock  cluster.LockName
	Token cluster.Token // of the grant
	LSN   cluster.LSN   // of the Ask record
	Grace time.Duration
	Actor string // who asked; for people
	// Reason is for people.
	Reason string
	// Request is the ID of the request that the grant answered.
	Request cluster.RequestID
	// Remaining is what is left of the grace where the core loop has set it, else negative.
	// It is no part of the state.
	Remaining time.Duration
}

const remainingUnknown = -time.Millisecond

// sharing is what a lock has only with several holders or with waiters for shared mode.
type sharing struct {
	grants  []*lock   // the live ones besides that of the lock itself, in token order
	waiters []*waiter // the shared ones of the queue, in order
	// phase is the LSN up to which shared waiters are owed a grant of a phase that is not
	// granted in full yet. 0: none is under way.
	phase cluster.LSN
	// taken is how many permits grants have.
	taken uint64
}

// Lease is the live grant of a lock as the core loop counts its time. Granted and Place
// belong to the core loop: the table stores them and never reads them. They are no part
// of the state, and zero after an adoption. A Lease is valid while its grant is live.
type Lease struct {
	Granted time.Duration // on the serving clock of the term
	Place   uint64        // in a timer wheel; 0: in none

	name   cluster.LockName
	token  cluster.Token // 0: the lock is free
	since  int64         // in milliseconds since 1970; for people, and no part of Hash
	client *client
	*grantParams
}

// grant makes r.Client a holder. If the request waits in the queue, it leaves it.
func (t *Table) grant(r *Record) {
	c, l := t.clientFor(r.Client), t.lockFor(r.Lock)
	rc := receiptOf(r)
	w := c.waiter(r.Request)
	if w != nil {
		rc.hash = w.hash
		t.unqueue(w)
	}
	rc.lock = l.name
	g := t.slot(l, cluster.Token(r.LSN))
	g.token, g.request, g.since, g.grantParams = cluster.Token(r.LSN), r.Request, r.Time, t.share(c, grantParamsOf(r))
	l.takes(g)
	if r.Metadata != "" {
		t.extrasOf(g).metadata = r.Metadata
	}
	if r.Slot != "" {
		t.extrasOf(g).slot = r.Slot
	}
	c.hold(g)
	t.tie(c)
	t.hash += t.sum(g.appendGrant)
	t.markGrant(r)
	if w != nil {
		t.owedOrVanish(l)
	}
	t.settle(r, rc)
}

// endGrant ends the grant that r names. After an exclusive one it is the turn of all
// shared requests that wait.
func (t *Table) endGrant(r *Record) {
	l := t.locks.get(r.Lock)
	g := l.grantWithToken(r.Token)
	exclusive := g.mode == ModeExclusive
	t.dropGrant(l, g)
	if exclusive {
		t.beginPhase(l, r)
	}
	t.owedOrVanish(l)
}

// dropGrant removes g, a grant of l, and, for an anonymous client, its receipt.
func (t *Table) dropGrant(l, g *lock) {
	t.leavesGrant(g)
	t.hash -= t.sum(g.appendGrant)
	c := g.client
	c.unhold(g)
	t.tie(c)
	if c.id.Anonymous() {
		t.dropReceipt(c, g.request)
	}
	t.dropExtra(g)
	t.dropSlot(l, g)
	t.tidyClient(c)
}

// downgrade makes an exclusive grant a shared one, under the same token.
func (t *Table) downgrade(r *Record) {
	l := t.locks.get(r.Lock)
	t.changeParams(l, func(x *grantParams) { x.mode = ModeShared })
	t.beginPhase(l, r)
	t.owedOrVanish(l)
}

// extend gives a grant a longer TTL.
func (t *Table) extend(r *Record) {
	t.changeParams(t.live(r.Lock, r.Token), func(x *grantParams) { x.ttl = r.TTL })
}

// mayExtend returns an error if a grant must not get this TTL: one that is shorter than its own
// would end the lease before its holder expects that, and a longer one than MaxHold is none.
func (l *Lease) mayExtend(ttl time.Duration) error {
	switch {
	case ttl < l.ttl:
		return fmt.Errorf("ttl %v is shorter than that of the lease, %v: an extension only lengthens it", ttl, l.ttl)
	case l.maxHold > 0 && ttl > l.maxHold:
		return fmt.Errorf("max hold %v is shorter than ttl %v: use a shorter ttl", l.maxHold, ttl)
	}
	return nil
}

// changeParams changes what a live grant may have in common with others.
func (t *Table) changeParams(l *lock, change func(*grantParams)) {
	t.leavesGrant(l)
	t.hash -= t.sum(l.appendGrant)
	x := *l.grantParams
	change(&x)
	l.grantParams = t.share(l.client, x)
	if at := t.stamp(); at != 0 {
		t.extrasOf(l).changed = at
	}
	t.hash += t.sum(l.appendGrant)
}

// owedOrVanish keeps invariants 3 and 4 after a lock lost or got a grant, or lost a
// waiter or file.
func (t *Table) owedOrVanish(l *lock) {
	switch {
	case l.due():
		t.owed.insert(l.name)
		return
	case t.owed.len() > 0:
		t.owed.remove(l.name)
	}
	if l.token == 0 && l.lockEntry == &t.noEntry {
		t.dropLock(l)
	}
}

// forceClear drops every grant and waiter. Nobody knows who was granted what before: after a recovery, records may be lost.
func (t *Table) forceClear() {
	t.doubtMarks()
	for _, name := range slices.Collect(t.lockNames.all()) {
		l := t.locks.get(name)
		for l.head != nil {
			w := l.head
			t.unqueue(w)
			t.tidyClient(w.client)
		}
		for l.sharing != nil { // the youngest first, which is the least work
			t.dropGrant(l, l.sharing.grants[len(l.sharing.grants)-1])
		}
		if l.token != 0 {
			t.dropGrant(l, l)
		}
		t.owedOrVanish(l)
	}
}

// lockFor returns the lock and makes it if it is not there. The caller then gives it a
// holder, a waiter or a file.
func (t *Table) lockFor(name cluster.LockName) *lock {
	if l := t.locks.get(name); l != nil {
		return l
	}
	l := t.newLock(name)
	t.locks.put(l)
	t.lockNames.insert(name)
	return l
}

func (t *Table) newLock(name cluster.LockName) *lock {
	l := t.spare
	if l == nil {
		l = &lock{}
	} else {
		t.spare, t.spares = l.heldNext, t.spares-1
	}
	*l = lock{Lease: Lease{name: name}, lockEntry: &t.noEntry}
	return l
}

// maxSpares bounds the locks that are kept to be used again.
const maxSpares = 1024

func (t *Table) dropLock(l *lock) {
	t.locks.remove(l.name)
	t.lockNames.remove(l.name)
	t.spareLock(l)
}

func (t *Table) spareLock(l *lock) {
	if t.spares < maxSpares {
		*l = lock{heldNext: t.spare}
		t.spare, t.spares = l, t.spares+1
	}
}

// ownEntry returns the lock's own entry and makes it if the lock shares noEntry.
func (t *Table) ownEntry(l *lock) *lockEntry {
	if l.lockEntry == &t.noEntry {
		l.lockEntry = &lockEntry{}
	}
	return l.lockEntry
}

// tidyEntry drops the lock's own entry if it holds nothing.
func (t *Table) tidyEntry(l *lock) {
	if l.head == nil && l.files == nil && l.grant == nil && l.sharing == nil {
		l.lockEntry = &t.noEntry
	}
}

// sharingOf returns the sharing part of l and makes it if it is not there.
func (t *Table) sharingOf(l *lock) *sharing {
	entry := t.ownEntry(l)
	if entry.sharing == nil {
		entry.sharing = &sharing{}
	}
	return entry.sharing
}

// tidySharing drops the sharing part of l if it holds nothing.
func (t *Table) tidySharing(l *lock) {
	if s := l.sharing; s != nil && len(s.grants) == 0 && len(s.waiters) == 0 {
		l.lockEntry.sharing = nil
		t.tidyEntry(l)
	}
}

func (s *sharing) findGrant(token cluster.Token) (int, bool) {
	return slices.BinarySearchFunc(s.grants, token, func(g *lock, token cluster.Token) int { return cmp.Compare(g.token, token) })
}

// without removes element i of s. At the beginning, where most of them leave, that costs
// nothing.
func without[E any](s []*E, i int) []*E {
	if i > 0 {
		return slices.Delete(s, i, i+1)
	}
	s[0] = nil
	return s[1:]
}

// grantWithToken returns the live grant of l with this token, nil if there is none.
func (l *lock) grantWithToken(token cluster.Token) *lock {
	if token == 0 {
		return nil
	}
	if l.token == token {
		return l
	}
	if s := l.sharing; s != nil {
		if i, ok := s.findGrant(token); ok {
			return s.grants[i]
		}
	}
	return nil
}

// live returns the live grant, nil if there is none.
func (t *Table) live(name cluster.LockName, token cluster.Token) *lock {
	if l := t.locks.get(name); l != nil {
		return l.grantWithToken(token)
	}
	return nil
}

// holders returns the number of live grants.
func (l *lock) holders() int {
	n := 0
	if l.token != 0 {
		n = 1
	}
	if s := l.sharing; s != nil {
		n += len(s.grants)
	}
	return n
}

// exclusive reports whether l is held in exclusive mode. Such a grant is that of the lock itself.
func (l *lock) exclusive() bool { return l.token != 0 && l.mode == ModeExclusive }

// oldestGrant returns the oldest live grant; its token is 0 if there is none.
func (l *lock) oldestGrant() *lock {
	s := l.sharing
	if s == nil || len(s.grants) == 0 || l.token != 0 && l.token < s.grants[0].token {
		return l
	}
	return s.grants[0]
}

// grants iterates over the live grants with higher tokens than this one, in token order.
func (l *lock) grants(after cluster.Token) iter.Seq[*lock] {
	return func(yield func(*lock) bool) {
		own := l.token > after
		if s := l.sharing; s != nil {
			i, _ := s.findGrant(after + 1)
			for _, g := range s.grants[i:] {
				if own && l.token < g.token {
					if own = false; !yield(l) {
						return
					}
				}
				if !yield(g) {
					return
				}
			}
		}
		if own {
			yield(l)
		}
	}
}

// slot returns the place for l's next grant, with this token: l itself or a new one.
func (t *Table) slot(l *lock, token cluster.Token) *lock {
	if l.token == 0 {
		return l
	}
	s := t.sharingOf(l)
	g := t.newLock(l.name)
	i, _ := s.findGrant(token)
	s.grants = slices.Insert(s.grants, i, g)
	return g
}

// dropSlot clears the place of g, a grant of l that has ended.
func (t *Table) dropSlot(l, g *lock) {
	if g == l {
		l.Lease, l.request = Lease{name: l.name}, 0
		return
	}
	s := l.sharing
	i, _ := s.findGrant(g.token)
	s.grants = without(s.grants, i)
	s.taken -= uint64(g.permit.Weight)
	t.spareLock(g)
	t.tidySharing(l)
}

func grantParamsOf(r *Record) grantParams {
	return grantParams{epoch: r.Epoch, ttl: r.TTL, holder: r.Holder, mode: r.Mode, maxHold: r.MaxHold, heartbeat: r.Heartbeat, remember: r.Remember, permit: r.Permit}
}

// share returns x in a place that the grants of this client have in common, and
// of others that came one after the other.
func (t *Table) share(c *client, x grantParams) *grantParams {
	switch {
	case c.params != nil && *c.params == x:
	case t.params != nil && *t.params == x:
		c.params = t.params
	default:
		own := x
		c.params = &own
	}
	t.params = c.params
	return c.params
}

// extrasOf returns the extras of the grant and makes them if they are not there.
func (t *Table) extrasOf(l *lock) *grantExtras {
	entry := t.ownEntry(l)
	if entry.grant == nil {
		entry.grant = &grantExtras{}
	}
	return entry.grant
}

// dropExtra removes the extras of a grant that has ended.
func (t *Table) dropExtra(l *lock) {
	if l.grant == nil {
		return
	}
	if l.grant.ask != nil {
		t.asked.remove(l.token)
		delete(t.asks, l.token)
	}
	l.grant = nil
	t.tidyEntry(l)
}

// changeGrant changes the extras of a live grant.
func (t *Table) changeGrant(l *lock, change func(*grantExtras)) {
	t.leavesGrant(l)
	t.hash -= t.sum(l.appendGrant)
	change(t.extrasOf(l))
	l.grant.changed = t.stamp()
	t.hash += t.sum(l.appendGrant)
}

func (t *Table) setMetadata(r *Record) {
	t.changeGrant(t.live(r.Lock, r.Token), func(x *grantExtras) { x.metadata = r.Metadata })
}

// ask stores an Ask, in place of an earlier one to the same grant.
func (t *Table) ask(r *Record) {
	l := t.live(r.Lock, r.Token)
	a := &Ask{
		Lock: r.Lock, Token: r.Token, LSN: r.LSN, Grace: r.Wait, Actor: r.Actor, Reason: r.Reason,
		Request: l.request, Remaining: remainingUnknown,
	}
	t.changeGrant(l, func(x *grantExtras) { x.ask = a })
	t.noteAsk(a)
}

func (t *Table) noteAsk(a *Ask) {
	t.asked.insert(a.Token)
	t.asks[a.Token] = a
}

// AskOf returns the Ask to the holder with this token; false if it was not asked.
func (t *Table) AskOf(name cluster.LockName, token cluster.Token) (Ask, bool) {
	if a := t.asks[token]; a != nil && a.Lock == name {
		return *a, true
	}
	return Ask{}, false
}

// Asks iterates over all Asks in token order. The table must not change meanwhile.
func (t *Table) Asks() iter.Seq[Ask] {
	return func(yield func(Ask) bool) {
		for token := range t.asked.all() {
			if !yield(*t.asks[token]) {
				return
			}
		}
	}
}

// Lock returns the name of the lock.
func (l *Lease) Lock() cluster.LockName { return l.name }

// Token returns the token of the grant, 0 if the lock is free.
func (l *Lease) Token() cluster.Token { return l.token }

// Since returns when the grant was decided, see Grant.Since.
func (l *Lease) Since() int64 { return l.since }

// TTL returns the grant's time to live.
func (l *Lease) TTL() time.Duration { return l.ttl }

// MaxHold returns how long the grant lives at most; 0 means without end.
func (l *Lease) MaxHold() time.Duration { return l.maxHold }

// Heartbeat reports whether only the use of its token renews the lease.
func (l *Lease) Heartbeat() bool { return l.heartbeat }

// Client returns the client that holds the lock.
func (l *Lease) Client() *Presence { return &l.client.Presence }

// Lease returns the lease of the lock's live grant with this token, nil if there is none.
func (t *Table) Lease(name cluster.LockName, token cluster.Token) *Lease {
	if g := t.live(name, token); g != nil {
		return &g.Lease
	}
	return nil
}

// Leases iterates over the live grants by lock name and token, beginning after the given
// grant of the given lock; "" and 0 are before all. For a free lock it yields one Lease
// without a token. The table must not change meanwhile.
func (t *Table) Leases(name cluster.LockName, after cluster.Token) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for next := range t.lockNames.from(name) {
			l := t.locks.get(next)
			if next != name {
				after = 0
			}
			if next != name && l.holders() == 0 && !yield(&l.Lease) {
				return
			}
			for g := range l.grants(after) {
				if !yield(&g.Lease) {
					return
				}
			}
		}
	}
}
