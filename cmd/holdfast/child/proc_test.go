// SPDX-License-Identifier: Apache-2.0

package child

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

func sleeper(t *testing.T, env ...string) (*exec.Cmd, process) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it has ended
		cmd.Wait()         //nolint:errcheck // likewise
	})
	p, ok := readProcess(cmd.Process.Pid)
	if !ok || p.parent != os.Getpid() || p.ended || p.start == 0 {
		t.Fatalf("read %+v, %v", p, ok)
	}
	return cmd, p
}

// TestSignalMeansThisVeryProcess: the number may have been given to another one.
func TestSignalMeansThisVeryProcess(t *testing.T) {
	cmd, p := sleeper(t)
	before := p
	before.start--
	before.signal(syscall.SIGKILL)
	p.signal(syscall.SIGTERM)
	cmd.Wait() //nolint:errcheck // it was ended
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("a process was taken for the one that had its number before: %v", cmd.ProcessState)
	}
	p.signal(syscall.SIGKILL) // nobody has the number
}

func TestMarks(t *testing.T) {
	env := withMark([]string{"A=1", MarkName + "=outer", "B=2"}, "inner")
	if !slices.Equal(env, []string{"A=1", "B=2", MarkName + "=outer:inner"}) {
		t.Errorf("got %q", env)
	}
	if env := withMark(nil, "m"); !slices.Equal(env, []string{MarkName + "=m"}) {
		t.Errorf("got %q", env)
	}
	_, p := sleeper(t, env...)
	for end := time.After(time.Minute); !p.marked("inner"); { // the kernel shows it a moment after the start
		select {
		case <-end:
			t.Fatal("the mark is not seen")
		case <-time.After(time.Millisecond):
		}
	}
	_, none := sleeper(t, MarkName+"=")
	if none.marked("") || p.marked("") {
		t.Error("no mark passes for one")
	}
	_, other := sleeper(t, "A="+MarkName+"=inner", MarkName+"X=inner", MarkName+"=innermost:in")
	for _, mark := range []string{"outer", "inner"} {
		if !p.marked(mark) || other.marked(mark) {
			t.Errorf("mark %q: %v and %v", mark, p.marked(mark), other.marked(mark))
		}
	}
	if p.marked("in") || p.marked("outer:inner") || (process{pid: 1 << 30}).marked("outer") {
		t.Error("a piece passes for a mark")
	}
}

func TestOwnChildren(t *testing.T) {
	cmd, _ := sleeper(t)
	if all, _ := ownChildren(); !slices.Contains(all, cmd.Process.Pid) {
		t.Errorf("%d is not in %v", cmd.Process.Pid, all)
	}
}

// TestWhatIsOlderIsNotOurs: neither by descent nor by mark.
func TestWhatIsOlderIsNotOurs(t *testing.T) {
	_, p := sleeper(t, MarkName+"=m")
	all := func(tr *tree) bool {
		live, _ := tr.find(os.Getpid())
		return slices.ContainsFunc(live, func(x process) bool { return x.pid == p.pid })
	}
	for _, alone := range []bool{true, false} {
		if tr := (&tree{mark: "m", wrapper: os.Getpid(), alone: alone, since: p.start + 1}); all(tr) {
			t.Errorf("a process that is older than its guard is taken for ours; alone %v", alone)
		}
		await := time.After(time.Minute)
		for tr := (&tree{mark: "m", wrapper: os.Getpid(), alone: alone, since: p.start}); !all(tr); {
			select {
			case <-await:
				t.Fatalf("a process that is not older is not found; alone %v", alone)
			case <-time.After(time.Millisecond):
			}
		}
	}
}
