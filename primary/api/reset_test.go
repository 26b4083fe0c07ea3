// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
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
