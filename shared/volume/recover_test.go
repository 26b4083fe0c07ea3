// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// step is what a recovery rounds up to.
const step = 1 << 32

func recoverOptions() recovery.Options {
	return recovery.Options{Random: rand.Reader, FirstSegment: 32 << 10, AcceptLoss: true}
}

// recovered plans, recovers, and fails the test unless the one says what the
// other does, nothing but fences changed, and fsck finds no error.
func recovered(t *testing.T, d *volumetest.Disk, opt recovery.Options) *recovery.Plan {
	t.Helper()
	before := d.Snapshot()
	plan, err := recovery.NewPlan(t.Context(), host(d, 9), opt)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	if !sameDisk(before, d.Snapshot()) {
		t.Error("a plan changed something")
	}
	done, err := recovery.Run(t.Context(), host(d, 9), opt)
	if err != nil || !done.Done {
		t.Fatalf("recover: %v", err)
	}
	if done.Source != plan.Source || done.Epoch != plan.Epoch || done.LSN != plan.LSN || !slices.Equal(done.Files, plan.Files) {
		t.Errorf("planned %+v, done %+v", plan, done)
	}
	after := d.Snapshot()
	for name, s := range before {
		if s.Type == vfs.TypeFile && after[name] != s && !strings.HasSuffix(name, "/fence") && !strings.HasPrefix(name, "servers/recover-") {
			t.Errorf("%s was changed", name)
		}
	}
	sound(t, d)
	return done
}

// goesOn takes over twice from what a recovery left, and wants tokens above
// every earlier one.
func goesOn(t *testing.T, d *volumetest.Disk, plan *recovery.Plan) *term {
	t.Helper()
	x := begin(t, d, 1)
	x.redo()
	if x.r.Epoch() != plan.Epoch+1 || x.table.LSN() != plan.LSN {
		t.Errorf("epoch %d at LSN %d, planned %d at %d", x.r.Epoch(), x.table.LSN(), plan.Epoch, plan.LSN)
	}
	if token := x.acquire("after/recovery"); uint64(token) <= uint64(plan.SeenLSN) || uint64(token) < step {
		t.Errorf("token %d is not above all that were seen, %d", token, plan.SeenLSN)
	}
	x.fill(8)
	x.checkpoint()
	x.kill()
	sound(t, d)
	y := begin(t, d, 2)
	y.redo()
	y.fill(2)
	sound(t, d)
	return y
}

func TestRecoverDoesNothingWhereNothingIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		for name, d := range map[string]*volumetest.Disk{"old": l.disk, "new": newDisk(t)} {
			before := len(d.Snapshot())
			plan, err := recovery.Run(t.Context(), host(d, 9), recoverOptions())
			if err != nil || plan.Needed || plan.Done || len(d.Snapshot()) != before && name == "old" {
				t.Errorf("%s: %+v, %v", name, plan, err)
			}
		}
	})
}

func TestRecoverRefusesWhileAServerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := recoverOptions()
		opt.Restored = true
		for name, run := range map[string]func(d *volumetest.Disk){
			"a primary":            func(d *volumetest.Disk) { begin(t, d, 1) },
			"a prepared claim":     func(d *volumetest.Disk) { start(t, d, 2).prepare() },
			"a server that starts": func(d *volumetest.Disk) { start(t, d, 3) },
		} {
			d := newDisk(t)
			run(d)
			if _, err := recovery.Run(t.Context(), host(d, 9), opt); !errors.Is(err, recovery.ErrServersRun) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRecoverAsksBeforeItLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored, opt.AcceptLoss = true, false
		want, err := recovery.NewPlan(t.Context(), host(l.disk, 9), opt)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := recovery.Run(t.Context(), host(l.disk, 9), opt)
		if !errors.Is(err, recovery.ErrLossNotAccepted) || plan.Done || len(plan.Lost) == 0 {
			t.Errorf("%+v, %v", plan, err)
		}
		if !reflect.DeepEqual(plan, want) {
			t.Errorf("asks with another plan than the one it shows:\n%+v\n%+v", plan, want)
		}
		usable(t, l.disk, l.table.Hash())
	})
}

func TestRecoverRefusesNumbersWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		for _, opt := range []recovery.Options{{SeenLSN: math.MaxUint64}, {SeenEpoch: math.MaxUint64}, {SeenLSN: 1 << 53}} {
			opt.Random, opt.AcceptLoss = rand.Reader, true
			if plan, err := recovery.Run(t.Context(), host(l.disk, 9), opt); err == nil || plan.Done || !strings.Contains(err.Error(), "--seen-lsn") {
				t.Errorf("%d, %d: %+v, %v", opt.SeenLSN, opt.SeenEpoch, plan, err)
			}
		}
		usable(t, l.disk, l.table.Hash())
	})
}

// Nobody holds a lock that a recovery keeps from being granted, and nobody did before the
// recovery: the history must not tell that client for every moment since 1970.
func TestNobodyHeldBeforeTheRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		recovered(t, l.disk, opt)
		yesterday, held := time.Now().Add(-24*time.Hour).UnixMilli(), 0
		x := begin(t, l.disk, 1)
		for lock := range x.table.Locks("", "") {
			if g := lock.Grant; g.Token != 0 {
				held++
				if history.Held(yesterday, g.Since, 0) {
					t.Fatalf("lock %s was held yesterday by %q, says the history (since %v)", lock.Name, g.Client, time.UnixMilli(g.Since).UTC())
				}
			}
		}
		if held == 0 {
			t.Error("no lock is kept")
		}
	})
}

// Who may still think that it shares a lock thinks so for its own TTL: nobody gets the lock
// before the longest one is over.
func TestRecoveryWaitsForTheLongestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		for i, ttl := range []time.Duration{time.Second, 10 * time.Minute, 5 * time.Minute} {
			q := locktable.Request{Op: locktable.OpAcquire, Client: cluster.ClientID(fmt.Sprint("sharer", i)), ID: 1, Lock: "shared", Mode: locktable.ModeShared, TTL: ttl}
			if out := x.do(q, locktable.FileFacts{}); out.Status != cluster.StatusOK {
				t.Fatalf("%v: %v", ttl, out.Status)
			}
		}
		x.kill()
		opt := recoverOptions()
		opt.Restored = true
		recovered(t, d, opt)
		if l, ok := begin(t, d, 2).table.Lock("shared"); !ok || l.Grant.TTL != 10*time.Minute {
			t.Errorf("it stays held for %v", l.Grant.TTL)
		}
	})
}

// A view of another cluster, copied here by mistake, tells nothing.
func TestRecoverDoesNotBelieveAForeignView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, other := live(t), newDisk(t)
		x := begin(t, other, 1)
		x.fill(200)
		if err := x.r.PublishViews(x.snapshot().Export(), time.Now()); err != nil {
			t.Fatal(err)
		}
		b, err := other.ReadFile("lock_state.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.disk.Remove("lock_state.json"), l.disk.Write("lock_state.json", 0, b)); err != nil {
			t.Fatal(err)
		}
		if plan, err := recovery.NewPlan(t.Context(), host(l.disk, 9), recoverOptions()); err != nil || plan.Needed {
			t.Errorf("%+v, %v", plan, err)
		}
		if r := checked(t, l.disk); r.Errors != 0 || !strings.Contains(worst(r), "warning view-foreign lock_state.json") {
			t.Errorf("fsck finds %q", worst(r))
		}
	})
}

// A backup that is restored knows less than clients do.
func TestRecoverARestoredBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "kept\n")
		opened := x.do(locktable.Request{Op: locktable.OpOpenClient, Nonce: 5}, locktable.FileFacts{}).Client
		known := locktable.Request{Op: locktable.OpAcquire, Client: opened, ID: 1, Lock: "known", TTL: time.Minute}
		first := x.do(known, locktable.FileFacts{})
		x.do(locktable.Request{Op: locktable.OpAcquire, Client: "waiter", ID: 1, Lock: "job", TTL: time.Minute, Wait: locktable.WaitForever}, locktable.FileFacts{})
		backup := d.Clone()
		if err := errors.Join(backup.Remove("files/f"), backup.Write("files/f", 0, []byte("kept\n"))); err != nil {
			t.Fatal(err) // a restored file is another one
		}

		// What the backup does not know.
		lost := locktable.Request{Op: locktable.OpAcquire, Client: opened, ID: 2, Lock: "lost", TTL: time.Minute}
		x.do(lost, locktable.FileFacts{})
		later := x.do(locktable.Request{Op: locktable.OpOpenClient, Nonce: 6}, locktable.FileFacts{}).Client
		x.do(locktable.Request{Op: locktable.OpRelease, Lock: "job", Token: h.token}, locktable.FileFacts{})
		stale := x.table.LSN()

		opt := recoverOptions()
		opt.Restored, opt.SeenLSN, opt.SeenEpoch = true, stale+step, 9
		plan := recovered(t, backup, opt)
		if plan.Epoch != step || plan.LSN < 2*step || plan.Complete || plan.Held != 2 || plan.Dropped != 1 || len(plan.Files) != 1 || plan.Files[0].Fate != "kept" {
			t.Errorf("%+v", plan)
		}
		y := begin(t, backup, 1)
		refused := func(q locktable.Request, want cluster.Status) {
			t.Helper()
			at := y.table.LSN()
			if out := y.do(q, locktable.FileFacts{Inode: 1}); out.Status != want || y.table.LSN() != at {
				t.Errorf("%v %d of %s: %v %s, want %v and no record", q.Op, q.ID, q.Client, out.Status, out.Message, want)
			}
		}
		// The old holder's token is dead, and its lock stays held for a lease.
		refused(locktable.Request{Op: locktable.OpAppend, Client: "x", ID: 1, Lock: h.lock, Token: h.token, File: h.file, Data: []byte("no")}, cluster.StatusInvalidToken)
		refused(locktable.Request{Op: locktable.OpRelease, Client: "x", ID: 2, Lock: "lost", Token: stale.Token()}, cluster.StatusInvalidToken)
		refused(locktable.Request{Op: locktable.OpAcquire, Client: "x", ID: 3, Lock: "job", TTL: time.Minute}, cluster.StatusHeld)
		// A repeat of what is known gets its answer: its lease has ended.
		refused(known, cluster.StatusLeaseExpired)
		// What is not known is not executed, whether it was or not.
		refused(lost, cluster.StatusStaleRequest)
		refused(locktable.Request{Op: locktable.OpAcquire, Client: opened, ID: 99, Lock: "new", TTL: time.Minute}, cluster.StatusStaleRequest)
		refused(locktable.Request{Op: locktable.OpAcquire, Client: later, ID: 1, Lock: "new", TTL: time.Minute}, cluster.StatusStaleRequest)
		refused(locktable.Request{Op: locktable.OpAcquire, Client: "waiter", ID: 2, Lock: "new", TTL: time.Minute}, cluster.StatusStaleRequest)
		// The lock is free when its lease has ended, and the file goes on.
		var ghost locktable.Grant
		for l := range y.table.Locks("job", "") {
			ghost = l.Grant
		}
		if ghost.Token <= stale.Token() || ghost.Token == h.token || first.Token >= ghost.Token {
			t.Errorf("the lock is held under %d", ghost.Token)
		}
		y.do(locktable.Request{Op: locktable.OpRelease, Client: "operator", ID: 1, Lock: "job", Token: ghost.Token}, locktable.FileFacts{})
		h.token = y.acquire(h.lock)
		if out := y.append(h, "goes on\n"); out.Offset != 5 {
			t.Errorf("append at %d", out.Offset)
		}
		y.kill()
		sound(t, backup)
	})
}

// The replicas' copies outlive the volume.
func TestRecoverALostVolumeFromCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		x := begin(t, l.disk, 1)
		x.redo()
		older := recovery.Copy{Name: "b", Snapshot: x.snapshot()}
		x.fill(2)
		best := recovery.Copy{Name: "a", Snapshot: x.snapshot()}
		x.kill()

		d := newDisk(t) // holdfast init, then the files that were saved
		content, err := l.disk.ReadFile(protected)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Write(protected, 0, content); err != nil {
			t.Fatal(err)
		}
		opt := recoverOptions()
		opt.Copies = []recovery.Copy{older, best}
		plan := recovered(t, d, opt)
		if plan.Source != "a" || plan.End != best.At.LSN || plan.Complete || plan.Epoch != step || plan.Files[0].Fate != "kept" {
			t.Errorf("%+v", plan)
		}
		y := goesOn(t, d, plan)
		if _, live := y.table.Live(l.hold.lock, l.hold.token); live {
			t.Error("an old token is live")
		}
		if v, ok := y.table.Lock(l.hold.lock); !ok || v.Grant.Token == 0 {
			t.Error("the lock that was held is free")
		}
		y.kill()

		short := newDisk(t)
		if err := short.Write(protected, 0, content[:9]); err != nil {
			t.Fatal(err)
		}
		if plan := recovered(t, short, opt); plan.Files[0].Fate != "quarantined" {
			t.Errorf("a file that lost bytes: %+v", plan.Files)
		}
	})
}

// What stops takeovers for ever, and what is left of it.
func TestRecoverWhatStopsTakeovers(t *testing.T) {
	for _, c := range []struct {
		name     string
		do       func(*volumetest.Disk) error
		complete bool
		end      cluster.LSN // 0 is the whole log
	}{
		{"START torn", write(newest+"fence", layout.FenceSpacing+100, "x"), true, 0},
		{"START zeroed", zero(newest+"fence", layout.FenceSpacing), true, 0},
		{"the newest fence gone", remove(newest + "fence"), true, 0},
		{"the newest fence short", truncate(newest+"fence", 8192), true, 0},
		{"a burned epoch's fence gone", func(d *volumetest.Disk) error {
			return errors.Join(zero(newest+"fence", layout.FenceSpacing)(d), d.Remove(openSegment), d.Remove(closedOne), d.Remove("epochs/0000000003/fence"))
		}, false, 37},
		{"the open segment's header flipped", flip(openSegment, 20), false, 41},
		{"the open segment gone", remove(openSegment), false, 41},
		{"a frame flipped in the middle", flip(openSegment, 2*4096+70), false, 42},
		{"a closed segment gone", remove(closedOne), false, 40},
		{"the whole log gone", func(d *volumetest.Disk) error {
			return errors.Join(d.Remove(openSegment), d.Remove(closedOne), d.Remove(newest+"checkpoint-40"), d.Remove(newest+"checkpoint-22"))
		}, false, 37},
	} {
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			if err := c.do(l.disk); err != nil {
				t.Fatal(err)
			}
			if c.end == 0 {
				c.end = l.end
			}
			s := start(t, l.disk, 1)
			if _, err := s.takeOver(s.claim(), nil); err == nil {
				t.Fatal("a takeover succeeds: there is nothing to recover")
			}
			s.host.Kill()
			plan := recovered(t, l.disk, recoverOptions())
			if plan.Complete != c.complete || plan.End != c.end || plan.Epoch != 6 || len(plan.Reasons) == 0 {
				t.Errorf("want LSN %d, complete %v: %+v", c.end, c.complete, plan)
			}
			if !plan.Complete && (len(plan.Lost) == 0 || !strings.Contains(plan.Lost[0], fmt.Sprint("LSN ", c.end+1, " "))) {
				t.Errorf("what is lost: %q", plan.Lost)
			}
			if want := map[bool]string{true: "kept", false: "quarantined"}[c.complete]; len(plan.Files) != 1 || plan.Files[0].Fate != want {
				t.Errorf("the file is %+v, want %s", plan.Files, want)
			}
			y := goesOn(t, l.disk, plan)
			if _, live := y.table.Live(l.hold.lock, l.hold.token); live != c.complete {
				t.Errorf("the old token is live: %v", live)
			}
			y.kill()
		})
	}
}

// A crash at any call leaves the old state or the new one.
func TestRecoverCrashesAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := recoverOptions()
		opt.Restored = true
		l := live(t)
		h := host(l.disk.Clone(), 9)
		if _, err := recovery.Run(t.Context(), h, opt); err != nil {
			t.Fatal(err)
		}
		old, fresh := 0, 0
		for _, call := range tried(h.Trace()) {
			n := call.Index
			switch call.Op {
			case volumetest.OpReadAt, volumetest.OpLstat, volumetest.OpStat, volumetest.OpReadDir, volumetest.OpClose, volumetest.OpTryLock, volumetest.OpUnlock:
				continue // changes nothing: as before the next call
			}
			actions := []volumetest.Action{volumetest.Crash(), volumetest.CrashAfter()}
			switch call.Op {
			case volumetest.OpWriteAt:
				actions = append(actions, volumetest.CrashTorn(700))
			case volumetest.OpRename, volumetest.OpSync, volumetest.OpSyncDir:
				actions = append(actions, volumetest.FailBefore(syscall.EIO), volumetest.FailAfter(syscall.EIO))
			}
			for _, action := range actions {
				d := l.disk.Clone()
				dying := host(d, 9)
				dying.SetHook(volumetest.At(n, action))
				_, err := recovery.Run(t.Context(), dying, opt)
				d.Crash(d.Rand())
				x := begin(t, d.Clone(), 1)
				switch {
				case x.table.Hash() == l.table.Hash(): // under the next number, or that behind a burned one
					old++
				case x.r.Epoch() == step+1 && x.table.LSN() > step:
					fresh++
				default:
					t.Fatalf("call %d: epoch %d at LSN %d (%v)", n, x.r.Epoch(), x.table.LSN(), err)
				}
				x.kill()
				plan := recovered(t, d, opt) // repeated
				if plan.LSN < step {
					t.Errorf("call %d: %+v", n, plan)
				}
			}
		}
		if old == 0 || fresh == 0 {
			t.Errorf("%d old, %d new", old, fresh)
		}
		t.Logf("%d calls: %d times the old state, %d times the new", h.Calls(), old, fresh)
	})
}

// A claimant that slept through a recovery finds a number free below the new
// epoch. Its list of epochs is old; the fence tells it.
func TestASleepingClaimantIsOvertakenByARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		plan := recovered(t, l.disk, opt)
		if err := l.disk.Rename("epochs/4294967296", "servers/hidden"); err != nil {
			t.Fatal(err)
		}
		r := start(t, l.disk, 2).claim() // sees no newer epoch
		if err := l.disk.Rename("servers/hidden", "epochs/4294967296"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.FenceOlder(t.Context()); r.Epoch() != 5 || !errors.Is(err, volume.ErrOvertaken) {
			t.Errorf("epoch %d: %v", r.Epoch(), err)
		}
		if err := r.Release(); err != nil {
			t.Fatal(err)
		}
		if plan.Epoch != step {
			t.Errorf("%+v", plan)
		}
	})
}

// Epochs with more digits sort behind those with fewer.
func TestRecoverAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		opt := recoverOptions()
		opt.Restored = true
		for i := range 5 {
			plan := recovered(t, d, opt)
			if uint64(plan.Epoch) != uint64(i+1)*step || uint64(plan.LSN) < uint64(i+1)*step {
				t.Fatalf("time %d: %+v", i, plan)
			}
			x := begin(t, d, 1)
			x.fill(3)
			x.kill()
		}
	})
}

// A warm table of the time before never meets the new log.
func TestAWarmTableFromBeforeARecoveryIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		opt := recoverOptions()
		opt.Restored = true
		plan := recovered(t, l.disk, opt)
		table, err := locktable.Restore(plan.LSN, func(yield func(locktable.Entity, error) bool) {
			for e := range l.table.Export() {
				if !yield(e, nil) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, l.disk, 2)
		x, err := s.takeOver(s.claim(), &volume.WarmState{At: wal.Position{LSN: plan.LSN, Chain: 1}, Table: table})
		if err != nil || x.a.Warm || x.table.Hash() == table.Hash() {
			t.Errorf("warm: %v, %v", x.a.Warm, err)
		}
	})
}
