// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// A fenced primary goes on writing to its own log, longer than its successor's,
// which it never acknowledges. Then the successor's START is torn.
func TestRecoverPrefersTheHigherOfTwoLogsThatContradict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		old := begin(t, d, 1)
		old.fill(3)
		fresh := begin(t, d, 2)
		fresh.acquire("acked")
		old.fill(12) // late
		if err := old.r.Check(); err == nil {
			t.Fatal("the old primary is not fenced")
		}
		old.kill()
		fresh.kill()
		if err := write("epochs/0000000002/fence", layout.FenceSpacing+100, "x")(d); err != nil {
			t.Fatal(err)
		}
		plan := recovered(t, d, recoverOptions())
		if plan.Complete || plan.End != fresh.table.LSN() || !strings.Contains(plan.Source, "epochs/0000000002") || !strings.Contains(strings.Join(plan.Lost, "\n"), "the log of epochs/0000000001 has besides, up to LSN 15") {
			t.Errorf("%+v", plan)
		}
		x := begin(t, d, 3)
		if _, ok := x.table.Lock("acked"); !ok {
			t.Error("what the newer term acknowledged is lost")
		}
	})
}

// Two damaged logs: what a recovery takes of an older term ends where the next one that
// started adopted it, not where the newest did, and is of the log that was adopted.
func TestRecoverTakesNoForkOfAnOldTerm(t *testing.T) {
	for _, c := range []struct {
		name string
		torn bool // the START of the term between says nothing
		late int
	}{
		{"the one between started", false, 12},
		{"nobody knows whether the one between started", true, 12},
		{"nobody knows, and the fork ends early", true, 1},
	} {
		bubble(t, c.name, func(t *testing.T) {
			d := newDisk(t)
			old := begin(t, d, 1)
			old.fill(3)
			mid := begin(t, d, 2)
			mid.acquire("acked/by/2")
			mid.fill(2)
			old.acquire("phantom") // of a fenced primary, never acknowledged
			old.fill(c.late)
			if err := old.r.Check(); err == nil {
				t.Fatal("the old primary is not fenced")
			}
			top := begin(t, d, 3)
			top.fill(12)
			for _, x := range []*term{old, mid, top} {
				x.kill()
			}
			var damage []error
			for name := range d.Files("epochs/0000000003/wal-") {
				damage = append(damage, write(name, 0, "###")(d))
			}
			for name := range d.Files("epochs/0000000002/wal-") { // behind acked/by/2
				damage = append(damage, write(name, 3*vfs.BlockSize, "###")(d))
			}
			if c.torn {
				damage = append(damage, write("epochs/0000000002/fence", layout.FenceSpacing+100, "x")(d))
			}
			if err := errors.Join(damage...); err != nil {
				t.Fatal(err)
			}
			plan := recovered(t, d, recoverOptions())
			if plan.Complete || !strings.Contains(plan.Source, "epochs/0000000002") {
				t.Errorf("%+v", plan)
			}
			x := begin(t, d, 1)
			if _, ok := x.table.Lock("phantom"); ok {
				t.Errorf("a lock that was never granted: %+v", plan)
			}
			if _, ok := x.table.Lock("acked/by/2"); !ok {
				t.Errorf("what epoch 2 acknowledged and is there: %+v", plan)
			}
		})
	}
}

// A term of which nobody knows whether it started, and whose log cannot be read, may have
// served, as may one that is missing: without it nothing is complete, whatever the log below says.
func TestDoubtfulTermMayHaveServed(t *testing.T) {
	for name, damage := range map[string]func(d *volumetest.Disk) error{
		"START and log damaged": func(d *volumetest.Disk) error {
			errs := []error{write("epochs/0000000002/fence", layout.FenceSpacing+100, "x")(d)}
			for name := range d.Files("epochs/0000000002/wal-0") {
				errs = append(errs, write(name, 0, "###")(d))
			}
			return errors.Join(errs...)
		},
		"missing": remove("epochs/0000000002"),
	} {
		bubble(t, name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.fill(3)
			x.kill()
			y := begin(t, d, 2)
			y.fill(2) // acknowledged
			y.kill()
			burner := start(t, d, 1)
			burner.claim()
			burner.host.Kill()
			if err := damage(d); err != nil {
				t.Fatal(err)
			}
			plan, err := recovery.NewPlan(t.Context(), host(d, 9), recoverOptions())
			if err != nil || plan.End != 3 || plan.Complete || len(plan.Lost) == 0 {
				t.Errorf("the plan says that nothing is lost: %+v, %v", plan, err)
			}
		})
	}
}

// A primary sleeps before the write of an append whose record is lost. When it
// wakes up, nothing of a newer term lies there.
func TestRecoverLeavesOldInodesToWhoeverStillSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		old := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = old.acquire(h.lock)
		old.append(h, "first\n")
		p, err := old.r.OpenProtected(h.file)
		if err != nil {
			t.Fatal(err)
		}
		segment := "epochs/0000000001/wal-00000000000000000001.log"
		until := int64(3) * 4096 // the header, and two frames
		lost := old.commitAppend(h, "LOST!!\n", p.Inode())
		old.fill(1)
		if err := d.Write(segment, until, make([]byte, 64)); err != nil { // the record of the append
			t.Fatal(err)
		}
		old.host.LoseLocks()

		plan := recovered(t, d, recoverOptions())
		if plan.End != lost.LSN-1 || len(plan.Files) != 1 || plan.Files[0].Fate != "quarantined" || !strings.Contains(plan.Files[0].Reason, "sleeps") {
			t.Fatalf("%+v", plan)
		}
		x := begin(t, d, 2)
		var ghost locktable.Grant
		for l := range x.table.Locks(string(h.lock), "") {
			ghost = l.Grant
		}
		x.do(locktable.Request{Op: locktable.OpRelease, Client: "operator", ID: 1, Lock: h.lock, Token: ghost.Token}, locktable.FileFacts{})
		q := locktable.Request{Op: locktable.OpAppend, Lock: h.lock, Token: x.acquire(h.lock), File: h.file, Data: []byte("fresh!\n")}
		if out := x.do(q, locktable.FileFacts{Inode: p.Inode()}); out.Status != cluster.StatusFileQuarantined {
			t.Errorf("an append at the same offset: %v", out.Status)
		}
		// Nor behind a rotation, when it is not bound any more and holds what the log knows of.
		q.Op, q.Data = locktable.OpRotate, nil
		if out := x.do(q, locktable.FileFacts{Inode: p.Inode() + 1000}); out.Status != cluster.StatusOK {
			t.Fatalf("rotate: %+v", out)
		}
		q.Op = locktable.OpUnbind
		if out := x.do(q, locktable.FileFacts{}); out.Status != cluster.StatusOK {
			t.Fatalf("unbind: %+v", out)
		}
		q.Op, q.AdoptExisting = locktable.OpBind, true
		if out := x.do(q, locktable.FileFacts{Inode: p.Inode(), Size: lost.Offset}); out.Status != cluster.StatusInvalidArgument {
			t.Errorf("bound again where the lost append may be written: %+v", out)
		}
		if err := p.WriteAt([]byte("LOST!!\n"), lost.Offset); err != nil {
			t.Errorf("the late write was to happen: %v", err)
		}
	})
}

// TestRecoverTellsInodesApart: a file that was restored has another inode than the log says, and
// that number may be the one that the log has for another file.
func TestRecoverTellsInodesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		p, err := x.r.OpenProtected(h.file)
		if err != nil {
			t.Fatal(err)
		}
		content, err := d.ReadFile("files/f")
		if err != nil {
			t.Fatal(err)
		}
		best := recovery.Copy{Name: "a", Snapshot: x.snapshot()}
		x.kill()

		fresh := newDisk(t)
		if err := fresh.Write("files/f", 0, content); err != nil {
			t.Fatal(err)
		}
		info, err := host(fresh, 8).Lstat("files/f")
		if err != nil || info.Inode == p.Inode() {
			t.Fatalf("inode %d, before %d: %v", info.Inode, p.Inode(), err)
		}
		other := locktable.Request{Op: locktable.OpBind, Client: "c", ID: 1, Lock: h.lock, Token: h.token, File: "gone"}
		recs, _ := best.Table.Decide(&other, 1, locktable.FileFacts{Inode: info.Inode}, nil)
		for i := range recs {
			if err := best.Table.Apply(&recs[i]); err != nil {
				t.Fatal(err)
			}
			best.At = wal.Position{LSN: recs[i].LSN, Chain: best.At.Chain.Next(recs[i].AppendHeader(nil))}
		}
		best.Table, err = locktable.Restore(best.At.LSN, func(yield func(locktable.Entity, error) bool) {
			for e := range best.Table.Export() {
				if !yield(e, nil) {
					return
				}
			}
			yield(locktable.Entity{Past: &locktable.PastState{Inode: info.Inode + 1000, End: 10}}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{best}
		plan := recovered(t, fresh, opt)
		if len(plan.Files) != 2 || plan.Files[0].Fate != "kept" || plan.Files[1].Fate != "quarantined" {
			t.Fatalf("%+v", plan.Files)
		}
		y := begin(t, fresh, 2)
		kept, _ := y.table.File("f")
		gone, _ := y.table.File("gone")
		if kept.Inode != info.Inode || gone.Inode == info.Inode || !gone.Quarantined {
			t.Errorf("kept %+v, gone %+v", kept, gone)
		}
		for e := range y.table.Export() {
			if e.Past != nil && e.Past.Inode != 0 {
				t.Errorf("an inode of the volume that was lost is remembered: %+v", *e.Past)
			}
		}
		y.kill()
	})
}

// TestRecoverWritesNothingOfARotatedGeneration: what a base carries for a generation that was
// rotated away is not written into the new one.
func TestRecoverWritesNothingOfARotatedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		old := locktable.Record{
			LSN: x.table.LSN(), Epoch: 1, Kind: locktable.KindAppend, Client: "c1", Request: 1, Lock: h.lock, Token: h.token, File: h.file,
			Generation: 1, Length: 6, Data: []byte("first\n"),
		}
		if err := host(d, 8).Rename("files/f", "files/f.1"); err != nil {
			t.Fatal(err)
		}
		f, err := x.r.AdoptProtected(h.file)
		if err != nil {
			t.Fatal(err)
		}
		q := locktable.Request{Op: locktable.OpRotate, Lock: h.lock, Token: h.token, File: h.file}
		if out := x.do(q, locktable.FileFacts{Inode: f.Inode()}); out.Status != cluster.StatusOK {
			t.Fatalf("%+v", out)
		}
		s := x.snapshot()
		s.Pending = []locktable.Record{old}
		if _, err := x.r.WriteCheckpoint(s.Export()); err != nil {
			t.Fatal(err)
		}
		x.kill()
		if err := d.Write("epochs/0000000001/fence", layout.FenceSpacing+100, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if plan := recovered(t, d, recoverOptions()); !plan.Complete {
			t.Fatalf("%+v", plan)
		}
		y := begin(t, d, 2)
		if len(y.a.Redo) != 0 {
			t.Errorf("to be written into generation 2: %+v", y.a.Redo)
		}
		y.kill()
	})
}
