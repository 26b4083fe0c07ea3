// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/wal"
)

// falling is a server whose term ends while its table is read, once.
type falling struct {
	*fedReplica
	fallen bool
}

func (b *falling) Read(ctx context.Context, f func(serving.View)) (serving.Reading, error) {
	if b.fallen {
		return b.fedReplica.Read(ctx, f)
	}
	b.fallen = true
	return serving.Reading{Status: cluster.StatusUnknown, Epoch: 7}, nil
}

// A browser comes back behind what passes, also before the stream has begun.
func TestBrowserComesBackWhenTheTermEndsUnderAReset(t *testing.T) {
	x := newEventSource(t, serveHTTP(t, &falling{fedReplica: newFedReplica(t).run()}).url+"/v1/watch")
	if _, e := x.event(); e.Kind != "end" || e.Status != "SECONDARY_MODE" || !strings.Contains(e.Message, "the term ended") {
		t.Errorf("told %+v", e)
	}
	if _, e := x.event(); e.Kind != "reset" {
		t.Errorf("told %+v", e)
	}
}

// expires hands over frames of n records that the table is not told of.
func (r *fedReplica) expires(n int) {
	const each = 1000
	for ; n > 0; n -= each {
		before, entries := r.at, make([]wal.Entry, 0, each)
		for range each {
			rec := locktable.Record{Kind: locktable.KindExpire, Lock: "l", Token: 1, LSN: r.at.LSN + 1, Epoch: 7}
			h := rec.AppendHeader(nil)
			entries = append(entries, wal.Entry{Header: h})
			r.at = wal.Position{LSN: rec.LSN, Chain: r.at.Chain.Next(h)}
		}
		r.feed.Frames(before, r.at, 7, wal.AppendFrame(nil, wal.FrameHeader{
			Kind: wal.FrameRecords, Elided: true, Epoch: 7, First: before.LSN + 1, Count: each, Chain: r.at.Chain,
		}, entries), nil)
		r.hub.Flush()
	}
}

func TestBrowserComesBackWhenTooMuchHappensUnderAReset(t *testing.T) {
	r := newFedReplica(t).run()
	r.grants("l")
	reads := 0
	r.reading = func() {
		if reads++; reads == 1 {
			r.expires(1<<18 + 1)
		}
	}
	x := newEventSource(t, serveHTTP(t, r).url+"/v1/watch")
	_, e := x.event()
	if e.Kind != "end" || e.Status != "CANCELLED" || !strings.Contains(e.Message, "while the table was read") {
		t.Errorf("told %+v", e)
	}
	for e.Kind != "reset" {
		r.feed.Alive() // however long it took
		_, e = x.event()
	}
}
