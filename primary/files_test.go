// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func unbind(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token, file cluster.FileName) *locktable.Request {
	return &locktable.Request{Op: locktable.OpUnbind, Client: client, ID: id, Lock: lock, Token: token, File: file}
}

func rotate(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token, file cluster.FileName) *locktable.Request {
	return &locktable.Request{Op: locktable.OpRotate, Client: client, ID: id, Lock: lock, Token: token, File: file}
}

func TestAppendBeforeAnUnbindIsWritten(t *testing.T) {
	for _, test := range []struct {
		name string
		idle time.Duration
	}{
		{"to a file in use", 0},
		{"to a file that rests", 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				time.Sleep(test.idle)
				second := appendTo("c1", 3, "l", g.Token, "f", "two\n")
				for i, out := range x.together(second, unbind("c2", 1, "l", g.Token, "f")) {
					if out.Status != cluster.StatusOK {
						t.Errorf("request %d: %v %s", i, out.Status, out.Message)
					}
				}
				if got := content(d, "f"); got != "one\ntwo\n" {
					t.Errorf("file holds %q", got)
				}
				for i, lost := range powerLosses(d, 20) {
					if got := content(lost, "f"); got != "one\ntwo\n" {
						t.Errorf("power loss %d left %q of an unbound file", i, got)
					}
				}
				x.kill()

				y := serve(t, d, 2, primary.Options{})
				if out := y.ok(second); !out.Repeat || out.Offset != 4 {
					t.Errorf("repeat in the next term: %+v", out)
				}
				y.end()
			})
		})
	}
}

func TestAppendIsRefusedUntilItsNamesAreDurable(t *testing.T) {
	for _, dir := range []string{"files", "files/dir"} {
		t.Run(dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{CheckpointBytes: 1})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.host.SetHook(func(c volumetest.Call) volumetest.Action {
					if c.Op == volumetest.OpSyncDir && c.Name == dir {
						return volumetest.FailBefore(syscall.EIO)
					}
					return volumetest.Proceed()
				})
				q := appendTo("c1", 2, "l", g.Token, "dir/f", "one\n")
				x.sees(q, cluster.StatusStorageUnavailable)
				x.host.SetHook(nil)
				x.ok(q)
				time.Sleep(20 * time.Second) // checkpointed
				for i, lost := range powerLosses(d, 50) {
					if got := content(lost, "dir/f"); got != "one\n" {
						t.Errorf("power loss %d left %q", i, got)
					}
				}
			})
		})
	}
}

func TestStaleNameQuarantinesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.kill()

		h := d.Host(2, volumetest.ProfileLocal())
		h.SetHook(volumetest.AtOp(volumetest.OpLstat, "files/f", 1, volumetest.FailBefore(syscall.ENOENT)))
		y := serveLarge(t, h, 2, primary.Options{})
		defer y.end()
		time.Sleep(3 * time.Second)
		y.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		if got := content(d, "f"); got != "one\ntwo\n" {
			t.Errorf("file holds %q", got)
		}
	})
}

func TestLateWriteOfTheOldPrimaryIsNoForeignWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Pause(gate)))
		second := appendTo("c1", 3, "l", g.Token, "f", "two\n")
		hanging := x.later(second)
		<-gate.Arrived()

		h := d.Host(2, volumetest.ProfileLocal())
		var read, wrote atomic.Bool
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			switch {
			case c.Name != "files/f":
			case c.Op == volumetest.OpReadAt:
				read.Store(true)
			case c.Op == volumetest.OpStat && read.Load() && wrote.CompareAndSwap(false, true):
				// The hanging write happens in the middle of the redo.
				if err := d.Write("files/f", 4, []byte("two\n")); err != nil {
					t.Error(err)
				}
			}
			return volumetest.Proceed()
		})
		y := serveLarge(t, h, 2, primary.Options{})
		time.Sleep(time.Second)
		y.ok(appendTo("c1", 4, "l", g.Token, "f", "three\n"))
		if out := y.ok(second); !out.Repeat {
			t.Errorf("the hanging append was executed twice: %+v", out)
		}
		gate.Resume()
		if out := <-hanging; out.Status != cluster.StatusUnknown {
			t.Errorf("the old term answered %v", out.Status)
		}
		if got := content(d, "f"); got != "one\ntwo\nthree\n" {
			t.Errorf("file holds %q", got)
		}
		y.end()
		x.end()
	})
}

// TestLateWriteMeetsNoOtherAppend: a write of a paused primary comes when its file was unbound and
// cut by an operator. Nothing else was appended there meanwhile: that is refused, until the
// service makes a new file.
func TestLateWriteMeetsNoOtherAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Pause(gate)))
		hanging := x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		<-gate.Arrived()

		y := serve(t, d, 2, primary.Options{})
		time.Sleep(time.Second)
		y.ok(unbind("c1", 4, "l", g.Token, "f"))
		if err := d.Truncate("files/f", 0); err != nil {
			t.Fatal(err)
		}
		first := appendTo("c1", 5, "l", g.Token, "f", "AAAA")
		y.sees(first, cluster.StatusInvalidArgument)
		if err := d.Host(8, volumetest.ProfileLocal()).Remove("files/f"); err != nil {
			t.Fatal(err)
		}
		if out := y.do(first); out.Status != cluster.StatusOK {
			t.Errorf("behind the removal: %v %s", out.Status, out.Message)
		}
		y.do(appendTo("c1", 6, "l", g.Token, "f", "BBBB"))
		gate.Resume()
		<-hanging
		time.Sleep(time.Second) // the write is done
		if got := content(d, "f"); got != "AAAABBBB" {
			t.Errorf("two acknowledged appends AAAA and BBBB; the file holds %q", got)
		}
		x.end() //nolint:errcheck // it was deposed
		y.end() //nolint:errcheck // it is stopped
	})
}

// TestAFileThatTheServiceMadeIsNew: whatever was written under its inode's number before, nobody can
// write to it. Of a file that was there that is not known.
func TestAFileThatTheServiceMadeIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		s, err := x.p.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.kill()
		used, err := locktable.Restore(s.At.LSN, func(yield func(locktable.Entity, error) bool) {
			for e := range s.Table.Export() {
				if !yield(e, nil) {
					return
				}
			}
			yield(locktable.Entity{Past: &locktable.PastState{Forgotten: 100}}, nil) // every number counts as used
		})
		if err != nil {
			t.Fatal(err)
		}
		y := serve(t, d, 2, primary.Options{Warm: &volume.WarmState{At: s.At, Table: used}})
		defer y.end() //nolint:errcheck // it is stopped
		y.ok(appendTo("c1", 2, "l", g.Token, "new", "one\n"))
		h := d.Host(8, volumetest.ProfileLocal())
		if err := h.Rename("files/new", "files/new.1"); err != nil {
			t.Fatal(err)
		}
		y.ok(rotate("c1", 3, "l", g.Token, "new"))
		if err := d.Write("files/there", 0, nil); err != nil {
			t.Fatal(err)
		}
		there := appendTo("c1", 4, "l", g.Token, "there", "one\n")
		y.sees(there, cluster.StatusInvalidArgument)
		if err := h.Remove("files/there"); err != nil {
			t.Fatal(err)
		}
		y.ok(there)
	})
}

func TestRepeatOfAnAppendToAForeignFileIsNotOK(t *testing.T) {
	committed := func(t *testing.T, out locktable.Outcome) {
		t.Helper()
		if out.Status != cluster.StatusFileQuarantined || !out.Committed {
			t.Errorf("got %v, committed %v; want FILE_QUARANTINED and committed", out.Status, out.Committed)
		}
	}
	t.Run("when both are in flight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(t)
			x := serve(t, d, 1, primary.Options{})
			defer x.end()
			g := x.ok(acquire("c1", 1, "l", 0))
			x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
			x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n")) // verified for a second
			if err := d.Write("files/f", 8, []byte("FOREIGN")); err != nil {
				t.Fatal(err)
			}
			q := appendTo("c1", 4, "l", g.Token, "f", "three\n")
			for _, out := range x.together(q, q) {
				committed(t, out)
			}
			if got := content(d, "f"); got != "one\ntwo\nFOREIGN" {
				t.Errorf("file holds %q", got)
			}
		})
	})
	t.Run("when a redo found it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(t)
			x := serve(t, d, 1, primary.Options{})
			g := x.ok(acquire("c1", 1, "l", 0))
			x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
			x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Crash()))
			q := appendTo("c1", 3, "l", g.Token, "f", "two\n")
			x.sees(q, cluster.StatusUnknown)
			x.end()
			if err := d.Write("files/f", 4, []byte("FOREIGN STUFF")); err != nil {
				t.Fatal(err)
			}
			y := serve(t, d, 2, primary.Options{})
			defer y.end()
			time.Sleep(time.Second)
			committed(t, y.do(q))
		})
	})
}

// After a takeover thousands of appends may have to be compared with what their file holds: that
// is done in large pieces, each of which is a round trip on a network.
func TestRedoReadsAndWritesInLargePieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		const many = 300
		for i := range cluster.RequestID(many) {
			x.ok(appendTo("c1", 2+i, "l", g.Token, "f", "a line of some length\n"))
		}
		before := d.Files("files/")["files/f"]
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		calls := map[string]int{}
		for _, c := range y.host.Trace() {
			if c.Name == "files/f" {
				calls[c.Op]++
			}
		}
		if calls[volumetest.OpReadAt] > 3 || calls[volumetest.OpWriteAt] > 3 || calls[volumetest.OpWriteAt] == 0 {
			t.Errorf("the redo of %d appends made %v", many, calls)
		}
		if after := d.Files("files/")["files/f"]; !bytes.Equal(before, after) {
			t.Errorf("%d bytes became %d", len(before), len(after))
		}
	})
}

func TestForeignFileIsQuarantinedUntilItIsRotated(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*volumetest.Disk) error
	}{
		{"truncated", func(d *volumetest.Disk) error { return d.Truncate("files/f", 2) }},
		{"longer", func(d *volumetest.Disk) error { return d.Write("files/f", 4, []byte("more")) }},
		{"other bytes", func(d *volumetest.Disk) error { return d.Write("files/f", 1, []byte("X")) }},
		{"replaced", func(d *volumetest.Disk) error {
			if err := d.Rename("files/f", "files/kept"); err != nil {
				return err
			}
			return d.Write("files/f", 0, []byte("one\n"))
		}},
		{"removed", func(d *volumetest.Disk) error { return d.Remove("files/f") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				if err := test.spoil(d); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second) // so that it is verified again
				id := cluster.RequestID(3)
				x.eventually("quarantine", func() bool {
					out := x.do(appendTo("c1", id, "l", g.Token, "f", "two\n"))
					if out.Status == cluster.StatusOK {
						t.Fatal("appended to a foreign file")
					}
					return out.Status == cluster.StatusFileQuarantined
				})
				if f, _ := x.file("f"); !f.Quarantined || f.Reason == "" {
					t.Errorf("the table says %+v", f)
				}
				if _, err := d.ReadFile("files/f"); err == nil { // what stands there is moved away first
					x.sees(rotate("c1", 10, "l", g.Token, "f"), cluster.StatusInvalidArgument)
					if err := d.Rename("files/f", "files/old"); err != nil {
						t.Fatal(err)
					}
				}
				if out := x.ok(rotate("c1", 11, "l", g.Token, "f")); out.Generation != 2 {
					t.Errorf("rotated to generation %d", out.Generation)
				}
				if out := x.ok(appendTo("c1", 12, "l", g.Token, "f", "new\n")); out.Offset != 0 || out.Generation != 2 {
					t.Errorf("first append after the rotation: %+v", out)
				}
				if got := content(d, "f"); got != "new\n" {
					t.Errorf("file holds %q", got)
				}
			})
		})
	}
}

func TestFileIsAdoptedOnlyWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		if err := d.Write("files/f", 0, []byte("before\n")); err != nil {
			t.Fatal(err)
		}
		g := x.ok(acquire("c1", 1, "l", 0))
		q := appendTo("c1", 2, "l", g.Token, "f", "after\n")
		x.sees(q, cluster.StatusInvalidArgument)
		q = appendTo("c1", 3, "l", g.Token, "f", "after\n")
		q.AdoptExisting = true
		if out := x.ok(q); out.Offset != 7 {
			t.Errorf("offset %d", out.Offset)
		}
		if got := content(d, "f"); got != "before\nafter\n" {
			t.Errorf("file holds %q", got)
		}
		other := x.ok(acquire("c2", 1, "m", 0))
		if out := x.sees(appendTo("c2", 2, "m", other.Token, "f", "x"), cluster.StatusInvalidArgument); !strings.Contains(out.Message, "bound") {
			t.Errorf("message %q", out.Message)
		}
	})
}

func TestErrorsOfOneFileConcernThatFileOnly(t *testing.T) {
	for _, test := range []struct {
		name   string
		op     string
		action volumetest.Action
	}{
		{"write fails, not done", volumetest.OpWriteAt, volumetest.FailBefore(syscall.EIO)},
		{"write fails, but done", volumetest.OpWriteAt, volumetest.FailAfter(syscall.EIO)},
		{"write finds no space", volumetest.OpWriteAt, volumetest.FailBefore(syscall.ENOSPC)},
		{"stat fails", volumetest.OpStat, volumetest.FailBefore(syscall.EIO)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "good", "one\n"))
				x.ok(appendTo("c1", 3, "l", g.Token, "bad", "zero\n"))
				x.ok(appendTo("c1", 4, "l", g.Token, "bad", "one\n")) // verified for a second
				x.host.SetHook(on(test.op, "files/bad", test.action))
				pending := x.later(appendTo("c1", 5, "l", g.Token, "bad", "two\n"))
				time.Sleep(1500 * time.Millisecond)
				x.unanswered(pending, "before it was written")
				x.ok(appendTo("c1", 6, "l", g.Token, "good", "two\n"))
				x.sees(appendTo("c1", 7, "l", g.Token, "bad", "three\n"), cluster.StatusStorageUnavailable)
				x.host.SetHook(nil)
				if out := <-pending; out.Status != cluster.StatusOK {
					t.Errorf("the pending append: %v %s", out.Status, out.Message)
				}
				time.Sleep(6 * time.Second)
				x.ok(appendTo("c1", 8, "l", g.Token, "bad", "four\n"))
				if got := content(d, "bad"); got != "zero\none\ntwo\nfour\n" {
					t.Errorf("file holds %q", got)
				}
			})
		})
	}
}

func TestAppendSurvivesAFailedSyncOfItsFile(t *testing.T) {
	for name, nth := range map[string]int{"every one": 0, "one, and the next is good": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{CheckpointBytes: 1, ViewInterval: time.Second})
				g := x.ok(acquire("c1", 1, "l", 0))
				x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "files/f", nth, volumetest.FailBefore(syscall.EIO)))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				time.Sleep(20 * time.Second)
				for id := cluster.RequestID(1); id < 20; id += 2 { // log enough for one more checkpoint
					x.ok(release("c2", id+1, "other", x.ok(acquire("c2", id, "other", 0)).Token))
				}
				time.Sleep(5 * time.Second) // checkpointed, with the append pending while it is
				x.kill()
				for i, lost := range powerLosses(d, 20) {
					y := serve(t, lost, 2, primary.Options{})
					time.Sleep(3 * time.Second)
					if got := content(lost, "f"); got != "one\n" {
						t.Errorf("power loss %d: file holds %q", i, got)
					}
					y.end()
				}
			})
		})
	}
}

// TestFencedTermJudgesNoFile: a writer that slept finds more in the file than
// its log has. That is its successor's, and not for it to call foreign.
func TestFencedTermJudgesNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "one\n")) // the file is verified
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpStat, "files/f", 1, volumetest.Pause(gate)))
		hanging := x.later(appendTo("c1", 4, "l", g.Token, "f", "two\n"))
		<-gate.Arrived()
		timing := cluster.DefaultTiming()
		timing.FencingPeriod = 0 // before the old term looks at its fence by itself
		y := serveLarge(t, d.Host(2, volumetest.ProfileLocal()), 2, primary.Options{Timing: timing})
		y.ok(appendTo("c1", 5, "l", g.Token, "f", "three\n"))
		x.unanswered(hanging, "its write has not come back")
		gate.Resume()
		if out := <-hanging; out.Status != cluster.StatusUnknown {
			t.Errorf("the fenced term answered %v: %s", out.Status, out.Message)
		}
		y.end()
		x.end()
	})
}

func TestGrantIsAnsweredAfterEarlierAppendsToItsFiles(t *testing.T) {
	for _, test := range []struct {
		name  string
		waits bool // in the queue, before the holder releases
	}{
		{"when the lock is free", false},
		{"when it waited", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				var granted <-chan locktable.Outcome
				if test.waits {
					granted = x.later(acquire("c2", 1, "l", locktable.WaitForever))
				}
				gate := volumetest.NewGate()
				x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Pause(gate)))
				written := x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
				<-gate.Arrived()
				x.ok(release("c1", 4, "l", g.Token))
				if !test.waits {
					granted = x.later(acquire("c2", 1, "l", 0))
				}
				x.unanswered(granted, "before the append of the holder before was written")
				x.ok(acquire("c3", 1, "other", 0)) // everything else does not wait
				gate.Resume()
				if out := <-written; out.Status != cluster.StatusOK {
					t.Errorf("append: %v", out.Status)
				}
				if out := <-granted; out.Status != cluster.StatusOK {
					t.Errorf("grant: %v", out.Status)
				}
			})
		})
	}
}

// So is one behind a takeover: what the term before committed and did not write comes first.
func TestGrantIsAnsweredAfterWhatATakeoverRedoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.host.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(syscall.EIO)))
		x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		time.Sleep(100 * time.Millisecond)
		x.kill()
		h, gate := d.Host(2, volumetest.ProfileLocal()), volumetest.NewGate()
		h.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.Pause(gate)))
		y := claimOn(t, h, 2, small(), primary.Options{MaxBatch: 8 << 10}).serving()
		defer y.end() //nolint:errcheck // it is stopped
		y.ok(release("c1", 4, "l", g.Token))
		grant := y.later(acquire("c2", 1, "l", 0))
		time.Sleep(100 * time.Millisecond)
		y.unanswered(grant, "before the file has what was committed under the lock")
		gate.Resume()
		if out := <-grant; out.Status != cluster.StatusOK || content(d, "f") != "one\ntwo\n" {
			t.Errorf("%v, and the file has %q", out.Status, content(d, "f"))
		}
	})
}

func TestForeignWriteInABurstIsFound(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*volumetest.Disk) error
	}{
		{"other bytes", func(d *volumetest.Disk) error { return d.Write("files/f", 8, []byte("FOREIGN")) }},
		{"zeros", func(d *volumetest.Disk) error { return d.Truncate("files/f", 100) }},
		{"the append's own bytes and more", func(d *volumetest.Disk) error { return d.Write("files/f", 8, []byte("three\nmore")) }},
		{"a truncation", func(d *volumetest.Disk) error { return d.Truncate("files/f", 3) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n")) // verified for a second
				if err := test.spoil(d); err != nil {
					t.Fatal(err)
				}
				before := content(d, "f")
				if out := x.sees(appendTo("c1", 4, "l", g.Token, "f", "three\n"), cluster.StatusFileQuarantined); !out.Committed {
					t.Error("a committed append is answered as if it were not")
				}
				x.sees(appendTo("c1", 5, "l", g.Token, "f", "four\n"), cluster.StatusFileQuarantined)
				if got := content(d, "f"); got != before {
					t.Errorf("a foreign file was written: %q", got)
				}
			})
		})
	}
}

// Between the word of a file's writer that an append is in no file and its record in the table
// a repeat is not told that the append is done, and nobody that the file holds it. Both stand in the
// core loop's queue already when the writer says so.
func TestALostAppendIsNotToldAsDoneBeforeTheTableKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n")) // verified for a second
		if err := d.Write("files/f", 8, []byte("foreign\n")); err != nil {
			t.Fatal(err)
		}
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpStat, "files/f", 1, volumetest.Pause(gate)))
		first := x.later(appendTo("c1", 4, "l", g.Token, "f", "three\n"))
		<-gate.Arrived() // it is committed, and looks at the file before it writes
		release := x.holdLoop()
		again := x.later(appendTo("c1", 4, "l", g.Token, "f", "three\n"))
		end := make(chan int64, 1)
		go func() {
			if f, _, out, err := x.p.File(t.Context(), "f"); err == nil && out.Status == cluster.StatusOK && !f.Quarantined {
				end <- f.End
			}
			close(end)
		}()
		synctest.Wait()
		gate.Resume()
		if out := <-first; out.Status != cluster.StatusFileQuarantined || !out.Committed {
			t.Errorf("the append that is in no file: %+v", out)
		}
		release()
		if out := <-again; out.Status != cluster.StatusFileQuarantined || !out.Committed {
			t.Errorf("its repeat was told %v at LSN %d, offset %d", out.Status, out.LSN, out.Offset)
		}
		if n, told := <-end; told && n > 8 {
			t.Errorf("the file was told to end at %d", n)
		}
	})
}

// A file that is no longer what the log says refuses the next append before that is decided: one
// that is bound is quarantined, and one that never was cannot be.
func TestForeignFileIsRefusedBeforeAnythingIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n")) // the file is verified
		time.Sleep(3 * time.Second)                         // it rests
		if err := errors.Join(d.Write("files/f", 8, []byte("foreign\n")), d.Mkdir("files/g")); err != nil {
			t.Fatal(err)
		}
		if out := x.sees(appendTo("c1", 4, "l", g.Token, "f", "three\n"), cluster.StatusFileQuarantined); out.Committed || out.LSN != 0 {
			t.Errorf("it was decided: %+v", out)
		}
		if state, _ := x.file("f"); !state.Quarantined || state.End != 8 {
			t.Errorf("the bound file is %+v", state)
		}
		x.sees(appendTo("c1", 5, "l", g.Token, "g", "one\n"), cluster.StatusInvalidArgument)
		if _, bound := x.file("g"); bound {
			t.Error("a directory was bound")
		}
	})
}

// TestFewUnusedFilesStayOpen: a server that appends to many files keeps few of them open, those
// that it used last, and appends to the others as before.
func TestFewUnusedFilesStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{OpenFiles: 8})
		defer x.end()
		var mu sync.Mutex
		open := map[string]int{}
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(c.Name, "files/") && c.Op == volumetest.OpOpen {
				open[c.Name]++
			}
			if strings.HasPrefix(c.Name, "files/") && c.Op == volumetest.OpClose {
				open[c.Name]--
			}
			return volumetest.Proceed()
		})
		g, id := x.ok(acquire("c1", 1, "l", 0)), cluster.RequestID(1)
		name := func(i int) cluster.FileName { return cluster.FileName(fmt.Sprintf("f%02d", i)) }
		add := func(i int) {
			id++
			x.ok(appendTo("c1", id, "l", g.Token, name(i), "x"))
		}
		for i := range 40 {
			add(i)
			time.Sleep(10 * time.Millisecond)
		}
		add(5) // it was opened early, and is used again
		time.Sleep(4 * time.Second)
		mu.Lock()
		for i := range 40 {
			want := 0
			if i == 5 || i >= 33 {
				want = 1
			}
			if got := open["files/"+string(name(i))]; got != want {
				t.Errorf("4 s after the last append file %d is open %d times, want %d", i, got, want)
			}
		}
		mu.Unlock()
		for i := range 40 {
			add(i)
			want := "xx"
			if i == 5 {
				want = "xxx"
			}
			if got := content(d, name(i)); got != want {
				t.Errorf("file %d holds %q", i, got)
			}
		}
	})
}
