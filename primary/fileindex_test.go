// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// fsckHost is no server's.
func fsckHost(d *volumetest.Disk) *volumetest.Host { return d.Host(9, volumetest.ProfileLocal()) }

// findings are what fsck says of protected files, without what is normal.
func findings(t *testing.T, d *volumetest.Disk) (all []fsck.Finding) {
	t.Helper()
	r, err := fsck.Run(context.Background(), fsckHost(d), fsck.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Code, "file-") && f.Code != "file-behind" || f.Severity != fsck.SeverityInfo {
			all = append(all, f)
		}
	}
	return all
}

func blame(t *testing.T, d *volumetest.Disk, file cluster.FileName) []index.Entry {
	t.Helper()
	b, err := index.ReadBlame(context.Background(), fsckHost(d), index.Query{File: file, To: 1 << 62, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return b.Entries
}

// fill appends n pieces to a file and returns the next request ID.
func (x *term) fill(file cluster.FileName, token cluster.Token, next cluster.RequestID, n int) cluster.RequestID {
	x.t.Helper()
	for range n {
		x.ok(appendTo("c1", next, "l", token, file, fmt.Sprintf("piece %6d %s\n", next, strings.Repeat("x", 500))))
		next++
	}
	return next
}

// forgetful makes the log of a term go soon.
func forgetful() primary.Options {
	return primary.Options{CheckpointBytes: 20 << 10, ViewInterval: 100 * time.Millisecond}
}

// TestIndexFindsForeignBytesAnywhere: also where the log is gone long ago, and says whose
// place they are in.
func TestIndexFindsForeignBytesAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, forgetful())
		g := x.ok(acquire("c1", 1, "l", 0))
		next := cluster.RequestID(2)
		for range 12 {
			next = x.fill("f", g.Token, next, 40)
			time.Sleep(2 * time.Second) // checkpoints
		}
		x.end()
		if all := findings(t, d); len(all) > 0 {
			t.Fatalf("a whole volume: %+v", all)
		}
		at := int64(len(content(d, "f")) / 20) // long gone from the log
		if err := d.Write("files/f", at, []byte("!")); err != nil {
			t.Fatal(err)
		}
		all := findings(t, d)
		if len(all) != 1 || all[0].Code != "file-foreign" || all[0].Severity != fsck.SeverityError || all[0].Path != "files/f" {
			t.Fatalf("one byte was changed: %+v", all)
		}
		f := all[0]
		if f.Offset > at || f.LSN == 0 || !strings.Contains(f.Problem, "client c1 under token") {
			t.Errorf("told %+v", f)
		}
		found := false
		for _, e := range blame(t, d, "f") {
			if e.Offset <= at && at < e.End() {
				found = e.Offset == f.Offset && e.LSN == f.LSN && e.Client == "c1" && e.Token == g.Token && e.Time > 0 && e.Epoch == 1
			}
		}
		if !found {
			t.Errorf("blame does not say who wrote offset %d", at)
		}
	})
}

// TestIndexOfAGapSaysNothing: what is not indexed is not judged, and said to be so.
func TestIndexOfAGapSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, forgetful())
		g := x.ok(acquire("c1", 1, "l", 0))
		next := cluster.RequestID(2)
		for i := range 12 {
			if i == 1 { // the index fails for a while
				x.host.SetHook(func(c volumetest.Call) volumetest.Action {
					if strings.HasPrefix(c.Name, "index/") {
						return volumetest.FailBefore(syscall.EIO)
					}
					return volumetest.Proceed()
				})
			}
			if i == 3 {
				x.host.SetHook(nil)
			}
			next = x.fill("f", g.Token, next, 40)
			time.Sleep(2 * time.Second)
		}
		x.end()
		all := findings(t, d)
		if len(all) != 1 || all[0].Code != "file-not-indexed" || all[0].Severity != fsck.SeverityInfo {
			t.Fatalf("with a gap: %+v", all)
		}
		// Without any index nothing is found wrong either.
		if err := index.Remove(fsckHost(d)); err != nil {
			t.Fatal(err)
		}
		if all = findings(t, d); len(all) != 1 || all[0].Code != "file-not-indexed" {
			t.Fatalf("without an index: %+v", all)
		}
	})
}

// TestIndexIsCompletedByTheNextTerm: what a crash took of the index is told from the log.
func TestIndexIsCompletedByTheNextTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.fill("f", g.Token, 2, 20)
		x.kill() // within the second
		if n := len(blame(t, d, "f")); n > 0 {
			t.Fatalf("%d appends are indexed: the test proves nothing", n)
		}
		y := serve(t, d, 2, primary.Options{})
		y.fill("f", g.Token, 22, 3)
		y.p.SyncIndex(t.Context())
		entries, at := blame(t, d, "f"), int64(0)
		for _, e := range entries {
			if e.Offset != at {
				t.Errorf("a gap from %d to %d", at, e.Offset)
			}
			at = e.End()
		}
		if len(entries) != 23 || entries[0].Epoch != 1 || entries[22].Epoch != 2 || at != int64(len(content(d, "f"))) {
			t.Errorf("%d appends up to %d: %+v", len(entries), at, entries)
		}
		for i := range 20 {
			lost := powerLosses(d, 20)[i]
			if got := blame(t, lost, "f"); len(got) != 23 {
				t.Errorf("power loss %d left %d appends in the index", i, len(got))
			}
		}
		y.end()
		if all := findings(t, d); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	})
}

// TestIndexIsWrittenBehindTheCheck: a term that is fenced before the check of a frame tells
// nothing of it, whatever the next one makes of the frame.
func TestIndexIsWrittenBehindTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		next := x.fill("f", g.Token, 2, 3)
		x.p.SyncIndex(t.Context())
		release := make(chan struct{})
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpReadAt && c.Name == "epochs/0000000001/fence" {
				<-release // the check
			}
			return volumetest.Proceed()
		})
		late := x.later(appendTo("c1", next, "l", g.Token, "f", "late\n"))
		time.Sleep(3 * time.Second) // longer than the index waits
		y := serve(t, d, 2, primary.Options{})
		close(release)
		if out := <-late; out.Status != cluster.StatusUnknown {
			t.Errorf("a fenced term answered %+v", out)
		}
		time.Sleep(3 * time.Second)
		x.end()
		y.end()
		for name, b := range d.Files("index/") {
			if !strings.Contains(name, "0000000001-") {
				continue
			}
			for n := 0; len(b) > 0; n++ {
				entries, rest, err := index.Decode(b)
				if err != nil || n > 0 || len(entries) != 3 {
					t.Fatalf("%s, block %d: %+v, %v", name, n, entries, err)
				}
				b = rest
			}
		}
	})
}

// TestIndexSaysNothingOfAnotherBinding: bytes that were changed while nobody was bound to
// the file are nobody's fault.
func TestIndexSaysNothingOfAnotherBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, forgetful())
		g := x.ok(acquire("c1", 1, "l", 0))
		next := x.fill("f", g.Token, 2, 3)
		x.p.SyncIndex(t.Context())
		x.ok(unbind("c1", next, "l", g.Token, "f"))
		if err := d.Write("files/f", 10, []byte("edited")); err != nil {
			t.Fatal(err)
		}
		q := appendTo("c1", next+1, "l", g.Token, "f", "more\n")
		q.AdoptExisting = true
		x.ok(q)
		x.p.SyncIndex(t.Context())
		// Made anew and bound once more, the new bytes stand where old ones were.
		x.ok(unbind("c1", next+2, "l", g.Token, "f"))
		if err := d.Host(8, volumetest.ProfileLocal()).Remove("files/f"); err != nil {
			t.Fatal(err)
		}
		x.ok(&locktable.Request{Op: locktable.OpBind, Client: "c1", ID: next + 3, Lock: "l", Token: g.Token, File: "f"})
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if strings.HasPrefix(c.Name, "index/") { // so that the new ones are not told
				return volumetest.FailBefore(syscall.EIO)
			}
			return volumetest.Proceed()
		})
		next = x.fill("f", g.Token, next+4, 80)
		time.Sleep(2 * time.Second) // a checkpoint: the log is not what fsck compares with
		x.fill("f", g.Token, next, 1)
		x.p.SyncIndex(t.Context())
		x.host.SetHook(nil)
		x.end()
		for _, f := range findings(t, d) {
			if f.Code != "file-not-indexed" {
				t.Errorf("told %+v", f)
			}
		}
	})
}

// TestBlameTellsOneBinding: a generation that was bound and unbound is told apart from those of the
// same name that came later.
func TestBlameTellsOneBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		first := x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(unbind("c1", 3, "l", g.Token, "f"))
		if err := d.Host(8, volumetest.ProfileLocal()).Remove("files/f"); err != nil {
			t.Fatal(err)
		}
		second := x.ok(appendTo("c1", 4, "l", g.Token, "f", "no\n"))
		x.p.SyncIndex(t.Context())
		for _, out := range []locktable.Outcome{first, second} {
			b, err := index.ReadBlame(t.Context(), d.Host(8, volumetest.ProfileLocal()), index.Query{
				File: "f", Generation: out.Generation, To: 100, Limit: 10,
			})
			if err != nil || len(b.Entries) != 1 || b.Entries[0].LSN != out.LSN {
				t.Errorf("generation %d: %+v, %v", out.Generation, b, err)
			}
		}
		x.end() //nolint:errcheck // it is stopped
	})
}
