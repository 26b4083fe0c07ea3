// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestRotationThatCameTooEarlyChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.sees(rotate("c1", 3, "l", g.Token, "f"), cluster.StatusInvalidArgument)
		if f, _ := x.file("f"); f.Quarantined {
			t.Errorf("a healthy file was quarantined: %s", f.Reason)
		}
		x.ok(appendTo("c1", 4, "l", g.Token, "f", "two\n"))
	})
}

// The word that a writer gives for a rotation is about the next file. It must
// not admit an append to the one that was moved away.
func TestWordForARotationAdmitsNoAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		next := x.later(acquire("c2", 1, "l", locktable.WaitForever))
		time.Sleep(1500 * time.Millisecond) // the file rests
		if err := d.Host(8, volumetest.ProfileLocal()).Rename("files/f", "files/f.1"); err != nil {
			t.Fatal(err)
		}
		x.together(rotate("c1", 3, "l", g.Token, "f"), release("c1", 4, "l", g.Token))
		g2 := <-next
		if out := x.do(appendTo("c2", 2, "l", g2.Token, "f", "two\n")); out.Status == cluster.StatusOK {
			if got := content(d, "f"); got != "two\n" {
				t.Errorf("an append was acknowledged at %d, and f holds %q", out.Offset, got)
			}
		}
		if got := content(d, "f.1"); got != "one\n" {
			t.Errorf("the file that was moved away holds %q", got)
		}
	})
}

// TestLostAppendIsNotFoundAfterARotation: an append that the log has, and no file, because the
// file turned out to be foreign before it was written, is never told as done.
func TestLostAppendIsNotFoundAfterARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.host.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(syscall.EIO)))
		lost := appendTo("c1", 3, "l", g.Token, "f", "two\n")
		pending := x.later(lost)
		time.Sleep(time.Second)
		if err := d.Write("files/f", 0, []byte("mine")); err != nil {
			t.Fatal(err)
		}
		x.host.SetHook(nil)
		if out := <-pending; out.Status != cluster.StatusFileQuarantined || !out.Committed {
			t.Errorf("told %+v", out)
		}
		if err := d.Host(8, volumetest.ProfileLocal()).Rename("files/f", "files/f.1"); err != nil {
			t.Fatal(err)
		}
		x.ok(rotate("c1", 4, "l", g.Token, "f"))
		x.ok(appendTo("c1", 5, "l", g.Token, "f", "new\n"))
		x.sees(lost, cluster.StatusFileQuarantined)
		x.host.Kill()
		x.end() //nolint:errcheck // it was killed
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		y.sees(lost, cluster.StatusFileQuarantined)
	})
}

// TestLostAppendIsNotFoundAfterAnUnbind: a quarantined file is rotated before it is unbound, and
// what was lost in it is known without a binding, too, and to the next term.
func TestLostAppendIsNotFoundAfterAnUnbind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.host.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(syscall.EIO)))
		lost := appendTo("c1", 3, "l", g.Token, "f", "two\n")
		pending := x.later(lost)
		time.Sleep(time.Second)
		if err := d.Write("files/f", 0, []byte("mine")); err != nil {
			t.Fatal(err)
		}
		x.host.SetHook(nil)
		if out := <-pending; out.Status != cluster.StatusFileQuarantined || !out.Committed {
			t.Errorf("told %+v", out)
		}
		x.sees(unbind("c1", 4, "l", g.Token, "f"), cluster.StatusFileQuarantined)
		x.sees(lost, cluster.StatusFileQuarantined)
		if err := d.Host(8, volumetest.ProfileLocal()).Rename("files/f", "files/f.1"); err != nil {
			t.Fatal(err)
		}
		x.ok(rotate("c1", 5, "l", g.Token, "f"))
		x.ok(unbind("c1", 6, "l", g.Token, "f"))
		x.sees(lost, cluster.StatusFileQuarantined)
		bound := x.ok(appendTo("c1", 7, "l", g.Token, "f", "new\n"))
		x.sees(lost, cluster.StatusFileQuarantined)
		if bound.Generation <= 2 {
			t.Errorf("bound anew as generation %d, which is what the name had before", bound.Generation)
		}
		x.host.Kill()
		x.end() //nolint:errcheck // it was killed
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		y.sees(lost, cluster.StatusFileQuarantined)
	})
}

func TestOpenedClientWithoutRecordsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.MaxTTL, timing.ClientRetention = time.Minute, time.Minute
		x := serve(t, newDisk(t), 1, primary.Options{Timing: timing})
		defer x.end()
		for i := range 100 {
			x.ok(&locktable.Request{Op: locktable.OpOpenClient, Nonce: uint64(i + 1)})
		}
		time.Sleep(5 * time.Minute)
		x.read(func(v serving.View) {
			if n := v.Table.ClientCount(); n != 0 {
				t.Errorf("%d clients are remembered for ever", n)
			}
		})
	})
}
