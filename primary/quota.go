// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// quotaCounts are what callers have, as far as quotas limit it: derived from the table, and kept by the core loop while
// there are quotas. They are in no log, and neither Decide nor Apply looks at them: replay, replicas and models
// do without.
//
// A term, and other quotas, begin to count with the first lock and go on between the rounds, in order of the names. What a
// record changes is counted at once if its lock, or its file, was counted before, else when its turn comes. Until the
// end the counts are too low, so for that moment a quota may be exceeded; nobody is refused too early.
type quotaCounts struct {
	rules *access.Rules
	// identities reports whether identities are counted, by their names; "" for all without one.
	identities bool
	of         map[string]held
	// prefixes are the limits of prefixes, and below what there is below each.
	prefixes []access.PrefixLimits
	below    []below
	// counted is set when all are; before that, those up to lock and, when all locks are, file.
	counted bool
	locks   bool // all locks are counted
	lock    cluster.LockName
	file    cluster.FileName
}

// held is how many grants there are, and places in queues.
type held struct{ locks, waiters int64 }

// below is what there is below a prefix.
type below struct {
	held
	bytes int64 // of protected files
}

// newQuotaCounts returns counts for the quotas of these rules, nil if they need none. If was counts for the same quotas,
// it goes on.
func newQuotaCounts(r *access.Rules, was *quotaCounts) *quotaCounts {
	q := &quotaCounts{rules: r, identities: r.CountsIdentities(), prefixes: r.PrefixLimits(), of: map[string]held{}}
	if !q.identities && len(q.prefixes) == 0 {
		return nil
	}
	same := func(a, b access.PrefixLimits) bool { return a.Prefix == b.Prefix }
	if was != nil && was.identities == q.identities && slices.EqualFunc(was.prefixes, q.prefixes, same) {
		was.rules, was.prefixes = r, q.prefixes
		return was
	}
	q.below = make([]below, len(q.prefixes))
	return q
}

// addLock counts grants and places of an identity under a lock.
func (q *quotaCounts) addLock(lock cluster.LockName, identity string, n held) {
	if q.identities {
		x := q.of[identity]
		if x.locks, x.waiters = x.locks+n.locks, x.waiters+n.waiters; x == (held{}) {
			delete(q.of, identity)
		} else {
			q.of[identity] = x
		}
	}
	for i := range q.prefixes {
		if strings.HasPrefix(string(lock), q.prefixes[i].Prefix) {
			q.below[i].locks += n.locks
			q.below[i].waiters += n.waiters
		}
	}
}

// addFile counts bytes of a file.
func (q *quotaCounts) addFile(file cluster.FileName, bytes int64) {
	for i := range q.prefixes {
		if strings.HasPrefix(string(file), q.prefixes[i].Prefix) {
			q.below[i].bytes += bytes
		}
	}
}

// knowsLock reports whether a lock was counted, and knowsFile whether a file was.
func (q *quotaCounts) knowsLock(lock cluster.LockName) bool { return q.locks || lock <= q.lock }
func (q *quotaCounts) knowsFile(file cluster.FileName) bool {
	return q.counted || q.locks && file <= q.file
}

// countLock counts what there is of a lock.
func (q *quotaCounts) countLock(t *locktable.Table, lock cluster.LockName) {
	for g := range t.Grants(lock) {
		q.addLock(lock, g.Identity, held{locks: 1})
	}
	for w := range t.Waiters(lock) {
		q.addLock(lock, w.Identity, held{waiters: 1})
	}
}

// countSome counts the next of what is in the table, about n of them.
func (q *quotaCounts) countSome(t *locktable.Table, n int) {
	if !q.locks {
		for l := range t.Locks("", q.lock) {
			q.lock = l.Name
			q.countLock(t, l.Name)
			if n -= 1 + l.Holders + l.QueueLength; n <= 0 {
				return
			}
		}
		q.locks = true
	}
	for name, f := range t.FilesAfter("", q.file) {
		q.file = name
		q.addFile(name, f.End)
		if n--; n <= 0 {
			return
		}
	}
	q.counted = true
}

// change is what a record takes away, noted before it is applied.
type change struct {
	lock     cluster.LockName
	identity string
	gone     held
	file     int64 // the length of its file before
	adopts   bool  // it gives its client an identity
}

// before notes what a record takes away.
func (q *quotaCounts) before(t *locktable.Table, r *locktable.Record) (x change) {
	switch r.Kind {
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		if g, live := t.Live(r.Lock, r.Token); live {
			x.lock, x.identity, x.gone = r.Lock, g.Identity, held{locks: -1}
		}
	case locktable.KindGrant, locktable.KindWaitTimeout, locktable.KindCancel, locktable.KindSkip:
		if w, waits := t.Waiter(r.Client, r.Request); waits {
			x.lock, x.identity, x.gone = w.Lock, w.Identity, held{waiters: -1}
		}
	}
	if r.File != "" {
		f, _ := t.File(r.File)
		x.file = f.End
	}
	if r.Identity != "" && q.identities {
		c, known := t.Client(r.Client)
		x.adopts = known && c.Identity == "" && c.Held+c.Waiting > 0
	}
	return x
}

// after counts what a record has changed.
func (q *quotaCounts) after(t *locktable.Table, r *locktable.Record, x change) {
	if r.Kind == locktable.KindForceClear {
		clear(q.of)
		for i := range q.below {
			q.below[i].held = held{}
		}
		return
	}
	if x.gone != (held{}) && q.knowsLock(x.lock) {
		q.addLock(x.lock, x.identity, x.gone)
	}
	if r.File != "" && q.knowsFile(r.File) {
		f, _ := t.File(r.File)
		q.addFile(r.File, f.End-x.file)
	}
	if x.adopts {
		q.move(t, r)
	}
	if r.Kind != locktable.KindGrant && r.Kind != locktable.KindEnqueue || !q.knowsLock(r.Lock) {
		return
	}
	n := held{locks: 1}
	if r.Kind == locktable.KindEnqueue {
		n = held{waiters: 1}
	}
	c, _ := t.Client(r.Client)
	q.addLock(r.Lock, c.Identity, n)
}

// move counts what the client of a record had before it as that of its identity.
func (q *quotaCounts) move(t *locktable.Table, r *locktable.Record) {
	for g := range t.Held(r.Client) {
		if g.Token != r.LSN.Token() && q.knowsLock(g.Lock) {
			q.addLock(g.Lock, "", held{locks: -1})
			q.addLock(g.Lock, r.Identity, held{locks: 1})
		}
	}
	for w := range t.WaitsOf(r.Client) {
		if w.LSN != r.LSN && q.knowsLock(w.Lock) {
			q.addLock(w.Lock, "", held{waiters: -1})
			q.addLock(w.Lock, r.Identity, held{waiters: 1})
		}
	}
}

// refuses returns why quotas leave no room for a request that was decided with these records, "" if they do. A grant and a place
// in a queue, which becomes a grant, count as a lock; a place as a waiter, too.
func (q *quotaCounts) refuses(asked *locktable.Request, recs []locktable.Record) string {
	why, bytes := "", int64(0)
	for i := range recs {
		switch r := &recs[i]; {
		case asked.Op == locktable.OpAcquire && (r.Kind == locktable.KindGrant || r.Kind == locktable.KindEnqueue) && r.Client == asked.Client && r.Request == asked.ID:
			why = q.refusesLock(asked, r.Kind == locktable.KindEnqueue)
		case r.Kind == locktable.KindBind:
			bytes += r.Offset
			why = q.refusesBytes(r.File, bytes)
		case r.Kind == locktable.KindAppend:
			bytes += r.Length
			why = q.refusesBytes(r.File, bytes)
		}
		if why != "" {
			return why + fmt.Sprintf(" (access version %d)", q.rules.Version())
		}
	}
	return ""
}

func (q *quotaCounts) refusesLock(asked *locktable.Request, waits bool) string {
	who := asked.Identity
	if who == "" {
		who = "whoever has no credential"
	}
	has := q.of[asked.Identity]
	if most := asked.MostLocks; most > 0 && has.locks+has.waiters >= most {
		return fmt.Sprintf("%s holds %d locks and waits for %d: its quota is %d; release some, or have an administrator raise it", who, has.locks, has.waiters, most)
	}
	if most := asked.MostWaits; waits && most > 0 && has.waiters >= most {
		return fmt.Sprintf("%s waits %d times: its quota is %d waiters; cancel some, or have an administrator raise it", who, has.waiters, most)
	}
	for i, x := range q.prefixes {
		if !strings.HasPrefix(string(asked.Lock), x.Prefix) {
			continue
		}
		has := q.below[i]
		if most := x.Limits.Locks; most > 0 && has.locks+has.waiters >= most {
			return fmt.Sprintf("below %q, %d locks are held and waited for %d times: the quota of all callers is %d; release some, or have an administrator raise it", x.Prefix, has.locks, has.waiters, most)
		}
		if most := x.Limits.Waiters; waits && most > 0 && has.waiters >= most {
			return fmt.Sprintf("below %q, %d requests wait: the quota of all callers is %d waiters; try without waiting, or have an administrator raise it", x.Prefix, has.waiters, most)
		}
	}
	return ""
}

// refusesBytes returns why a file may not get longer by so many bytes.
func (q *quotaCounts) refusesBytes(file cluster.FileName, bytes int64) string {
	for i, x := range q.prefixes {
		if most := x.Limits.FileBytes; bytes > 0 && most > 0 && strings.HasPrefix(string(file), x.Prefix) && q.below[i].bytes+bytes > most {
			return fmt.Sprintf("the protected files below %q have %d bytes, and %d more would be above the quota of %d: rotate or unbind some, or have an administrator raise it", x.Prefix, q.below[i].bytes, bytes, most)
		}
	}
	return ""
}

// check compares the counts with the table.
func (q *quotaCounts) check(t *locktable.Table) error {
	want := &quotaCounts{identities: q.identities, of: map[string]held{}, prefixes: q.prefixes, below: make([]below, len(q.prefixes))}
	for l := range t.Locks("", "") {
		if q.knowsLock(l.Name) {
			want.countLock(t, l.Name)
		}
	}
	for name, f := range t.Files() {
		if q.knowsFile(name) {
			want.addFile(name, f.End)
		}
	}
	if !maps.Equal(q.of, want.of) || !slices.Equal(q.below, want.below) {
		return fmt.Errorf("at LSN %d the counts of quotas are %v and %v, those of the table %v and %v", t.LSN(), q.of, q.below, want.of, want.below)
	}
	return nil
}

// followRules has the core loop count what the rules in force limit.
func (c *core) followRules() {
	if c.p.opt.Rules == nil {
		return
	}
	if r := c.p.opt.Rules(); r != c.rules {
		c.rules, c.quotas = r, newQuotaCounts(r, c.quotas)
	}
	if c.quotas != nil && !c.quotas.counted {
		c.quotas.countSome(c.table, adoptStep)
	}
}

// checkQuotas compares what is counted for quotas with the table.
func (c *core) checkQuotas() error {
	if c.quotas == nil {
		return nil
	}
	return c.quotas.check(c.table)
}

// counting reports whether there is more to count for quotas.
func (c *core) counting() bool { return c.quotas != nil && !c.quotas.counted }
