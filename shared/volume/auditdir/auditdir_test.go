// SPDX-License-Identifier: Apache-2.0

package auditdir_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/auditdir"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestNames(t *testing.T) {
	n := auditdir.Name{Server: 12, Day: "2026-11-28", N: 3}
	if n.Path() != "audit/12-2026-11-28-000003.jsonl" {
		t.Errorf("path %s", n.Path())
	}
	for _, x := range []auditdir.Name{n, {Server: auditdir.Commands, Day: "2026-01-01", N: 1}, {Server: math.MaxUint32, Day: "0001-01-01", N: math.MaxUint32}} {
		if got, ok := auditdir.Parse(strings.TrimPrefix(x.Path(), "audit/")); !ok || got != x {
			t.Errorf("%s: %v %v", x.Path(), got, ok)
		}
	}
	for _, name := range []string{
		"", "x", "-", "12-2026-11-28-3.jsonl", "012-2026-11-28-000003.jsonl", "12-2026-11-31-000003.jsonl", "12-2026-11-28-000003", "12-2026-11-28-000003.jsonl.tmp",
		"12-2026-11-28.jsonl", "12-2026-11-28-000003.json", "-1-2026-11-28-000003.jsonl", ".nfs01", "12-2026-11-28x000003.jsonl",
	} {
		if _, ok := auditdir.Parse(name); ok {
			t.Errorf("%q passes for a file", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("12-2026-11-28-000003.jsonl")
	f.Add("--")
	f.Fuzz(func(t *testing.T, name string) {
		if n, ok := auditdir.Parse(name); ok && n.Path() != "audit/"+name {
			t.Errorf("%q is %q", name, n.Path())
		}
	})
}

func at(hour int) time.Time { return time.Date(2026, 11, 28, hour, 0, 0, 0, time.UTC) }

// write writes events into a file of its own, with something behind them.
func write(t *testing.T, fsys vfs.FS, server cluster.ServerID, rest string, events ...audit.Event) {
	t.Helper()
	var b []byte
	for _, e := range events {
		b = e.AppendLine(b)
	}
	w := auditdir.NewWriter(fsys, server)
	err := w.Begin(auditdir.Day(events[0].Time), math.MaxInt64)
	if err == nil {
		err = w.Append(append(b, rest...))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestSearch(t *testing.T) {
	disk := volumetest.New(1)
	fsys := disk.Host(1, volumetest.ProfileLocal())
	if r, err := auditdir.Search(t.Context(), fsys, audit.Query{}); err != nil || len(r.Events) > 0 {
		t.Errorf("without an audit: %+v, %v", r, err)
	}
	event := func(hour int, lock string) audit.Event {
		return audit.Event{Time: at(hour), Kind: audit.KindBreak, Lock: lock}
	}
	// The files of two servers, the first of which was killed while it wrote; zeros are what a power loss leaves.
	write(t, fsys, 1, `{"time":"2026-11-28T11:00:00Z","kind":"bre`, event(1, "a"), event(5, "c"))
	write(t, fsys, 2, "", event(3, "b"), event(9, "e"))
	write(t, fsys, 1, string(make([]byte, 300))+"\n"+`{"kind":"break"}`+"\n", event(7, "d"))
	for name, test := range map[string]struct {
		q    audit.Query
		want string
		more bool
	}{
		"all":         {audit.Query{}, "abcde", false},
		"since":       {audit.Query{Since: at(5)}, "cde", false},
		"the newest":  {audit.Query{Limit: 2}, "de", true},
		"just enough": {audit.Query{Limit: 5}, "abcde", false},
		"of nobody":   {audit.Query{Who: "user:x"}, "", false},
		"long ago":    {audit.Query{Since: at(0).AddDate(0, 0, 2)}, "", false},
	} {
		r, err := auditdir.Search(t.Context(), disk.Host(2, volumetest.ProfileLocal()), test.q)
		got := ""
		for _, e := range r.Events {
			got += e.Lock
		}
		if damaged := 2; err != nil || got != test.want || r.More != test.more || r.Damaged != damaged && name != "long ago" {
			t.Errorf("%s: %q, more %v, %d damaged, %v", name, got, r.More, r.Damaged, err)
		}
	}
}

// A file that cannot be read is told, and what the others have, too.
func TestSearchTellsWhatItCouldNotRead(t *testing.T) {
	disk := volumetest.New(1)
	host := disk.Host(1, volumetest.ProfileLocal())
	write(t, host, 1, "", audit.Event{Time: at(1), Kind: audit.KindBreak, Lock: "a"})
	write(t, host, 2, "", audit.Event{Time: at(2), Kind: audit.KindBreak, Lock: "b"})
	host.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpOpen && strings.HasPrefix(c.Name, "audit/1-") {
			return volumetest.FailBefore(syscall.EACCES)
		}
		return volumetest.Action{}
	})
	r, err := auditdir.Search(t.Context(), host, audit.Query{})
	if !errors.Is(err, syscall.EACCES) || len(r.Events) != 1 || r.Events[0].Lock != "b" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Nobody writes into a file of another process, also where a cache hides that it is there.
func TestEachProcessHasItsFiles(t *testing.T) {
	disk := volumetest.New(1)
	var paths []string
	for i := range 5 {
		host := disk.Host(i+1, volumetest.ProfileLocal())
		if i == 3 {
			host.SetHook(volumetest.AtOp(volumetest.OpReadDir, "audit", 1, volumetest.FailBefore(syscall.ENOENT)))
		}
		w := auditdir.NewWriter(host, 1)
		for range 2 {
			if err := errors.Join(w.Begin("2026-11-28", 1), w.Append([]byte("x\n"))); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, w.Name().Path())
		}
	}
	for i, p := range paths {
		if want := fmt.Sprintf("audit/1-2026-11-28-%06d.jsonl", i+1); p != want {
			t.Errorf("file %d is %s", i, p)
		}
	}
}
