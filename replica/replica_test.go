// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/wal"
)

// source is a primary's table and its frames.
type source struct {
	t     *testing.T
	table *locktable.Table
	at    wal.Position
}

// frame decides one grant and returns its elided frame and where it begins.
func (s *source) frame(client cluster.ClientID) (wal.Position, []byte) {
	s.t.Helper()
	q := &locktable.Request{Op: locktable.OpAcquire, Client: client, ID: 1, Lock: cluster.LockName(client), TTL: time.Minute}
	return s.decide(q)
}

// decide decides a request and returns its elided frame and where it begins.
func (s *source) decide(q *locktable.Request) (wal.Position, []byte) {
	s.t.Helper()
	recs, out := s.table.Decide(q, 7, locktable.FileFacts{}, nil)
	if out.Outcome.Status != cluster.StatusOK {
		s.t.Fatalf("decide: %+v", out)
	}
	return s.encode(recs)
}

// encode applies records.
func (s *source) encode(recs []locktable.Record) (wal.Position, []byte) {
	s.t.Helper()
	before := s.at
	var entries []wal.Entry
	for i := range recs {
		if err := s.table.Apply(&recs[i]); err != nil {
			s.t.Fatal(err)
		}
		h := recs[i].AppendHeader(nil)
		entries = append(entries, wal.Entry{Header: h})
		s.at = wal.Position{LSN: recs[i].LSN, Chain: s.at.Chain.Next(h)}
	}
	return before, wal.AppendFrame(nil, wal.FrameHeader{
		Kind: wal.FrameRecords, Elided: true, Epoch: 7, First: before.LSN + 1, Count: len(entries), Chain: s.at.Chain,
	}, entries)
}

func (s *source) snapshot() []byte {
	s.t.Helper()
	var b bytes.Buffer
	if err := (checkpoint.Snapshot{Cluster: ours(), Epoch: 7, At: s.at, Table: s.table}).Export().Stream(&b); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

// ours is the cluster of every source.
func ours() cluster.ID { return cluster.ID{1} }

func newSource(t *testing.T) *source { return &source{t: t, table: locktable.New()} }

// fed is a replica that stands where its source stands.
func fed(t *testing.T, s *source) *Replica {
	t.Helper()
	r := New()
	ack, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Bytes: s.snapshot(), Last: true}})
	if err != nil || ack.At != s.at {
		t.Fatalf("snapshot: %+v %v", ack, err)
	}
	return r
}

func TestReplicaFollowsFrames(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	before, b := s.frame("b")
	before2, b2 := s.frame("c")
	ack, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: append(b, b2...)})
	if err != nil || ack.At != s.at || before2 == before {
		t.Fatalf("frames: %+v %v", ack, err)
	}
	same := r.Read(func(at cluster.LSN, epoch cluster.Epoch, _ time.Duration, table *locktable.Table) {
		if table.Hash() != s.table.Hash() || at != s.at.LSN || epoch != 7 {
			t.Errorf("replica at %d of epoch %d differs from its source at %d", at, epoch, s.at.LSN)
		}
	})
	if !same {
		t.Error("nothing to read")
	}
}

func TestReplicaAsksForWhatItMisses(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r, stands := fed(t, s), s.at
	s.frame("lost")
	before, b := s.frame("b")
	ack, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: b})
	if !errors.Is(err, push.ErrMismatch) || ack.At != stands {
		t.Errorf("a gap was taken, or the table dropped for it: %+v %v", ack, err)
	}
}

func TestReplicaRefusesAnotherChain(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	other := newSource(t)
	other.frame("x")
	before, b := other.frame("b")
	if _, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: b}); !errors.Is(err, push.ErrMismatch) {
		t.Errorf("a frame of another history: %v", err)
	}
	if _, err := r.Push(push.Push{Epoch: 7, Before: s.at, Frames: b}); err == nil {
		t.Error("a frame whose chain value does not follow was taken")
	}
	if ack, _ := r.Push(push.Push{Epoch: 7}); ack.At != (wal.Position{}) {
		t.Errorf("a table that may be half changed is still offered: %+v", ack)
	}
}

func TestReplicaIgnoresOlderEpochs(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	at := s.at
	before, b := s.frame("b")
	ack, err := r.Push(push.Push{Epoch: 6, Before: before, Frames: b})
	if err != nil || ack.Epoch != 7 || ack.At != at {
		t.Errorf("push of an older epoch: %+v %v", ack, err)
	}
}

func TestSnapshotComesInPieces(t *testing.T) {
	s := newSource(t)
	for _, c := range []cluster.ClientID{"a", "b", "c"} {
		s.frame(c)
	}
	whole := s.snapshot()
	cut := len(whole) / 2
	r := New()
	if ack, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Bytes: whole[:cut]}}); err != nil || ack.Chunk != cut {
		t.Fatalf("first piece: %+v %v", ack, err)
	}
	if _, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Offset: cut + 1, Bytes: whole[cut+1:], Last: true}}); !errors.Is(err, push.ErrMismatch) {
		t.Errorf("a piece with a gap: %v", err)
	}
	for _, c := range []*push.Chunk{{At: s.at, Bytes: whole[:cut]}, {At: s.at, Offset: cut, Bytes: whole[cut:], Last: true}} {
		if _, err := r.Push(push.Push{Epoch: 7, Chunk: c}); err != nil {
			t.Fatal(err)
		}
	}
	if r.LSN() != s.at.LSN {
		t.Errorf("replica stands at %+v, its source at %+v", r.LSN(), s.at)
	}
	damaged := append([]byte(nil), whole...)
	damaged[cut] ^= 1
	if _, err := New().Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Bytes: damaged, Last: true}}); err == nil {
		t.Error("a damaged snapshot was taken")
	}
}

// While one push decodes a piece, without the mutex, no other one is decoded into the same snapshot.
func TestOnePieceAtATime(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	whole := s.snapshot()
	cut := len(whole) / 2
	r := New()
	if _, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Bytes: whole[:cut]}}); err != nil {
		t.Fatal(err)
	}
	r.mu.coming.busy = true // as while another push decodes
	ack, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Offset: cut, Bytes: whole[cut:], Last: true}})
	if !errors.Is(err, push.ErrMismatch) || ack.Chunk != 0 || r.LSN() != 0 {
		t.Errorf("a piece was taken beside another: %+v %v", ack, err)
	}
}

// shown is a volume that shows every term.
func shown(cluster.Epoch) bool { return true }

func TestCopySurvivesARestart(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	dir := t.TempDir()
	if _, err := fed(t, s).save(t.Context(), dir, wal.Position{}); err != nil {
		t.Fatal(err)
	}
	r := New()
	if err := r.Load(dir, ours(), shown); err != nil || r.LSN() != s.at.LSN || r.Epoch() != 7 {
		t.Errorf("loaded %+v of epoch %d, want %+v: %v", r.LSN(), r.Epoch(), s.at, err)
	}
	if ack, err := r.Push(push.Push{Epoch: 6, Before: s.at}); err != nil || ack.Epoch != 7 {
		t.Errorf("an older primary is listened to: %+v, %v", ack, err)
	}
	if err := New().Load(t.TempDir(), ours(), shown); err != nil {
		t.Errorf("no copy: %v", err)
	}
	stranger := New()
	if err := stranger.Load(dir, cluster.ID{2}, shown); !errors.Is(err, ErrForeignCopy) || stranger.LSN() != 0 || stranger.Epoch() != 0 {
		t.Errorf("the copy of another cluster is taken: LSN %d, %v", stranger.LSN(), err)
	}
}

// A table that is handed over while a copy is written belongs to the takeover alone, also
// when it comes back before the next piece: a part of it is not kept for the whole.
func TestHandOverEndsTheCopyUnderWay(t *testing.T) {
	t.Run("used", func(t *testing.T) { handOverInACopy(t, func(*Replica, *volume.WarmState) {}) })
	t.Run("back", func(t *testing.T) {
		handOverInACopy(t, func(r *Replica, w *volume.WarmState) { r.TakeBack(w, false) })
	})
}

func handOverInACopy(t *testing.T, then func(*Replica, *volume.WarmState)) {
	s := newSource(t)
	for i := range 2 * keepPiece {
		s.frame(cluster.ClientID(fmt.Sprintf("c%d", i)))
	}
	r := fed(t, s)
	table := r.mu.table
	r.mu.export = table.BeginExport()
	entities := 0
	var failed error
	for _, err := range r.pieces(t.Context(), table, r.mu.export) {
		if failed = err; entities == 0 {
			w := r.HandOver(8)
			if w == nil {
				t.Fatal("nothing was handed over")
			}
			then(r, w)
		}
		entities++
	}
	if !errors.Is(failed, errGone) || entities > keepPiece+1 || r.mu.export != nil {
		t.Errorf("%d entities, %v", entities, failed)
	}
	dir := t.TempDir()
	r.HandOver(8)
	if at, err := r.save(t.Context(), dir, wal.Position{LSN: 7}); err != nil || at.LSN != 7 {
		t.Errorf("an empty replica is kept at %v: %v", at, err)
	}
}

func TestACopyOfNobodyKnowsWhichClusterIsNotTaken(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r, dir := fed(t, s), t.TempDir()
	r.mu.of = cluster.ID{}
	if _, err := r.save(t.Context(), dir, wal.Position{}); err != nil {
		t.Fatal(err)
	}
	if err := New().Load(dir, ours(), shown); !errors.Is(err, ErrForeignCopy) {
		t.Errorf("got %v", err)
	}
}

func TestKnownSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	if k, err := ReadKnown(dir); err != nil || k != (Known{}) {
		t.Errorf("nothing: %+v, %v", k, err)
	}
	want := Known{Cluster: ours(), LSN: 9, Epoch: 3}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if k, err := ReadKnown(dir); err != nil || k != want {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestHandOverEmptiesTheReplica(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	if w := r.HandOver(8); w == nil || w.At != s.at || w.Table.Hash() != s.table.Hash() {
		t.Errorf("handed over %+v", w)
	}
	if r.HandOver(8) != nil {
		t.Error("handed over twice")
	}
}

// A table that came back is read, kept and counted only when a primary knows its position.
func TestTableThatCameBackIsDoubted(t *testing.T) {
	for name, believe := range map[string]func(s *source) push.Push{
		"a primary is there": func(s *source) push.Push { return push.Push{Epoch: 8, Before: s.at} },
		"a primary goes on": func(s *source) push.Push {
			before, b := s.frame("b")
			return push.Push{Epoch: 8, Before: before, Frames: b}
		},
		"a snapshot comes": func(s *source) push.Push {
			s.frame("b")
			return push.Push{Epoch: 8, Chunk: &push.Chunk{At: s.at, Bytes: s.snapshot(), Last: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t)
			s.frame("a")
			r := fed(t, s)
			known := r.LSN()
			w := r.HandOver(8)
			before, b := s.frame("moved-on")
			_, entries, _, err := wal.DecodeFrame(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				rec, err := locktable.DecodeHeader(e.Header)
				if err == nil {
					err = w.Table.Apply(&rec)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			w.At = s.at
			r.TakeBack(w, false)
			unread := func(when string) {
				t.Helper()
				if r.Read(func(cluster.LSN, cluster.Epoch, time.Duration, *locktable.Table) {}) || r.LSN() != known || len(r.Recent().Ends) > 0 {
					t.Errorf("%s it is read, at LSN %d", when, r.LSN())
				}
				if at, err := r.save(t.Context(), t.TempDir(), wal.Position{}); err != nil || at != (wal.Position{}) {
					t.Errorf("%s it is kept: %v, %v", when, at, err)
				}
			}
			unread("at first")
			if ack, err := r.Push(push.Push{Epoch: 8, Before: before}); err != nil || ack.At != s.at {
				t.Errorf("a primary that stands elsewhere hears %+v, %v", ack, err)
			}
			unread("beside a primary that stands elsewhere")
			if ack, err := r.Push(believe(s)); err != nil || ack.At != s.at || r.LSN() != s.at.LSN {
				t.Errorf("then it stands at %+v, counted as %d: %v", ack, r.LSN(), err)
			}
			if !r.Read(func(_ cluster.LSN, _ cluster.Epoch, _ time.Duration, table *locktable.Table) {
				if table.Hash() != s.table.Hash() {
					t.Error("it differs from its source")
				}
			}) {
				t.Error("it is not read")
			}
			r.TakeBack(w, false)
			if again := r.HandOver(8); again == nil || again.At != s.at {
				t.Errorf("another table took its place: %+v", again)
			}
		})
	}
}

// A takeover may have moved a table on and not said how far: it stands nowhere, and is dropped.
func TestTableThatStandsNowhereIsDropped(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	w := r.HandOver(8)
	recs, _ := w.Table.Decide(&locktable.Request{Op: locktable.OpAcquire, Client: "moved-on", ID: 1, Lock: "l", TTL: time.Minute}, 8, locktable.FileFacts{}, nil)
	for i := range recs {
		if err := w.Table.Apply(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	r.TakeBack(w, false)
	if ack, err := r.Push(push.Push{Epoch: 9, Before: s.at}); err != nil || ack.At != (wal.Position{}) {
		t.Errorf("it stands at %+v: %v", ack.At, err)
	}
	if r.Read(func(cluster.LSN, cluster.Epoch, time.Duration, *locktable.Table) {}) {
		t.Error("what nobody committed is read")
	}
}

// While this server takes over or is primary, an older term tells its replica nothing; behind that
// it does only if the claimed one never began.
func TestNoOlderTermIsHeardBesideTheOwn(t *testing.T) {
	for name, began := range map[string]bool{"it began": true, "it never began": false} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t)
			s.frame("a")
			r, l := New(), &listener{}
			r.SetFeed(l)
			whole := s.snapshot()
			piece := func(from, to int) (push.Ack, error) {
				return r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Offset: from, Bytes: whole[from:to], Last: to == len(whole)}})
			}
			if _, err := piece(0, 9); err != nil {
				t.Fatal(err)
			}
			if r.HandOver(8) != nil {
				t.Fatal("a table came of a part")
			}
			for _, from := range []int{9, 0} {
				if ack, err := piece(from, len(whole)); err != nil || ack.Epoch != 8 || r.LSN() != 0 || len(l.heard) > 0 {
					t.Errorf("a late piece is taken: %+v, %v, LSN %d, heard %q", ack, err, r.LSN(), l.heard)
				}
			}
			r.TakeBack(nil, began)
			if _, err := piece(9, len(whole)); err == nil && !began {
				t.Error("the rest of a snapshot is taken whose beginning is gone")
			}
			if ack, err := piece(0, len(whole)); err != nil || (ack.At == s.at) == began || (r.Epoch() == 8) != began {
				t.Errorf("behind the claim: %+v, %v", ack, err)
			}
		})
	}
}

// Nobody pushes the epoch that this server has claimed.
func TestNobodyPushesTheOwnTerm(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	r.HandOver(8)
	ack, err := r.Push(push.Push{Epoch: 8, Chunk: &push.Chunk{At: s.at, Bytes: s.snapshot(), Last: true}})
	if err != nil || ack.Epoch != 8 || r.At() != (wal.Position{}) {
		t.Errorf("a push of the epoch that this server claimed is taken: it stands at %v: %+v, %v", r.At(), ack, err)
	}
}

// An old table is as old as it is while a new one comes, and frames void what comes.
func TestPiecesMakeNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		s.frame("a")
		r := fed(t, s)
		at, whole := s.at, s.snapshot()
		time.Sleep(time.Minute)
		if _, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: at, Bytes: whole[:9]}}); err != nil {
			t.Fatal(err)
		}
		r.Read(func(_ cluster.LSN, _ cluster.Epoch, age time.Duration, _ *locktable.Table) {
			if age != time.Minute {
				t.Errorf("it is %v old, want a minute", age)
			}
		})
		before, b := s.frame("b")
		if _, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: b}); err != nil {
			t.Fatal(err)
		}
		ack, err := r.Push(push.Push{Epoch: 7, Chunk: &push.Chunk{At: at, Offset: 9, Bytes: whole[9:], Last: true}})
		if !errors.Is(err, push.ErrMismatch) || ack.At != s.at {
			t.Errorf("a snapshot leads back to %v: %v", ack.At, err)
		}
	})
}

// A push is as old as it is, by the stamp that the primary sends back: one that was long on
// its way makes no table new.
func TestPushIsAsOldAsItIs(t *testing.T) {
	for _, test := range []struct {
		name string
		push func(stamp uint64) push.Push // at a minute behind the answer with the stamp
		want time.Duration                // of age; the table itself is two minutes old
	}{
		{"at once", func(stamp uint64) push.Push { return push.Push{Stamp: stamp, Since: time.Minute} }, 0},
		{"40 s on its way", func(stamp uint64) push.Push { return push.Push{Stamp: stamp, Since: 20 * time.Second} }, 40 * time.Second},
		{"the first one, which asks", func(uint64) push.Push { return push.Push{Asks: true} }, 2 * time.Minute},
		{"of a primary without stamps", func(uint64) push.Push { return push.Push{} }, 0},
		{"the stamp of another process", func(stamp uint64) push.Push { return push.Push{Stamp: stamp + uint64(time.Hour)} }, 2 * time.Minute},
		{"nonsense", func(stamp uint64) push.Push { return push.Push{Stamp: stamp, Since: -time.Hour} }, 2 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t)
				s.frame("a")
				r := fed(t, s)
				time.Sleep(time.Minute)
				ack, err := r.Push(push.Push{Epoch: 7, Asks: true})
				if err != nil || ack.Stamp == 0 {
					t.Fatal(ack, err)
				}
				time.Sleep(time.Minute)
				p := test.push(ack.Stamp)
				p.Epoch, p.Before = 7, s.at
				if _, err := r.Push(p); err != nil {
					t.Fatal(err)
				}
				r.Read(func(_ cluster.LSN, _ cluster.Epoch, age time.Duration, _ *locktable.Table) {
					if d := age - test.want; d < 0 || d > time.Millisecond {
						t.Errorf("it is %v old, want %v", age, test.want)
					}
				})
			})
		})
	}
}

// The copy of a table that an earlier process kept, of a term that the volume does not show, is
// not used: the replica would hear no primary of the volume any more.
func TestCopyOfAnUnseenTermIsNotUsed(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	dir := t.TempDir()
	if _, err := fed(t, s).save(t.Context(), dir, wal.Position{}); err != nil {
		t.Fatal(err)
	}
	r := New()
	if err := r.Load(dir, ours(), func(e cluster.Epoch) bool { return e != 7 }); !errors.Is(err, ErrUnseenCopy) || r.Epoch() != 0 || r.LSN() != 0 {
		t.Errorf("a copy of epoch 7, which the volume does not show, is loaded: %v, epoch %d, LSN %d", err, r.Epoch(), r.LSN())
	}
}

// A table that the volume contradicts is forgotten where it still stands, and the primary's next
// push is asked for a whole one.
func TestDroppedTableIsSentAnew(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r := fed(t, s)
	old := r.At()
	before, b := s.frame("b")
	if _, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: b}); err != nil {
		t.Fatal(err)
	}
	if r.Drop(old) || r.At() != s.at {
		t.Errorf("a table that went on is dropped: it stands at %v", r.At())
	}
	if !r.Drop(s.at) || r.LSN() != 0 || r.Read(func(cluster.LSN, cluster.Epoch, time.Duration, *locktable.Table) {}) {
		t.Errorf("a dropped table is read, at LSN %d", r.LSN())
	}
	if ack, err := r.Push(push.Push{Epoch: 7, Before: s.at}); err != nil || ack.At != (wal.Position{}) {
		t.Errorf("it tells the primary that it stands at %v: %v", ack.At, err)
	}
}
