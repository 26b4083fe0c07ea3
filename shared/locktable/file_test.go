// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// fileOp builds a Bind, Unbind or Rotate.
func fileOp(op locktable.Op, id cluster.RequestID, lock cluster.LockName, token cluster.Token, file cluster.FileName) locktable.Request {
	return locktable.Request{Op: op, Client: "c", ID: id, Lock: lock, Token: token, File: file}
}

func TestFirstAppendBinds(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("c", 1, "db", 0)).Token
	q := appendTo("c", 2, "db", token, "a/log", "hello")
	h.want(cluster.StatusStorageUnavailable, q) // not verified
	dec, recs := h.do(q, locktable.FileFacts{Inode: 77})
	if len(recs) != 2 || recs[0].Kind != locktable.KindBind || recs[1].Kind != locktable.KindAppend {
		t.Fatalf("records: %+v", recs)
	}
	if none := locktable.OutcomeOf(&recs[0]); none.Status != cluster.StatusNone {
		t.Fatalf("the bind answers: %+v", none)
	}
	want := locktable.Outcome{
		Status: ok, Client: "c", Request: 2, LSN: 3, Epoch: 1, Lock: "db", Token: token,
		File: "a/log", Generation: 1, Offset: 0, Length: 5, CRC: q.CRC,
	}
	if dec.Outcome != want {
		t.Fatalf("receipt %+v, want %+v", dec.Outcome, want)
	}
	want.Repeat = true
	if again := h.want(ok, q); again != want {
		t.Fatalf("repeat %+v, want %+v", again, want)
	}
	if next := h.want(ok, appendTo("other", 1, "db", token, "a/log", "world!")); next.Offset != 5 {
		t.Fatalf("next offset: %+v", next)
	}
	f, _ := h.table.File("a/log")
	if f.End != 11 || f.LastOffset != 5 || f.LastLength != 6 || f.LastLSN != 4 || f.Inode != 77 || f.Start != 0 {
		t.Fatalf("file: %+v", f)
	}
	if files := h.table.FilesOf("db"); !slices.Equal(files, []cluster.FileName{"a/log"}) {
		t.Fatalf("files of the lock: %v", files)
	}
	h.want(ok, release("c", 3, "db", token))
	h.want(cluster.StatusInvalidToken, appendTo("c", 4, "db", token, "a/log", "late"))
	h.want(ok, q) // the repeat of an executed append is answered under a dead token
	h.reload()
}

func TestAdoptExisting(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("c", 1, "db", 0)).Token
	full := locktable.FileFacts{Inode: 1, Size: 100}
	q := appendTo("c", 2, "db", token, "log", "x")
	if out := h.wantFacts(invalid, q, full); !strings.Contains(out.Message, "adopt_existing") {
		t.Fatalf("message: %q", out.Message)
	}
	q.AdoptExisting = true
	if out := h.wantFacts(ok, q, full); out.Offset != 100 {
		t.Fatalf("offset: %+v", out)
	}
	if f, _ := h.table.File("log"); f.Start != 100 || f.End != 101 {
		t.Fatalf("file: %+v", f)
	}
	bind := fileOp(locktable.OpBind, 3, "db", token, "log2")
	h.wantFacts(invalid, bind, locktable.FileFacts{Inode: 1}) // the same inode
	h.wantFacts(invalid, bind, locktable.FileFacts{Inode: 2, Size: 1})
	bind.AdoptExisting = true
	if out := h.wantFacts(ok, bind, locktable.FileFacts{Inode: 2, Size: 1}); out.Generation != 1 || out.Offset != 1 {
		t.Fatalf("bind: %+v", out)
	}
	h.reload()
}

func TestBindUnbindRotate(t *testing.T) {
	h := newHarness(t)
	db := h.want(ok, acquire("c", 1, "db", 0)).Token
	other := h.want(ok, acquire("c", 2, "other", 0)).Token
	h.wantFacts(ok, fileOp(locktable.OpBind, 3, "db", db, "log"), locktable.FileFacts{Inode: 1})
	bound, _ := h.table.File("log")
	h.want(ok, fileOp(locktable.OpBind, 4, "db", db, "log")) // so already
	if f, _ := h.table.File("log"); f != bound {
		t.Fatalf("a bind of a bound file changed it: %+v", f)
	}
	for op, id := range map[locktable.Op]cluster.RequestID{locktable.OpBind: 10, locktable.OpUnbind: 11, locktable.OpRotate: 12} {
		if out := h.want(invalid, fileOp(op, id, "other", other, "log")); !strings.Contains(out.Message, `"db"`) {
			t.Errorf("%v: the message does not name the lock: %q", op, out.Message)
		}
		h.want(cluster.StatusInvalidToken, fileOp(op, id, "db", other, "log"))
	}
	h.want(invalid, appendTo("c", 13, "other", other, "log", "x"))
	h.want(invalid, fileOp(locktable.OpUnbind, 14, "db", db, "unknown"))
	h.want(invalid, fileOp(locktable.OpRotate, 15, "db", db, "unknown"))

	h.want(ok, appendTo("c", 16, "db", db, "log", "abc"))
	h.apply(h.table.DecideQuarantine("log", "foreign bytes", 1, nil))
	h.apply(h.table.DecideQuarantine("log", "again", 1, nil))
	if out := h.want(cluster.StatusFileQuarantined, appendTo("c", 17, "db", db, "log", "x")); !strings.Contains(out.Message, "foreign") {
		t.Fatalf("message: %q", out.Message)
	}
	rotate := fileOp(locktable.OpRotate, 18, "db", db, "log")
	h.want(cluster.StatusStorageUnavailable, rotate)
	h.wantFacts(invalid, rotate, locktable.FileFacts{Inode: 1})
	h.wantFacts(cluster.StatusStorageUnavailable, rotate, locktable.FileFacts{Inode: 2, Generation: 3})
	h.wantFacts(cluster.StatusStorageUnavailable, rotate, locktable.FileFacts{Inode: 2, Size: 1})
	if out := h.wantFacts(ok, rotate, locktable.FileFacts{Inode: 2, Generation: 2}); out.Generation != 2 {
		t.Fatalf("rotate: %+v", out)
	}
	if out := h.want(ok, appendTo("c", 19, "db", db, "log", "x")); out.Offset != 0 || out.Generation != 2 {
		t.Fatalf("append after rotate: %+v", out)
	}
	h.reload()

	h.want(ok, release("c", 20, "other", other))
	h.want(ok, fileOp(locktable.OpUnbind, 21, "db", db, "log"))
	h.wantFacts(ok, fileOp(locktable.OpBind, 22, "db", db, "log"), locktable.FileFacts{Inode: 3})
	h.want(ok, release("c", 23, "db", db))
	if v, found := h.table.Lock("db"); !found || v.FileCount != 1 || v.Grant.Token != 0 {
		t.Fatalf("a free lock with a file: %+v %t", v, found)
	}
	h.reload()
}

// lostStory has one file with healthy and quarantined generations, and binds it anew.
type lostStory struct {
	*harness
	token cluster.Token
	next  cluster.RequestID
	inode uint64
}

func newLostStory(t *testing.T) *lostStory {
	h := newHarness(t)
	return &lostStory{harness: h, token: h.want(ok, acquire("c", 1, "db", 0)).Token, next: 1}
}

func (x *lostStory) one(id cluster.RequestID) locktable.Request {
	return appendTo("c", id, "db", x.token, "log", "x")
}

func (x *lostStory) file() locktable.FileState {
	f, _ := x.table.File("log")
	return f
}

func (x *lostStory) append() cluster.RequestID {
	x.next++
	x.inode++
	x.wantFacts(ok, x.one(x.next), locktable.FileFacts{Inode: x.inode})
	return x.next
}

func (x *lostStory) quarantine() { x.apply(x.table.DecideQuarantine("log", "foreign bytes", 1, nil)) }

func (x *lostStory) rotate() {
	x.next++
	x.inode++
	x.wantFacts(ok, fileOp(locktable.OpRotate, x.next, "db", x.token, "log"), locktable.FileFacts{Inode: x.inode, Generation: x.file().Generation + 1})
}

func (x *lostStory) unbind(want cluster.Status) {
	x.next++
	x.want(want, fileOp(locktable.OpUnbind, x.next, "db", x.token, "log"))
}

// told requires what repeats are told.
func (x *lostStory) told(healthy, lost []cluster.RequestID) {
	x.tb.Helper()
	for _, id := range healthy {
		if out := x.want(ok, x.one(id)); !out.Repeat {
			x.tb.Errorf("request %d: %+v", id, out)
		}
	}
	for _, id := range lost {
		out := x.want(cluster.StatusFileQuarantined, x.one(id))
		state, seen := x.table.Lookup("c", id)
		if !out.Repeat || !out.Committed || out.Message == "" || state != locktable.RequestExecuted || seen.Status != out.Status {
			x.tb.Errorf("request %d: %+v, and looked up %v: %+v", id, out, state, seen)
		}
	}
}

// TestRepeatOfALostAppend: what was appended to a generation that was quarantined may be in no file,
// and nobody is told that it is in one, before or after the rotation.
func TestRepeatOfALostAppend(t *testing.T) {
	x := newLostStory(t)
	first := x.append()
	x.rotate()
	lost := x.append()
	x.quarantine()
	x.told([]cluster.RequestID{first}, []cluster.RequestID{lost})
	x.rotate()
	second := x.append()
	x.told([]cluster.RequestID{first, second}, []cluster.RequestID{lost})
	x.reload()
	x.rotate()
	x.told([]cluster.RequestID{first, second}, []cluster.RequestID{lost})
	lost2 := x.append()
	x.quarantine()
	x.rotate()
	x.reload()
	x.told([]cluster.RequestID{first, second}, []cluster.RequestID{lost, lost2})
}

// TestALostAppendOutlivesTheBinding: a quarantined file is not unbound, and when it was rotated and
// is, what was lost in it is known as before.
func TestALostAppendOutlivesTheBinding(t *testing.T) {
	x := newLostStory(t)
	healthy := x.append()
	x.rotate()
	lost := x.append()
	x.quarantine()
	x.unbind(cluster.StatusFileQuarantined)
	x.illegal("unbind of a quarantined file", locktable.Record{
		Kind: locktable.KindUnbind, Client: "c", Request: 99, Lock: "db", Token: x.token, File: "log", Remember: true,
	})
	x.told([]cluster.RequestID{healthy}, []cluster.RequestID{lost})
	x.rotate()
	x.unbind(ok)
	x.told([]cluster.RequestID{healthy}, []cluster.RequestID{lost})
	x.reload()
	later := x.append()
	x.told([]cluster.RequestID{healthy, later}, []cluster.RequestID{lost})
	x.unbind(ok) // nothing was lost under this one
	later2 := x.append()
	x.quarantine()
	x.rotate()
	x.unbind(ok)
	x.told([]cluster.RequestID{healthy, later}, []cluster.RequestID{lost, later2})
	x.reload()
}

// TestEveryQuarantinedGenerationIsKnown: however many there were, and however often the file was
// bound anew. Where they are too many to tell apart, a healthy one between them may be told as lost.
func TestEveryQuarantinedGenerationIsKnown(t *testing.T) {
	x := newLostStory(t)
	var lost, healthy []cluster.RequestID
	for i := range 12 {
		lost = append(lost, x.append())
		x.quarantine()
		x.rotate()
		x.told(nil, lost)
		if i == 2 || i == 7 {
			x.unbind(ok)
			x.told(nil, lost)
			x.reload()
		}
	}
	healthy = append(healthy, x.append())
	x.rotate()
	healthy = append(healthy, x.append())
	x.told(healthy, lost)
	x.unbind(ok)
	x.told(healthy, lost)
	x.reload()
}

// TestLostFilesAreBounded: behind the last one that can be remembered, a file stays bound.
func TestLostFilesAreBounded(t *testing.T) {
	table := locktable.New()
	inode := uint64(0)
	do := func(q locktable.Request, facts locktable.FileFacts) locktable.Outcome {
		t.Helper()
		recs, d := table.Decide(&q, 1, facts, nil)
		for i := range recs {
			if err := table.Apply(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
		return d.Outcome
	}
	token := do(acquire("c", 1, "db", 0), locktable.FileFacts{}).Token
	next := func(q locktable.Request, generation cluster.Generation) locktable.Outcome {
		inode++
		q.ID = cluster.RequestID(inode + 1)
		return do(q, locktable.FileFacts{Inode: inode, Generation: generation})
	}
	unbind := func(i int) locktable.Outcome {
		name := cluster.FileName(fmt.Sprintf("f%d", i))
		a := next(appendTo("c", 0, "db", token, name, "x"), 0)
		recs := table.DecideQuarantine(name, "foreign", 1, nil)
		if err := table.Apply(&recs[0]); err != nil {
			t.Fatal(err)
		}
		next(fileOp(locktable.OpRotate, 0, "db", token, name), a.Generation+1)
		return next(fileOp(locktable.OpUnbind, 0, "db", token, name), 0)
	}
	for i := range locktable.MaxLostFiles {
		if out := unbind(i); out.Status != ok {
			t.Fatalf("file %d: %+v", i, out)
		}
	}
	if out := unbind(locktable.MaxLostFiles); out.Status != invalid || !strings.Contains(out.Message, "leave it bound") {
		t.Errorf("one more than can be remembered: %+v", out)
	}
	over := locktable.Record{
		LSN: table.LSN() + 1, Epoch: 1, Kind: locktable.KindUnbind, Client: "c", Request: 1 << 40, Lock: "db", Token: token,
		File: cluster.FileName(fmt.Sprintf("f%d", locktable.MaxLostFiles)), Remember: true,
	}
	if err := table.Apply(&over); !errors.Is(err, locktable.ErrIllegal) {
		t.Errorf("a record that would remember one more: %v", err)
	}
	if out := unbind(7); out.Status != ok {
		t.Errorf("one that is remembered already: %+v", out)
	}
	if err := table.Check(); err != nil {
		t.Error(err)
	}
}

// TestOffsetsOfAnInodeAreGivenOnce: a server that was paused before its write may still write to an
// inode whose binding has ended. Below where that ended it gets no other appends.
func TestOffsetsOfAnInodeAreGivenOnce(t *testing.T) {
	for name, end := range map[string]func(h *harness, token cluster.Token){
		"unbound": func(h *harness, token cluster.Token) {
			h.want(ok, fileOp(locktable.OpUnbind, 3, "db", token, "log"))
		},
		"rotated": func(h *harness, token cluster.Token) {
			h.wantFacts(ok, fileOp(locktable.OpRotate, 3, "db", token, "log"), locktable.FileFacts{Inode: 2, Generation: 2})
			h.want(ok, fileOp(locktable.OpUnbind, 4, "db", token, "log"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			token := h.want(ok, acquire("c", 1, "db", 0)).Token
			h.wantFacts(ok, appendTo("c", 2, "db", token, "log", "12345678"), locktable.FileFacts{Inode: 1})
			end(h, token)
			h.reload()
			q := appendTo("c", 5, "db", token, "log", "AAAA")
			for _, size := range []int64{0, 7} {
				q.AdoptExisting = size > 0
				out := h.wantFacts(invalid, q, locktable.FileFacts{Inode: 1, Size: size})
				if !strings.Contains(out.Message, "up to offset 8") || !strings.Contains(out.Message, "remove it") {
					t.Errorf("the word on a file of %d bytes: %q", size, out.Message)
				}
			}
			elsewhere := fileOp(locktable.OpBind, 6, "db", token, "renamed")
			h.wantFacts(invalid, elsewhere, locktable.FileFacts{Inode: 1})
			h.wantFacts(ok, fileOp(locktable.OpBind, 7, "db", token, "other"), locktable.FileFacts{Inode: 9})
			rotate := fileOp(locktable.OpRotate, 8, "db", token, "other")
			g, _ := h.table.File("other")
			h.wantFacts(invalid, rotate, locktable.FileFacts{Inode: 1, Generation: g.Generation + 1})
			// Behind all that was written it goes on, and below its new end never again.
			q.AdoptExisting = true
			if out := h.wantFacts(ok, q, locktable.FileFacts{Inode: 1, Size: 8}); out.Offset != 8 {
				t.Errorf("behind the end: %+v", out)
			}
			h.want(ok, fileOp(locktable.OpUnbind, 10, "db", token, "log"))
			elsewhere.AdoptExisting = true
			h.wantFacts(invalid, elsewhere, locktable.FileFacts{Inode: 1, Size: 11})
			// A file that the service has just made is another one, whatever its number.
			h.wantFacts(ok, elsewhere, locktable.FileFacts{Inode: 1, Made: true})
			h.want(ok, fileOp(locktable.OpUnbind, 11, "db", token, "renamed"))
			h.wantFacts(ok, fileOp(locktable.OpBind, 12, "db", token, "again"), locktable.FileFacts{Inode: 1})
			h.reload()
		})
	}
}

// TestAnUnchangedFileIsAnotherOne: an empty file that was not written since it was made is not the one
// that was bound under its inode's number. What was lost may have bound it, too.
func TestAnUnchangedFileIsAnotherOne(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("c", 1, "db", 0)).Token
	h.wantFacts(ok, appendTo("c", 2, "db", token, "log", "12345678"), locktable.FileFacts{Inode: 1})
	h.want(ok, fileOp(locktable.OpUnbind, 3, "db", token, "log"))
	q := appendTo("c", 4, "db", token, "log", "AAAA")
	q.AdoptExisting = true
	h.wantFacts(invalid, q, locktable.FileFacts{Inode: 1})
	h.wantFacts(invalid, q, locktable.FileFacts{Inode: 1, Size: 7, Unchanged: true})
	var err error
	h.table, err = locktable.Restore(h.table.LSN(), func(yield func(locktable.Entity, error) bool) {
		for e := range h.table.Export() {
			if !yield(e, nil) {
				return
			}
		}
		yield(locktable.Entity{Past: &locktable.PastState{Inode: 2, End: math.MaxInt64}}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.wantFacts(invalid, q, locktable.FileFacts{Inode: 2, Unchanged: true})
	h.wantFacts(ok, q, locktable.FileFacts{Inode: 1, Unchanged: true})
	// A file that was quarantined may be as it was made, and wait for its first write.
	first := fileOp(locktable.OpBind, 5, "db", token, "other")
	h.wantFacts(ok, first, locktable.FileFacts{Inode: 3})
	h.want(ok, appendTo("c", 6, "db", token, "other", "unwritten"))
	h.apply(h.table.DecideQuarantine("other", "moved away", 1, nil))
	h.wantFacts(ok, fileOp(locktable.OpRotate, 7, "db", token, "other"), locktable.FileFacts{Inode: 4, Generation: 3})
	back := fileOp(locktable.OpBind, 8, "db", token, "back")
	h.wantFacts(invalid, back, locktable.FileFacts{Inode: 3, Unchanged: true})
	h.want(ok, fileOp(locktable.OpUnbind, 9, "db", token, "other"))
	h.wantFacts(invalid, back, locktable.FileFacts{Inode: 3, Unchanged: true})
	h.wantFacts(ok, back, locktable.FileFacts{Inode: 3, Made: true})
}

// TestForgottenInodesCountAsUsed: of very many inodes the least used are forgotten, and any that is
// not known counts as used as far as they were.
func TestForgottenInodesCountAsUsed(t *testing.T) {
	table := locktable.New()
	id := cluster.RequestID(0)
	do := func(q locktable.Request, facts locktable.FileFacts) locktable.Outcome {
		t.Helper()
		id++
		q.ID, q.LowWater = id, id
		recs, d := table.Decide(&q, 1, facts, nil)
		for i := range recs {
			if err := table.Apply(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
		return d.Outcome
	}
	token := do(acquire("c", 0, "db", 0), locktable.FileFacts{}).Token
	bind := fileOp(locktable.OpBind, 0, "db", token, "log")
	bind.AdoptExisting = true
	end := func(inode uint64, size int64) {
		t.Helper()
		if out := do(bind, locktable.FileFacts{Inode: inode, Size: size}); out.Status != ok {
			t.Fatalf("inode %d: %+v", inode, out)
		}
		do(fileOp(locktable.OpUnbind, 0, "db", token, "log"), locktable.FileFacts{})
	}
	end(1, 10)
	end(2, 20)
	for i := range uint64(locktable.MaxUsedInodes) {
		end(100+i, 1000)
	}
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
	for inode, most := range map[uint64]int64{1: 20, 2: 20, 3: 20, 100: 1000, 101: 1000} {
		if out := do(bind, locktable.FileFacts{Inode: inode, Size: most - 1}); out.Status != invalid {
			t.Errorf("inode %d at size %d: %+v", inode, most-1, out)
		}
	}
	restored, err := overJSON(table)
	if err != nil || restored.Hash() != table.Hash() || table.Clone().Hash() != table.Hash() {
		t.Fatalf("restored: %v", err)
	}
	table = restored
	for _, inode := range []uint64{1, 2, 3} {
		if out := do(bind, locktable.FileFacts{Inode: inode, Size: 19}); out.Status != invalid {
			t.Errorf("inode %d, restored: %+v", inode, out)
		}
	}
	end(3, 20)
	if out := do(bind, locktable.FileFacts{Inode: 4, Made: true}); out.Status != ok {
		t.Errorf("a new file: %+v", out)
	}
}

// TestNoGenerationComesTwice: whoever knows a place in a file by its name, generation and offset
// never finds another file there.
func TestNoGenerationComesTwice(t *testing.T) {
	x := newLostStory(t)
	x.append()
	x.rotate()
	x.unbind(ok)
	x.append()
	if f := x.file(); f.Generation != 3 {
		t.Errorf("bound anew behind generation 2: %+v", f)
	}
	x.rotate()
	bind := fileOp(locktable.OpBind, 50, "db", x.token, "other")
	if out := x.wantFacts(ok, bind, locktable.FileFacts{Inode: 70}); out.Generation != 3 {
		t.Errorf("a file that was bound while another one was: %+v", out)
	}
	x.unbind(ok)
	x.want(ok, fileOp(locktable.OpUnbind, 51, "db", x.token, "other"))
	bind.ID = 52
	if out := x.wantFacts(ok, bind, locktable.FileFacts{Inode: 71}); out.Generation != 5 {
		t.Errorf("bound anew behind generation 4 of another file: %+v", out)
	}
	x.illegal("a bind with a generation that was", locktable.Record{
		Kind: locktable.KindBind, Client: "c", Request: 99, Lock: "db", Token: x.token, File: "new", Inode: 72, Generation: 4,
	})
	x.reload()
}

// TestRecordsOfOlderBinaries: they remember nothing, and make the state that they always made.
func TestRecordsOfOlderBinaries(t *testing.T) {
	x := newLostStory(t)
	old := func(q locktable.Request, facts locktable.FileFacts) {
		t.Helper()
		x.next++
		q.ID = x.next
		recs, _ := x.table.Decide(&q, 1, facts, nil)
		for i := range recs {
			recs[i].Remember = false
		}
		x.apply(recs)
	}
	for range 6 {
		x.append()
		x.quarantine()
		x.inode++
		old(fileOp(locktable.OpRotate, 0, "db", x.token, "log"), locktable.FileFacts{Inode: x.inode, Generation: x.file().Generation + 1})
	}
	if f := x.file(); f.Lost[3].Generation != 3 || f.Lost[3].Oldest != 0 {
		t.Errorf("the last four: %+v", f.Lost)
	}
	x.quarantine()
	x.apply([]locktable.Record{{
		LSN: x.table.LSN() + 1, Epoch: 1, Kind: locktable.KindUnbind, Client: "c", Request: 99, Lock: "db", Token: x.token, File: "log",
	}})
	for e := range x.table.Export() {
		if e.Past != nil {
			t.Errorf("remembered: %+v", *e.Past)
		}
	}
	x.inode = 0
	x.next = 200
	x.append()
	if f := x.file(); f.Generation != 1 || f.Inode != 1 {
		t.Errorf("bound anew: %+v", f)
	}
	x.reload()
}

// TestAnEarlierBindingIsNotLost: where an older binary unbound the file, it has generation 1 again.
// That this one was quarantined says nothing of what was appended under the binding before.
func TestAnEarlierBindingIsNotLost(t *testing.T) {
	x := newLostStory(t)
	before := x.append()
	x.apply([]locktable.Record{{
		LSN: x.table.LSN() + 1, Epoch: 1, Kind: locktable.KindUnbind, Client: "c", Request: 99, Lock: "db", Token: x.token, File: "log",
	}})
	lost := x.append()
	if f := x.file(); f.Generation != 1 || f.LastLSN != x.table.LSN() {
		t.Fatalf("bound anew: %+v", f)
	}
	x.quarantine()
	x.told([]cluster.RequestID{before}, []cluster.RequestID{lost})
	x.rotate()
	after := x.append()
	x.told([]cluster.RequestID{before, after}, []cluster.RequestID{lost})
	x.unbind(ok)
	x.told([]cluster.RequestID{before, after}, []cluster.RequestID{lost})
	x.reload()
}

func TestAppendLimits(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("c", 1, "db", 0)).Token
	h.want(invalid, appendTo("c", 2, "db", token, "log", ""))
	h.want(cluster.StatusTooLarge, appendTo("c", 2, "db", token, "log", strings.Repeat("x", cluster.MaxAppend+1)))
	bad := appendTo("c", 2, "db", token, "log", "x")
	bad.CRC++
	h.want(invalid, bad)
	h.wantFacts(ok, appendTo("c", 2, "db", token, "log", strings.Repeat("x", cluster.MaxAppend)), locktable.FileFacts{Inode: 1})
	huge := appendTo("c", 3, "db", token, "huge", "xx")
	huge.AdoptExisting = true
	h.wantFacts(invalid, huge, locktable.FileFacts{Inode: 2, Size: 1<<63 - 2})
	for _, name := range []cluster.FileName{"", "/etc/passwd", "../x", "a//b"} {
		h.want(invalid, appendTo("c", 3, "db", token, name, "x"))
	}
}

func TestExpectedOffset(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("c", 1, "db", 0)).Token
	at := func(id cluster.RequestID, data string, offset int64) *locktable.Request {
		q := appendTo("c", id, "db", token, "log", data)
		q.At = &offset
		return &q
	}
	mismatch := cluster.StatusOffsetMismatch
	first := locktable.FileFacts{Inode: 1}
	if out := h.wantFacts(mismatch, *at(2, "abc", 1), first); out.Offset != 0 || out.Generation != 1 || out.LSN != 0 {
		t.Fatalf("a new file: %+v", out)
	}
	if out := h.wantFacts(ok, *at(2, "abc", 0), first); out.Offset != 0 || out.Repeat {
		t.Fatalf("a refusal left something: %+v", out)
	}
	lsn := h.table.LSN()
	for _, offset := range []int64{0, 2, 4, 1<<63 - 1} {
		if out := h.want(mismatch, *at(3, "def", offset)); out.Offset != 3 || out.File != "log" {
			t.Fatalf("expected at %d: %+v", offset, out)
		}
	}
	h.want(invalid, *at(3, "def", -1))
	if h.table.LSN() != lsn {
		t.Fatal("a refusal left a record")
	}
	h.want(ok, *at(3, "def", 3))
	// A repeat is answered, wherever the file ends now; another offset is another request.
	if out := h.want(ok, *at(3, "def", 3)); out.Offset != 3 || !out.Repeat {
		t.Fatalf("repeat: %+v", out)
	}
	h.want(invalid, *at(3, "def", 6))
	h.want(invalid, appendTo("c", 3, "db", token, "log", "def"))
	h.want(ok, appendTo("c", 4, "db", token, "log", "ghi"))
	h.want(invalid, *at(4, "ghi", 6))
	h.reload()
}

func TestSeal(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("c", 1, "db", 0)).Token
	other := h.want(ok, acquire("c", 2, "other", 0)).Token
	h.wantFacts(ok, appendTo("c", 3, "db", token, "log", "abc"), locktable.FileFacts{Inode: 1})
	h.want(invalid, fileOp(locktable.OpSeal, 4, "other", other, "log"))
	h.want(cluster.StatusInvalidToken, fileOp(locktable.OpSeal, 4, "db", other, "log"))
	h.want(invalid, fileOp(locktable.OpSeal, 4, "db", token, "unknown"))
	last, _ := h.table.File("log")
	if out := h.want(ok, fileOp(locktable.OpSeal, 4, "db", token, "log")); out.Offset != 3 || out.Generation != 1 {
		t.Fatalf("seal: %+v", out)
	}
	if f, _ := h.table.File("log"); !f.Sealed || f.LastLSN != last.LastLSN || f.End != 3 {
		t.Fatalf("sealed: %+v", f) // the last append is still the last one
	}
	h.reload()
	lsn := h.table.LSN()
	if out := h.want(cluster.StatusFileSealed, appendTo("c", 5, "db", token, "log", "x")); out.Offset != 3 || out.Generation != 1 {
		t.Fatalf("append to a sealed file: %+v", out)
	}
	h.want(ok, fileOp(locktable.OpSeal, 4, "db", token, "log")) // a repeat
	h.want(cluster.StatusFileSealed, fileOp(locktable.OpUnbind, 7, "db", token, "log"))
	h.illegal("unbind of a sealed file", locktable.Record{
		Kind: locktable.KindUnbind, Client: "c", Request: 7, Lock: "db", Token: token, File: "log",
	})
	if h.table.LSN() != lsn {
		t.Fatal("a refusal left a record")
	}
	h.wantFacts(ok, fileOp(locktable.OpRotate, 8, "db", token, "log"), locktable.FileFacts{Inode: 2, Generation: 2})
	h.want(ok, appendTo("c", 9, "db", token, "log", "x"))
	h.apply(h.table.DecideQuarantine("log", "foreign bytes", 1, nil))
	h.want(cluster.StatusFileQuarantined, fileOp(locktable.OpSeal, 10, "db", token, "log"))
	h.reload()
}

// TestWhatWasAnsweredOKDoesNothingLater: a request that found the file bound, or sealed, was
// executed. A duplicate that was long on its way neither binds it again nor seals what came since.
func TestWhatWasAnsweredOKDoesNothingLater(t *testing.T) {
	h := newHarness(t)
	db := h.want(ok, acquire("c", 1, "db", 0)).Token
	h.wantFacts(ok, appendTo("c", 2, "db", db, "log", "x"), locktable.FileFacts{Inode: 1})
	bind, seal := fileOp(locktable.OpBind, 3, "db", db, "log"), fileOp(locktable.OpSeal, 5, "db", db, "log")
	bound := h.want(ok, bind)
	h.want(ok, fileOp(locktable.OpSeal, 4, "db", db, "log"))
	sealed := h.want(ok, seal)
	if bound.Offset != 1 || bound.Generation != 1 || bound.Message == "" || sealed.Offset != 1 || sealed.Generation != 1 || sealed.Message == "" {
		t.Errorf("bound already: %+v; sealed already: %+v", bound, sealed)
	}
	anyone := fileOp(locktable.OpSeal, 1, "db", db, "log")
	anyone.Client = "~1"
	if lsn := h.table.LSN(); h.want(ok, anyone).Message == "" || h.table.LSN() != lsn {
		t.Error("a request that nobody can repeat was logged, and changed nothing")
	}
	h.wantFacts(ok, fileOp(locktable.OpRotate, 6, "db", db, "log"), locktable.FileFacts{Inode: 2, Generation: 2})
	late := h.want(ok, seal)
	if f, _ := h.table.File("log"); f.Sealed || !late.Repeat || late.LSN != sealed.LSN || late.Generation != 1 || late.Message != sealed.Message {
		t.Errorf("request 5 was answered at generation 1, its duplicate %+v; the file is %+v", late, f)
	}
	h.reload()
	h.want(ok, fileOp(locktable.OpUnbind, 7, "db", db, "log"))
	late = h.wantFacts(ok, bind, locktable.FileFacts{Inode: 3})
	if f, found := h.table.File("log"); found || late.Message != bound.Message {
		t.Errorf("request 3 found the file bound, its duplicate bound it again: %+v", f)
	}
	h.reload()
}

// older has every request decided for servers of feature level 1, and requires records that they
// can apply.
type older struct{ *lostStory }

func (x older) do(want cluster.Status, q locktable.Request, facts locktable.FileFacts) locktable.Outcome {
	x.tb.Helper()
	x.next++
	q.ID, q.Level = x.next, 1
	if q.Op == locktable.OpOpenClient {
		q.ID = 0
	}
	from := len(x.log)
	out := x.wantFacts(want, q, facts)
	for i := range x.log[from:] {
		if err := level1(&x.log[from+i]); err != nil {
			x.tb.Errorf("%v was decided for level 1: %v", q.Op, err)
		}
	}
	return out
}

func (x older) file(op locktable.Op) locktable.Request { return fileOp(op, 0, "db", x.token, "log") }

func (x older) rotate(want cluster.Status) {
	x.tb.Helper()
	x.inode++
	x.do(want, x.file(locktable.OpRotate), locktable.FileFacts{Inode: x.inode, Generation: x.lostStory.file().Generation + 1})
}

// TestDecidedForOlderServers: while a server of feature level 1 follows, records are such as it can
// apply, and what would need others is refused or leaves no receipt.
func TestDecidedForOlderServers(t *testing.T) {
	x := older{newLostStory(t)}
	open := locktable.Request{Op: locktable.OpOpenClient, Nonce: 7, Mark: 9}
	if id := x.do(ok, open, locktable.FileFacts{}).Client; id != "@2" {
		t.Errorf("opened %s", id)
	}
	unlogged := func(q locktable.Request) {
		t.Helper()
		lsn := x.table.LSN()
		if out := x.do(ok, q, locktable.FileFacts{}); x.table.LSN() != lsn || out.Generation != 1 || out.Offset != 1 || out.Message == "" {
			t.Errorf("%v of what is so already: %+v", q.Op, out)
		}
	}
	write := func() {
		t.Helper()
		x.inode++
		x.do(ok, x.one(0), locktable.FileFacts{Inode: x.inode})
	}
	write()
	unlogged(x.file(locktable.OpBind))
	x.do(ok, x.file(locktable.OpUnbind), locktable.FileFacts{})
	write()
	x.do(ok, x.file(locktable.OpSeal), locktable.FileFacts{})
	unlogged(x.file(locktable.OpSeal))
	x.rotate(ok)
	for range 4 {
		write()
		x.quarantine()
		x.do(cluster.StatusFileQuarantined, x.file(locktable.OpUnbind), locktable.FileFacts{})
		x.rotate(ok)
		x.do(invalid, x.file(locktable.OpUnbind), locktable.FileFacts{}) // what may be lost would be forgotten
	}
	x.quarantine()
	x.rotate(cluster.StatusFileQuarantined) // and here the oldest of it
	for e := range x.table.Export() {
		if e.Past != nil {
			t.Errorf("older servers cannot load %+v", *e.Past)
		}
	}
	x.reload()

	q := locktable.Request{Op: locktable.OpOpenClient, Nonce: 8, Mark: 9, Level: 2}
	if _, marked := x.want(ok, q).Client.OpenedBy(); marked != 9 || level1(&x.log[len(x.log)-1]) == nil {
		t.Errorf("opened for level 2: mark %v, %+v", marked, x.log[len(x.log)-1])
	}
	x.lostStory.rotate()
	if last := &x.log[len(x.log)-1]; !last.Remember || level1(last) == nil {
		t.Errorf("rotated for level 2: %+v", *last)
	}
	x.lostStory.append()
	x.lostStory.rotate() // now the table remembers
	x.append()
	x.next++
	rotate := fileOp(locktable.OpRotate, x.next, "db", x.token, "log")
	rotate.Level = 1
	x.inode++
	x.wantFacts(ok, rotate, locktable.FileFacts{Inode: x.inode, Generation: x.lostStory.file().Generation + 1})
	if last := x.log[len(x.log)-1]; !last.Remember {
		t.Errorf("a table that older servers cannot load forgets for them: %+v", last)
	}
	x.reload()
}
