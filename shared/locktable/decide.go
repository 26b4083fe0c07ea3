// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Decision is the result of Decide.
type Decision struct {
	// Outcome answers the request, unless Pending.
	Outcome Outcome
	// Pending reports whether the request waits in a queue, enqueued now or earlier:
	// OutcomeOf a later record answers it. The Outcome then has the place.
	Pending bool
}

// A draft collects the records of one decision.
type draft struct {
	next  cluster.LSN
	epoch cluster.Epoch
	recs  []Record
}

func (t *Table) draft(epoch cluster.Epoch, recs []Record) draft {
	return draft{next: t.lsn + 1, epoch: epoch, recs: recs}
}

// add appends r with its LSN and epoch and returns it.
func (d *draft) add(r Record) *Record {
	r.LSN, r.Epoch = d.next, d.epoch
	d.next++
	d.recs = append(d.recs, r)
	return &d.recs[len(d.recs)-1]
}

// decided ends the decision with the outcome of r.
func decided(r *Record) Decision { return Decision{Outcome: OutcomeOf(r)} }

// Decide decides the request, which has passed Validate, in this state. It appends to recs
// the records that execute it, numbered from LSN()+1: they are legal in that order and
// belong into one batch. A refusal or a repeat has no records. Decide changes nothing.
// facts are needed for OpBind, OpRotate and the first append to a file.
func (t *Table) Decide(q *Request, epoch cluster.Epoch, facts FileFacts, recs []Record) ([]Record, Decision) {
	d := t.draft(epoch, recs)
	dec := t.decide(q, &d, facts)
	return d.recs, dec
}

func (t *Table) decide(q *Request, d *draft, facts FileFacts) Decision {
	// Before anything else: what a stranger asks neither shows nor changes anything of a client.
	if why := t.DeniesClient(q.Client, q.Identity); why != "" {
		return refuse(q, cluster.StatusPermissionDenied, why)
	}
	switch q.Op {
	case OpOpenClient:
		return t.decideOpenClient(q, d)
	case OpCancel:
		return t.decideCancel(q, d)
	case OpForget:
		return t.decideForget(q, d)
	}
	hash := q.ContentHash()
	if dec, answered := t.admit(q, q.ID, hash); answered {
		return dec
	}
	if dec, foreign := t.refuseForeign(q); foreign { // after repeats, which get what they were told
		return dec
	}
	// What the records of all operations have in common.
	r := Record{Client: q.Client, Request: q.ID, LowWater: q.LowWater, Hash: hash, Lock: q.Lock, Identity: q.Identity}
	switch q.Op {
	case OpAcquire:
		return t.decideAcquire(q, d, r)
	case OpRelease:
		if dec, ok := t.mustHold(q); !ok {
			return dec
		}
		return t.decideRelease(q, d, r)
	case OpDowngrade:
		return t.decideDowngrade(q, d, r)
	case OpExtend:
		return t.decideExtend(q, d, r)
	case OpBreak:
		return t.decideBreak(q, d, r)
	case OpMembers:
		return t.decideMembers(q, d, r)
	case OpMetadata:
		if dec, ok := t.mustHold(q); !ok {
			return dec
		}
		r.Kind, r.Token, r.Metadata = KindMetadata, q.Token, q.Metadata
		return decided(d.add(r))
	case OpAppend, OpBind, OpUnbind, OpRotate, OpSeal:
		return t.decideFile(q, d, r, facts)
	default:
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("unknown operation %d", q.Op))
	}
}

// refuse answers without a record.
func refuse(q *Request, status cluster.Status, message string) Decision {
	id := q.ID
	if q.Op == OpCancel {
		id = q.Target
	}
	return Decision{Outcome: Outcome{
		Status: status, Client: q.Client, Request: id, Lock: q.Lock, Token: q.Token, File: q.File, Message: message,
	}}
}

// admit answers repeats and requests that must not be executed; false means that the request
// is to be executed. For OpCancel id is the target and the content is not compared.
func (t *Table) admit(q *Request, id cluster.RequestID, hash uint64) (Decision, bool) {
	if id == 0 || id > MaxRequestID || q.LowWater > id {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("request ID %d with low-water mark %d", id, q.LowWater)), true
	}
	c := t.clients.get(q.Client)
	if c == nil {
		if q.Client.Opened() {
			return refuse(q, cluster.StatusStaleRequest, fmt.Sprintf("client %s is not open", q.Client)), true
		}
		return Decision{}, false
	}
	other := func() (Decision, bool) {
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("request ID %d of client %s was used for another request", id, q.Client)), true
	}
	if rc := c.receipt(id); rc != nil {
		if rc.kind != KindCancel && rc.hash != hash && q.Op != OpCancel {
			return other()
		}
		return Decision{Outcome: t.repeat(c, rc)}, true
	}
	if w := c.waiter(id); w != nil {
		if q.Op == OpCancel {
			return Decision{}, false
		}
		if w.hash != hash {
			return other()
		}
		return Decision{Pending: true, Outcome: w.pending()}, true
	}
	if c.stale(id) {
		return refuse(q, cluster.StatusStaleRequest,
			fmt.Sprintf("request ID %d is below what is remembered of client %s", id, q.Client)), true
	}
	if c.id.Opened() && c.outstanding(q.LowWater) >= MaxOutstanding {
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("client %s has %d requests outstanding: raise its low-water mark", q.Client, MaxOutstanding)), true
	}
	return Decision{}, false
}

func (t *Table) decideAcquire(q *Request, d *draft, r Record) Decision {
	r.TTL, r.Mode, r.Permit, r.Holder, r.Metadata = q.TTL, q.grantMode(), q.Permit, q.Holder, q.Metadata
	r.MaxHold, r.Heartbeat, r.Remember, r.Slot = q.MaxHold, q.Heartbeat, q.Remember || q.After != 0, q.Slot
	if dec, refused := t.refuseMarked(q); refused {
		return dec
	}
	l := t.locks.get(q.Lock)
	if dec, refused := t.refuseLimit(q, l); refused {
		return dec
	}
	if l == nil || l.admits(r.Mode, r.Permit) {
		if l != nil && l.holders() >= MaxHolders {
			return refuse(q, cluster.StatusStorageUnavailable, fmt.Sprintf("lock %q has %d holders, the most there may be", q.Lock, l.holders()))
		}
		r.Kind, r.After = KindGrant, q.After
		return decided(d.add(r))
	}
	if q.Wait == 0 {
		dec := refuse(q, cluster.StatusHeld, l.noUpgrade(q))
		dec.Outcome.Holder, dec.Outcome.QueueLength = l.heldBy(), int(l.queued)
		return dec
	}
	if l.queued >= MaxQueue {
		dec := refuse(q, cluster.StatusStorageUnavailable, fmt.Sprintf("lock %q has %d waiters, the most there may be", q.Lock, l.queued))
		dec.Outcome.QueueLength = int(l.queued)
		return dec
	}
	if l.crowded(r.Mode) {
		dec := refuse(q, cluster.StatusStorageUnavailable, fmt.Sprintf("%d hold lock %q or wait to share it, the most there may be", l.holders()+l.together(), q.Lock))
		dec.Outcome.QueueLength = int(l.queued)
		return dec
	}
	r.Kind, r.Wait = KindEnqueue, q.Wait
	added := d.add(r)
	return Decision{Pending: true, Outcome: Outcome{
		Client: q.Client, Request: q.ID, LSN: added.LSN, Epoch: added.Epoch, Lock: q.Lock, QueueLength: int(l.queued) + 1,
	}}
}

func (l *lock) heldBy() *LockHolder {
	g := l.oldestGrant()
	if g.token == 0 {
		return nil
	}
	return &LockHolder{
		Client: g.client.id, Token: g.token, Holder: g.holder, Since: g.since, Mode: g.mode, Count: l.holders(), Permit: g.permit, Taken: uint32(l.taken()),
		Identity: g.client.owner(),
	}
}

// mustHold refuses q unless its token is the live one of its lock, and of its identity.
func (t *Table) mustHold(q *Request) (Decision, bool) {
	l, denied := t.locks.get(q.Lock), t.DeniesToken(q.Lock, q.Token, q.Identity)
	switch {
	case denied != "":
		return refuse(q, cluster.StatusPermissionDenied, denied), false
	case l == nil || l.holders() == 0:
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf("token %d: nobody holds lock %q", q.Token, q.Lock)), false
	case l.grantWithToken(q.Token) == nil:
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf("token %d: lock %q is held under another token", q.Token, q.Lock)), false
	case q.Own && l.grantWithToken(q.Token).client.id != q.Client && !l.grantWithToken(q.Token).client.id.OneShot() && !q.Client.OneShot():
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf(
			"token %d of lock %q is of client %s, not of %s: leave out client_id and request_id to use a token that was passed on, or name its client", q.Token, q.Lock, l.grantWithToken(q.Token).client.id, q.Client)), false
	}
	return Decision{}, true
}

func (t *Table) decideRelease(q *Request, d *draft, r Record) Decision {
	r.Kind, r.Token = KindRelease, q.Token
	if q.Done {
		if r.Slot = t.live(q.Lock, q.Token).slotOf(); r.Slot == "" {
			return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("lock %q was not acquired once for a slot under token %d: release it without done", q.Lock, q.Token))
		}
	}
	return t.decideEnd(d, r)
}

// decideEnd adds r, which ends a live grant of r.Lock, and the grants that follow.
func (t *Table) decideEnd(d *draft, r Record) Decision {
	dec := decided(d.add(r))
	l := t.locks.get(r.Lock)
	if !d.skipDone(l, r.Slot) { // else DecideOwed goes on when they are gone
		t.grantBehind(d, l, l.grantWithToken(r.Token))
	}
	return dec
}

func (t *Table) decideBreak(q *Request, d *draft, r Record) Decision {
	l := t.locks.get(q.Lock)
	if l == nil || l.holders() == 0 {
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf("nobody holds lock %q", q.Lock))
	}
	if q.Token == 0 && l.holders() > 1 {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("%d hold lock %q: say by its token which one", l.holders(), q.Lock))
	}
	g := l.oldestGrant()
	if q.Token != 0 {
		g = l.grantWithToken(q.Token)
	}
	if g == nil {
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf("token %d: lock %q is held under another token", q.Token, q.Lock))
	}
	r.Kind, r.Token, r.Actor, r.Reason = KindBreak, g.token, q.Actor, q.Reason
	if q.Grace > 0 {
		r.Kind, r.Wait = KindAsk, q.Grace
		return decided(d.add(r))
	}
	return t.decideEnd(d, r)
}

// level2 reports whether records may need feature level 2: a Mark, Remember, or KindAlready.
// Binaries of level 1 cannot load a table that remembers something, so then it is true.
func (t *Table) level2(q *Request) bool { return q.Level == 0 || q.Level >= 2 || !t.past.none() }

func (t *Table) decideOpenClient(q *Request, d *draft) Decision {
	if q.Nonce == 0 {
		return refuse(q, cluster.StatusInvalidArgument, "nonce is 0: choose a random one")
	}
	if c := t.nonces.get(q.Nonce); c != nil {
		if why := t.DeniesClient(c.id, q.Identity); why != "" {
			return refuse(q, cluster.StatusPermissionDenied, why)
		}
		return Decision{Outcome: Outcome{Status: cluster.StatusOK, Client: c.id, LSN: c.openedAt(), Repeat: true}}
	}
	r := Record{Kind: KindOpenClient, Nonce: q.Nonce, Identity: q.Identity}
	if t.level2(q) {
		r.Mark = q.Mark
	}
	return decided(d.add(r))
}

func (t *Table) decideForget(q *Request, d *draft) Decision {
	c := t.clients.get(q.Client)
	switch {
	case c == nil:
	case c.held > 0 || len(c.waits) > 0:
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("client %s holds or waits", q.Client))
	default:
		d.add(Record{Kind: KindForgetClient, Client: q.Client})
	}
	return Decision{Outcome: Outcome{Status: cluster.StatusOK, Client: q.Client}}
}

func (t *Table) decideCancel(q *Request, d *draft) Decision {
	if dec, answered := t.admit(q, q.Target, 0); answered {
		return dec
	}
	r := Record{Kind: KindCancel, Client: q.Client, Request: q.Target, LowWater: q.LowWater, Identity: q.Identity}
	if w := t.waiter(q.Client, q.Target); w != nil {
		r.Lock = w.lock.name
		dec := decided(d.add(r))
		t.grantWithout(d, w)
		return dec
	} else if q.Client.Anonymous() {
		return refuse(q, cluster.StatusStaleRequest, fmt.Sprintf("request %d of client %s neither waits nor holds", q.Target, q.Client))
	}
	return decided(d.add(r))
}

func (t *Table) decideDowngrade(q *Request, d *draft, r Record) Decision {
	if dec, ok := t.mustHold(q); !ok {
		return dec
	}
	l := t.live(q.Lock, q.Token)
	if l.permit.Limit != 0 {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("token %d has permits of lock %q, and not the lock alone: there is nothing to downgrade", q.Token, q.Lock))
	}
	if l.mode == ModeShared {
		return Decision{Outcome: Outcome{
			Status: cluster.StatusOK, Client: q.Client, Request: q.ID, Lock: q.Lock, Token: q.Token,
			Message: "the lock was held in shared mode already",
		}}
	}
	r.Kind, r.Token = KindDowngrade, q.Token
	dec := decided(d.add(r))
	if l.sharing != nil {
		d.grantAll(l.sharing.waiters)
	}
	return dec
}

// decideExtend only lengthens: its holder may count on the TTL that it has.
func (t *Table) decideExtend(q *Request, d *draft, r Record) Decision {
	if q.Level != 0 && q.Level < 3 {
		return refuse(q, cluster.StatusInvalidArgument, "a server of this cluster is of an older version, which cannot extend a lease: renew it, or upgrade all servers")
	}
	if dec, ok := t.mustHold(q); !ok {
		return dec
	}
	if err := t.live(q.Lock, q.Token).mayExtend(q.TTL); err != nil {
		return refuse(q, cluster.StatusInvalidArgument, err.Error())
	}
	r.Kind, r.Token, r.TTL = KindExtend, q.Token, q.TTL
	return decided(d.add(r))
}

// mustWrite refuses q, which has passed mustHold, unless its token is that of an exclusive grant.
func (t *Table) mustWrite(q *Request) (Decision, bool) {
	if t.live(q.Lock, q.Token).mode == ModeExclusive {
		return Decision{}, true
	}
	return refuse(q, cluster.StatusInvalidArgument,
		fmt.Sprintf("token %d holds lock %q in shared mode, which writes nothing: release it and acquire the lock in exclusive mode", q.Token, q.Lock)), false
}

// noUpgrade returns a message for a client that wants to hold exclusively what it holds in
// shared mode, else "". Two holders that waited for each other would wait for ever, so there
// is no upgrade.
func (l *lock) noUpgrade(q *Request) string {
	if q.Mode != ModeExclusive || l.exclusive() || l.holders() > phaseStep {
		return "" // among so many the client is not searched for
	}
	for g := range l.grants(0) {
		if g.client.id == q.Client {
			return "this client holds the lock in shared mode, which cannot be upgraded: release it, then acquire the lock in exclusive mode"
		}
	}
	return ""
}

// phaseStep is the most grants of a phase that one decision adds. Even the largest of them
// together stay far below the limit of one frame.
const phaseStep = 128

// grantBehind adds the grants that follow the end of g, a grant of l: at most phaseStep of
// them.
func (t *Table) grantBehind(d *draft, l, g *lock) {
	s := l.sharing
	switch {
	case l.head != nil && l.head.permit.Limit != 0:
		d.grantPermits(l.head, l.taken()-uint64(g.permit.Weight))
	case s == nil: // no shared holder and no shared waiter
		if l.head != nil {
			t.grantOrSkip(d, l.head)
		}
	case g.mode == ModeExclusive && len(s.waiters) > 0:
		d.grantAll(s.waiters)
	case l.holders() > 1:
	case s.phase != 0:
		d.grantAll(s.owed())
	default:
		if w := l.firstExclusive(); w != nil {
			t.grantOrSkip(d, w)
		}
	}
}

// grantWithout adds the grants that follow when w, which is still in its queue, leaves it:
// without an exclusive waiter the shared ones need not wait, nor those behind the one that needed more permits than there were.
func (t *Table) grantWithout(d *draft, w *waiter) {
	if l := w.lock; l.lastExclusive(w) && l.sharing != nil {
		d.grantAll(l.sharing.waiters)
	} else if w.permit.Limit != 0 && w == l.head {
		d.grantPermits(w.next, l.taken())
	}
}

// grantOwed adds the next grants of the phase of those who share l, at most phaseStep, or that of
// its first exclusive waiter, or of those for whom there are permits.
func (t *Table) grantOwed(d *draft, l *lock) {
	if s := l.sharing; s != nil && s.phase != 0 {
		d.grantAll(s.owed())
	} else if l.head != nil && l.head.permit.Limit != 0 {
		d.grantPermits(l.head, l.taken())
	} else if w := l.firstExclusive(); w != nil {
		t.grantOrSkip(d, w)
	}
}

// grantAll adds grants for the first phaseStep of the waiters. The others stay owed:
// DecideOwed goes on.
func (d *draft) grantAll(waiters []*waiter) {
	for _, w := range waiters[:min(len(waiters), phaseStep)] {
		d.grant(w)
	}
}

func (d *draft) grant(w *waiter) {
	d.add(Record{
		Kind: KindGrant, Client: w.client.id, Request: w.request, Hash: w.hash,
		Lock: w.lock.name, TTL: w.ttl, Mode: w.mode, Holder: w.holder, Metadata: w.metadata,
		MaxHold: w.maxHold, Heartbeat: w.heartbeat, Remember: w.remember, Slot: w.slot, Permit: w.permit, Identity: w.client.owner(),
	})
}

// HasPendingGrants reports whether grants are owed, which DecideOwed decides.
func (t *Table) HasPendingGrants() bool { return t.owed.len() > 0 }

// DecideOwed decides grants that are owed since an earlier record, a bounded number at a
// time: the rest of a phase with many waiters.
func (t *Table) DecideOwed(epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	for name := range t.owed.all() {
		t.grantOwed(&d, t.locks.get(name))
		break
	}
	return d.recs
}

// The core loop takes the decisions below without a request. Each appends its records
// to recs, numbered from LSN()+1, or nothing if there is nothing to do any more.

// DecideExpire ends the grant because its lease ran out, and adds the grants that follow. An
// empty reason stands for a missed renewal.
func (t *Table) DecideExpire(name cluster.LockName, token cluster.Token, reason string, epoch cluster.Epoch, recs []Record) []Record {
	if t.live(name, token) == nil {
		return recs
	}
	d := t.draft(epoch, recs)
	t.decideEnd(&d, Record{Kind: KindExpire, Lock: name, Token: token, Reason: reason})
	return d.recs
}

// DecideGrace breaks a grant whose holder was asked to release the lock and did not.
func (t *Table) DecideGrace(name cluster.LockName, token cluster.Token, epoch cluster.Epoch, recs []Record) []Record {
	a, ok := t.AskOf(name, token)
	if !ok {
		return recs
	}
	d := t.draft(epoch, recs)
	t.decideEnd(&d, Record{Kind: KindBreak, Lock: name, Token: token, Actor: a.Actor, Reason: a.Reason})
	return d.recs
}

// DecideWaitTimeout removes a waiting request from its queue.
func (t *Table) DecideWaitTimeout(id cluster.ClientID, request cluster.RequestID, epoch cluster.Epoch, recs []Record) []Record {
	w := t.waiter(id, request)
	if w == nil {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindWaitTimeout, Lock: w.lock.name, Client: id, Request: request})
	t.grantWithout(&d, w)
	return d.recs
}

// DecideGivenUp cancels the client's first waiting request that is below its low-water mark:
// the client has given it up.
func (t *Table) DecideGivenUp(id cluster.ClientID, epoch cluster.Epoch, recs []Record) []Record {
	c := t.clients.get(id)
	if c == nil || len(c.waits) == 0 || c.waits[0].request >= c.lowWater {
		return recs
	}
	w := c.waits[0]
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindCancel, Lock: w.lock.name, Client: id, Request: w.request})
	t.grantWithout(&d, w)
	return d.recs
}

// DecideForget drops a client that neither holds nor waits, and its receipts.
func (t *Table) DecideForget(id cluster.ClientID, epoch cluster.Epoch, recs []Record) []Record {
	c := t.clients.get(id)
	if c == nil || c.held > 0 || len(c.waits) > 0 {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindForgetClient, Client: id})
	return d.recs
}

// DecideForceClear drops all holders and waiters.
func (t *Table) DecideForceClear(epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindForceClear})
	return d.recs
}

// DecideQuarantine stops a bound file that is not quarantined yet.
func (t *Table) DecideQuarantine(name cluster.FileName, reason string, epoch cluster.Epoch, recs []Record) []Record {
	f := t.files[name]
	if f == nil || f.Quarantined {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindQuarantine, File: name, Generation: f.Generation, Reason: clip(reason)})
	return d.recs
}

// DecideTerm begins a term. If the log ended between a record that freed a lock and the
// grants that belong to it, they follow here; DecideOwed decides those beyond the first
// phaseStep.
func (t *Table) DecideTerm(server cluster.ServerID, epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindTerm, Server: server})
	for name := range t.owed.all() {
		if len(d.recs)-len(recs) > phaseStep {
			break
		}
		t.grantOwed(&d, t.locks.get(name))
	}
	return d.recs
}

// DecideHandover ends a term on purpose.
func (t *Table) DecideHandover(reason string, epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindHandedOver, Reason: clip(reason)})
	return d.recs
}

// clip cuts a text to what fits a record: a reason may come from an error of any length.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), cluster.MaxText)], "")
}
