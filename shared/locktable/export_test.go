// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"unsafe"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// What a client, a grant and its parameters take: there are many.
const (
	ClientSize = unsafe.Sizeof(client{})
	LockSize   = unsafe.Sizeof(lock{})
	ParamsSize = unsafe.Sizeof(grantParams{})
)

// Damage is one way to break an invariant of a table in the state that busy makes.
type Damage struct {
	Invariant int
	What      string
	Do        func(t *Table)
}

// Damages lists ways to break each invariant, for the test of Check.
func Damages() []Damage {
	a := func(t *Table) *client { return t.clients.get("a") }
	db := func(t *Table) *lock { return t.locks.get("db") }
	return append([]Damage{
		{1, "token of the future", func(t *Table) { db(t).token = 99 }},
		{1, "one token twice", func(t *Table) { t.locks.get("other").token = db(t).token }},
		{1, "no TTL", func(t *Table) { db(t).ttl = 0 }},
		{1, "free with a holder", func(t *Table) { db(t).token = 0 }},
		{2, "queue turned round", func(t *Table) { l := db(t); l.head.lsn, l.tail.lsn = l.tail.lsn, l.head.lsn }},
		{2, "wrong back link", func(t *Table) { db(t).tail.prev = nil }},
		{2, "lost tail", func(t *Table) { db(t).tail = db(t).head }},
		{2, "miscounted queue", func(t *Table) { db(t).queued++ }},
		{2, "waiter without a deadline", func(t *Table) { db(t).head.wait = 0 }},
		{3, "owed although held", func(t *Table) { t.owed.insert("db") }},
		{3, "owed although unknown", func(t *Table) { t.owed.insert("nobody") }},
		{3, "owed to the wrong lock", func(t *Table) {
			t.endGrant(&Record{Lock: "db", Token: db(t).token})
			t.owed.remove("db")
			t.owed.insert("other")
		}},
		{4, "idle lock", func(t *Table) { t.lockFor("idle") }},
		{5, "file not listed by its lock", func(t *Table) { db(t).files.remove("log"); db(t).files.insert("gol") }},
		{5, "file listed by two locks", func(t *Table) {
			entry := t.ownEntry(t.locks.get("other"))
			entry.files = new(sorted[cluster.FileName])
			entry.files.insert("log")
		}},
		{5, "inode of nobody", func(t *Table) { t.inodes[77] = "ghost" }},
		{5, "wrong inode", func(t *Table) { t.files["log"].Inode++ }},
		{5, "append beyond the end", func(t *Table) { t.files["log"].LastOffset++ }},
		{6, "grant not listed", func(t *Table) { a(t).unhold(db(t)); db(t).client = a(t) }},
		{6, "grants out of order", func(t *Table) { l := db(t); a(t).unhold(l); a(t).hold(l) }},
		{6, "miscounted grants", func(t *Table) { a(t).held++ }},
		{6, "digest of other grants", func(t *Table) { a(t).digest++ }},
		{6, "waiter not listed", func(t *Table) { c := t.clients.get("b"); c.waits = nil }},
		{6, "waiter in no queue", func(t *Table) {
			c := t.clients.get("b")
			t.clients.get("a").waits = []*waiter{{client: a(t), request: c.waits[0].request + 50}}
		}},
		{7, "executed and waiting", func(t *Table) {
			c := t.clients.get("b")
			c.receipts = append(c.receipts, receipt{request: c.waits[0].request})
		}},
		{7, "receipts out of order", func(t *Table) { r := a(t).receipts; r[0], r[1] = r[1], r[0] }},
		{7, "receipt below the mark", func(t *Table) { a(t).lowWater = 2 }},
		{7, "receipt of the future", func(t *Table) { a(t).receipts[2].lsn = 99 }},
		{7, "receipt of no outcome", func(t *Table) { a(t).receipts[2].kind = KindEnqueue }},
		{7, "receipt with another token", func(t *Table) { a(t).receipts[0].token++ }},
		{7, "too many receipts", func(t *Table) {
			for id := range MaxChosenReceipts {
				rc := a(t).receipts[2]
				rc.request += cluster.RequestID(id + 1)
				a(t).receipts = append(a(t).receipts, rc)
			}
		}},
		{8, "nonce of a self-chosen client", func(t *Table) { a(t).nonce = 5 }},
		{8, "idle anonymous client", func(t *Table) { t.addClient(&client{Presence: Presence{id: "~idle"}}) }},
		{8, "opened client without nonce", func(t *Table) { t.addClient(&client{Presence: Presence{id: "@1"}}) }},
		{9, "lock not in the index", func(t *Table) { t.lockNames.remove("db") }},
		{9, "index out of order", func(t *Table) { b := t.lockNames.blocks[0]; b[0], b[1] = b[1], b[0] }},
		{9, "file under another name", func(t *Table) { t.files["log"].name = "z" }},
		{10, "hash", func(t *Table) { t.hash++ }},
		{10, "silent change", func(t *Table) { db(t).ttl++ }},
	}, append(sharedDamages(), pastDamages()...)...)
}

// pastDamages are those of what is remembered of ended bindings.
func pastDamages() []Damage {
	return []Damage{
		{11, "inodes out of order", func(t *Table) { t.past.used = []usedInode{{2, 1}, {1, 1}} }},
		{11, "an inode that nothing used", func(t *Table) { t.past.used = []usedInode{{2, 0}} }},
		{11, "nothing that was lost", func(t *Table) { t.past.lost = []lostFile{{name: "gone"}} }},
		{11, "lost in the future", func(t *Table) {
			t.past.lost = []lostFile{{name: "gone", lost: lostList{{Generation: 1, After: 1, Until: 99}}}}
		}},
		{11, "forgotten below nothing", func(t *Table) { t.past.forgotten = -1 }},
	}
}

// sharedDamages are those of a lock that is shared.
func sharedDamages() []Damage {
	db := func(t *Table) *lock { return t.locks.get("db") }
	rd := func(t *Table) *lock { return t.locks.get("rd") }
	return []Damage{
		{1, "exclusive with others", func(t *Table) { rd(t).sharing.grants[0].grantParams = db(t).grantParams }},
		{2, "shared waiter not listed", func(t *Table) { rd(t).sharing.waiters = nil }},
		{2, "exclusive waiter listed as shared", func(t *Table) { s := rd(t).sharing; s.waiters = append(s.waiters, rd(t).head) }},
		{3, "phase of nobody", func(t *Table) { t.setPhase(rd(t), 2); t.owed.insert("rd") }},
		{3, "phase not known", func(t *Table) { t.setPhase(rd(t), t.lsn) }},
		{3, "reader that waits for nobody", func(t *Table) { t.unqueue(rd(t).head) }},
		{9, "shared without need", func(t *Table) { t.sharingOf(db(t)) }},
		{6, "shared grant not listed", func(t *Table) { g := rd(t).sharing.grants[0]; c := g.client; c.unhold(g); g.client = c }},
	}
}
