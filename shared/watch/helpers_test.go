// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// source makes frames as a primary does.
type source struct {
	t    testing.TB
	feed *Feed
	at   wal.Position
}

// fed is a hub and its source, which stand at the beginning.
func fed(t testing.TB, pushed bool) (*Hub, *source) {
	h := New(5 * time.Second)
	s := &source{t: t, feed: h.Feed(pushed)}
	s.feed.Begin(wal.Position{}, 1)
	s.feed.Alive()
	return h, s
}

// encode makes a frame of records, which get their LSNs.
func (s *source) encode(recs ...locktable.Record) (before wal.Position, frame []byte) {
	before = s.at
	var entries []wal.Entry
	for i := range recs {
		r := &recs[i]
		r.LSN, r.Epoch = s.at.LSN+1, 1
		if err := r.Validate(); err != nil {
			s.t.Fatal(err)
		}
		header := r.AppendHeader(nil)
		entries = append(entries, wal.Entry{Header: header})
		s.at = wal.Position{LSN: r.LSN, Chain: s.at.Chain.Next(header)}
	}
	return before, wal.AppendFrame(nil, wal.FrameHeader{
		Kind: wal.FrameRecords, Elided: true, Epoch: 1, First: before.LSN + 1, Count: len(entries), Chain: s.at.Chain,
	}, entries)
}

// commit hands over one frame of these records.
func (s *source) commit(recs ...locktable.Record) {
	before, frame := s.encode(recs...)
	s.feed.Frames(before, s.at, 1, frame, nil)
}

func grant(lock string) locktable.Record {
	return locktable.Record{Kind: locktable.KindGrant, Client: "c", Request: 1, Lock: cluster.LockName(lock), TTL: time.Minute}
}

func expire(lock string, token cluster.Token) locktable.Record {
	return locktable.Record{Kind: locktable.KindExpire, Lock: cluster.LockName(lock), Token: token}
}

func appended(lock string, token cluster.Token) locktable.Record {
	return locktable.Record{
		Kind: locktable.KindAppend, Client: "c", Request: 2, Lock: cluster.LockName(lock), Token: token,
		File: "f", Generation: 1, Length: 1,
	}
}

func term() locktable.Record { return locktable.Record{Kind: locktable.KindTerm, Server: 1} }

// watching begins a watch that needs no reset.
func watching(t testing.TB, h *Hub, o Options) *Watcher {
	t.Helper()
	if o.Kinds == 0 {
		o.Kinds = KindsOf()
	}
	w, end := h.Watch(o)
	if end != nil {
		t.Fatalf("watch %+v: %+v", o, end)
	}
	t.Cleanup(w.Close)
	return w
}

// taken is what a watcher takes now, as text.
func taken(w *Watcher) string {
	w.h.Flush()
	b := w.Take()
	s := text(b.Events)
	if b.End != nil {
		s += fmt.Sprintf(" end %v gap %v", b.End.Status, b.End.Gap)
	}
	return s
}

func text(events []*pb.Event) (s string) {
	for _, e := range events {
		s += fmt.Sprintf(" %d:%v:%s", e.Lsn, locktable.Kind(e.Kind), e.Lock)
	}
	return s
}
