// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestDeposedPrimaryAnswersWhileTheFilesystemHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "epochs/0000000001/wal-0", 1, volumetest.Pause(gate)))
		flying := x.later(acquire("c1", 1, "l", 0))
		<-gate.Arrived()
		x.unanswered(flying, "while its frame was not durable")
		x.p.End(errors.New("the volume stalls"))
		if out := <-flying; out.Status != cluster.StatusUnknown {
			t.Errorf("in flight: %v", out.Status)
		}
		if x.p.State() != primary.StateEnded {
			t.Errorf("state %v after the deposition", x.p.State())
		}
		x.sees(acquire("c2", 1, "l", 0), cluster.StatusSecondaryMode)
		gate.Resume()
		if err := x.end(); !errors.Is(err, volume.ErrDeposed) {
			t.Errorf("end: %v", err)
		}
	})
}

func TestCallEndsWithItsContextWhileTheFilesystemHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "epochs/0000000001/wal-0", 1, volumetest.Pause(gate)))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := x.p.Do(ctx, acquire("c1", 1, "l", 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		gate.Resume()
		if out := x.ok(acquire("c1", 1, "l", 0)); !out.Repeat {
			t.Error("the request did not go on after its caller had left")
		}
		x.end()
	})
}

// A log that hangs is no progress, whoever waits for it: the core loop, which
// commits a lone batch itself, or the committer, while the loop decides the next.
func TestHungLogIsNoProgress(t *testing.T) {
	for name, calls := range map[string]int{"committed by the core loop": 1, "committed beside it": 6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				g := x.ok(acquire("c0", 1, "l", 0))
				x.ok(appendTo("c0", 2, "l", g.Token, "f", "one\n"))
				busy, gate := volumetest.NewGate(), volumetest.NewGate()
				const log = "epochs/0000000001/wal-0"
				x.host.SetHook(volumetest.Script(
					volumetest.AtOp(volumetest.OpDatasync, log, 1, volumetest.Pause(busy)), volumetest.AtOp(volumetest.OpDatasync, log, 2, volumetest.Pause(gate))))
				flying := []<-chan locktable.Outcome{x.later(acquire("other", 1, "other", 0))}
				<-busy.Arrived()
				for i := range calls { // they come meanwhile, and several are too large for one batch
					flying = append(flying, x.later(appendTo(cluster.ClientID(fmt.Sprint("c", i)), 3, "l", g.Token, "f", strings.Repeat("x", 3<<10))))
				}
				synctest.Wait()
				busy.Resume()
				<-gate.Arrived()
				time.Sleep(5 * time.Second)
				if progress, check := x.p.Ages(time.Now()); progress < 4*time.Second || check > 2*time.Second {
					t.Errorf("after 5 s: progress %v ago, a check %v ago", progress, check)
				}
				gate.Resume()
				for _, f := range flying {
					if out := <-f; out.Status != cluster.StatusOK {
						t.Errorf("in flight: %v", out.Status)
					}
				}
				time.Sleep(time.Second)
				if progress, _ := x.p.Ages(time.Now()); progress > time.Second {
					t.Errorf("afterwards: progress %v ago", progress)
				}
				x.end()
			})
		})
	}
}

// A check that does not come back is none, also where others do: idle or not, somebody waits
// for that one.
func TestHungCheckIsNoCheck(t *testing.T) {
	for name, hangs := range map[string]volumetest.Hook{
		"of the fence": volumetest.AtOp(volumetest.OpReadAt, "epochs/0000000001/fence", 1, volumetest.Pause(volumetest.NewGate())),
		"of its path":  volumetest.AtOp(volumetest.OpLstat, "epochs/0000000001/fence", 1, volumetest.Pause(volumetest.NewGate())),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				x.host.SetHook(hangs)
				time.Sleep(2 * time.Second)
				for i := range 6 { // commits go on, each with a check of its own
					time.Sleep(time.Second)
					x.ok(acquire("c", cluster.RequestID(i+1), cluster.LockName(fmt.Sprint("l", i)), 0))
				}
				if progress, check := x.p.Ages(time.Now()); progress > time.Second || check < 6*time.Second {
					t.Errorf("progress %v ago, a check %v ago, while one has hung for 7 s", progress, check)
				}
				x.kill()
			})
		})
	}
}

// A takeover tells how long it waits for the volume, and not how long it waits on purpose.
func TestTakeoverTellsWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		serve(t, d, 1, primary.Options{}).kill()
		timing := cluster.DefaultTiming()
		timing.Staleness, timing.FencingPeriod = 5*time.Second, 10*time.Second
		x := claim(t, d, 2, primary.Options{Timing: timing})
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpReadDir, "epochs/0000000001", 1, volumetest.Pause(gate)))
		time.Sleep(9 * time.Second)
		if d := x.p.Unanswered(time.Now()); x.p.State() != primary.StateFencing || d != 0 {
			t.Errorf("in the fencing period (state %v) it waits for the volume, for %v", x.p.State(), d)
		}
		<-gate.Arrived()
		time.Sleep(3 * time.Second)
		if d := x.p.Unanswered(time.Now()); d < 2*time.Second {
			t.Errorf("in a call that has hung for 3 s it waits for %v", d)
		}
		gate.Resume()
		x.serving().ok(acquire("c", 1, "l", 0))
		x.end()
	})
}
