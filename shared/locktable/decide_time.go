// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The decisions in this file are taken by the core loop, not for a request. Each
// appends its records to recs, numbered from LSN()+1, or nothing if it has become
// pointless.

// DecideExpire ends the grant because its lease ran out, and grants what follows. A
// reason says that it was something else than a missed renewal.
func (t *Table) DecideExpire(name cluster.LockName, token cluster.Token, reason string, epoch cluster.Epoch, recs []Record) []Record {
	if t.live(name, token) == nil {
		return recs
	}
	d := t.draft(epoch, recs)
	t.decideEnd(&d, Record{Kind: KindExpire, Lock: name, Token: token, Reason: reason})
	return d.recs
}

// DecideGrace breaks a grant whose holder was asked to let go and did not.
func (t *Table) DecideGrace(name cluster.LockName, token cluster.Token, epoch cluster.Epoch, recs []Record) []Record {
	a, ok := t.AskOf(name, token)
	if !ok {
		return recs
	}
	d := t.draft(epoch, recs)
	t.decideEnd(&d, Record{Kind: KindBreak, Lock: name, Token: token, Actor: a.Actor, Reason: a.Reason})
	return d.recs
}

// DecideWaitTimeout takes a waiting request out of its queue.
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

// DecideGivenUp takes the first place of a client out that lies below its low-water mark:
// nobody cares any more what it would get.
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

// DecideReign begins a reign. Should the log have ended between a record that freed
// a lock and the grants that belong to it, they follow here; what is more than a batch
// takes, by DecideOwed.
func (t *Table) DecideReign(server cluster.ServerID, epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindReign, Server: server})
	for name := range t.owed.all() {
		if len(d.recs)-len(recs) > phaseStep {
			break
		}
		t.grantOwed(&d, t.locks.get(name))
	}
	return d.recs
}

// DecideResign ends a reign on purpose.
func (t *Table) DecideResign(reason string, epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindResigned, Reason: clip(reason)})
	return d.recs
}

// clip makes any text fit a record: a reason may come from an error of any length.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), cluster.MaxText)], "")
}
