// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A volume on which nothing is wrong lacks what somebody has seen beyond its end, and numbers
// that may have been given are skipped.
func TestRecoverCountsWhatSomebodyHasSeen(t *testing.T) {
	for _, c := range []struct {
		name   string
		told   func(opt *recovery.Options, end, later checkpoint.Snapshot)
		beyond cluster.LSN // the highest that was told of is so far behind the end
		epoch  cluster.Epoch
	}{
		{"nothing", func(*recovery.Options, checkpoint.Snapshot, checkpoint.Snapshot) {}, 0, 0},
		{"an LSN", func(opt *recovery.Options, end, _ checkpoint.Snapshot) { opt.SeenLSN = end.At.LSN + 7 }, 7, 5},
		{"an epoch", func(opt *recovery.Options, _, _ checkpoint.Snapshot) { opt.SeenEpoch = 9 }, 0, step},
		{"a copy of the end", func(opt *recovery.Options, end, _ checkpoint.Snapshot) {
			opt.Copies = []recovery.Copy{{Name: "a", Snapshot: end}}
		}, 0, 0},
		{"a copy of more", func(opt *recovery.Options, _, later checkpoint.Snapshot) {
			opt.Copies = []recovery.Copy{{Name: "a", Snapshot: later}}
		}, 7, step},
		{"how far a server was", func(opt *recovery.Options, _, later checkpoint.Snapshot) {
			later.Table = nil
			opt.Copies = []recovery.Copy{{Name: "a", Snapshot: later}}
		}, 7, 5},
	} {
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			x := begin(t, l.disk.Clone(), 1)
			end := x.snapshot()
			x.fill(7)
			later := x.snapshot()
			end.Epoch, later.Epoch = 4, 4
			opt := recoverOptions()
			c.told(&opt, end, later)
			plan, err := recovery.NewPlan(t.Context(), host(l.disk, 9), opt)
			needed := c.epoch != 0
			if err != nil || plan.Needed != needed || plan.Complete == needed || needed && plan.Epoch != c.epoch || plan.SeenLSN != l.end+c.beyond {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	}
}

// Who recovers is told what is unknown: whose leases to wait for, and that nobody has said how
// far the volume was.
func TestRecoverSaysWhatIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		for _, seen := range []cluster.LSN{0, l.end + 100} {
			opt := recoverOptions()
			opt.Restored, opt.SeenLSN = true, seen
			plan, err := recovery.NewPlan(t.Context(), host(l.disk, 9), opt)
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(plan.Notes, "\n")
			if !strings.Contains(notes, fmt.Sprintf("granted after LSN %d are unknown", l.end)) || strings.Contains(notes, "NOBODY HAS SAID") != (seen == 0) {
				t.Errorf("seen %d, end %d: %s", seen, l.end, notes)
			}
		}
	})
}

// A primary that sleeps is no life to be seen. It wakes up and commits before its fence is set:
// the state that somebody agreed to go on with is not the last one any more.
func TestRecoverRefusesWhatCameMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		x.host.LoseLocks()
		opt := recoverOptions()
		opt.Restored = true
		h := host(d, 9)
		asleep := true
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if asleep && c.Op == volumetest.OpWriteAt && strings.HasPrefix(c.Name, "epochs/") {
				asleep = false
				x.fill(1)
				if err := x.r.Check(); err != nil {
					t.Errorf("it was fenced already: %v", err)
				}
			}
			return volumetest.Proceed()
		})
		if plan, err := recovery.Run(t.Context(), h, opt); asleep || !errors.Is(err, recovery.ErrServersRun) || plan.Done {
			t.Errorf("%+v, %v", plan, err)
		}
		if y := begin(t, d, 2); y.table.LSN() != 4 {
			t.Errorf("LSN %d was acknowledged, adopted is %d", 4, y.table.LSN())
		}
	})
}

// A backup that was restored and recovered twice has two histories behind one LSN. A table of
// the one is none of the other: its files may have other inodes.
func TestTwoRecoveriesAreTwoHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		x.kill()
		twin := d.Clone()
		opt := recoverOptions()
		opt.Restored = true
		recovered(t, d, opt)
		recovered(t, twin, opt)
		y := begin(t, d, 1)
		s := start(t, twin, 2)
		z, err := s.takeOver(s.claim(), &volume.WarmState{At: y.a.End, Table: y.table})
		if err != nil || z.a.End.LSN != y.a.End.LSN || z.a.Warm {
			t.Errorf("LSN %d and %d, warm: %v, %v", z.a.End.LSN, y.a.End.LSN, z.a.Warm, err)
		}
	})
}

// Nothing is written into a file that a recovery quarantines.
func TestRecoverWritesNothingIntoAQuarantinedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		s := x.snapshot()
		s.Pending = []locktable.Record{{
			LSN: x.table.LSN(), Epoch: 1, Kind: locktable.KindAppend, Client: "c1", Request: 2, Lock: h.lock, Token: h.token, File: h.file,
			Generation: 1, Length: 6, Data: []byte("first\n"),
		}}
		if _, err := x.r.WriteCheckpoint(s.Export()); err != nil {
			t.Fatal(err)
		}
		x.kill()
		opt := recoverOptions()
		opt.Restored = true
		if plan := recovered(t, d, opt); plan.Files[0].Fate != "quarantined" {
			t.Fatalf("%+v", plan.Files)
		}
		if y := begin(t, d, 2); len(y.a.Redo) != 0 {
			t.Errorf("to be written: %+v", y.a.Redo)
		}
	})
}

// A file on a fresh volume may have, by chance, the inode that it had on the volume that was
// lost. Nobody who sleeps can write to it: that one was on another filesystem.
func TestRecoverKeepsAFileOfAFreshVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, fresh := newDisk(t), newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		if err := fresh.Write("files/f", 0, []byte("first\n")); err != nil {
			t.Fatal(err)
		}
		info, err := host(fresh, 8).Lstat("files/f")
		if err != nil {
			t.Fatal(err)
		}
		s := x.snapshot()
		s.Table, err = locktable.Restore(s.At.LSN, func(yield func(locktable.Entity, error) bool) {
			for e := range x.table.Export() {
				if e.File != nil {
					e.File.Inode = info.Inode
				}
				if !yield(e, nil) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{{Name: "a", Snapshot: s}}
		if plan := recovered(t, fresh, opt); plan.Files[0].Fate != "kept" {
			t.Errorf("%+v", plan.Files)
		}
	})
}

// The flag of the newest fence is set, and nobody can read by whom: a newer epoch may be gone.
func TestRecoverDoubtsAFlagThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		if err := write(newest+"fence", 0, "torn")(l.disk); err != nil {
			t.Fatal(err)
		}
		if plan, err := recovery.NewPlan(t.Context(), host(l.disk, 9), recoverOptions()); err != nil || !plan.Needed || plan.Complete {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// A file that was restored with more than the state knows of is quarantined: no later append
// lies over bytes that nobody knows.
func TestRecoverQuarantinesAFileThatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		x.kill()
		if err := errors.Join(d.Remove("files/f"), d.Write("files/f", 0, []byte("first\nlater\n"))); err != nil {
			t.Fatal(err)
		}
		opt := recoverOptions()
		opt.Restored = true
		if plan := recovered(t, d, opt); plan.Files[0].Fate != "quarantined" || !strings.Contains(plan.Files[0].Reason, "foreign bytes behind") {
			t.Errorf("%+v", plan.Files)
		}
	})
}

// Files that a recovery keeps may have the numbers of several others, which are gone: those are
// told apart, and the numbers of what is kept are remembered for nobody.
func TestRecoverTellsManyInodesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job"}
		h.token = x.acquire(h.lock)
		fresh := map[uint64]bool{}
		for _, name := range []cluster.FileName{"f", "g"} {
			restored := "files/" + string(name)
			if err := d.Write("restored/"+string(name), 0, []byte("first\n")); err != nil {
				t.Fatal(err)
			}
			info, err := host(d, 8).Lstat("restored/" + string(name))
			if err != nil {
				t.Fatal(err)
			}
			fresh[info.Inode] = true
			h.file = name
			x.append(h, "first\n")
			h.file = "gone/" + name
			x.commitAppend(h, "x", info.Inode)
			if err := errors.Join(d.Remove(restored), d.Rename("restored/"+string(name), restored)); err != nil {
				t.Fatal(err)
			}
		}
		x.kill()
		opt := recoverOptions()
		opt.Restored = true
		plan, err := recovery.Run(t.Context(), host(d, 9), opt)
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, f := range plan.Files {
			if f.Fate == "kept" {
				kept++
			}
		}
		if len(plan.Files) != 4 || kept != 2 {
			t.Errorf("%+v", plan.Files)
		}
		for e := range begin(t, d, 2).table.Export() {
			if e.Past != nil && fresh[e.Past.Inode] {
				t.Errorf("an inode that was kept is nobody's: %+v", *e.Past)
			}
		}
	})
}

// What a recovery took ends where it says, also where the epoch that it made is lost, and the
// primary before it wrote and made a checkpoint late.
func TestRecoverTakesWhatARecoveryTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(5)
		x.host.LoseLocks()
		opt := recoverOptions()
		opt.Restored = true
		recovered(t, d, opt)
		x.fill(3) // late: never acknowledged
		x.checkpoint()
		x.kill()
		for name := range d.Files("epochs/4294967296/") {
			if strings.Contains(name, "/wal-0") || strings.Contains(name, "/checkpoint-") {
				if err := write(name, 0, "###")(d); err != nil {
					t.Fatal(err)
				}
			}
		}
		plan, err := recovery.NewPlan(t.Context(), host(d, 9), recoverOptions())
		if err != nil || plan.End != 5 || plan.Complete || !strings.Contains(plan.Source, "epochs/0000000001") {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// Where nothing can be read, nothing is recovered: an empty state is none.
func TestRecoverTakesNothingForAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(5)
		x.kill()
		for name := range d.Files("epochs/0000000001/wal-0") {
			if err := write(name, 0, "###")(d); err != nil {
				t.Fatal(err)
			}
		}
		if plan, err := recovery.Run(t.Context(), host(d, 9), recoverOptions()); !errors.Is(err, recovery.ErrNoSource) {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// Numbers of a log of which only a name is left have been given.
func TestRecoverCountsWhatNamesTellOf(t *testing.T) {
	const lost = "epochs/4294967297/"
	for _, kept := range []string{"wal-", "checkpoint-", "fence", "lock_state.json"} {
		bubble(t, kept, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.fill(3)
			x.kill()
			opt := recoverOptions()
			opt.Restored = true
			recovered(t, d, opt)
			y := begin(t, d, 2)
			y.fill(20)
			y.checkpoint()
			if kept == "lock_state.json" {
				if err := y.r.PublishViews(y.snapshot().Export(), time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			y.kill()
			gone := map[string]bool{}
			for name := range d.Files("epochs/429496729") {
				part := strings.Join(strings.Split(name, "/")[:3], "/")
				what := path.Base(part)
				var err error
				switch {
				case what == "fence" && (kept != "fence" || !strings.HasPrefix(name, lost)):
					err = write(name, layout.FenceSpacing+100, "x")(d)
				case !strings.HasPrefix(what, "wal-0") && !strings.HasPrefix(what, "checkpoint-"):
				case strings.HasPrefix(what, kept):
					err = write(name, 0, "###")(d)
				case !gone[part]:
					gone[part] = true
					err = d.Remove(part)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if plan, err := recovery.NewPlan(t.Context(), host(d, 9), recoverOptions()); err != nil || plan.LSN < 2*step || plan.End != 3 {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	}
}
