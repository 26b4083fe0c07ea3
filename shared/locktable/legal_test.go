// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

type record = locktable.Record

// busy has lock db held by a (token 1, file "log") with b and c waiting; lock
// other is held by a under token 4.
func busy(t *testing.T) *harness {
	h := newHarness(t)
	h.want(ok, acquire("a", 1, "db", 0))
	h.want(pending, acquire("b", 1, "db", forever))
	h.want(pending, acquire("c", 1, "db", forever))
	h.want(ok, acquire("a", 2, "other", 0))
	h.wantFacts(ok, appendTo("a", 3, "db", 1, "log", "abc"), locktable.FileFacts{Inode: 1})
	h.want(ok, share("ra", 1, "rd", 0)) // record 7
	h.want(ok, share("rb", 1, "rd", 0))
	h.want(pending, acquire("wa", 1, "rd", forever))
	h.want(pending, share("rc", 1, "rd", forever))
	return h
}

func TestIllegalRecordsChangeNothing(t *testing.T) {
	h := busy(t)
	marked := acquire("m", 50, "marked", 0)
	marked.LowWater = 40
	h.want(ok, marked)
	for id := cluster.RequestID(1); id <= locktable.MaxChosenReceipts+1; id++ { // drops the receipt of 1
		h.want(cluster.StatusCancelled, cancel("d", id))
	}
	ttl := time.Second
	appendRec := func(change func(r *record)) record {
		r := record{
			Kind: locktable.KindAppend, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log",
			Generation: 1, Offset: 3, Length: 1,
		}
		change(&r)
		return r
	}
	for why, r := range map[string]record{
		"a gap":                    {LSN: h.table.LSN() + 2, Kind: locktable.KindForceClear},
		"a repetition":             {LSN: h.table.LSN(), Kind: locktable.KindForceClear},
		"unknown kind":             {Kind: 99},
		"no kind":                  {},
		"field of another kind":    {Kind: locktable.KindForceClear, Reason: "x"},
		"missing field":            {Kind: locktable.KindExpire, Lock: "db"},
		"grant of a held lock":     {Kind: locktable.KindGrant, Client: "x", Request: 1, Lock: "db", TTL: ttl},
		"shared beside exclusive":  {Kind: locktable.KindGrant, Client: "x", Request: 1, Lock: "db", TTL: ttl, Mode: locktable.ModeShared},
		"a reader overtakes":       {Kind: locktable.KindGrant, Client: "x", Request: 1, Lock: "rd", TTL: ttl, Mode: locktable.ModeShared},
		"a reader's place is next": {Kind: locktable.KindGrant, Client: "rc", Request: 1, Lock: "rd", TTL: ttl, Mode: locktable.ModeShared},
		"a writer among readers":   {Kind: locktable.KindGrant, Client: "wa", Request: 1, Lock: "rd", TTL: ttl},
		"downgrade of a shared":    {Kind: locktable.KindDowngrade, Client: "ra", Request: 9, Lock: "rd", Token: 7},
		"downgrade of another":     {Kind: locktable.KindDowngrade, Client: "a", Request: 9, Lock: "db", Token: 4},
		"bind under a shared":      {Kind: locktable.KindBind, Client: "ra", Request: 9, Lock: "rd", Token: 7, File: "new", Inode: 3, Generation: 1},
		"grant to an unopened":     {Kind: locktable.KindGrant, Client: "@1", Request: 1, Lock: "free", TTL: ttl},
		"grant of an old request":  {Kind: locktable.KindGrant, Client: "a", Request: 1, Lock: "free", TTL: ttl},
		"grant of another's place": {Kind: locktable.KindGrant, Client: "b", Request: 1, Lock: "free", TTL: ttl},
		"mark above the request":   {Kind: locktable.KindGrant, Client: "x", Request: 5, LowWater: 6, Lock: "free", TTL: ttl},
		"below the mark":           {Kind: locktable.KindGrant, Client: "m", Request: 39, Lock: "free", TTL: ttl},
		"a dropped request":        {Kind: locktable.KindGrant, Client: "d", Request: 1, Lock: "free", TTL: ttl},
		"queue at a free lock":     {Kind: locktable.KindEnqueue, Client: "x", Request: 1, Lock: "free", TTL: ttl, Wait: 1},
		"waiting twice":            {Kind: locktable.KindEnqueue, Client: "b", Request: 1, Lock: "db", TTL: ttl, Wait: 1},
		"a reader need not wait":   {Kind: locktable.KindEnqueue, Client: "x", Request: 1, Lock: "free", TTL: ttl, Wait: 1, Mode: locktable.ModeShared},
		"wrong token":              {Kind: locktable.KindRelease, Client: "a", Request: 9, Lock: "db", Token: 4},
		"token of the future":      {Kind: locktable.KindRelease, Client: "a", Request: 9, Lock: "db", Token: 9999},
		"release by old request":   {Kind: locktable.KindRelease, Client: "a", Request: 2, Lock: "db", Token: 1},
		"expiry of nothing":        {Kind: locktable.KindExpire, Lock: "free", Token: 1},
		"timeout elsewhere":        {Kind: locktable.KindWaitTimeout, Client: "b", Request: 1, Lock: "other"},
		"cancel elsewhere":         {Kind: locktable.KindCancel, Client: "b", Request: 1, Lock: "other"},
		"cancel of an executed":    {Kind: locktable.KindCancel, Client: "a", Request: 1},
		"tombstone for anonymous":  {Kind: locktable.KindCancel, Client: "~x", Request: 1},
		"append with a hole":       appendRec(func(r *record) { r.Offset = 4 }),
		"append to a generation":   appendRec(func(r *record) { r.Generation = 2 }),
		"append under other lock":  appendRec(func(r *record) { r.Lock, r.Token = "other", 4 }),
		"append to unbound":        appendRec(func(r *record) { r.File = "new" }),
		"append of nothing":        appendRec(func(r *record) { r.Length = 0 }),
		"append of wrong length":   appendRec(func(r *record) { r.Data = []byte("xx") }),
		"bind of an inode twice":   {Kind: locktable.KindBind, Client: "a", Request: 9, Lock: "db", Token: 1, File: "new", Inode: 1, Generation: 1},
		"bind twice":               {Kind: locktable.KindBind, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log", Inode: 2, Generation: 1},
		"unbind of unbound":        {Kind: locktable.KindUnbind, Client: "a", Request: 9, Lock: "db", Token: 1, File: "new"},
		"rotate to generation 5":   {Kind: locktable.KindRotate, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log", Inode: 2, Generation: 5},
		"rotate to the same inode": {Kind: locktable.KindRotate, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log", Inode: 1, Generation: 2},
		"quarantine of unbound":    {Kind: locktable.KindQuarantine, File: "new", Generation: 1},
		"forgetting a holder":      {Kind: locktable.KindForgetClient, Client: "a"},
		"forgetting a waiter":      {Kind: locktable.KindForgetClient, Client: "b"},
		"forgetting nobody":        {Kind: locktable.KindForgetClient, Client: "nobody"},
	} {
		h.illegal(why, r)
	}
	h.reload()
}

// TestIllegalExtensions: a record makes no lease shorter, and none longer than it may be.
func TestIllegalExtensions(t *testing.T) {
	h := busy(t)
	q := acquire("m", 50, "bounded", 0)
	q.MaxHold = time.Minute
	bounded := h.want(ok, q).Token
	for why, r := range map[string]record{
		"a shorter lease":         {Kind: locktable.KindExtend, Client: "a", Request: 9, Lock: "db", Token: 1, TTL: 9 * time.Second},
		"a longer lease of other": {Kind: locktable.KindExtend, Client: "a", Request: 9, Lock: "db", Token: 4, TTL: time.Minute},
		"a lease over max hold":   {Kind: locktable.KindExtend, Client: "m", Request: 60, Lock: "bounded", Token: bounded, TTL: 2 * time.Minute},
		"an old request extends":  {Kind: locktable.KindExtend, Client: "a", Request: 1, Lock: "db", Token: 1, TTL: time.Minute},
	} {
		h.illegal(why, r)
	}
	h.reload()
}

// TestIllegalRecordsOfFiles: a record says of a file only what is so.
func TestIllegalRecordsOfFiles(t *testing.T) {
	h := busy(t)
	for why, r := range map[string]locktable.Record{
		"seal elsewhere":          {Kind: locktable.KindSeal, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log", Generation: 1, Offset: 99},
		"already elsewhere":       {Kind: locktable.KindAlready, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log", Generation: 1, Offset: 99},
		"already of a generation": {Kind: locktable.KindAlready, Client: "a", Request: 9, Lock: "db", Token: 1, File: "log", Generation: 2, Offset: 3},
		"already of unbound":      {Kind: locktable.KindAlready, Client: "a", Request: 9, Lock: "db", Token: 1, File: "new", Generation: 1},
	} {
		h.illegal(why, r)
	}
}

func TestGrantsGoToTheHeadOfTheQueue(t *testing.T) {
	h := busy(t)
	q := release("a", 4, "db", 1)
	recs, _ := h.table.Decide(&q, 1, locktable.FileFacts{}, nil)
	h.apply(recs[:1])
	head := recs[1]
	for why, change := range map[string]func(r *record){
		"jumping the queue": func(r *record) { r.Client = "c" },
		"another request":   func(r *record) { r.Request++ },
		"a stranger":        func(r *record) { r.Client = "x" },
		"another TTL":       func(r *record) { r.TTL++ },
		"another hash":      func(r *record) { r.Hash++ },
		"another holder":    func(r *record) { r.Holder.Host = "x" },
		"a low-water mark":  func(r *record) { r.LowWater = 1 },
	} {
		r := head
		change(&r)
		h.illegal(why, r)
	}
	h.apply([]record{head})
}

func TestRestoreRefusesBadState(t *testing.T) {
	h := busy(t)
	var good []locktable.Entity
	for e := range h.table.Export() {
		good = append(good, e)
	}
	if _, err := locktable.Restore(h.table.LSN(), entities(good)); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		twice := append(append([]locktable.Entity{}, good...), good[i])
		if _, err := locktable.Restore(h.table.LSN(), entities(twice)); !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("entity %d twice: got %v, want ErrBadState", i, err)
		}
	}
	for why, lsn := range map[string]cluster.LSN{"an LSN before the state": 3, "LSN 0": 0} {
		if _, err := locktable.Restore(lsn, entities(good)); !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("%s: got %v, want ErrBadState", why, err)
		}
	}
	for why, e := range map[string]locktable.Entity{
		"empty entity":      {},
		"two parts":         {Client: &locktable.ClientState{ID: "z"}, Receipt: &locktable.ReceiptState{}},
		"lock without use":  {Lock: &locktable.LockState{Name: "idle"}},
		"unknown holder":    {Lock: &locktable.LockState{Name: "l", Grant: &locktable.GrantState{Token: 2, ClientID: "z"}}},
		"opened, no nonce":  {Client: &locktable.ClientState{ID: "@2"}},
		"idle anonymous":    {Client: &locktable.ClientState{ID: "~z"}},
		"bad client":        {Client: &locktable.ClientState{ID: "a b"}},
		"receipt of nobody": {Receipt: &locktable.ReceiptState{ClientID: "z", RequestID: 1, LSN: 1, Epoch: 1}},
		"receipt of future": {Receipt: &locktable.ReceiptState{ClientID: "a", RequestID: 9, LSN: 99, Epoch: 1, Kind: locktable.KindRelease}},
		"receipt, no kind":  {Receipt: &locktable.ReceiptState{ClientID: "a", RequestID: 9, LSN: 1, Epoch: 1}},
		"bad file name":     {File: &locktable.FileEntity{Name: "../x", Lock: "db", Inode: 9, Generation: 1, LastLSN: 1}},
		"file with a hole":  {File: &locktable.FileEntity{Name: "x", Lock: "db", Inode: 9, Generation: 1, LastLSN: 1, Start: 5, End: 4}},
	} {
		bad := append(append([]locktable.Entity{}, good...), e)
		if _, err := locktable.Restore(h.table.LSN(), entities(bad)); !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("%s: got %v, want ErrBadState", why, err)
		}
	}
	failed := errors.New("disk")
	_, err := locktable.Restore(1, func(yield func(locktable.Entity, error) bool) { yield(locktable.Entity{}, failed) })
	if !errors.Is(err, failed) || errors.Is(err, locktable.ErrBadState) {
		t.Errorf("a read error: got %v", err)
	}
}

func TestCloneIsIndependent(t *testing.T) {
	h := busy(t)
	clone, hash := h.table.Clone(), h.table.Hash()
	q := release("a", 4, "db", 1)
	recs, _ := clone.Decide(&q, 1, locktable.FileFacts{}, nil)
	for i := range recs {
		if err := clone.Apply(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if h.table.Hash() != hash || clone.Hash() == hash || h.table.Check() != nil || clone.Check() != nil {
		t.Fatal("clone and original are not independent")
	}
	h.apply(recs)
	if h.table.Hash() != clone.Hash() {
		t.Fatal("the same records led to different states")
	}
}
