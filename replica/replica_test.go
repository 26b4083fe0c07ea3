// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
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
	recs, out := s.table.Decide(q, 7, locktable.FileFacts{}, nil)
	if out.Outcome.Status != cluster.StatusOK {
		s.t.Fatalf("decide: %+v", out)
	}
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
	b, err := push.EncodeSnapshot(volume.Snapshot{Cluster: ours(), Epoch: 7, At: s.at, Table: s.table.Clone()})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// ours is the cluster of every source.
func ours() volume.ClusterID { return volume.ClusterID{1} }

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
	r := fed(t, s)
	s.frame("lost")
	before, b := s.frame("b")
	ack, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: b})
	if !errors.Is(err, push.ErrMismatch) || ack.At == s.at {
		t.Errorf("a gap was taken: %+v %v", ack, err)
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

func TestCopySurvivesARestart(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	dir := t.TempDir()
	if _, err := fed(t, s).save(dir, wal.Position{}); err != nil {
		t.Fatal(err)
	}
	r := New()
	if err := r.Load(dir, ours()); err != nil || r.LSN() != s.at.LSN || r.Epoch() != 7 {
		t.Errorf("loaded %+v of epoch %d, want %+v: %v", r.LSN(), r.Epoch(), s.at, err)
	}
	if ack, err := r.Push(push.Push{Epoch: 6, Before: s.at}); err != nil || ack.Epoch != 7 {
		t.Errorf("an older primary is listened to: %+v, %v", ack, err)
	}
	if err := New().Load(t.TempDir(), ours()); err != nil {
		t.Errorf("no copy: %v", err)
	}
	stranger := New()
	if err := stranger.Load(dir, volume.ClusterID{2}); !errors.Is(err, ErrForeignCopy) || stranger.LSN() != 0 || stranger.Epoch() != 0 {
		t.Errorf("the copy of another cluster is taken: LSN %d, %v", stranger.LSN(), err)
	}
}

func TestACopyOfNobodyKnowsWhichClusterIsNotTaken(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r, dir := fed(t, s), t.TempDir()
	r.mu.of = volume.ClusterID{}
	if _, err := r.save(dir, wal.Position{}); err != nil {
		t.Fatal(err)
	}
	if err := New().Load(dir, ours()); !errors.Is(err, ErrForeignCopy) {
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
	if w := r.HandOver(); w == nil || w.At != s.at || w.Table.Hash() != s.table.Hash() {
		t.Errorf("handed over %+v", w)
	}
	if r.HandOver() != nil {
		t.Error("handed over twice")
	}
}
