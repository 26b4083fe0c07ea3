// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
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
	h.wantFacts(ok, fileOp(locktable.OpBind, 22, "db", db, "log"), locktable.FileFacts{Inode: 2})
	h.want(ok, release("c", 23, "db", db))
	if v, found := h.table.Lock("db"); !found || v.FileCount != 1 || v.Grant.Token != 0 {
		t.Fatalf("a free lock with a file: %+v %t", v, found)
	}
	h.reload()
}

// TestRepeatOfALostAppend: what was appended to a generation that was quarantined may be in no file,
// and nobody is told that it is in one, before or after the rotation.
func TestRepeatOfALostAppend(t *testing.T) {
	h := newHarness(t)
	db := h.want(ok, acquire("c", 1, "db", 0)).Token
	generation := cluster.Generation(1)
	one := func(id cluster.RequestID) locktable.Request { return appendTo("c", id, "db", db, "log", "x") }
	rotate := func(id cluster.RequestID) {
		generation++
		h.wantFacts(ok, fileOp(locktable.OpRotate, id, "db", db, "log"), locktable.FileFacts{Inode: uint64(generation), Generation: generation})
	}
	told := func(healthy, lost []cluster.RequestID) {
		t.Helper()
		for _, id := range healthy {
			h.want(ok, one(id))
		}
		for _, id := range lost {
			out := h.want(cluster.StatusFileQuarantined, one(id))
			state, seen := h.table.Lookup("c", id)
			if !out.Repeat || !out.Committed || out.Message == "" || state != locktable.RequestExecuted || seen.Status != out.Status {
				t.Errorf("request %d: %+v, and looked up %v: %+v", id, out, state, seen)
			}
		}
	}
	h.wantFacts(ok, one(2), locktable.FileFacts{Inode: 1})
	rotate(3)
	h.want(ok, one(4))
	h.apply(h.table.DecideQuarantine("log", "foreign bytes", 1, nil))
	told([]cluster.RequestID{2}, []cluster.RequestID{4})
	rotate(5)
	h.want(ok, one(6))
	told([]cluster.RequestID{2, 6}, []cluster.RequestID{4})
	h.reload()
	rotate(7)
	told([]cluster.RequestID{2, 6}, []cluster.RequestID{4})
	h.want(ok, one(8))
	h.apply(h.table.DecideQuarantine("log", "again", 1, nil))
	rotate(9)
	h.reload()
	told([]cluster.RequestID{2, 6}, []cluster.RequestID{4, 8})
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
