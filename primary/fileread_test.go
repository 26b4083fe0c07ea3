// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// TestFileIsToldWhenItIsWritten: where a file ends is told when all of it is there.
func TestFileIsToldWhenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.slow("files/f", 3*time.Second)
		answer := x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		state, bound, out, err := x.p.File(t.Context(), "f")
		if err != nil || out.Status != cluster.StatusOK || !bound || state.End != 8 || out.LSN == 0 {
			t.Errorf("told %+v, %+v, %v", state, out, err)
		}
		if got := content(d, "f"); got != "one\ntwo\n" {
			t.Errorf("when its end at %d was told, the file held %q", state.End, got)
		}
		<-answer
		if _, bound, out, _ := x.p.File(t.Context(), "unknown"); bound || out.Status != cluster.StatusOK {
			t.Errorf("a file that is not bound: %v %+v", bound, out)
		}
	})
}

// TestFileThatFailsIsNotTold: with appends pending nobody knows what it holds, and with
// foreign bytes it cannot be trusted.
func TestFileThatFailsIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.host.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(syscall.EIO)))
		pending := x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		time.Sleep(time.Second)
		if _, _, out, err := x.p.File(t.Context(), "f"); err != nil || out.Status != cluster.StatusStorageUnavailable {
			t.Errorf("told %+v, %v", out, err)
		}
		x.host.SetHook(nil)
		<-pending
		if state, _, out, _ := x.p.File(t.Context(), "f"); out.Status != cluster.StatusOK || state.End != 8 {
			t.Errorf("told %+v, %+v", state, out)
		}
		if err := d.Write("files/f", 4, []byte("X")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		x.sees(appendTo("c1", 4, "l", g.Token, "f", "x"), cluster.StatusFileQuarantined)
		if _, _, out, _ := x.p.File(t.Context(), "f"); out.Status != cluster.StatusFileQuarantined || out.Message == "" {
			t.Errorf("told %+v", out)
		}
	})
}

// TestFencedTermTellsNoFile: a read that came before the fence is not answered after it.
func TestFencedTermTellsNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		y.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		if _, _, out, _ := x.p.File(context.Background(), "f"); out.Status == cluster.StatusOK {
			t.Errorf("a term that was fenced told %+v", out)
		}
		x.end()
	})
}
