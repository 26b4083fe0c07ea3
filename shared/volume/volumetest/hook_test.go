// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestActions(t *testing.T) {
	for _, c := range []struct {
		name   string
		action volumetest.Action
		want   error
		left   string
		alive  bool
	}{
		{"Proceed", volumetest.Proceed(), nil, "new", true},
		{"FailBefore", volumetest.FailBefore(syscall.EIO), syscall.EIO, "old", true},
		{"FailAfter", volumetest.FailAfter(syscall.EIO), syscall.EIO, "new", true},
		{"Crash", volumetest.Crash(), volumetest.ErrCrashed, "old", false},
		{"CrashTorn", volumetest.CrashTorn(2), volumetest.ErrCrashed, "ned", false},
		{"CrashAfter", volumetest.CrashAfter(), volumetest.ErrCrashed, "new", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, h, f := local(t, "old")
			h.SetHook(volumetest.At(2, c.action)) // the open was the first
			_, err := f.WriteAt([]byte("new"), 0)
			if !errors.Is(err, c.want) {
				t.Errorf("WriteAt: %v, want %v", err, c.want)
			}
			if got := string(d.Files("")["f"]); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if h.Dead() == c.alive {
				t.Errorf("Dead = %v", h.Dead())
			}
		})
	}
}

func TestTrace(t *testing.T) {
	_, h, f := local(t, "old")
	write(t, f, 1, "ew")
	must(t, h.Rename("f", "g"))
	must(t, f.Datasync())
	var got []string
	for _, call := range h.Trace() {
		got = append(got, call.String())
	}
	want := "1 open f|2 writeat f [1:+2]|3 rename f -> g|4 datasync g"
	if strings.Join(got, "|") != want {
		t.Errorf("Trace = %q", got)
	}
	if h.Calls() != 4 || h.ID() != 1 {
		t.Errorf("Calls = %d, ID = %d", h.Calls(), h.ID())
	}
}

func TestAtOpAndScript(t *testing.T) {
	_, h, f := local(t, "old")
	h.SetHook(volumetest.Script(
		volumetest.AtOp(volumetest.OpWriteAt, "f", 2, volumetest.FailBefore(syscall.EIO)),
		volumetest.AtOp(volumetest.OpSync, "g", 0, volumetest.FailBefore(syscall.EIO)),
		volumetest.From(6, volumetest.FailBefore(syscall.ESTALE)),
	))
	write(t, f, 0, "1")
	if _, err := f.WriteAt([]byte("2"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("second write: %v", err)
	}
	write(t, f, 0, "3")
	must(t, f.Sync())
	for range 2 {
		if err := f.Sync(); !errors.Is(err, syscall.ESTALE) {
			t.Errorf("call after the fifth: %v", err)
		}
	}
}

// TestReplaceAtEveryStep crashes and fails Replace at each of its steps.
func TestReplaceAtEveryStep(t *testing.T) {
	view := func(h *volumetest.Host) error {
		return h.Replace("f", func(w io.Writer) error {
			_, err := io.WriteString(w, "new")
			return err
		})
	}
	_, h, _ := local(t, "old")
	must(t, view(h))
	steps := h.Calls() - 1
	if steps != 5 {
		t.Fatalf("Replace has %d steps: %v", steps, h.Trace())
	}
	seen := make(map[string]int)
	for n := range steps {
		for _, action := range []volumetest.Action{
			volumetest.Crash(), volumetest.CrashAfter(),
			volumetest.FailBefore(syscall.EIO), volumetest.FailAfter(syscall.EIO),
		} {
			d, h, _ := local(t, "old")
			h.SetHook(volumetest.At(n+2, action))
			if err := view(h); err == nil {
				t.Errorf("step %d: no error", n)
			}
			for _, disk := range []*volumetest.Disk{d, d.DurableClone(nil), d.DurableClone(d.Rand())} {
				seen[string(disk.Files("f")["f"])]++
			}
			// A temporary left behind must not be in the way of the next process.
			h.Kill()
			must(t, view(d.Host(1, volumetest.ProfileLocal())))
			// A temporary that was left must not be in the way of the next process.
			must(t, view(d.Host(2, volumetest.ProfileLocal())))
		}
	}
	if len(seen) != 2 || seen["old"] == 0 || seen["new"] == 0 {
		t.Errorf("the name leads to: %v", seen)
	}
}

func TestKillReleasesLocksAndKeepsWrites(t *testing.T) {
	d, h, f := local(t, "old")
	other := d.Host(2, volumetest.ProfileLocal())
	if _, err := h.TryLock("f"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock("f"); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("two hosts hold one lock: %v", err)
	}
	write(t, f, 0, "new")
	h.Kill()
	h.Kill()
	if _, err := f.WriteAt([]byte("late"), 0); !errors.Is(err, volumetest.ErrCrashed) {
		t.Errorf("a dead process writes: %v", err)
	}
	if _, err := other.TryLock("f"); err != nil {
		t.Errorf("a dead process holds its lock: %v", err)
	}
	if got := string(d.Files("")["f"]); got != "new" {
		t.Errorf("visible: %q", got)
	}
	if got := string(d.DurableClone(nil).Files("")["f"]); got != "old" {
		t.Errorf("durable: %q", got)
	}
}

func TestFailedOpenAndLockHoldNothing(t *testing.T) {
	d, h, f := local(t, "old")
	must(t, f.Close())
	h.SetHook(volumetest.Script(
		volumetest.AtOp(volumetest.OpTryLock, "", 1, volumetest.FailAfter(syscall.EIO)),
		volumetest.AtOp(volumetest.OpOpen, "", 1, volumetest.FailAfter(syscall.EIO)),
	))
	if _, err := h.TryLock("f"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("TryLock: %v", err)
	}
	if _, err := h.Open("f", 0); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Open: %v", err)
	}
	l, err := h.TryLock("f")
	must(t, err)
	must(t, l.Unlock())
	must(t, h.Remove("f"))
	if d.Used() != 0 {
		t.Error("a failed call keeps the file open")
	}
}

func TestPause(t *testing.T) {
	for _, c := range []struct {
		name   string
		pause  func(*volumetest.Gate) volumetest.Action
		during string
		end    func(*volumetest.Gate, *volumetest.Host)
		want   error
		left   string
	}{
		{"Pause, resume", volumetest.Pause, "old", resume, nil, "new"},
		{"Pause, kill", volumetest.Pause, "old", kill, volumetest.ErrCrashed, "old"},
		{"PauseAfter, resume", volumetest.PauseAfter, "new", resume, nil, "new"},
		{"PauseAfter, kill", volumetest.PauseAfter, "new", kill, volumetest.ErrCrashed, "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, h, f := local(t, "old") // made outside the bubble, on purpose
			synctest.Test(t, func(t *testing.T) {
				gate := volumetest.NewGate()
				h.SetHook(volumetest.At(2, c.pause(gate)))
				result := make(chan error, 1)
				go func() {
					_, err := f.WriteAt([]byte("new"), 0)
					result <- err
				}()
				synctest.Wait() // returns only because the pause blocks durably
				<-gate.Arrived()
				if got := string(d.Files("")["f"]); got != c.during {
					t.Errorf("during the pause: %q, want %q", got, c.during)
				}
				c.end(gate, h)
				if err := <-result; !errors.Is(err, c.want) {
					t.Errorf("WriteAt: %v, want %v", err, c.want)
				}
				if got := string(d.Files("")["f"]); got != c.left {
					t.Errorf("left %q, want %q", got, c.left)
				}
			})
		})
	}
}

func resume(g *volumetest.Gate, _ *volumetest.Host) { g.Resume() }
func kill(_ *volumetest.Gate, h *volumetest.Host)   { h.Kill() }

func TestStoppedProcess(t *testing.T) {
	d, h, f := local(t, "old")
	gate := volumetest.NewGate()
	h.SetHook(volumetest.From(2, volumetest.Pause(gate)))
	results := make(chan error, 3)
	for i := range 3 {
		go func() {
			_, err := f.WriteAt([]byte("n"), int64(i))
			results <- err
		}()
	}
	<-gate.Arrived()
	if got := string(d.Files("")["f"]); got != "old" {
		t.Errorf("a stopped process writes: %q", got)
	}
	gate.Resume()
	for range 3 {
		must(t, <-results)
	}
	write(t, f, 0, "!") // the gate stays open
	if got := string(d.Files("")["f"]); got != "!nn" {
		t.Errorf("left %q", got)
	}
}

// BenchmarkScenario is the life of a small log: about a thousand calls.
func BenchmarkScenario(b *testing.B) {
	zeros, frame := make([]byte, 1<<20), vfs.AlignedBuffer(vfs.BlockSize)
	frame[0] = 1
	for b.Loop() {
		d := volumetest.New(1)
		h := d.Host(1, volumetest.ProfileNetwork())
		f, err := h.Open("wal", vfs.FlagCreate|vfs.FlagDirect)
		if err != nil {
			b.Fatal(err)
		}
		for i := range 330 {
			if i == 0 {
				if _, err := f.WriteAt(zeros[:1<<20], 0); err != nil {
					b.Fatal(err)
				}
			}
			_, writeErr := f.WriteAt(frame, int64(i%250)*vfs.BlockSize)
			_, lstatErr := h.Lstat("wal")
			if err := errors.Join(writeErr, f.Datasync(), lstatErr); err != nil {
				b.Fatal(err)
			}
		}
		d.DurableClone(nil)
	}
}
