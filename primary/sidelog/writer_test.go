// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// What finds no room is counted: the commit path does not wait for a log that is not written.
func TestWhatFindsNoRoomIsCounted(t *testing.T) {
	x := NewIndex(nil, zerolog.Nop())
	x.Adopt(make([]locktable.Record, 2))
	for range indexRoom {
		x.Add(&locktable.Record{})
	}
	if len(x.waiting) != indexRoom || x.lost != 2 {
		t.Errorf("%d appends wait, %d are lost", len(x.waiting), x.lost)
	}
	for name, test := range map[string]struct{ metadata, room int }{"number": {0, historyRoom}, "size": {1 << 20, historyBytes / (1 << 20)}} {
		h := NewHistory(HistoryConfig{Log: zerolog.Nop()})
		end := history.Batch{Ends: []history.End{{Metadata: string(make([]byte, test.metadata))}}}
		for i := range test.room + 3 {
			end.Ends[0].LSN = cluster.LSN(i + 1)
			h.Add(&end, end.Ends[0].LSN)
		}
		r := h.Recent()
		if n := len(r.Ends); n > test.room || n < test.room-1 || len(r.Skips) != 1 || int(r.Skips[0].Count) != test.room+3-n {
			t.Errorf("by %s: %d ends wait, of which there are %d; skipped %+v", name, n, test.room+3, r.Skips)
		}
	}
}
