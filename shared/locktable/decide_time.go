// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The decisions in this file are taken by the core loop, not for a request. Each
// appends its records to recs, numbered from LSN()+1, or nothing if it has become
// pointless.

// DecideExpire ends the grant because its lease ran out, and grants the next.
func (t *Table) DecideExpire(name cluster.LockName, token cluster.Token, epoch cluster.Epoch, recs []Record) []Record {
	l := t.locks[name]
	if l == nil || token == 0 || l.token != token {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindExpire, Lock: name, Token: token})
	t.grantNext(&d, l)
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
	return d.recs
}

// DecideForget drops a client that neither holds nor waits, and its receipts.
func (t *Table) DecideForget(id cluster.ClientID, epoch cluster.Epoch, recs []Record) []Record {
	c := t.clients[id]
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
// a lock and the grant of its batch, the grant follows here.
func (t *Table) DecideReign(server cluster.ServerID, epoch cluster.Epoch, recs []Record) []Record {
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindReign, Server: server})
	for name := range t.owed.all() {
		t.grantNext(&d, t.locks[name])
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
