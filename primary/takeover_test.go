// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestEveryCallIsAnsweredFencingBeforeServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{}) // alive, so that the next one has to wait
		y := claim(t, d, 2, primary.Options{})
		synctest.Wait()
		for _, test := range []struct {
			name string
			call func() (locktable.Outcome, error)
		}{
			{"do", func() (locktable.Outcome, error) { return y.p.Do(t.Context(), acquire("c", 1, "l", 0)) }},
			{"renew", func() (locktable.Outcome, error) { return y.p.Renew(t.Context(), "l", 1) }},
			{"keep-alive", func() (locktable.Outcome, error) {
				_, _, out, err := y.p.KeepAlive(t.Context(), "c", serving.Belief{Held: 0})
				return out, err
			}},
			{"read", func() (locktable.Outcome, error) {
				return y.p.Read(t.Context(), func(serving.View) { t.Error("read a table before serving") })
			}},
		} {
			if out, err := test.call(); err != nil || out.Status != cluster.StatusServerFencing {
				t.Errorf("%s: %v %v", test.name, out.Status, err)
			}
		}
		if err := y.p.Resign(t.Context(), "too early"); err == nil {
			t.Error("resigned before it served")
		}
		if _, err := y.p.Snapshot(t.Context()); err == nil {
			t.Error("gave a snapshot before it served")
		}
		y.serving()
		y.ok(acquire("c", 1, "l", 0))
		x.sees(acquire("c", 2, "m", 0), cluster.StatusUnknown)
		y.end()
		if err := x.end(); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("the old term ended with %v", err)
		}
	})
}

func TestFencedTermTellsNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		call func(x *term, token cluster.Token) (locktable.Outcome, error)
	}{
		{"a grant", func(x *term, _ cluster.Token) (locktable.Outcome, error) {
			return x.p.Do(context.Background(), acquire("c2", 1, "free", 0))
		}},
		{"a refusal", func(x *term, _ cluster.Token) (locktable.Outcome, error) {
			return x.p.Do(context.Background(), acquire("c2", 1, "l", 0))
		}},
		{"a repeat", func(x *term, _ cluster.Token) (locktable.Outcome, error) {
			return x.p.Do(context.Background(), acquire("c1", 1, "l", 0))
		}},
		{"a read", func(x *term, _ cluster.Token) (locktable.Outcome, error) {
			return x.p.Read(context.Background(), func(serving.View) {})
		}},
		{"a renewal", func(x *term, token cluster.Token) (locktable.Outcome, error) {
			return x.p.Renew(context.Background(), "l", token)
		}},
		{"a keep-alive", func(x *term, _ cluster.Token) (locktable.Outcome, error) {
			_, _, out, err := x.p.KeepAlive(context.Background(), "c1", serving.Belief{Held: 1})
			return out, err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				g := x.ok(acquire("c1", 1, "l", 0))
				if err := d.Write("epochs/0000000001/fence", 0, []byte("HFFENCE1")); err != nil {
					t.Fatal(err)
				}
				if out, err := test.call(x, g.Token); err != nil || out.Status != cluster.StatusUnknown {
					t.Errorf("answered %v %v", out.Status, err)
				}
				if err := x.end(); !errors.Is(err, volume.ErrFenced) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

func TestNothingIsToldBeforeItsBasisIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "epochs/0000000001/wal-0", 1, volumetest.Pause(gate)))
		x.stallBeside(gate)
		refused := x.later(acquire("c9", 1, "many/aa", 0)) // its holder's grant is in flight
		read := make(chan locktable.Outcome, 1)
		go func() {
			out, err := x.p.Read(context.Background(), func(serving.View) {})
			if err != nil {
				t.Error(err)
			}
			read <- out
		}()
		exported := make(chan locktable.Outcome, 1)
		go func() {
			_, stop, err := x.p.Export(context.Background())
			if err != nil {
				t.Error(err)
			} else {
				stop()
			}
			exported <- locktable.Outcome{}
		}()
		time.Sleep(time.Second)
		x.unanswered(exported, "before what it rests on was durable")
		x.unanswered(refused, "before what it rests on was durable")
		x.unanswered(read, "before what it rests on was durable")
		gate.Resume()
		if out := <-refused; out.Status != cluster.StatusHeld {
			t.Errorf("refusal: %v", out.Status)
		}
		if out := <-read; out.Status != cluster.StatusOK {
			t.Errorf("read: %v", out.Status)
		}
		<-exported
	})
}

func TestFencingPeriodEndsEarlyOnlyWhenTheWritersHaveEnded(t *testing.T) {
	const period, slack = 300 * time.Millisecond, 20 * time.Millisecond
	oneHost, network := volumetest.ProfileLocal(), volumetest.ProfileNetwork()
	for _, test := range []struct {
		name      string
		profile   volumetest.Profile
		alive     bool
		staleness time.Duration
		least     time.Duration
	}{
		{"the old process is dead", oneHost, false, 0, 0},
		{"the old process is dead, on another host", network, false, 0, period}, // which is not asked: its answer may be late
		{"the old process is alive, on this host", oneHost, true, 0, 50 * time.Millisecond},
		{"the old process is alive, maybe on another host", network, true, 0, period},
		{"the filesystem may show old data", oneHost, false, 100 * time.Millisecond, period},
		{"a network's filesystem may show old data", network, false, 100 * time.Millisecond, period},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				start := func(id int, timing cluster.Timing) *term {
					return claimOn(t, d.Host(id, test.profile), cluster.ServerID(id), small(), primary.Options{MaxBatch: 8 << 10, Timing: timing}).serving()
				}
				x := start(1, cluster.Timing{})
				if !test.alive {
					x.kill()
				}
				timing := cluster.DefaultTiming()
				timing.Staleness = test.staleness
				began := time.Now()
				y := start(2, timing)
				for _, k := range y.host.Trace() {
					if k.Op == volumetest.OpTryLock && strings.HasPrefix(k.Name, "epochs/") && test.profile.Kind.Network {
						t.Errorf("it asked a network filesystem whether the old process has ended: %v", k)
					}
				}
				if took := time.Since(began); took < test.least || took > test.least+slack {
					t.Errorf("the takeover took %v, want %v to %v", took, test.least, test.least+slack)
				}
				y.end()
				if test.alive {
					x.end()
				}
			})
		})
	}
}

// The fencing period begins when the last fence is durable: what a filesystem shows stale then
// is older than that.
func TestFencingPeriodBeginsBehindTheLastFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		serve(t, d, 1, primary.Options{}).kill()
		timing := cluster.DefaultTiming()
		timing.Staleness, timing.FencingPeriod = time.Second, 2*time.Second
		var fenced, scanned time.Time
		h := d.Host(2, volumetest.ProfileLocal())
		h.SetHook(func(k volumetest.Call) volumetest.Action {
			switch {
			case k.Op == volumetest.OpSync && k.Name == "epochs/0000000001/fence":
				time.Sleep(5 * time.Second) // a slow disk
				fenced = time.Now()
			case k.Op == volumetest.OpReadDir && k.Name == "epochs/0000000001" && !fenced.IsZero() && scanned.IsZero():
				scanned = time.Now()
			}
			return volumetest.Proceed()
		})
		x := claimOn(t, h, 2, small(), primary.Options{Timing: timing, MaxBatch: 8 << 10}) // it fences at once
		x.serving()
		if waited := scanned.Sub(fenced); fenced.IsZero() || waited < timing.FencingPeriod {
			t.Errorf("the old log was read %v after its fence was durable, want %v", waited, timing.FencingPeriod)
		}
		x.end()
	})
}

// Where a filesystem shows stale data, the claimant looks again after the fencing period whether all
// that it went past is fenced and has not started.
func TestTakeoverConfirmsItsSourceAfterTheFencingPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		serve(t, d, 1, primary.Options{}).kill()
		claim(t, d, 2, primary.Options{Confirm: func(context.Context) error { return errors.New("burned") }}).end()
		timing := cluster.DefaultTiming()
		timing.Staleness, timing.FencingPeriod = time.Second, 2*time.Second
		sizes := small()
		sizes.Staleness = timing.Staleness
		x := claimOn(t, d.Host(3, volumetest.ProfileLocal()), 3, sizes, primary.Options{Timing: timing})
		time.Sleep(time.Second)
		if err := d.Write("epochs/0000000002/fence", 0, make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := x.end(); err == nil || !strings.Contains(err.Error(), "epoch 2 was claimed meanwhile") || primary.Refused(err) {
			t.Errorf("ended with %v", err)
		}
	})
}

// A takeover that waits for leases under the clear policy has started: it looks at its fence
// meanwhile, and does not wait to the end when somebody has taken over from it.
func TestFenceEndsATakeoverThatWaitsForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		x := serve(t, d, 1, primary.Options{Timing: timing})
		x.ok(acquire("c1", 1, "l", 0)) // for 30 s
		x.kill()
		y := claim(t, d, 2, primary.Options{Timing: timing})
		time.Sleep(5 * time.Second)
		if state := y.p.State(); state != primary.StateFencing {
			t.Fatalf("5 s behind the claim: state %v", state)
		}
		if err := d.Write("epochs/0000000002/fence", 0, []byte("HFFENCE1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if state := y.p.State(); state != primary.StateEnded {
			t.Errorf("2 s after its fence was set: state %v", state)
		}
		if err := y.end(); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestUnconfirmedTakeoverFencesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		no := errors.New("the primary is back")
		warm := &volume.WarmState{Table: locktable.New()}
		y := claim(t, d, 2, primary.Options{Warm: warm, Confirm: func(context.Context) error { return no }})
		synctest.Wait() // so that it is not stopped before it asks
		if err := y.end(); !errors.Is(err, no) {
			t.Errorf("ended with %v", err)
		}
		if y.p.Warm() != warm {
			t.Error("its warm table is lost")
		}
		if _, err := d.ReadFile("epochs/0000000002/wal-next.log"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a server that claims again and again fills the volume: %v", err)
		}
		x.ok(acquire("c", 1, "l", 0))
	})
}

func TestClearPolicyWaitsForEveryLeaseAndKeepsReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		x := serve(t, d, 1, primary.Options{Timing: timing})
		g := x.ok(acquire("c1", 1, "l", 0)) // for 30 s
		append2 := appendTo("c1", 2, "l", g.Token, "f", "one\n")
		receipt := x.ok(append2)
		waiting := x.later(acquire("c2", 1, "l", locktable.WaitForever))
		x.kill()
		if out := <-waiting; out.Status != cluster.StatusUnknown {
			t.Errorf("the waiter of the old term: %v", out.Status)
		}

		began := time.Now()
		y := serve(t, d, 2, primary.Options{Timing: timing})
		defer y.end()
		if took := time.Since(began); took < 31*time.Second || took > 33*time.Second {
			t.Errorf("the takeover took %v, want the longest TTL of 30 s and a buffer of 1 s", took)
		}
		if _, live := y.remaining("l", g.Token); live {
			t.Error("the adopted grant is alive")
		}
		if ids := y.queue("l"); len(ids) != 0 {
			t.Errorf("still waiting: %v", ids)
		}
		if out := y.ok(append2); !out.Repeat || out.LSN != receipt.LSN {
			t.Errorf("the receipt is lost: %+v", out)
		}
		y.sees(acquire("c1", 1, "l", 0), cluster.StatusLeaseExpired)
		y.sees(appendTo("c1", 3, "l", g.Token, "f", "two\n"), cluster.StatusInvalidToken)
		next := y.ok(acquire("c2", 1, "l", locktable.WaitForever))
		if next.Token <= g.Token {
			t.Errorf("token %d after %d", next.Token, g.Token)
		}
		if f, bound := y.file("f"); !bound || f.Lock != "l" {
			t.Error("the binding is lost")
		}
		if out := y.ok(appendTo("c2", 2, "l", next.Token, "f", "two\n")); out.Offset != 4 {
			t.Errorf("offset %d", out.Offset)
		}
	})
}

func TestClearPolicyDoesNotWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		began := time.Now()
		x := serve(t, d, 1, primary.Options{Timing: timing})
		if took := time.Since(began); took > time.Second {
			t.Errorf("the takeover of an empty table took %v", took)
		}
		x.end()
	})
}

func TestWarmTableIsUsedOnlyWhereItFits(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*volume.WarmState)
	}{
		{"as it was", func(*volume.WarmState) {}},
		{"of another log", func(w *volume.WarmState) { w.At.Chain++ }},
		{"of a later position", func(w *volume.WarmState) { w.At.LSN += 1000 }},
		{"that misses a record", func(w *volume.WarmState) { w.At.LSN-- }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				x.ok(acquire("c1", 1, "before", 0))
				s, err := x.p.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				x.ok(acquire("c1", 2, "after", 0))
				x.kill()
				warm := &volume.WarmState{At: s.At, Table: s.Table}
				test.spoil(warm)
				y := serve(t, d, 2, primary.Options{Warm: warm})
				defer func() {
					if y.end(); y.p.Warm() == warm {
						t.Error("a table that something was decided on is left where it was")
					}
				}()
				for id, lock := range []cluster.LockName{"before", "after"} {
					if out := y.ok(acquire("c1", cluster.RequestID(id+1), lock, 0)); !out.Repeat {
						t.Errorf("the grant of %s is lost", lock)
					}
				}
				y.read(func(v serving.View) {
					if err := v.Table.Check(); err != nil {
						t.Error(err)
					}
				})
			})
		})
	}
}

// A term leaves its table to the replica, which would have to be sent a large one as a whole: as
// the next term finds it in the log, and with nothing that this one counted.
func TestATermLeavesItsTable(t *testing.T) {
	for name, end := range map[string]func(*term, *volumetest.Disk){
		"resigned": func(x *term, _ *volumetest.Disk) {
			if err := x.p.Resign(x.t.Context(), "test"); err != nil {
				x.t.Error(err)
			}
		},
		"fenced while idle": (*term).fence,
		"without a majority": func(x *term, _ *volumetest.Disk) {
			x.p.SetQuorum(false)
			x.sees(acquire("c2", 2, "refused", 0), cluster.StatusNoQuorum)
			x.p.End(errors.New("nobody hears it"))
		},
		"with nothing but a read in flight": func(x *term, d *volumetest.Disk) {
			gate := volumetest.NewGate()
			x.host.SetHook(volumetest.AtOp(volumetest.OpReadAt, "epochs/0000000001/fence", 1, volumetest.Pause(gate)))
			go x.p.Read(context.Background(), func(serving.View) {}) //nolint:errcheck // it fails
			<-gate.Arrived()
			x.fence(d)
			gate.Resume()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { leavesItsTable(t, end) })
		})
	}
}

func leavesItsTable(t *testing.T, end func(*term, *volumetest.Disk)) {
	d := newDisk(t)
	x := serve(t, d, 1, primary.Options{})
	g := x.ok(acquire("c1", 1, "l", 0)) // for 30 s
	x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
	x.ok(release("c3", 2, "released", x.ok(acquire("c3", 1, "released", 0)).Token))
	if _, _, err := x.p.Export(t.Context()); err != nil { // a snapshot that does not end
		t.Fatal(err)
	}
	time.Sleep(20 * time.Second)
	x.later(acquire("c2", 1, "l", locktable.WaitForever))
	time.Sleep(time.Second) // its place is in the log
	end(x, d)
	x.end() //nolint:errcheck // it has ended
	w := x.p.Warm()
	if w == nil || w.At.LSN != x.p.LSN() || w.Of != x.vol.Cluster().ID {
		t.Fatalf("it leaves %+v, committed was LSN %d", w, x.p.LSN())
	}
	if n := w.Table.Exporting(); n > 0 {
		t.Errorf("%d exports are under way for ever", n)
	}
	if r := w.Ends.Recent(); len(r.Ends) > 0 || r.From == 0 {
		t.Errorf("%d ends are to be written that were, behind LSN %d", len(r.Ends), r.From)
	}
	y := serve(t, d, 2, primary.Options{Warm: w})
	defer y.end() //nolint:errcheck // it is stopped
	y.read(func(v serving.View) {
		if err := v.Table.Check(); err != nil || v.Table != w.Table || v.Heard("c1") {
			t.Errorf("the next term uses it: %v, its client was heard: %v, %v", v.Table == w.Table, v.Heard("c1"), err)
		}
	})
	if left, _ := y.remaining("l", g.Token); left < 29*time.Second {
		t.Errorf("%v are left of a lease that counts afresh", left)
	}
	time.Sleep(31 * time.Second)
	if _, live := y.remaining("l", g.Token); live {
		t.Error("a lease never ends")
	}
}

// Where a record was decided and may be in no log, the table is of no use to anybody.
func TestATermThatMayBeAheadLeavesNoTable(t *testing.T) {
	const log = "epochs/0000000001/wal-0"
	for name, hook := range map[string]func(*volumetest.Gate) volumetest.Hook{
		"its frame is not written": func(*volumetest.Gate) volumetest.Hook {
			return volumetest.AtOp(volumetest.OpWriteAt, log, 1, volumetest.FailBefore(syscall.EIO))
		},
		"its frame is not durable": func(*volumetest.Gate) volumetest.Hook {
			return volumetest.AtOp(volumetest.OpDatasync, log, 1, volumetest.FailAfter(syscall.EIO))
		},
		"it was fenced before the check": func(gate *volumetest.Gate) volumetest.Hook {
			return volumetest.AtOp(volumetest.OpReadAt, "epochs/0000000001/fence", 1, volumetest.Pause(gate))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				x.ok(acquire("c1", 1, "before", 0))
				gate := volumetest.NewGate()
				x.host.SetHook(hook(gate))
				first := x.later(acquire("c1", 2, "first", 0))
				x.fence(d)
				gate.Resume()
				if out := <-first; out.Status != cluster.StatusUnknown {
					t.Errorf("it was answered %v", out.Status)
				}
				x.end() //nolint:errcheck // it has ended
				if w := x.p.Warm(); w != nil {
					t.Errorf("a table at LSN %d is left, committed was LSN %d", w.At.LSN, x.p.LSN())
				}
			})
		})
	}
}

// TestWarmTakeoverWritesWhatTheBaseCarries: appends that a checkpoint has as pending are in no log
// behind it and may be in no file, so a table that is as new does not do.
func TestWarmTakeoverWritesWhatTheBaseCarries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{CheckpointBytes: 8 << 10, ViewInterval: time.Second, MaxBatch: 8 << 10})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.host.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(syscall.EIO)))
		x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		time.Sleep(5 * time.Second)
		for i := range 40 { // nothing but grants, until there is a checkpoint behind the append
			x.ok(acquire("churn", cluster.RequestID(i+1), cluster.LockName("many/"+strings.Repeat("x", i+1)), 0))
			time.Sleep(500 * time.Millisecond)
		}
		s, err := x.p.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.kill()
		y := serve(t, d, 2, primary.Options{Warm: &volume.WarmState{At: s.At, Table: s.Table}})
		defer y.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		if got := content(d, "f"); got != "one\ntwo\n" {
			t.Errorf("the file holds %q", got)
		}
	})
}

// TestTakeoverRedoesNothingOfARotatedGeneration: what was appended before a rotation is in the file
// that was moved away, and never in the new one.
func TestTakeoverRedoesNothingOfARotatedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		if err := d.Host(8, volumetest.ProfileLocal()).Rename("files/f", "files/f.1"); err != nil {
			t.Fatal(err)
		}
		x.ok(rotate("c1", 3, "l", g.Token, "f"))
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		if f, _ := y.file("f"); content(d, "f") != "" || f.Quarantined {
			t.Errorf("the new generation holds %q, %+v", content(d, "f"), f)
		}
	})
}

// What a server was told is committed outlives the volume. Where that goes back
// to an older state behind the servers' back, no server that knows better serves from it.
func TestVolumeThatWasSetBackIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(acquire("c1", 1, "before", 0))
		older := d.Clone()
		known := x.ok(acquire("c1", 2, "after", 0)).LSN
		x.kill()
		y := claim(t, older, 2, primary.Options{Known: known})
		if err := <-y.done; !errors.Is(err, primary.ErrVolumeRolledBack) || !primary.Refused(err) {
			t.Errorf("a server that knows of LSN %d on an older volume: %v", known, err)
		}
		if _, err := older.ReadFile("epochs/0000000002/wal-next.log"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a server that tries again and again fills the volume: %v", err)
		}
		z := serve(t, d, 2, primary.Options{Known: known})
		z.end()
	})
}

// The history of grants was not set back with the log.
func TestLogThatEndsBeforeItsHistoryIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "before", 0))
		older := d.Clone()
		told := x.ok(release("c1", 2, "before", g.Token)).LSN
		time.Sleep(3 * time.Second) // of the bubble: it is written once a second
		x.kill()
		for name, b := range d.Files("history/") {
			if err := older.Write(name, 0, b); err != nil {
				t.Fatal(err)
			}
		}
		for id := range 2 {
			y := claim(t, older, cluster.ServerID(id+1), primary.Options{})
			stop := time.AfterFunc(time.Minute, y.kill)
			err := <-y.done
			if stop.Stop(); !errors.Is(err, primary.ErrVolumeRolledBack) || !strings.Contains(err.Error(), fmt.Sprintf("LSN %d was committed", told)) {
				t.Errorf("the history tells of LSN %d: %v", told, err)
			}
		}
		z := serve(t, d, 2, primary.Options{})
		z.end()
	})
}

func TestResignAnswersEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		waiting := x.later(acquire("c2", 1, "l", locktable.WaitForever))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		x.slow("files/f", 500*time.Millisecond)
		appended := x.later(appendTo("c1", 4, "l", g.Token, "f", "three\n"))
		if err := x.p.Resign(t.Context(), "handover"); err != nil {
			t.Errorf("resign: %v", err)
		}
		if out := <-appended; out.Status != cluster.StatusOK {
			t.Errorf("the committed append: %v", out.Status)
		}
		if out := <-waiting; out.Status != cluster.StatusUnknown {
			t.Errorf("the waiter: %v", out.Status)
		}
		x.sees(acquire("c3", 1, "m", 0), cluster.StatusSecondaryMode)
		if err := <-x.done; !errors.Is(err, primary.ErrResigned) {
			t.Errorf("ended with %v", err)
		}
		x.done <- nil
		x.end()

		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		if ids := y.queue("l"); len(ids) != 1 || ids[0] != "c2" {
			t.Errorf("in the queue: %v", ids)
		}
		again := y.later(acquire("c2", 1, "l", locktable.WaitForever))
		y.ok(release("c1", 5, "l", g.Token))
		if out := <-again; out.Status != cluster.StatusOK {
			t.Errorf("the waiter's place after the handover: %v", out.Status)
		}
		if got := content(d, "f"); got != "one\ntwo\nthree\n" {
			t.Errorf("file holds %q", got)
		}
	})
}

func TestResigningPrimaryAdmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		x.slow("files/f", time.Minute) // longer than it waits for
		appended := x.later(appendTo("c1", 4, "l", g.Token, "f", "three\n"))
		began := time.Now()
		resigned := make(chan error, 1)
		go func() { resigned <- x.p.Resign(context.Background(), "handover") }()
		synctest.Wait()
		late := x.later(acquire("c2", 1, "m", 0))
		if err := <-resigned; err != nil {
			t.Errorf("resign: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it waited %v for a file that hangs", took)
		}
		if out := <-late; out.Status == cluster.StatusOK {
			t.Error("a request was admitted after the resignation")
		}
		if out := <-appended; out.Status != cluster.StatusUnknown {
			t.Errorf("the append that hangs: %v", out.Status)
		}
		x.end()
	})
}
