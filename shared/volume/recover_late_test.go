// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// The calls of a recovery that change nothing: sleeping there is sleeping before the next one.
var reading = []string{
	volumetest.OpStat, volumetest.OpClose, volumetest.OpTryLock, volumetest.OpUnlock,
}

// serve takes over and grants a lock as a primary does: the answer counts only if
// the check behind it passes. It returns nil where the server could not.
func serve(t *testing.T, s *server, lock cluster.LockName) *term {
	t.Helper()
	r, err := s.vol.Claim(context.Background(), s.prepare())
	if err != nil {
		return nil
	}
	x, err := s.takeOver(r, nil)
	if err != nil || !x.grants(lock) {
		return nil
	}
	return x
}

// grants reports whether a grant was acknowledged.
func (x *term) grants(lock cluster.LockName) bool {
	if x.r.Check() != nil {
		return false
	}
	x.acquire(lock)
	return x.r.Check() == nil
}

// late is a recovery that sleeps at one of its calls, on a host whose flocks its
// server has dropped, while servers do something.
type late struct {
	disk *volumetest.Disk
	gate *volumetest.Gate
	done chan struct{}
	plan *recovery.Plan
	err  error
}

func sleepAt(t *testing.T, d *volumetest.Disk, n int, opt recovery.Options) *late {
	t.Helper()
	l := &late{disk: d, gate: volumetest.NewGate(), done: make(chan struct{})}
	h := host(d, 9)
	h.SetHook(volumetest.At(n, volumetest.Pause(l.gate)))
	go func() {
		defer close(l.done)
		l.plan, l.err = recovery.Run(t.Context(), h, opt)
	}()
	<-l.gate.Arrived()
	h.LoseLocks()
	return l
}

func (l *late) wake() {
	l.gate.Resume()
	<-l.done
}

// A recovery may sleep at any call while servers come and go. Whatever a primary
// acknowledged meanwhile is known to the next one, and there is one primary.
// Where servers tidy up, it finds nothing to name; it must not count on that.
func TestRecoverWakesLateAnywhere(t *testing.T) {
	for name, dies := range map[string]bool{"the primary lives": false, "the primary tidied up and died": true} {
		bubble(t, name, func(t *testing.T) {
			opt := recoverOptions()
			opt.Restored = true
			l := live(t)
			h := host(l.disk.Clone(), 9)
			if _, err := recovery.Run(t.Context(), h, opt); err != nil {
				t.Fatal(err)
			}
			sleeps, acked, done := 0, 0, 0
			for _, call := range tried(h.Trace()) {
				if slices.Contains(reading, call.Op) {
					continue
				}
				sleeps++
				d := l.disk.Clone()
				asleep := sleepAt(t, d, call.Index, opt)
				s := start(t, d, 1)
				if dies {
					if err := s.vol.RemoveLeftovers(); err != nil {
						t.Fatal(err)
					}
				}
				x := serve(t, s, "acked/meanwhile")
				if x != nil && dies {
					x.kill()
				}
				asleep.wake()
				if asleep.plan != nil && asleep.plan.Done != (asleep.err == nil) {
					t.Errorf("%v: done %v, but %v", call, asleep.plan.Done, asleep.err)
				}
				second := x != nil && !dies && x.grants("acked/later")
				y := serve(t, start(t, d, 2), "acked/next")
				if y == nil {
					t.Fatalf("%v: nobody can take over (the recovery: %v)", call, asleep.err)
				}
				if x != nil && !dies && x.r.Check() == nil {
					t.Errorf("%v: two primaries, epochs %d and %d", call, x.r.Epoch(), y.r.Epoch())
				}
				if _, known := y.table.Lock("acked/meanwhile"); x != nil && !known {
					t.Errorf("%v: epoch %d lost what epoch %d acknowledged", call, y.r.Epoch(), x.r.Epoch())
				}
				if _, known := y.table.Lock("acked/later"); second && !known {
					t.Errorf("%v: epoch %d lost what epoch %d acknowledged later", call, y.r.Epoch(), x.r.Epoch())
				}
				if x != nil {
					acked++
				}
				if asleep.err == nil {
					done++
				}
				y.kill()
				sound(t, d)
			}
			t.Logf("%d sleeps: servers went on %d times, the recovery %d times", sleeps, acked, done)
			if acked < sleeps/2 || dies && done == 0 {
				t.Error("that is too little to show anything")
			}
		})
	}
}

// naming does something to the call that names a recovery's epoch.
func naming(action volumetest.Action) volumetest.Hook {
	return func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpRename && strings.HasPrefix(c.NewName, "epochs/") {
			return action
		}
		return volumetest.Proceed()
	}
}

// named stops a recovery between its name and START, which leaves a burned number.
func named(t *testing.T, d *volumetest.Disk, opt recovery.Options) {
	t.Helper()
	h := host(d, 9)
	h.SetHook(naming(volumetest.CrashAfter()))
	if plan, err := recovery.Run(t.Context(), h, opt); err == nil || plan.Done {
		t.Fatalf("%+v, %v", plan, err)
	}
	if _, err := host(d, 9).Lstat("epochs/4294967296/fence"); err != nil {
		t.Fatal(err)
	}
}

// A burned number of a recovery is walked across, and only that.
func TestTakeoverAcrossTheNumbersThatARecoveryLeftOut(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(d *volumetest.Disk) error
		from cluster.Epoch // 0: refused
	}{
		{"as it is", func(*volumetest.Disk) error { return nil }, 4},
		{"the epoch before is gone", func(d *volumetest.Disk) error { return d.Rename("epochs/0000000004", "gone") }, 0},
		{"its fence is gone", remove(newest + "fence"), 0},
		{"the recovery's fence is gone", remove("epochs/4294967296/fence"), 0},
		{"the recovery's claim is gone", remove("epochs/4294967296/claim.json"), 0},
		{"the recovery's claim is damaged", write("epochs/4294967296/claim.json", 0, "#"), 0},
		{"a stranger between", func(d *volumetest.Disk) error { return d.Write("epochs/0000000007/claim.json", 0, []byte("{}")) }, 0},
	} {
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			opt := recoverOptions()
			opt.Restored = true
			named(t, l.disk, opt)
			if err := c.do(l.disk); err != nil {
				t.Fatal(err)
			}
			r := start(t, l.disk, 1).claim()
			src, err := r.FenceOlder(t.Context())
			if r.Epoch() != step+1 || (err == nil) != (c.from != 0) || err == nil && src.Epoch != c.from {
				t.Errorf("epoch %d takes over from %d: %v", r.Epoch(), src.Epoch, err)
			}
		})
	}
}

// Servers that claimed below a recovery's number count, however many there are.
func TestTakeoverFindsWhoClaimedWhileARecoverySlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		named(t, l.disk, opt)
		if err := l.disk.Rename("epochs/4294967296", "hidden"); err != nil {
			t.Fatal(err)
		}
		five := begin(t, l.disk, 1) // did not see it
		five.redo()
		five.acquire("acked")
		burned := start(t, l.disk, 3).claim() // nor did this one
		if err := l.disk.Rename("hidden", "epochs/4294967296"); err != nil {
			t.Fatal(err)
		}
		x := begin(t, l.disk, 2)
		if _, ok := x.table.Lock("acked"); !ok || x.src.Epoch != 5 || burned.Epoch() != 6 || x.r.Epoch() != step+1 {
			t.Errorf("epoch %d takes over from %d", x.r.Epoch(), x.src.Epoch)
		}
		if err := five.r.Check(); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("epoch 5 still speaks: %v", err)
		}
		if err := burned.Check(); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("epoch 6 may still begin: %v", err)
		}
		sound(t, l.disk)
	})
}

// What a recovery built and did not name is gone when a server starts.
func TestServersRemoveWhatARecoveryDidNotName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		h := host(l.disk, 9)
		h.SetHook(naming(volumetest.Crash()))
		if _, err := recovery.Run(t.Context(), h, opt); err == nil {
			t.Fatal("no crash")
		}
		s := start(t, l.disk, 1)
		if err := s.vol.RemoveLeftovers(); err != nil {
			t.Fatal(err)
		}
		for name := range l.disk.Snapshot() {
			if strings.Contains(name, "recover-") {
				t.Errorf("%s is still there", name)
			}
		}
	})
}

// A recovery does not destroy what told it that something is missing: repeated
// after a crash anywhere, it wants consent again.
func TestRecoverAsksAgainAfterACrash(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(d *volumetest.Disk) error
	}{
		{"the newest epoch is gone, a flag tells", func(d *volumetest.Disk) error { return d.Rename("epochs/0000000005", "gone") }},
		{"the newest epoch is gone, its flag cannot be read", func(d *volumetest.Disk) error {
			return errors.Join(d.Rename("epochs/0000000005", "gone"), d.Write(newest+"fence", 0, []byte("torn")))
		}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			x := begin(t, l.disk, 1)
			x.redo()
			token := x.acquire("lost")
			x.kill()
			if err := c.do(l.disk); err != nil {
				t.Fatal(err)
			}
			h := host(l.disk.Clone(), 9)
			if _, err := recovery.Run(t.Context(), h, recoverOptions()); err != nil {
				t.Fatal(err)
			}
			finished := 0
			for _, call := range tried(h.Trace()) {
				if slices.Contains(reading, call.Op) {
					continue
				}
				d := l.disk.Clone()
				dying := host(d, 9)
				dying.SetHook(volumetest.At(call.Index, volumetest.CrashAfter()))
				if _, err := recovery.Run(t.Context(), dying, recoverOptions()); err == nil {
					t.Fatalf("%v: no crash", call)
				}
				d.Crash(d.Rand())
				opt := recoverOptions()
				opt.AcceptLoss = false
				plan, err := recovery.Run(t.Context(), host(d, 9), opt)
				switch {
				case errors.Is(err, recovery.ErrLossNotAccepted) && plan.Needed && !plan.Complete:
				case err == nil && !plan.Needed && plan.End > step: // it was done
					finished++
				default:
					t.Errorf("%v: %+v, %v", call, plan, err)
				}
				opt.AcceptLoss = true
				if _, err := recovery.Run(t.Context(), host(d, 9), opt); err != nil {
					t.Errorf("%v: %v", call, err)
				}
				y := begin(t, d, 2)
				if fresh := y.acquire("other"); fresh <= token || fresh < step {
					t.Errorf("%v: token %d was given already", call, fresh)
				}
				y.kill()
			}
			t.Logf("%d calls, %d times it was done", h.Calls(), finished)
		})
	}
}

// A recovery that named its epoch knows what is missing, until servers have gone on.
func TestARecoveryThatDidNotBeginIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored, opt.SeenLSN = true, 7*step
		named(t, l.disk, opt)
		plan, err := recovery.NewPlan(t.Context(), host(l.disk, 9), recoverOptions())
		if err != nil || !plan.Needed || plan.Complete || plan.SeenLSN < 7*step || plan.End != l.end {
			t.Errorf("%+v, %v", plan, err)
		}
		if left := begin(t, l.disk.Clone(), 1); left.table.Hash() != l.table.Hash() {
			t.Error("the old state is not what servers go on from")
		}
		fresh := recovered(t, l.disk, recoverOptions())
		if fresh.LSN < 8*step || fresh.Epoch <= step {
			t.Errorf("%+v", fresh)
		}
		x := begin(t, l.disk, 1)
		if out := x.do(locktable.Request{Op: locktable.OpAcquire, Lock: "n", TTL: time.Minute}, locktable.FileFacts{}); out.Token < 8*step {
			t.Errorf("token %d", out.Token)
		}
		x.kill()
		if plan, err := recovery.Run(t.Context(), host(l.disk, 9), recoverOptions()); err != nil || plan.Needed {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// Who claims while a recovery sleeps and has not begun when it wakes up, is fenced.
func TestRecoverFencesWhoClaimedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		gate := volumetest.NewGate()
		h := host(l.disk, 9)
		h.SetHook(naming(volumetest.Pause(gate)))
		done := make(chan error)
		go func() {
			_, err := recovery.Run(t.Context(), h, opt)
			done <- err
		}()
		<-gate.Arrived()
		h.LoseLocks()
		five := start(t, l.disk, 1).claim()
		src, err := five.FenceOlder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, err := five.Scan(t.Context(), src, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := five.Adopt(a); err != nil {
			t.Fatal(err)
		}
		six := start(t, l.disk, 2).claim()
		gate.Resume()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := five.WriteStart(a.End); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("epoch %d begins below a recovery: %v", five.Epoch(), err)
		}
		if _, err := six.FenceOlder(t.Context()); !errors.Is(err, volume.ErrOvertaken) {
			t.Errorf("epoch %d: %v", six.Epoch(), err)
		}
		x := begin(t, l.disk, 3)
		if x.src.Epoch != step {
			t.Errorf("takes over from %d", x.src.Epoch)
		}
		sound(t, l.disk)
	})
}

// What begins while a recovery sleeps before it has a name, or may have begun, or may have been
// there, is not gone behind the new epoch: the recovery does not begin.
func TestRecoverDoesNotBeginWhereSomebodyMayHave(t *testing.T) {
	for name, damage := range map[string]func(d *volumetest.Disk) error{
		"begun":           func(*volumetest.Disk) error { return nil },
		"START torn":      write("epochs/0000000005/fence", layout.FenceSpacing+100, "x"),
		"gone":            remove("epochs/0000000005"),
		"the fence gone":  remove("epochs/0000000005/fence"),
		"the fence short": truncate("epochs/0000000005/fence", 100),
	} {
		bubble(t, name, func(t *testing.T) {
			l := live(t)
			opt := recoverOptions()
			opt.Restored = true
			h := host(l.disk, 9)
			h.SetHook(func(c volumetest.Call) volumetest.Action {
				if c.Op == volumetest.OpRename && strings.HasPrefix(c.NewName, "epochs/") {
					h.LoseLocks()
					five := begin(t, l.disk, 1)
					five.acquire("acked")
					five.kill()
					six := start(t, l.disk, 2)
					six.claim()
					six.host.Kill()
					if err := damage(l.disk); err != nil {
						t.Error(err)
					}
				}
				return volumetest.Proceed()
			})
			if plan, err := recovery.Run(t.Context(), h, opt); !errors.Is(err, recovery.ErrServersRun) || plan.Done {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	}
}

// A recovery that finds a claim newer than what it read burns no number.
func TestRecoverThatWasOvertakenBurnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		h, s := host(l.disk, 9), start(t, l.disk, 1)
		s.host.LoseLocks()
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpMkdir && strings.HasPrefix(c.Name, "servers/recover-") {
				h.LoseLocks()
				s.claim()
			}
			return volumetest.Proceed()
		})
		if plan, err := recovery.Run(t.Context(), h, opt); !errors.Is(err, recovery.ErrServersRun) || plan.Done {
			t.Errorf("%+v, %v", plan, err)
		}
		if _, err := host(l.disk, 8).Lstat("epochs/4294967296"); err == nil {
			t.Error("a number was burned")
		}
	})
}

// A rename that reports a failure and was done made the number the recovery's own.
func TestRecoverWhoseRenameReportsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		h := host(l.disk, 9)
		h.SetHook(naming(volumetest.FailAfter(syscall.EIO)))
		if plan, err := recovery.Run(t.Context(), h, opt); err != nil || !plan.Done {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// What a recovery wrote is read again before it gets a name.
func TestRecoverReadsWhatItWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		h := host(l.disk, 9)
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpSyncDir && c.Name == "servers" {
				for name := range l.disk.Files("servers/recover-") {
					if strings.HasSuffix(name, "lock_state.json") {
						if err := flip(name, 300)(l.disk); err != nil {
							t.Error(err)
						}
					}
				}
			}
			return volumetest.Proceed()
		})
		if plan, err := recovery.Run(t.Context(), h, opt); err == nil || plan.Done || !strings.Contains(err.Error(), "verify epoch 4294967296") {
			t.Errorf("%+v, %v", plan, err)
		}
		usable(t, l.disk, l.table.Hash())
	})
}

// The index tells of appends that the new state does not know: nothing is judged by it any more.
func TestRecoverRemovesTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		x := begin(t, l.disk, 1)
		w := x.r.IndexWriter()
		if err := errors.Join(w.Write([]index.Entry{{File: l.hold.file, Generation: 1, Length: 1, LSN: 1, Token: 1}}), w.Close()); err != nil {
			t.Fatal(err)
		}
		x.kill()
		opt := recoverOptions()
		opt.Restored = true
		if _, err := recovery.Run(t.Context(), host(l.disk, 9), opt); err != nil {
			t.Fatal(err)
		}
		if left := l.disk.Files("index/"); len(left) != 0 {
			t.Errorf("left %d files", len(left))
		}
	})
}

// A server removes what a recovery built, and dies in the middle. The recovery only slept: half
// of an epoch gets no name.
func TestHalfOfWhatARecoveryBuiltGetsNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		s := start(t, l.disk, 1)
		s.host.LoseLocks()
		s.host.SetHook(volumetest.AtOp(volumetest.OpRemove, "servers/recover-", 2, volumetest.Crash()))
		opt := recoverOptions()
		opt.Restored = true
		h := host(l.disk, 9)
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpRename && strings.HasPrefix(c.NewName, "epochs/") {
				if err := s.vol.RemoveLeftovers(); err == nil {
					t.Error("the server did not die")
				}
			}
			return volumetest.Proceed()
		})
		plan, err := recovery.Run(t.Context(), h, opt)
		if _, named := host(l.disk, 8).Lstat("epochs/4294967296"); named == nil || err == nil {
			t.Errorf("half of it has a name: %+v, %v", plan, err)
		}
		usable(t, l.disk, l.table.Hash())
	})
}

// hidingEpoch lists or finds one epoch less, as a cache does that is old.
type hidingEpoch struct {
	vfs.FS
	name           string
	listed, looked bool // what is hidden
}

func (h hidingEpoch) ReadDir(name string) ([]vfs.Entry, error) {
	all, err := h.FS.ReadDir(name)
	return slices.DeleteFunc(all, func(x vfs.Entry) bool { return h.listed && name == "epochs" && x.Name == h.name }), err
}

func (h hidingEpoch) Lstat(name string) (vfs.Info, error) {
	if h.looked && name == "epochs/"+h.name {
		return vfs.Info{}, fs.ErrNotExist
	}
	return h.FS.Lstat(name)
}

// Whoever began while a recovery slept is found in a listing, or by name where that is old.
func TestTakeoverFindsWhoIsHidden(t *testing.T) {
	for name, listed := range map[string]bool{"in an old listing": true, "by a name that is remembered as free": false} {
		bubble(t, name, func(t *testing.T) {
			l := live(t)
			opt := recoverOptions()
			opt.Restored = true
			named(t, l.disk, opt)
			if err := l.disk.Rename("epochs/4294967296", "hidden"); err != nil {
				t.Fatal(err)
			}
			five := begin(t, l.disk, 1) // did not see it
			five.kill()
			if err := l.disk.Rename("hidden", "epochs/4294967296"); err != nil {
				t.Fatal(err)
			}
			h := hidingEpoch{FS: host(l.disk, 2), name: "0000000005", listed: listed, looked: !listed}
			v, err := volume.Open(h, volume.Options{Server: 2, Random: rand.Reader, FirstSegment: 32 << 10, Segment: 32 << 10})
			if err != nil {
				t.Fatal(err)
			}
			s := &server{t: t, vol: v}
			if src, err := s.claim().FenceOlder(t.Context()); err != nil || src.Epoch != 5 {
				t.Errorf("takes over from %d: %v", src.Epoch, err)
			}
		})
	}
}

// A recovery that did not begin knew what was missing of the state that it saw. A server that
// claimed below it and began goes on from that state: nothing more is missing.
func TestARecoveryThatServersPassedIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		named(t, l.disk, opt)
		if err := l.disk.Rename("epochs/4294967296", "hidden"); err != nil {
			t.Fatal(err)
		}
		begin(t, l.disk, 1).kill()
		if err := l.disk.Rename("hidden", "epochs/4294967296"); err != nil {
			t.Fatal(err)
		}
		if plan, err := recovery.NewPlan(t.Context(), host(l.disk, 9), recoverOptions()); err != nil || plan.Needed {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// asOlderRecovery rewrites a flag that a recovery has set as binaries before wrote it: in the name
// of the last epoch, with the nonce of the recovery, which is in no claim.json.
func asOlderRecovery(t *testing.T, d *volumetest.Disk, e, by cluster.Epoch) {
	t.Helper()
	name := fmt.Sprintf("epochs/%010d/fence", uint64(e))
	b := bytes.Clone(d.Files(name)[name][:512])
	if binary.LittleEndian.Uint64(b[8:]) != uint64(by) {
		t.Fatalf("%s was set by %d", name, binary.LittleEndian.Uint64(b[8:]))
	}
	copy(b[16:32], "an older nonce!!")
	binary.LittleEndian.PutUint32(b[508:], crc32.Checksum(b[:508], crc32.MakeTable(crc32.Castagnoli)))
	if err := d.Write(name, 0, b); err != nil {
		t.Fatal(err)
	}
}

// TestAnInterruptedOlderRecoveryIsNamed: what an older binary's recovery left when it was interrupted
// behind its first fences looks like an epoch that is gone. Who is refused for it is told of both.
func TestAnInterruptedOlderRecoveryIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := locksOnly(t)
		interruptRecovery(t, d)
		asOlderRecovery(t, d, 5, 6)
		asOlderRecovery(t, d, 4, 6)
		const advice = "older version of holdfast recover was interrupted"
		if plan, err := recovery.NewPlan(t.Context(), host(d, 9), recoverOptions()); err != nil || plan.Complete || !strings.Contains(strings.Join(plan.Reasons, "\n"), advice) {
			t.Errorf("a recovery says: %v %q complete %t", err, plan.Reasons, plan.Complete)
		}
		s := start(t, d, 1)
		if _, err := s.takeOver(s.claim(), nil); !errors.Is(err, volume.ErrDamaged) || !strings.Contains(err.Error(), advice) {
			t.Errorf("take over: %v", err)
		}
	})
}
