// SPDX-License-Identifier: Apache-2.0

package historydir_test

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
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// newDir is an empty history, as one host sees it.
func newDir(t *testing.T) (*volumetest.Disk, historydir.Dir) {
	t.Helper()
	disk := volumetest.New(1)
	d := on(disk.Host(1, volumetest.ProfileLocal()))
	if err := d.FS.Mkdir("history"); err != nil {
		t.Fatal(err)
	}
	return disk, d
}

func on(fsys vfs.FS) historydir.Dir { return historydir.Dir{FS: fsys, Cluster: cluster.ID{1}} }

// writer is that of a term that does not end.
func writer(d historydir.Dir) *sidelog.Writer { return d.Writer(1, func() error { return nil }) }

// A search that has no time left for all of a file tells nothing of it: its first lines are
// the oldest, and ends that were not reached would be missed beside them. It does not say
// either that something is not kept any more.
func TestASearchThatStopsTellsWhatItReached(t *testing.T) {
	disk, d := newDir(t)
	w := writer(d)
	write := func(after, upTo cluster.LSN) {
		t.Helper()
		if err := w.Begin(1); err != nil {
			t.Fatal(err)
		}
		b := history.AppendHead(nil, history.Head{File: history.File(w.Name()), Cluster: d.Cluster.String(), After: after, Time: 1})
		for lsn := after + 1; lsn <= upTo; lsn++ {
			e := history.End{LSN: lsn, Epoch: 1, Why: history.WhyExpired, Lock: "l", Token: cluster.Token(lsn), Client: "c", Request: 1}
			e.Metadata = strings.Repeat("m", 1000)
			b = e.AppendLine(b)
		}
		if err := errors.Join(w.Append(b), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 1000) // about a megabyte: it is read in pieces
	write(1000, 1010)
	older := slices.Sorted(maps.Keys(disk.Files("history/")))[0]

	for name, stopAt := range map[string]int64{"in the middle": 1 << 18, "at once": 0, "by an error": 1 << 18} {
		t.Run(name, func(t *testing.T) {
			broken := name == "by an error"
			h := disk.Host(7, volumetest.ProfileLocal())
			defer h.Kill()
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
			got, err := on(h).Search(ctx, history.Query{Lock: "l", Limit: 15}, history.Recent{From: 1010}, 1010)
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
	disk, d := newDir(t)
	w := writer(d)
	for _, after := range []cluster.LSN{0, 10, 20} {
		if err := w.Begin(1); err != nil {
			t.Fatal(err)
		}
		b := history.AppendHead(nil, history.Head{File: history.File(w.Name()), Cluster: d.Cluster.String(), After: after, Time: 1})
		if err := errors.Join(w.Append(history.AppendMark(b, after+10)), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	search := func(h *volumetest.Host) historydir.Result {
		t.Helper()
		got, err := on(h).Search(t.Context(), history.Query{Lock: "l", Limit: 5}, history.Recent{From: 30}, 30)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := search(disk.Host(6, volumetest.ProfileLocal())); got.Kept != 0 || got.From != 0 {
		t.Errorf("kept from %d, searched from %d", got.Kept, got.From)
	}
	names := slices.Sorted(maps.Keys(disk.Files("history/")))
	h := disk.Host(7, volumetest.ProfileLocal())
	h.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpOpen && c.Name == names[2] { // removed while it searches
			for _, n := range names[:2] {
				_ = disk.Remove(n)
			}
		}
		return volumetest.Action{}
	})
	if got := search(h); got.Kept != 20 || got.From != 20 {
		t.Errorf("removed meanwhile: kept from %d, searched from %d", got.Kept, got.From)
	}
}
