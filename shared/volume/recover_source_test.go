// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
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
		if err := write("epochs/0000000002/fence", volume.StartOffset+100, "x")(d); err != nil {
			t.Fatal(err)
		}
		plan := recovered(t, d, recovery())
		if plan.Complete || plan.End != fresh.table.LSN() || !strings.Contains(plan.Source, "epochs/0000000002") || !strings.Contains(strings.Join(plan.Lost, "\n"), "the log of epochs/0000000001 has besides, up to LSN 15") {
			t.Errorf("%+v", plan)
		}
		x := begin(t, d, 3)
		if _, ok := x.table.Lock("acked"); !ok {
			t.Error("what the newer reign acknowledged is lost")
		}
	})
}

// A primary sleeps before the write of an append whose record is lost. When it
// wakes up, nothing of a newer reign lies there.
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

		plan := recovered(t, d, recovery())
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
		if err := p.WriteAt([]byte("LOST!!\n"), lost.Offset); err != nil {
			t.Errorf("the late write was to happen: %v", err)
		}
	})
}
