// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
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
		x.p.Depose(errors.New("the volume stalls"))
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
