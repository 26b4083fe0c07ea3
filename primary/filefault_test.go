// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// within asks and waits for the answer for so long.
func (x *term) within(limit time.Duration, q *locktable.Request) (locktable.Outcome, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), limit)
	defer cancel()
	return x.p.Do(ctx, q)
}

// A hang on one file concerns that file: what is committed stays pending, and new appends
// are refused, in words, until the call comes back.
func TestAppendsToAHangingFileAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Pause(gate)))
		second := appendTo("c1", 3, "l", g.Token, "f", "two\n")
		pending := x.later(second)
		<-gate.Arrived()
		time.Sleep(4 * time.Second)
		x.unanswered(pending, "before anybody knows that it hangs for long")
		for i := range 20 {
			out, err := x.within(100*time.Millisecond, appendTo("c1", cluster.RequestID(4+i), "l", g.Token, "f", "more\n"))
			if err != nil || out.Status != cluster.StatusStorageUnavailable || !strings.Contains(out.Message, "protected file f: ") {
				t.Fatalf("append %d: %v %q, %v", i, out.Status, out.Message, err)
			}
			x.keepAlive("c1", -1)
			time.Sleep(time.Second)
		}
		x.ok(appendTo("c1", 50, "l", g.Token, "other", "one\n"))
		for _, out := range []locktable.Outcome{<-pending, x.do(second)} {
			if out.Status != cluster.StatusUnknown || !out.Committed || out.Offset != 4 {
				t.Errorf("of an append that is committed and not in the file is told: %+v", out)
			}
		}
		if f, _ := x.file("f"); f.End != 8 {
			t.Errorf("the log has the file at %d bytes", f.End)
		}
		gate.Resume()
		synctest.Wait()
		if out := x.ok(second); !out.Repeat {
			t.Errorf("the pending append was executed twice: %+v", out)
		}
		x.ok(appendTo("c1", 51, "l", g.Token, "f", "three\n"))
		if got := content(d, "f"); got != "one\ntwo\nthree\n" {
			t.Errorf("file holds %q", got)
		}
	})
}

// The look at a file before anything is admitted hangs: what waits for it is refused soon,
// and nothing is done.
func TestCallsThatWaitForAHangingFileAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		gate := volumetest.NewGate()
		x.host.SetHook(on(volumetest.OpOpen, "files/f", volumetest.Pause(gate)))
		q := appendTo("c1", 2, "l", g.Token, "f", "one\n")
		waiting := []<-chan locktable.Outcome{x.later(q), x.later(q), x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))}
		time.Sleep(3100 * time.Millisecond)
		synctest.Wait()
		for i, w := range waiting {
			select {
			case out := <-w:
				if out.Status != cluster.StatusStorageUnavailable {
					t.Errorf("call %d: %v %s", i, out.Status, out.Message)
				}
			default:
				t.Errorf("call %d is not answered", i)
			}
		}
		gate.Resume()
		synctest.Wait()
		x.host.SetHook(nil)
		if out := x.ok(q); out.Repeat || content(d, "f") != "one\n" {
			t.Errorf("afterwards: %+v, the file holds %q", out, content(d, "f"))
		}
	})
}

// Whoever gives up leaves nothing behind, and repeats share their data.
func TestRepeatsOfAParkedAppendDoNotPileUp(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for name, test := range map[string]struct {
		tries    int
		patience time.Duration
		others   bool // each is another request
	}{
		"given up at once":                   {200, time.Millisecond, false},
		"given up at once, each another one": {200, time.Millisecond, true},
		"given up each time":                 {200, time.Second, false},
		"not given up":                       {15, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serveLarge(t, newDisk(t).Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
				g := x.ok(acquire("c1", 1, "l", 0))
				gate := volumetest.NewGate()
				x.host.SetHook(func(c volumetest.Call) volumetest.Action {
					if strings.HasPrefix(c.Name, "files") {
						return volumetest.Pause(gate)
					}
					return volumetest.Proceed()
				})
				before := heap()
				for i := range test.tries {
					id := cluster.RequestID(2)
					if test.others {
						id += cluster.RequestID(i)
					}
					q := appendTo("c1", id, "l", g.Token, "f", strings.Repeat("x", 1<<20))
					if test.patience == 0 {
						x.later(q)
						continue
					}
					x.within(test.patience, q) //nolint:errcheck // nobody answers
					if test.patience < 50*time.Millisecond {
						time.Sleep(10 * time.Millisecond)
					}
				}
				if test.patience > 0 {
					time.Sleep(100 * time.Millisecond)
				}
				if after := heap(); after > before+10<<20 {
					t.Errorf("%d tries of one append of 1 MiB have left %d MiB", test.tries, (after-before)>>20)
				}
				gate.Resume()
				time.Sleep(time.Second)
				x.end() //nolint:errcheck // it is stopped
			})
		})
	}
}

// A file that nobody uses is in no call, however long it is, and however long the directory
// above it hangs for another one.
func TestIdleFileDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 100, "l", g.Token, "f", "one\n"))
		gate := volumetest.NewGate()
		defer gate.Resume()
		x.host.SetHook(volumetest.AtOp(volumetest.OpSyncDir, "files", 1, volumetest.Pause(gate)))
		x.later(appendTo("c1", 101, "l", g.Token, "d/other", "one\n"))
		<-gate.Arrived()
		for i := range cluster.RequestID(6) {
			x.ok(appendTo("c1", 2+i, "l", g.Token, "f", "one\n"))
			time.Sleep(10 * time.Second)
			x.keepAlive("c1", -1)
		}
	})
}

// A filesystem that is slow does not hang: each call comes back long before one that hangs is
// given up. However many calls it takes to look at a file, it can be used.
func TestASlowFileDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		var calls []string
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if strings.HasPrefix(c.Name, "files") {
				calls = append(calls, c.String())
				time.Sleep(700 * time.Millisecond)
			}
			return volumetest.Proceed()
		})
		q := appendTo("c1", 2, "l", g.Token, "logs/daily/f", "one\n")
		for i := range 5 {
			out, err := x.within(time.Minute, q)
			if err == nil && out.Status == cluster.StatusOK {
				return
			}
			x.keepAlive("c1", -1)
			t.Logf("try %d: %v %s %v", i, out.Status, out.Message, err)
			time.Sleep(time.Second)
		}
		t.Errorf("it cannot be appended to; of the calls, each of 700ms, the first are\n%s", strings.Join(calls[:min(len(calls), 14)], "\n"))
	})
}

// What waits for the word on a file is bounded, whoever asks.
func TestParkedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveLarge(t, newDisk(t).Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		gate := volumetest.NewGate()
		x.host.SetHook(on(volumetest.OpOpen, "files/", volumetest.Pause(gate)))
		small := appendTo("c1", 200, "l", g.Token, "f0", "x")
		all := 0
		for range 40 { // one request, again and again
			w := x.later(small)
			select {
			case <-w:
			default:
				all++
			}
		}
		if all > 16 {
			t.Errorf("%d repeats of one request wait", all)
		}
		data := strings.Repeat("x", 1<<20)
		refused := 0
		for i := range 140 {
			w := x.later(appendTo("c1", cluster.RequestID(i+2), "l", g.Token, cluster.FileName(fmt.Sprint("f", i%2)), data))
			select {
			case out := <-w:
				if refused++; out.Status != cluster.StatusStorageUnavailable || !strings.Contains(out.Message, "too many requests wait") {
					t.Fatalf("append %d: %v %s", i, out.Status, out.Message)
				}
			default:
			}
		}
		if refused != 140-127 { // and a byte
			t.Errorf("of 140 appends of 1 MiB %d were refused", refused)
		}
		x.p.End(context.Canceled)
		gate.Resume()
		x.end() //nolint:errcheck // it is stopped
	})
}

// So are their number.
func TestSmallParkedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveLarge(t, newDisk(t).Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		gate := volumetest.NewGate()
		x.host.SetHook(on(volumetest.OpOpen, "files/", volumetest.Pause(gate)))
		answers := make(chan locktable.Outcome, 8192+10)
		for i := range cap(answers) {
			go func() {
				out, _ := x.p.Do(context.Background(), appendTo("c1", cluster.RequestID(i+2), "l", g.Token, "f", "x"))
				answers <- out
			}()
		}
		synctest.Wait()
		if len(answers) != 10 {
			t.Errorf("of %d small appends %d were refused", cap(answers), len(answers))
		}
		for range len(answers) {
			if out := <-answers; out.Status != cluster.StatusStorageUnavailable || !strings.Contains(out.Message, "too many requests wait") {
				t.Fatalf("%v %s", out.Status, out.Message)
			}
		}
		x.p.End(context.Canceled)
		gate.Resume()
		x.end() //nolint:errcheck // it is stopped
	})
}

// Where a file fails, an append that is committed is told as what it is, in time: so that
// nobody sends it again as another one.
func TestCommittedAppendThatIsNotInItsFileIsToldSo(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		within time.Duration
		words  string
	}{
		"no space": {syscall.ENOSPC, 2 * time.Second, "no space left on the volume"},
		"quota":    {syscall.EDQUOT, 2 * time.Second, "no space left on the volume"},
		"errors":   {syscall.EIO, 6 * time.Second, "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end() //nolint:errcheck // it is stopped
				g := x.ok(acquire("c1", 1, "l", 0))
				x.host.SetHook(on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(test.err)))
				first := appendTo("c1", 2, "l", g.Token, "f", "one\n")
				for _, what := range []string{"the append", "its repeat"} {
					out, err := x.within(test.within, first)
					if err != nil || out.Status != cluster.StatusUnknown || !out.Committed || out.LSN == 0 || !strings.Contains(out.Message, test.words) {
						t.Fatalf("%s: %v, committed %v, LSN %d: %s; %v", what, out.Status, out.Committed, out.LSN, out.Message, err)
					}
				}
				refused, err := x.within(100*time.Millisecond, appendTo("c1", 3, "l", g.Token, "f", "two\n"))
				if err != nil || refused.Status != cluster.StatusStorageUnavailable || refused.Committed || !strings.Contains(refused.Message, test.words) {
					t.Errorf("the next one: %v %s, %v", refused.Status, refused.Message, err)
				}
				x.host.SetHook(nil)
				x.eventually("write", func() bool { return content(d, "f") == "one\n" })
				if out := x.ok(first); !out.Repeat || out.Offset != 0 {
					t.Errorf("in the file, its repeat is told %+v", out)
				}
				x.ok(appendTo("c1", 4, "l", g.Token, "f", "two\n"))
				if got := content(d, "f"); got != "one\ntwo\n" {
					t.Errorf("file holds %q", got)
				}
			})
		})
	}
}

// A grant waits for earlier appends to files of its lock, but not for as long as a file
// fails: then it says so, and the file takes nothing and shows nothing until it works.
func TestGrantDoesNotWaitForAFileThatFails(t *testing.T) {
	gate := func() (volumetest.Action, func()) {
		g := volumetest.NewGate()
		return volumetest.Pause(g), g.Resume
	}
	for name, fail := range map[string]func() (volumetest.Action, func()){
		"with errors": func() (volumetest.Action, func()) { return volumetest.FailBefore(syscall.EIO), func() {} },
		"by hanging":  gate,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end() //nolint:errcheck // it is stopped
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				action, mend := fail()
				x.host.SetHook(on(volumetest.OpWriteAt, "files/f", action))
				x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
				waiting := x.later(acquire("c2", 1, "l", locktable.WaitForever))
				began := time.Now()
				x.ok(release("c1", 4, "l", g.Token))
				var out locktable.Outcome
				select {
				case out = <-waiting:
				case <-time.After(10 * time.Second):
				}
				if took := time.Since(began); took < 4500*time.Millisecond || took > 5500*time.Millisecond || out.Status != cluster.StatusOK {
					t.Errorf("after %v: %v %s", took, out.Status, out.Message)
				}
				if !strings.Contains(out.Message, "not in it yet") {
					t.Errorf("the grant does not say what it could not wait for: %q", out.Message)
				}
				x.sees(appendTo("c2", 2, "l", out.Token, "f", "three\n"), cluster.StatusStorageUnavailable)
				if _, _, read, err := x.p.File(t.Context(), "f"); err != nil || read.Status != cluster.StatusStorageUnavailable {
					t.Errorf("a read of the file: %v, %v", read.Status, err)
				}
				x.ok(release("c2", 3, "l", out.Token))
				if out, err := x.within(100*time.Millisecond, acquire("c3", 1, "l", 0)); err != nil || out.Status != cluster.StatusOK {
					t.Errorf("the next grant: %v, %v", out.Status, err) // it has failed for long
				}
				x.host.SetHook(nil)
				mend()
				x.eventually("write", func() bool { return content(d, "f") == "one\ntwo\n" })
			})
		})
	}
}

// A file that only is slow is waited for, however long its queue is.
func TestGrantWaitsForAFileThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "x"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "x")) // verified for a second
		x.slow("files/f", 2*time.Second)
		for i := range 5 { // each is written by itself
			x.later(appendTo("c1", cluster.RequestID(4+i), "l", g.Token, "f", strings.Repeat("x", 1<<20)))
		}
		x.ok(release("c1", 20, "l", g.Token))
		began := time.Now()
		out := x.ok(acquire("c2", 1, "l", 0))
		if took := time.Since(began); took < 9*time.Second || out.Message != "" || len(content(d, "f")) != 2+5<<20 {
			t.Errorf("granted after %v: %q; the file has %d bytes", took, out.Message, len(content(d, "f")))
		}
	})
}

// A read of a file that waits for its writes is refused when these hang.
func TestReadOfAHangingFileIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "files/f", 1, volumetest.Pause(gate)))
		x.later(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		<-gate.Arrived()
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		if state, _, out, err := x.p.File(ctx, "f"); err != nil || out.Status != cluster.StatusStorageUnavailable || state.End != 0 {
			t.Errorf("told %v up to %d, %v", out.Status, state.End, err)
		}
		gate.Resume()
	})
}
