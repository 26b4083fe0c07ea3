// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// A replica that was fed an older table than its client knows does not take it back.
func TestNoResetToAnEarlierState(t *testing.T) {
	r := newFedReplica(t).run()
	r.grants("a")
	h := serveHTTP(t, r)
	x := newEventSource(t, h.url+"/v1/watch?after=20&bookmark=100ms") // it knows more than this replica
	if _, e := x.event(); e.Kind != "bookmark" || e.LSN != 20 {
		t.Fatalf("bookmark: %+v", e)
	}
	behind := func(lsn cluster.LSN) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.at = wal.Position{LSN: lsn, Chain: wal.Chain(lsn)}
		r.feed.Begin(r.at, 8)
	}
	behind(15)
	for {
		m, e := x.event()
		if e.Kind == "bookmark" {
			continue
		}
		if e.Kind != "end" || e.Status != "SECONDARY_MODE" || !strings.Contains(e.Message, "LSN 15, and LSN 20") || m.id != "20" {
			t.Errorf("told %s", m.data)
		}
		break
	}
	x.retry = time.Millisecond
	behind(30)
	for {
		if m, e := x.event(); e.Kind == "reset" {
			if e.LSN != 30 || e.Reset.Reason == "" {
				t.Errorf("told %s", m.data)
			}
			break
		}
	}
}

// noted counts how often the table was read.
type noted struct {
	serving.Backend
	times atomic.Int64
}

func (b *noted) Read(ctx context.Context, read func(serving.View)) (serving.Reading, error) {
	b.times.Add(1)
	return b.Backend.Read(ctx, read)
}

// A client that leaves its reset has the server keep a table: its watch is ended.
func TestNobodyKeepsAResetForADeafClient(t *testing.T) {
	b := startPrimary(t)
	h := serveHTTP(t, b)
	const n = 800
	for i := range n {
		h.ok("/v1/acquire", fmt.Sprintf(`{"lock":"l/%d","ttl":"60s","metadata":%q}`, i, strings.Repeat("m", 4000)))
	}
	read := &noted{Backend: b}
	impatient := service.New(read, service.Options{ResetWait: 50 * time.Millisecond})
	c := dialService(t, impatient)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	// leftAlone waits until the one watch that is served has begun its reset and was ended: its
	// client has read nothing by then.
	leftAlone := func(before int64) {
		for over := time.After(time.Minute); read.times.Load() == before || impatient.Watchers() > 0; {
			select {
			case <-tick.C:
			case <-over:
				t.Error("half a minute after its reset began a watch that nobody reads goes on")
				return
			}
		}
	}
	w, err := c.Watch(t.Context(), &pb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	leftAlone(0)
	s := welcomed(t, c, "c1")
	before := read.times.Load()
	if err := s.Send(&pb.SessionRequest{Watches: []*pb.SessionWatch{{WatchId: 5, Request: &pb.WatchRequest{}}}}); err != nil {
		t.Fatal(err)
	}
	leftAlone(before)
	for {
		if r, err := w.Recv(); status.Code(err) == codes.ResourceExhausted {
			break
		} else if err != nil || r.GetReset_().GetLast() {
			t.Fatalf("told %v, %v", r.GetStatus(), err)
		}
	}
	for {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e := r.GetEvents()[0]; e.GetResponse().GetStatus() == pb.Status_STATUS_CANCELLED {
			break
		} else if e.GetResponse().GetReset_().GetLast() {
			t.Fatal("the session was told a whole reset")
		}
	}
}
