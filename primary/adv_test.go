// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"runtime"
	"strings"
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

// DESIGN 5.3: "A repeated Acquire is answered from the present: still held -> same token,
// remaining time".
func TestAdvRepeatedAcquireTellsWhatIsLeft(t *testing.T) {
	for name, change := range map[string]func(*locktable.Request){
		"max hold":  func(q *locktable.Request) { q.MaxHold = 10 * time.Second },
		"heartbeat": func(q *locktable.Request) { q.Heartbeat = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end() //nolint:errcheck // it is stopped
				ask := func() *locktable.Request {
					q := acquire("c1", 1, "l", 0)
					q.TTL = 10 * time.Second
					change(q)
					return q
				}
				g := x.ok(ask())
				time.Sleep(8 * time.Second)
				out := x.ok(ask())
				left, live := x.remaining("l", g.Token)
				t.Logf("repeat: status %v, ttl %v; the service counts %v more (live %v)", out.Status, out.TTL, left, live)
				if !out.Repeat || out.TTL > left+time.Second {
					t.Errorf("the repeat tells a lease of %v, it has %v", out.TTL, left)
				}
				waits := x.later(acquire("c2", 1, "l", locktable.WaitForever))
				began := time.Now()
				<-waits
				if took := time.Since(began); took < out.TTL {
					t.Errorf("TWO HOLDERS: granted to another %v after the repeat was told that it has %v", took, out.TTL)
				}
			})
		})
	}
}

// As TestLostAppendIsNotFoundAfterARotation, but the operator unbinds the quarantined file.
func TestAdvLostAppendIsNotFoundAfterAnUnbind(t *testing.T) {
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
		x.sees(lost, cluster.StatusFileQuarantined)
		x.ok(&locktable.Request{Op: locktable.OpUnbind, Client: "c1", ID: 4, Lock: "l", Token: g.Token, File: "f"})
		out := x.do(lost)
		if got := content(d, "f"); out.Status == cluster.StatusOK && !strings.Contains(got, "two\n") {
			t.Errorf("the repeat is told %v, offset %d, LSN %d; the file holds %q", out.Status, out.Offset, out.LSN, got)
		}
		bind := &locktable.Request{Op: locktable.OpBind, Client: "c1", ID: 5, Lock: "l", Token: g.Token, File: "f", AdoptExisting: true}
		x.ok(bind)
		x.ok(appendTo("c1", 6, "l", g.Token, "f", "new\n"))
		if out := x.do(lost); out.Status == cluster.StatusOK {
			t.Errorf("bound anew, the repeat is told %v, offset %d; the file holds %q", out.Status, out.Offset, content(d, "f"))
		}
		x.host.Kill()
		x.end() //nolint:errcheck // it was killed
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		if out := y.do(lost); out.Status == cluster.StatusOK {
			t.Errorf("the next reign tells the repeat %v; the file holds %q", out.Status, content(d, "f"))
		}
	})
}

// A write of a paused primary that comes when its file was unbound, emptied and bound again:
// the log has given its offset of this very inode to another append.
func TestAdvLateWriteBehindABindingAnew(t *testing.T) {
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
		if got := content(d, "f"); got != "one\ntwo\n" {
			t.Fatalf("the new reign did not redo: %q", got)
		}
		y.ok(&locktable.Request{Op: locktable.OpUnbind, Client: "c1", ID: 4, Lock: "l", Token: g.Token, File: "f"})
		if err := d.Truncate("files/f", 0); err != nil { // logrotate copytruncate, or : > f
			t.Fatal(err)
		}
		y.ok(appendTo("c1", 5, "l", g.Token, "f", "AAAA")) // binds again: it is empty
		y.ok(appendTo("c1", 6, "l", g.Token, "f", "BBBB"))
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

// DESIGN 5.4: a hang on one file concerns that file: committed appends stay pending, new ones
// are refused.
func TestAdvAppendsToAHangingFileAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Pause(gate)))
		x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		<-gate.Arrived()
		refused := 0
		for i := range 60 { // a minute and a half
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			if out, err := x.p.Do(ctx, appendTo("c1", cluster.RequestID(4+i), "l", g.Token, "f", "more\n")); err == nil && out.Status == cluster.StatusStorageUnavailable {
				refused++
			}
			x.keepAlive("c1", -1)
			cancel()
		}
		state, _ := x.file("f")
		t.Logf("after 90 s of a write that hangs: %d of 60 appends refused; the log has the file at %d bytes, it has %d", refused, state.End, len(content(d, "f")))
		if refused == 0 {
			t.Error("no append was refused: the log, the memory and each checkpoint's pending grow for as long as it hangs")
		}
		gate.Resume()
		time.Sleep(time.Second)
		x.end() //nolint:errcheck // it is stopped
	})
}

// Repeats of one append to a file whose verification hangs.
func TestAdvRepeatsOfAParkedAppendDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		h := d.Host(1, volumetest.ProfileLocal())
		x := serveLarge(t, h, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		gate := volumetest.NewGate()
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if strings.HasPrefix(c.Name, "files") {
				return volumetest.Pause(gate)
			}
			return volumetest.Proceed()
		})
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		const n = 200
		for range n { // one client, one request, asked again each second
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			x.p.Do(ctx, appendTo("c1", 2, "l", g.Token, "f", strings.Repeat("x", 1<<20))) //nolint:errcheck // nobody answers
			cancel()
			x.keepAlive("c1", -1)
		}
		after := heap()
		t.Logf("%d tries of one append of 1 MiB, all given up: the heap grew by %d MiB", n, (after-before)>>20)
		if after-before > 50<<20 {
			t.Errorf("calls that nobody waits for are kept, data included: %d MiB", (after-before)>>20)
		}
		gate.Resume()
		time.Sleep(time.Second)
		x.end() //nolint:errcheck // it is stopped
	})
}

var _ = volume.ErrForeign
