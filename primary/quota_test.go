// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

func quotaRules(t *testing.T, version uint64, all ...access.Quota) *access.Rules {
	t.Helper()
	r, err := access.Compile(&access.File{Quotas: all}, version)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func limitsTo(name string, most int64) map[string]any { return map[string]any{name: most} }

// countedTable is a table with counts beside it, which are compared with it after every record.
type countedTable struct {
	t      *testing.T
	rng    *rand.Rand
	table  *locktable.Table
	q      *quotaCounts
	nextID cluster.RequestID
	inode  uint64
	kinds  map[locktable.Kind]int
	files  int // there were with bytes
}

func (x *countedTable) apply(recs []locktable.Record) {
	x.t.Helper()
	for i := range recs {
		r := &recs[i]
		changes := x.q.before(x.table, r)
		if err := x.table.Apply(r); err != nil {
			x.t.Fatal(err)
		}
		x.q.after(x.table, r, changes)
		x.kinds[r.Kind]++
		if err := x.q.check(x.table); err != nil {
			x.t.Fatalf("after %v: %v", r.Kind, err)
		}
	}
}

// grant returns a random live grant, false if there is none.
func (x *countedTable) grant() (g locktable.Grant, ok bool) {
	n := 0
	for l := range x.table.Locks("", "") {
		for y := range x.table.Grants(l.Name) {
			if n++; x.rng.IntN(n) == 0 {
				g, ok = y, true
			}
		}
	}
	return g, ok
}

// waiter returns a random place in a queue.
func (x *countedTable) waiter() (w locktable.Waiter, ok bool) {
	n := 0
	for l := range x.table.Locks("", "") {
		for y := range x.table.Waiters(l.Name) {
			if n++; x.rng.IntN(n) == 0 {
				w, ok = y, true
			}
		}
	}
	return w, ok
}

// request makes a request of what a client may do.
func (x *countedTable) request() (*locktable.Request, locktable.FileFacts) {
	x.nextID++
	client := cluster.ClientID([]string{"a", "b", "c", "d", fmt.Sprintf("~%d", x.nextID)}[x.rng.IntN(5)])
	q := &locktable.Request{Client: client, ID: x.nextID, TTL: time.Second}
	if c, ok := x.table.Client(client); ok {
		q.Identity = c.Identity
	}
	if q.Identity == "" && x.rng.IntN(3) == 0 { // it belongs to nobody, and maybe from now on
		q.Identity = "user:" + string(client[0])
	}
	g, held := x.grant()
	n := x.rng.IntN(20)
	if n < 8 || !held {
		q.Op, q.Lock = locktable.OpAcquire, cluster.LockName(fmt.Sprintf("%c/%d", 'p'+rune(x.rng.IntN(3)), x.rng.IntN(3)))
		q.Mode, q.Wait = locktable.Mode(x.rng.IntN(2)), time.Duration(x.rng.IntN(2))*time.Minute
		return q, locktable.FileFacts{}
	}
	q.Lock, q.Token, q.Client, q.Identity = g.Lock, g.Token, g.Client, g.Identity
	q.File = cluster.FileName(string(g.Lock) + ".log")
	x.inode++
	facts := locktable.FileFacts{Inode: x.inode, Size: int64(x.rng.IntN(2)) * 10, Made: true}
	switch n {
	case 8, 9, 10:
		q.Op = locktable.OpRelease
	case 11:
		q.Op = locktable.OpDowngrade
	case 12:
		q.Op, q.Client, q.Actor, q.Reason = locktable.OpBreak, "operator", "o", "r"
		q.Identity = ""
	case 13:
		q.Op, q.AdoptExisting = locktable.OpBind, true
	case 14:
		q.Op = locktable.OpUnbind
	case 15:
		q.Op, facts.Size = locktable.OpRotate, 0
	case 16:
		q.Op = locktable.OpSeal
	default:
		q.Op, q.AdoptExisting, q.Data = locktable.OpAppend, true, make([]byte, 1+x.rng.IntN(9))
		q.CRC = crc32.Checksum(q.Data, crc32.MakeTable(crc32.Castagnoli))
	}
	return q, facts
}

// step does one thing that can happen to a table.
func (x *countedTable) step() {
	switch n := x.rng.IntN(40); {
	case n < 3:
		if g, ok := x.grant(); ok {
			x.apply(x.table.DecideExpire(g.Lock, g.Token, "", 1, nil))
		}
	case n < 5:
		if w, ok := x.waiter(); ok {
			x.apply(x.table.DecideWaitTimeout(w.Client, w.Request, 1, nil))
		}
	case n < 8:
		if w, ok := x.waiter(); ok {
			recs, _ := x.table.Decide(&locktable.Request{Op: locktable.OpCancel, Client: w.Client, Target: w.Request, Identity: w.Identity}, 1, locktable.FileFacts{}, nil)
			x.apply(recs)
		}
	case n == 8 && x.rng.IntN(10) == 0:
		x.apply(x.table.DecideForceClear(1, nil))
	case n == 9:
		x.apply(x.table.DecideForget([]cluster.ClientID{"a", "b", "c", "d"}[x.rng.IntN(4)], 1, nil))
	case n == 10 && !x.q.counted:
		x.q.countSome(x.table, 1+x.rng.IntN(4))
		if err := x.q.check(x.table); err != nil {
			x.t.Fatal(err)
		}
	default:
		q, facts := x.request()
		recs, _ := x.table.Decide(q, 1, facts, nil)
		x.apply(recs)
	}
	for x.table.HasPendingGrants() {
		x.apply(x.table.DecideOwed(1, nil))
	}
	for _, f := range x.table.Files() {
		if f.End > 0 {
			x.files++
		}
	}
}

// TestCountsEqualTheTable after every record, also while they are still being made, and from whichever state on they were begun.
func TestCountsEqualTheTable(t *testing.T) {
	kinds, files := map[locktable.Kind]int{}, 0
	for seed := range uint64(12) {
		x := &countedTable{t: t, rng: rand.New(rand.NewPCG(seed, 7)), table: locktable.New(), kinds: kinds}
		begin := func() {
			all := []access.Quota{{Prefix: "p/", Limits: limitsTo("locks", 1)}, {Prefix: "q", Limits: limitsTo("file_bytes", 1)}}
			if x.rng.IntN(2) == 0 {
				all = append(all, access.Quota{Who: []string{"*"}, Limits: limitsTo("waiters", 1)})
			}
			x.q = newQuotaCounts(quotaRules(t, 1, all...), nil)
		}
		begin()
		for i := range 1500 {
			if i%300 == 299 {
				begin()
			}
			x.step()
		}
		files += x.files
	}
	for _, k := range []locktable.Kind{
		locktable.KindGrant, locktable.KindEnqueue, locktable.KindRelease, locktable.KindExpire, locktable.KindWaitTimeout, locktable.KindCancel, locktable.KindBreak,
		locktable.KindAppend, locktable.KindBind, locktable.KindUnbind, locktable.KindRotate, locktable.KindForceClear, locktable.KindDowngrade, locktable.KindForgetClient,
	} {
		if kinds[k] == 0 {
			t.Errorf("there was no %v", k)
		}
	}
	if files == 0 {
		t.Error("no file had bytes")
	}
}

// TestCountsOutliveNewRules: what does not change the quotas does not count anew, and what ends them counts nothing.
func TestCountsOutliveNewRules(t *testing.T) {
	one := access.Quota{Prefix: "p/", Limits: limitsTo("locks", 1)}
	q := newQuotaCounts(quotaRules(t, 1, one), nil)
	q.countSome(locktable.New(), 1)
	two := quotaRules(t, 2, access.Quota{Prefix: "p/", Limits: limitsTo("locks", 2)})
	if next := newQuotaCounts(two, q); next != q || next.prefixes[0].Limits.Locks != 2 || next.rules != two {
		t.Errorf("another limit: %+v", next)
	}
	if next := newQuotaCounts(quotaRules(t, 3, one, access.Quota{Who: []string{"*"}, Limits: limitsTo("locks", 2)}), q); next == q || next.counted {
		t.Error("identities are counted from nothing")
	}
	for _, r := range []*access.Rules{nil, quotaRules(t, 4), quotaRules(t, 4, access.Quota{Who: []string{"*"}, Limits: limitsTo("requests_per_s", 2)})} {
		if newQuotaCounts(r, q) != nil {
			t.Error("something is counted that nothing limits")
		}
	}
}
