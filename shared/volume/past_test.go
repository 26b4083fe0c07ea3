// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A search that has no time left for all of a file tells nothing of it: its first lines are
// the oldest, and ends that were not reached would be missed beside them. It does not say
// either that something is not kept any more.
func TestASearchThatStopsTellsWhatItReached(t *testing.T) {
	d := newDisk(t)
	x := begin(t, d, 1)
	write := func(n uint32, after, upTo cluster.LSN) {
		t.Helper()
		f, err := x.r.CreateHistory(n)
		if err != nil {
			t.Fatal(err)
		}
		b := history.AppendHead(nil, history.Head{File: history.File{Epoch: x.r.Epoch(), N: n}, Cluster: x.r.Cluster().String(), After: after, Time: 1})
		for lsn := after + 1; lsn <= upTo; lsn++ {
			e := history.End{LSN: lsn, Epoch: 1, Why: history.WhyExpired, Lock: "l", Token: cluster.Token(lsn), Client: "c", Request: 1}
			e.Metadata = strings.Repeat("m", 1000)
			b = e.AppendLine(b)
		}
		if err := f.Append(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(1, 0, 1000) // about a megabyte: it is read in pieces
	write(2, 1000, 1010)
	older := slices.Sorted(maps.Keys(d.Files("history/")))[0]

	for name, stopAt := range map[string]int64{"in the middle": 1 << 18, "at once": 0, "by an error": 1 << 18} {
		t.Run(name, func(t *testing.T) {
			broken := name == "by an error"
			h := host(d, 7)
			defer h.Kill()
			v, err := open(h, 3)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			heads := 0
			h.SetHook(func(c volumetest.Call) volumetest.Action {
				if c.Op == volumetest.OpReadAt && c.Name == older && c.Offset == stopAt {
					if broken {
						return volumetest.FailBefore(syscall.EIO)
					}
					if heads++; heads > 1 || stopAt > 0 { // the first read is of its head
						stop()
					}
				}
				return volumetest.Action{}
			})
			got, err := v.History(ctx, history.Query{Lock: "l", Limit: 15}, history.Recent{From: 1010}, 1010)
			if broken != errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			if got.Stopped == broken || got.From != 1000 || got.More || got.Kept != 0 {
				t.Errorf("stopped %v, from %d, more %v, kept from %d", got.Stopped, got.From, got.More, got.Kept)
			}
			for i, e := range got.Ends {
				if want := cluster.LSN(1010 - i); e.LSN != want {
					t.Fatalf("end %d is of LSN %d, want %d: what lies between is missed", i, e.LSN, want)
				}
			}
			if len(got.Ends) != 10 {
				t.Errorf("%d ends", len(got.Ends))
			}
		})
	}
}

// What was removed before a search is told as not kept, whenever that happened.
func TestASearchSaysWhatIsKept(t *testing.T) {
	d := newDisk(t)
	x := begin(t, d, 1)
	for n, after := range []cluster.LSN{0, 10, 20} {
		f, err := x.r.CreateHistory(uint32(n + 1))
		if err != nil {
			t.Fatal(err)
		}
		b := history.AppendHead(nil, history.Head{File: history.File{Epoch: x.r.Epoch(), N: uint32(n + 1)}, Cluster: x.r.Cluster().String(), After: after, Time: 1})
		if err := f.Append(history.AppendMark(b, after+10)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	search := func(h *volumetest.Host, id cluster.ServerID) volume.History {
		t.Helper()
		v, err := open(h, id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.History(t.Context(), history.Query{Lock: "l", Limit: 5}, history.Recent{From: 30}, 30)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := search(host(d, 6), 2); got.Kept != 0 || got.From != 0 {
		t.Errorf("kept from %d, searched from %d", got.Kept, got.From)
	}
	names := slices.Sorted(maps.Keys(d.Files("history/")))
	h := host(d, 7)
	h.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpOpen && c.Name == names[2] { // removed while it searches
			for _, n := range names[:2] {
				_ = d.Remove(n)
			}
		}
		return volumetest.Action{}
	})
	if got := search(h, 3); got.Kept != 20 || got.From != 20 {
		t.Errorf("removed meanwhile: kept from %d, searched from %d", got.Kept, got.From)
	}
}
