// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// letGo has five files bound and unbound, of which one was quarantined once.
func letGo(t *testing.T) *lostStory {
	t.Helper()
	x := newLostStory(t)
	x.append()
	x.quarantine()
	x.rotate()
	for range 4 {
		x.append()
		x.unbind(ok)
	}
	return x
}

// TestHashSeesAllOfAFile: no two states of a file, or of what is remembered of one, have one hash.
func TestHashSeesAllOfAFile(t *testing.T) {
	file := func(change func(*locktable.FileEntity)) locktable.Entity {
		f := locktable.FileEntity{Name: "f", Lock: "l", Inode: 7, Generation: 6, Start: 1, End: 5, LastOffset: 2, LastLength: 3, LastCRC: 9, LastLSN: 60, Since: 50}
		change(&f)
		return locktable.Entity{File: &f}
	}
	lost := locktable.LostAppends{Generation: 4, After: 10, Until: 20}
	merged := lost
	merged.Oldest = 2
	states := []locktable.Entity{
		file(func(*locktable.FileEntity) {}),
		file(func(f *locktable.FileEntity) { f.Sealed = true }),
		file(func(f *locktable.FileEntity) { f.Since = 0 }),
		file(func(f *locktable.FileEntity) { f.Since = 40 }),
		file(func(f *locktable.FileEntity) { f.Lost = []locktable.LostAppends{lost} }),
		file(func(f *locktable.FileEntity) { f.Lost = []locktable.LostAppends{merged} }),
		file(func(f *locktable.FileEntity) { f.Quarantined = true }),
		file(func(f *locktable.FileEntity) { f.Quarantined, f.Reason = true, "foreign" }),
		file(func(f *locktable.FileEntity) { f.Inode = 8 }),
		file(func(f *locktable.FileEntity) { f.Generation = 7 }),
		file(func(f *locktable.FileEntity) { f.Start = 2 }),
		file(func(f *locktable.FileEntity) { f.LastCRC = 8 }),
		file(func(f *locktable.FileEntity) { f.LastLSN = 61 }),
		{Past: &locktable.PastState{Generation: 3}},
		{Past: &locktable.PastState{Forgotten: 3}},
		{Past: &locktable.PastState{Inode: 3, End: 4}},
		{Past: &locktable.PastState{Inode: 3, End: 5}},
		{Past: &locktable.PastState{File: "f", Lost: []locktable.LostAppends{lost}}},
		{Past: &locktable.PastState{File: "f", Lost: []locktable.LostAppends{merged}}},
		{Past: &locktable.PastState{File: "g", Lost: []locktable.LostAppends{lost}}},
	}
	seen := map[uint64]int{}
	for i, e := range states {
		table, err := locktable.Restore(100, entities([]locktable.Entity{e}))
		if err != nil {
			t.Errorf("state %d: %v", i, err)
			continue
		}
		if other, twice := seen[table.Hash()]; twice {
			t.Errorf("states %d and %d have one hash", other, i)
		}
		seen[table.Hash()] = i
	}
}

// TestThePastIsCopied: a clone and an export under way do not see what is remembered later.
func TestThePastIsCopied(t *testing.T) {
	x := letGo(t)
	clone, hash := x.table.Clone(), x.table.Hash()
	export := x.table.BeginExport()
	defer export.Close()
	for range 3 { // inodes of which some are bound again, and new ones
		x.append()
		x.unbind(ok)
	}
	q := fileOp(locktable.OpBind, 900, "db", x.token, "again")
	q.AdoptExisting = true
	x.wantFacts(ok, q, locktable.FileFacts{Inode: 1, Size: 1})
	if err := clone.Check(); err != nil || clone.Hash() != hash {
		t.Errorf("the clone has changed: %v", err)
	}
	var all []locktable.Entity
	for more := true; more; {
		all, more = export.Next(1, all)
	}
	restored, err := locktable.Restore(clone.LSN(), entities(all))
	if err != nil || restored.Hash() != hash {
		t.Errorf("the export is of another state: %v", err)
	}
}

// TestRestoreRefusesATwofoldPast: what comes twice, or is too much, is no state.
func TestRestoreRefusesATwofoldPast(t *testing.T) {
	lost := []locktable.LostAppends{{Generation: 1, After: 1, Until: 2}}
	f := func(name cluster.FileName, inode uint64) locktable.Entity {
		return locktable.Entity{File: &locktable.FileEntity{Name: name, Lock: "l", Inode: inode, Generation: 1, LastLSN: 1}}
	}
	many := make([]locktable.LostAppends, 5)
	for i := range many {
		n := 5 - i
		many[i] = locktable.LostAppends{Generation: cluster.Generation(n), After: cluster.LSN(2 * n), Until: cluster.LSN(2*n + 1)}
	}
	for name, bad := range map[string][]locktable.Entity{
		"an inode":          {{Past: &locktable.PastState{Inode: 1, End: 1}}, {Past: &locktable.PastState{Inode: 1, End: 1}}},
		"a file":            {{Past: &locktable.PastState{File: "f", Lost: lost}}, {Past: &locktable.PastState{File: "f", Lost: lost}}},
		"lost generations":  {{Past: &locktable.PastState{File: "f", Lost: many}}},
		"two of an inode":   {f("f", 1), f("g", 1)},
		"two of a name":     {f("f", 1), f("f", 2)},
		"an unused inode":   {{Past: &locktable.PastState{Inode: 1}}},
		"a file of nothing": {{Past: &locktable.PastState{File: "f"}}},
	} {
		if _, err := locktable.Restore(100, entities(bad)); !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMarksComeInAnyOrder: the marks of a state that has to forget inodes while it is restored are
// the highest there are.
func TestMarksComeInAnyOrder(t *testing.T) {
	all := []locktable.Entity{{Past: &locktable.PastState{Generation: 9, Forgotten: 3}}}
	for i := range uint64(locktable.MaxUsedInodes + 1) {
		all = append(all, locktable.Entity{Past: &locktable.PastState{Inode: 1 + i, End: 7}})
	}
	slices.Reverse(all)
	table, err := locktable.Restore(100, entities(all))
	if err != nil {
		t.Fatal(err)
	}
	for e := range table.Export() {
		if e.Past != nil && e.Past.Inode == 0 && e.Past.File == "" && (e.Past.Generation != 9 || e.Past.Forgotten != 7) {
			t.Errorf("the marks are %+v", *e.Past)
		}
	}
}

// TestLostAppendsOfAnOlderState: where it is not known since when a file has its generation, what was
// appended to generations before is not lost with it.
func TestLostAppendsOfAnOlderState(t *testing.T) {
	x := newLostStory(t)
	healthy := x.append()
	x.rotate()
	lost := x.append()
	older, err := locktable.Restore(x.table.LSN(), func(yield func(locktable.Entity, error) bool) {
		for e := range x.table.Export() {
			if e.File != nil {
				e.File.Since = 0
			}
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	x.table = older
	x.quarantine()
	x.told([]cluster.RequestID{healthy}, []cluster.RequestID{lost})
	x.rotate()
	x.told([]cluster.RequestID{healthy}, []cluster.RequestID{lost})
	x.unbind(ok)
	x.told([]cluster.RequestID{healthy}, []cluster.RequestID{lost})
	if err := x.table.Check(); err != nil {
		t.Error(err)
	}
}
