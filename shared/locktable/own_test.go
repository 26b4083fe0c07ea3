// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// ownText is what cell 0 owns of a site in which cell 1 has what begins with p/, and with f1 and l1.
const ownText = `{"site_id":"01000000000000000000000000000000","cell":0,"version":1,"ranges":[{"from":"0000000000000000","cell":0}],"pins":[{"prefix":"f1","cell":1},{"prefix":"l1","cell":1},{"prefix":"p/","cell":1}]}`

func own(tb testing.TB, cell cluster.CellID) *cluster.Own {
	tb.Helper()
	o, err := cluster.ParseOwn(strings.Replace(ownText, `"cell":0,"version"`, `"cell":`+string('0'+rune(cell))+`,"version"`, 1))
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// TestOwnIsState: it is part of the hash, of exports as it was when they began, of clones, and of what is restored.
func TestOwnIsState(t *testing.T) {
	h := newHarness(t)
	if h.table.Own() != nil || !h.table.Own().Owns("p/x") {
		t.Error("a table is a cell by itself")
	}
	before := h.table.Hash()
	export := h.table.BeginExport()
	h.apply(h.table.DecideOwn(own(t, 1), h.epoch, nil))
	if h.table.Hash() == before {
		t.Error("it is no part of the hash")
	}
	for more := true; more; {
		var all []locktable.Entity
		if all, more = export.Next(100, nil); slices.ContainsFunc(all, func(e locktable.Entity) bool { return e.Own != nil }) {
			t.Error("an export has what came after it began")
		}
	}
	h.want(ok, acquire("ana", 1, "p/x", 0))
	h.reload()
	for what, table := range map[string]*locktable.Table{"the table": h.table, "a clone": h.table.Clone()} {
		if got := table.Own(); got.Text() != own(t, 1).Text() || got.Owns("x") || !got.Owns("p/x") || table.Check() != nil {
			t.Errorf("%s owns %+v: %v", what, got, table.Check())
		}
	}
	if recs := h.table.DecideOwn(own(t, 1), h.epoch, nil); len(recs) > 0 {
		t.Errorf("it is logged again: %+v", recs)
	}
	if recs := locktable.New().DecideOwn(nil, h.epoch, nil); len(recs) > 0 {
		t.Errorf("nothing is logged as %+v", recs)
	}
}

// TestForeignNamesAreIllegal: no record brings a name into the table that is another cell's, whoever decided it.
func TestForeignNamesAreIllegal(t *testing.T) {
	h := newHarness(t)
	h.apply(h.table.DecideOwn(own(t, 0), h.epoch, nil))
	h.illegal("the same again, before any lock", record{Kind: locktable.KindOwn, Own: ownText})
	h.want(ok, acquire("ana", 1, "x", 0))
	token := cluster.Token(h.table.LSN())
	h.want(pending, acquire("ben", 1, "x", forever))
	second := record{Kind: locktable.KindOwn, Own: strings.Replace(ownText, `"version":1`, `"version":2`, 1)}
	h.illegal("another version", second)
	h.illegal("the same again", record{Kind: locktable.KindOwn, Own: ownText})
	h.illegal("a grant", record{Kind: locktable.KindGrant, Client: "ana", Request: 2, Lock: "p/x", TTL: 1})
	h.illegal("a place", record{Kind: locktable.KindEnqueue, Client: "ana", Request: 2, Lock: "p/x", TTL: 1, Wait: forever})
	h.illegal("a file", record{Kind: locktable.KindBind, Client: "ana", Request: 2, Lock: "x", Token: token, File: "p/f", Inode: 7, Generation: 1})
	h.table, h.log = locktable.New(), nil
	h.illegal("a version that is not the first", second)
	h.illegal("not in its one form", record{Kind: locktable.KindOwn, Own: " " + ownText})
	for _, q := range []locktable.Request{acquire("ana", 1, "x", 0), remembered("ana", 1, "x")} {
		h.table, h.log = locktable.New(), nil
		h.want(ok, q)
		h.illegal("a cell that was none", record{Kind: locktable.KindOwn, Own: ownText})
		h.want(ok, release("ana", 2, "x", 1))
		if _, marked := h.table.Mark("x"); marked {
			h.illegal("a cell that was none, with a mark", record{Kind: locktable.KindOwn, Own: ownText})
			continue
		}
		h.apply([]record{{LSN: h.table.LSN() + 1, Epoch: h.epoch, Kind: locktable.KindOwn, Own: ownText}})
	}
}

// TestEveryOperationIsRefused that names a lock or a file of another cell, with the cell that has it.
func TestEveryOperationIsRefused(t *testing.T) {
	h := newHarness(t)
	h.apply(h.table.DecideOwn(own(t, 0), h.epoch, nil))
	h.want(ok, acquire("ana", 1, "x", 0))
	token := cluster.Token(h.table.LSN())
	id := cluster.RequestID(1)
	for op := locktable.OpAcquire; op <= locktable.OpExtend; op++ {
		q := locktable.Request{Op: op, Lock: "p/x", Token: token}
		switch op {
		case locktable.OpCancel, locktable.OpOpenClient, locktable.OpForget: // they name none
			continue
		case locktable.OpAcquire:
			q = acquire("", 0, "p/x", forever)
		case locktable.OpAppend:
			q = appendTo("", 0, "p/x", token, "f", "abc")
		case locktable.OpExtend:
			q.TTL = acquire("", 0, "x", 0).TTL
		case locktable.OpBind, locktable.OpUnbind, locktable.OpRotate, locktable.OpSeal:
			q.File = "f"
		}
		if strings.HasPrefix(op.String(), "op(") {
			continue
		}
		id++
		q.Client, q.ID = "ana", id
		for _, foreign := range []struct {
			lock cluster.LockName
			file cluster.FileName
		}{{"p/x", q.File}, {"x", "p/f"}} {
			if q.Lock, q.File = foreign.lock, foreign.file; q.File == "p/f" && !ofFiles(op) {
				continue
			}
			dec, recs := h.do(q, locktable.FileFacts{Inode: 9, Made: true})
			if out := dec.Outcome; out.Status != cluster.StatusWrongCell || out.Cell != 1 || out.LSN != 0 || len(recs) > 0 || !strings.Contains(out.Message, "belongs to cell 1 of this site") {
				t.Errorf("%v of %q, %q: %+v, %d records", q.Op, q.Lock, q.File, out, len(recs))
			}
		}
	}
	h.reload()
}

func ofFiles(op locktable.Op) bool {
	return slices.Contains([]locktable.Op{locktable.OpAppend, locktable.OpBind, locktable.OpUnbind, locktable.OpRotate, locktable.OpSeal}, op)
}

// TestOwnOfAState is refused where it cannot have come from a log.
func TestOwnOfAState(t *testing.T) {
	bad := *own(t, 0)
	bad.Version = 0
	for what, all := range map[string][]*cluster.Own{"twice": {own(t, 0), own(t, 0)}, "none": {&bad}} {
		_, err := locktable.Restore(7, func(yield func(locktable.Entity, error) bool) {
			for _, o := range all {
				if !yield(locktable.Entity{Own: o}, nil) {
					return
				}
			}
		})
		if !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("a state with what a cell owns, %s: %v", what, err)
		}
	}
	// A state with a lock of another cell is none, in whichever order its parts come.
	h := newHarness(t)
	h.want(ok, acquire("ana", 1, "p/x", 0))
	for range 2 {
		_, err := locktable.Restore(7, func(yield func(locktable.Entity, error) bool) {
			for e := range h.table.Export() {
				if !yield(e, nil) {
					return
				}
			}
			yield(locktable.Entity{Own: own(t, 0)}, nil)
		})
		if !errors.Is(err, locktable.ErrBadState) || !strings.Contains(err.Error(), `invariant 15: lock "p/x" is of cell 1, and this is cell 0`) {
			t.Errorf("a state with a lock of another cell: %v", err)
		}
	}
}
