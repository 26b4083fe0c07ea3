// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestLinesThatNobodyReads are dropped, and waited for only a moment.
func TestLinesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		read := make(chan struct{})
		s := newSpeaker(func(text string) {
			<-read
			said = append(said, text)
		})
		began := time.Now()
		for range 1000 {
			s.say("a line")
		}
		if time.Since(began) != 0 {
			t.Errorf("it took %v to say what nobody reads", time.Since(began))
		}
		s.end()
		if d := time.Since(began); d != sayLimit {
			t.Errorf("the end waited %v for who does not read, want %v", d, sayLimit)
		}
		close(read)
		synctest.Wait()
		if n := len(said); n < maxUnsaid || n > maxUnsaid+1 {
			t.Errorf("%d lines of 1000 were kept, want %d", n, maxUnsaid)
		}
	})
}

// TestLinesAreReadBeforeTheEnd of a run, by those who do read.
func TestLinesAreReadBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		s := newSpeaker(func(text string) {
			<-time.After(sayLimit / 4)
			said = append(said, text)
		})
		s.say("one")
		s.say("two")
		s.end()
		if !slices.Equal(said, []string{"one", "two"}) {
			t.Errorf("said %q", said)
		}
		silent := newSpeaker(nil)
		silent.say("nothing")
		silent.end()
	})
}

// TestSurvivorsAreNamedEachMinute, and not those that SIGKILL has hardly reached.
func TestSurvivorsAreNamedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		r := &runner{speaker: newSpeaker(func(text string) { said = append(said, text) })}
		live := []process{{pid: 1 << 30, name: "rsync"}, {pid: 1<<30 + 1, name: "a (b) c"}}
		r.strike(nil)
		heard := func(want int) {
			t.Helper()
			r.strike(live)
			synctest.Wait()
			if len(said) != want {
				t.Errorf("said %q, want %d lines", said, want)
			}
		}
		heard(0)
		<-time.After(complainAfter - time.Millisecond)
		heard(0)
		<-time.After(time.Millisecond)
		heard(1)
		heard(1)
		<-time.After(complainEvery - time.Millisecond)
		heard(1)
		<-time.After(time.Millisecond)
		heard(2)
		r.speaker.end()
		if want := "process 1073741824 (rsync), process 1073741825 (a (b) c)"; len(said) > 0 && !strings.Contains(said[0], want) {
			t.Errorf("said %q, want the names %q", said[0], want)
		}
	})
}

// full is a lease with an hour left.
type full struct{ Lease }

func (full) Context() context.Context { return context.Background() }

func (full) Remaining() time.Duration { return time.Hour }

// TestSweepExtendsTheGuard: what the command left has its whole grace, whatever the guard
// knew of the lease when the command ended.
func TestSweepExtendsTheGuard(t *testing.T) {
	orders, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close() //nolint:errcheck // a pipe
	r := &runner{lease: full{}, opt: Options{Grace: 5 * time.Second}, guard: &guard{pipe: w}, tree: newTree(), speaker: newSpeaker(nil)}
	defer r.speaker.end()
	left := exec.Command("/bin/sh", "-c", "trap 'read x; exit' TERM; echo; while :; do sleep 0.02; done")
	left.Env = withMark(os.Environ(), r.tree.mark) // other tests' orphans may be about
	in, err := left.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := left.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // its trap is set
		t.Fatal(err)
	}
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		r.sweep()
		w.Close() //nolint:errcheck // a pipe
	}()
	line, err := bufio.NewReader(orders).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "until ") {
		t.Errorf("the guard was told %q (%v) while there was something to end", line, err)
	}
	in.Close() //nolint:errcheck // a pipe
	<-swept
}

// TestANumberThatWasGivenAwayIsNoGroup of the command, whatever the guard was told long ago.
func TestANumberThatWasGivenAwayIsNoGroup(t *testing.T) {
	_, p := sleeper(t)
	for _, c := range []struct {
		name   string
		leader process
		want   bool
	}{
		{"the command's", p, true},
		{"a stranger's", process{pid: p.pid, start: p.start - 1}, false},
		{"nobody's", process{pid: 1 << 30, start: p.start}, false},
		{"of unknown start", process{pid: p.pid}, true},
		{"not told", process{}, false},
	} {
		if got := (&guardian{leader: c.leader}).leads(); got != c.want {
			t.Errorf("the number is %s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestNoSignalToAReapedGroup: its number may be a stranger's by now.
func TestNoSignalToAReapedGroup(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &group{leader: process{pid: cmd.Process.Pid}}
	g.mu.reaped = true
	g.signal(syscall.SIGKILL)
	g.mu.reaped = false
	g.signal(syscall.SIGTERM)
	cmd.Wait() //nolint:errcheck // it was ended
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); s != syscall.SIGTERM {
		t.Errorf("a group that was reaped was signalled: it died of %v", s)
	}
}

// left is a lease that has so much time left.
type left struct {
	full
	time.Duration
}

func (l left) Remaining() time.Duration { return l.Duration }

// TestTheGuardsKillIsALoss of the lock, although this process noticed nothing before.
func TestTheGuardsKillIsALoss(t *testing.T) {
	const margin = time.Second
	for _, c := range []struct {
		name  string
		code  int
		left  time.Duration
		guard *guard
		shot  bool
		want  error
	}{
		{"by the guard", 137, margin / 2, &guard{}, false, ErrNotRenewed},
		{"by itself", 0, margin / 2, &guard{}, false, nil},
		{"by somebody, with time left", 137, margin/2 + 1, &guard{}, false, nil},
		{"by this process", 137, 0, &guard{}, true, nil},
		{"without a guard", 137, 0, nil, false, nil},
	} {
		r := &runner{lease: left{full{}, c.left}, opt: Options{Margin: margin}, guard: c.guard, shot: c.shot, speaker: newSpeaker(nil)}
		r.noteEnd(c.code)
		r.speaker.end()
		if r.lost != c.want {
			t.Errorf("killed %s: lost %v, want %v", c.name, r.lost, c.want)
		}
	}
}

// TestWhoIsDeadIsNotKilled: what is said of SIGKILL is said of a command that lives.
func TestWhoIsDeadIsNotKilled(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, _ := readProcess(cmd.Process.Pid)
	for _, want := range []int{1, 0} { // it lives, and is dead then
		said := 0
		r := &runner{tree: newTree(), group: &group{leader: p}, speaker: newSpeaker(func(string) { said++ })}
		r.kill()
		r.kill()
		r.speaker.end()
		if said != want || r.shot != (want > 0) {
			t.Errorf("%d lines about a SIGKILL, want %d", said, want)
		}
		for end := time.After(time.Minute); ; {
			if p, ok := readProcess(p.pid); !ok || p.ended {
				break
			}
			select {
			case <-end:
				t.Fatal("it does not die")
			case <-time.After(time.Millisecond):
			}
		}
	}
	cmd.Wait() //nolint:errcheck // killed
}

// TestTheGroupCounts: the guard is not done while a process of the command's group runs, even one
// that is found in no other way, such as one of another user.
func TestTheGroupCounts(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & echo")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leader, _ := readProcess(cmd.Process.Pid)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // the leader ends, its child does not
	g := &guardian{tree: tree{wrapper: 1 << 30, mark: "none has it"}, leader: leader, gone: 1}
	g.kill()
	for range 3 {
		g.sweep()
	}
	if !g.killing || !g.remains() {
		t.Errorf("the guard is done: %v, and a process of the group runs", !g.killing)
	}
	if err := syscall.Kill(-leader.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); g.remains() && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
	g.sweep()
	g.sweep()
	if g.killing {
		t.Error("the group has ended, and the guard waits")
	}
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()         //nolint:errcheck // killed
	defer other.Process.Kill() //nolint:errcheck // it has ended
	stranger, _ := readProcess(other.Process.Pid)
	if g := (&guardian{leader: process{pid: stranger.pid, start: stranger.start - 1}}); g.remains() {
		t.Error("a group that has got the number of the command's counts as the command's")
	}
}
