// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Decision is what Decide makes of a request.
type Decision struct {
	// Outcome answers the request, unless Pending.
	Outcome Outcome
	// Pending says that the request waits in a queue, put there now or earlier:
	// OutcomeOf a later record answers it.
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

// Decide says what the request, which has passed Validate, does in this state.
// It appends to recs the records that do it, numbered from LSN()+1: they are legal
// in that order and belong into one batch. It changes nothing. facts are needed
// for OpBind, OpRotate and the first append to a file.
func (t *Table) Decide(q *Request, epoch cluster.Epoch, facts FileFacts, recs []Record) ([]Record, Decision) {
	d := t.draft(epoch, recs)
	dec := t.decide(q, &d, facts)
	return d.recs, dec
}

func (t *Table) decide(q *Request, d *draft, facts FileFacts) Decision {
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
	// What the records of all operations have in common.
	r := Record{Client: q.Client, Request: q.ID, LowWater: q.LowWater, Hash: hash, Lock: q.Lock}
	switch q.Op {
	case OpAcquire:
		return t.decideAcquire(q, d, r)
	case OpRelease:
		if dec, ok := t.mustHold(q); !ok {
			return dec
		}
		r.Kind, r.Token = KindRelease, q.Token
		return t.decideEnd(d, r)
	case OpDowngrade:
		return t.decideDowngrade(q, d, r)
	case OpBreak:
		return t.decideBreak(q, d, r)
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

// admit answers repeats and requests that must not be executed. For OpCancel id
// is the target and the content is not compared.
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
	r.TTL, r.Mode, r.Holder, r.Metadata = q.TTL, q.Mode, q.Holder, q.Metadata
	r.MaxHold, r.Heartbeat = q.MaxHold, q.Heartbeat
	l := t.locks.get(q.Lock)
	if l == nil || l.admits(q.Mode) {
		if l != nil && l.holders() >= MaxHolders {
			return refuse(q, cluster.StatusStorageUnavailable, fmt.Sprintf("lock %q has %d holders, the most there may be", q.Lock, l.holders()))
		}
		r.Kind = KindGrant
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
	if l.crowded(q.Mode) {
		dec := refuse(q, cluster.StatusStorageUnavailable, fmt.Sprintf("%d hold lock %q or wait to share it, the most there may be", l.holders()+l.sharedWaiting(), q.Lock))
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
	g := l.first()
	if g.token == 0 {
		return nil
	}
	return &LockHolder{Client: g.client.id, Token: g.token, Holder: g.holder, Since: g.since, Mode: g.mode, Count: l.holders()}
}

// mustHold refuses q unless its token is the live one of its lock.
func (t *Table) mustHold(q *Request) (Decision, bool) {
	l := t.locks.get(q.Lock)
	switch {
	case l == nil || l.holders() == 0:
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf("token %d: nobody holds lock %q", q.Token, q.Lock)), false
	case l.under(q.Token) == nil:
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf("token %d: lock %q is held under another token", q.Token, q.Lock)), false
	case q.Own && l.under(q.Token).client.id != q.Client && !l.under(q.Token).client.id.OneShot() && !q.Client.OneShot():
		return refuse(q, cluster.StatusInvalidToken, fmt.Sprintf(
			"token %d of lock %q is of client %s, not of %s: leave out client_id and request_id to use a token that was passed on, or name its client", q.Token, q.Lock, l.under(q.Token).client.id, q.Client)), false
	}
	return Decision{}, true
}

// decideEnd adds r, which ends a live grant of r.Lock, and the grants that follow.
func (t *Table) decideEnd(d *draft, r Record) Decision {
	dec := decided(d.add(r))
	l := t.locks.get(r.Lock)
	t.grantBehind(d, l, l.under(r.Token))
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
	g := l.first()
	if q.Token != 0 {
		g = l.under(q.Token)
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

// level2 says whether records may be such as binaries of feature level 1 cannot apply: with a
// Mark, with Remember, or of KindAlready. Where the table remembers something those cannot
// load it any more, so nothing is left out for them.
func (t *Table) level2(q *Request) bool { return q.Level == 0 || q.Level >= 2 || !t.past.none() }

func (t *Table) decideOpenClient(q *Request, d *draft) Decision {
	if q.Nonce == 0 {
		return refuse(q, cluster.StatusInvalidArgument, "nonce is 0: choose a random one")
	}
	if c := t.nonces.get(q.Nonce); c != nil {
		return Decision{Outcome: Outcome{Status: cluster.StatusOK, Client: c.id, LSN: c.openedAt(), Repeat: true}}
	}
	r := Record{Kind: KindOpenClient, Nonce: q.Nonce}
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
	r := Record{Kind: KindCancel, Client: q.Client, Request: q.Target, LowWater: q.LowWater}
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
