// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"iter"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Exporter hands out the state that a table had when the export began, a few
// entities at a time, while the table goes on changing. Several may be under way.
//
// It walks the table in order. What it has not reached yet and is about to change
// is saved with it first, so an Apply costs no more than the entities it changes.
// Places and receipts never change: they come and go, and the LSN of the record that
// made them says whether they belong to the state. Clients, files and what a grant has
// beside the usual carry the LSN of their last change while an export is under way.
//
// An exporter that is given up has to be closed. It is for use by the table's owner.
type Exporter struct {
	t    *Table
	at   cluster.LSN
	hash uint64

	// What was handed out: everything of the phases before, and of this one
	// everything up to these.
	phase   phase
	client  cluster.ClientID
	request cluster.RequestID
	file    cluster.FileName
	lock    cluster.LockName
	holder  cluster.Token // of lock; allHolders when there are no more
	place   *waiter       // the next one of lock; nil when the others come later than the export
	past    past          // as it was: it is small
	piece   int           // of past

	receipts []Entity // saved, and not handed out yet
	others   []Entity
}

// phase is what an exporter walks over. Receipts come first, because a checkpoint's
// state names their sum; clients before what they hold, so that a restore need not wait.
type phase uint8

const (
	exportReceipts phase = iota
	exportClients
	exportFiles
	exportLocks
	exportPast
	exportDone
)

// BeginExport fixes the state of now.
func (t *Table) BeginExport() *Exporter {
	x := &Exporter{t: t, at: t.lsn, hash: t.hash, past: t.past.clone()}
	t.exports = append(t.exports, x)
	return x
}

// Exporting is how many exports are under way.
func (t *Table) Exporting() int { return len(t.exports) }

// LSN is that of the state which is exported.
func (x *Exporter) LSN() cluster.LSN { return x.at }

// Hash is that of the state which is exported.
func (x *Exporter) Hash() uint64 { return x.hash }

// Close ends the export. It may be called again.
func (x *Exporter) Close() {
	x.t.exports = slices.DeleteFunc(x.t.exports, func(other *Exporter) bool { return other == x })
	x.phase, x.place, x.receipts, x.others, x.past = exportDone, nil, nil, nil, past{}
}

// Export iterates over the state. The table must not change meanwhile.
func (t *Table) Export() iter.Seq[Entity] {
	return func(yield func(Entity) bool) {
		x := t.BeginExport()
		defer x.Close()
		var buf []Entity
		for more := true; more; {
			buf, more = x.Next(exportStep, buf[:0])
			for _, e := range buf {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// allHolders is above the tokens of all holders.
const allHolders = ^cluster.Token(0)

// exportStep is how much Export asks for at a time.
const exportStep = 256

// Next appends the next entities to to: first receipts, then clients, files,
// locks, and what is remembered of ended bindings. It looks at about n entities, so that its time is bounded. False says that
// these were the last ones; the export has ended then.
//
// A lock with many holders or a long queue comes in several pieces, and what was saved comes out
// of order.
func (x *Exporter) Next(n int, to []Entity) (_ []Entity, more bool) {
	saved := &x.others
	if x.phase == exportReceipts {
		saved = &x.receipts
	}
	took := min(n, len(*saved))
	to = append(to, (*saved)[:took]...)
	clear((*saved)[:took])
	if *saved = (*saved)[took:]; len(*saved) == 0 {
		*saved = nil
	}
	for n -= took; n > 0 && x.phase != exportDone; {
		if to, n = x.walk(to, n); n > 0 {
			x.phase++
			x.client = ""
		}
	}
	if x.phase == exportDone && len(x.others) == 0 {
		x.Close()
		return to, false
	}
	return to, true
}

// walk goes on in its phase. It returns what is left of n, 0 when there may be more.
func (x *Exporter) walk(to []Entity, n int) ([]Entity, int) {
	switch x.phase {
	case exportReceipts:
		return x.walkReceipts(to, n)
	case exportClients:
		for id := range x.t.clientIDs.after(x.client) {
			if n == 0 {
				return to, 0
			}
			n--
			x.client = id
			if c := x.t.clients.get(id); c.changed <= x.at {
				to = append(to, Entity{Client: c.export()})
			}
		}
	case exportFiles:
		for name := range x.t.fileNames.after(x.file) {
			if n == 0 {
				return to, 0
			}
			n--
			x.file = name
			if f := x.t.files[name]; f.changed <= x.at {
				to = append(to, Entity{File: f.export()})
			}
		}
	case exportLocks:
		return x.walkLocks(to, n)
	case exportPast:
		for ; n > 0 && !x.past.none(); n-- {
			e, ok := x.past.entity(x.piece)
			if !ok {
				break
			}
			x.piece++
			to = append(to, e)
		}
	}
	return to, n
}

func (x *Exporter) walkReceipts(to []Entity, n int) ([]Entity, int) {
	if c := x.t.clients.get(x.client); c != nil { // the one it stopped at
		to, n = x.walkClient(to, n, c)
	}
	for id := range x.t.clientIDs.after(x.client) {
		if n == 0 {
			return to, 0
		}
		n--
		x.client, x.request = id, 0
		to, n = x.walkClient(to, n, x.t.clients.get(id))
	}
	return to, n
}

func (x *Exporter) walkClient(to []Entity, n int, c *client) ([]Entity, int) {
	i, _ := c.find(x.request + 1)
	for ; i < len(c.receipts) && n > 0; i++ {
		n--
		x.request = c.receipts[i].request
		if c.receipts[i].lsn <= x.at {
			to = append(to, Entity{Receipt: c.receipts[i].export(c.id)})
		}
	}
	return to, n
}

func (x *Exporter) walkLocks(to []Entity, n int) ([]Entity, int) {
	if l := x.t.locks.get(x.lock); l != nil {
		to, n = x.walkHolders(to, n, l)
	}
	if n > 0 && x.place != nil {
		s := &LockState{Name: x.lock}
		if n = x.walkQueue(s, n); len(s.Waiters) > 0 {
			to = append(to, Entity{Lock: s})
		}
	}
	for name := range x.t.lockNames.after(x.lock) {
		if n == 0 {
			return to, 0
		}
		n--
		l := x.t.locks.get(name)
		x.lock, x.holder, x.place = name, allHolders, l.head
		var s *LockState
		if l.sharing == nil && l.token != 0 && l.changedAt() <= x.at {
			s = l.exportHeld()
		} else {
			s = &LockState{Name: name}
		}
		if sh := l.sharing; sh != nil {
			if x.holder = 0; sh.phase <= x.at {
				s.Phase = sh.phase
			}
			if to, n = x.walkHolders(to, n, l); n == 0 && s.Phase == 0 {
				return to, 0
			}
		}
		if n = x.walkQueue(s, n); s.Grant != nil || len(s.Waiters) > 0 || s.Phase != 0 {
			to = append(to, Entity{Lock: s})
		}
	}
	return to, n
}

// walkHolders hands out the next holders of a lock that is shared.
func (x *Exporter) walkHolders(to []Entity, n int, l *lock) ([]Entity, int) {
	if x.holder == allHolders {
		return to, n
	}
	for g := range l.grants(x.holder) {
		if n == 0 {
			return to, 0
		}
		n--
		x.holder = g.token
		if g.changedAt() <= x.at {
			to = append(to, Entity{Lock: g.exportHeld()})
		}
	}
	x.holder = allHolders
	return to, n
}

// walkQueue hands out the next places of a lock. Those that came after the export
// began are behind all others.
func (x *Exporter) walkQueue(s *LockState, n int) int {
	for ; n > 0 && x.place != nil && x.place.lsn <= x.at; n-- {
		s.Waiters = append(s.Waiters, x.place.export())
		x.place = x.place.next
	}
	if x.place != nil && x.place.lsn > x.at {
		x.place = nil
	}
	return n
}

// stamp is the LSN of the record being applied while an export is under way.
func (t *Table) stamp() cluster.LSN {
	if len(t.exports) == 0 {
		return 0
	}
	return t.lsn + 1
}

// The functions below come before a change: they save what it takes away with
// every exporter that still needs it.

func (t *Table) leavesReceipt(c *client, rc *receipt) {
	for _, x := range t.exports {
		passed := x.phase != exportReceipts || c.id < x.client || c.id == x.client && rc.request <= x.request
		if !passed && rc.lsn <= x.at {
			x.receipts = append(x.receipts, Entity{Receipt: rc.export(c.id)})
		}
	}
}

func (t *Table) changesClient(c *client) {
	for _, x := range t.exports {
		passed := x.phase > exportClients || x.phase == exportClients && c.id <= x.client
		if !passed && c.changed <= x.at {
			x.others = append(x.others, Entity{Client: c.export()})
		}
	}
	c.changed = max(c.changed, t.stamp())
}

func (t *Table) changesFile(f *file) {
	for _, x := range t.exports {
		passed := x.phase > exportFiles || x.phase == exportFiles && f.name <= x.file
		if !passed && f.changed <= x.at {
			x.others = append(x.others, Entity{File: f.export()})
		}
	}
	f.changed = max(f.changed, t.stamp())
}

// changedAt is the LSN of the last change of the live grant that an export under way
// must know of.
func (l *lock) changedAt() cluster.LSN {
	at := cluster.LSN(l.token)
	if l.grant != nil {
		at = max(at, l.grant.changed)
	}
	return at
}

// leavesGrant also comes before a change of a grant that stays.
func (t *Table) leavesGrant(l *lock) {
	for _, x := range t.exports {
		passed := x.phase > exportLocks ||
			x.phase == exportLocks && (l.name < x.lock || l.name == x.lock && l.token <= x.holder)
		if !passed && l.changedAt() <= x.at {
			x.others = append(x.others, Entity{Lock: l.exportHeld()})
		}
	}
}

func (t *Table) leavesPhase(l *lock) {
	for _, x := range t.exports {
		passed := x.phase > exportLocks || x.phase == exportLocks && l.name <= x.lock
		if at := l.sharing.phase; !passed && at <= x.at {
			x.others = append(x.others, Entity{Lock: &LockState{Name: l.name, Phase: at, Waiters: []WaiterState{}}})
		}
	}
}

func (t *Table) leavesWaiter(w *waiter) {
	for _, x := range t.exports {
		here := x.phase == exportLocks && w.lock.name == x.lock
		passed := x.phase > exportLocks || x.phase == exportLocks && w.lock.name < x.lock ||
			here && (x.place == nil || w.lsn < x.place.lsn)
		if !passed && w.lsn <= x.at {
			x.others = append(x.others, Entity{Lock: &LockState{Name: w.lock.name, Waiters: []WaiterState{w.export()}}})
		}
		if x.place == w {
			x.place = w.next
		}
	}
}
