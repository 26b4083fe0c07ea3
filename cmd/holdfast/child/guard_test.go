// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

// guardOf finds the guard of a wrapper.
func guardOf(t *testing.T, wrapper int) (guard int) {
	t.Helper()
	await(t, 10*time.Second, "the guard", func() bool {
		for _, pid := range childrenOf(t, wrapper) {
			if readFile(fmt.Sprintf("/proc/%d/cmdline", pid)) == os.Args[0]+"\x00guard\x00" {
				guard = pid
			}
		}
		return guard != 0
	})
	return guard
}

// stop stops a process, as a debugger does or a cgroup that is frozen.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) }) //nolint:errcheck // it is gone
}

// ordersOf opens the pipe that a guard reads.
func ordersOf(t *testing.T, guard int) *os.File {
	t.Helper()
	pipe, err := os.Open(fmt.Sprintf("/proc/%d/fd/0", guard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() }) //nolint:errcheck // read only
	return pipe
}

// TestStoppedGuardDoesNotKeepTheLock: the command ends, and Run returns.
func TestStoppedGuardDoesNotKeepTheLock(t *testing.T) {
	end := filepath.Join(t.TempDir(), "end")
	returned := make(chan child.Result, 1)
	go func() {
		r, err := child.Run(healthy(t), shell("while ! test -e "+end+"; do sleep 0.02; done; exit 4"))
		if err != nil {
			t.Error(err)
		}
		returned <- r
	}()
	stop(t, guardOf(t, os.Getpid()))
	writeFile(t, end)
	select {
	case r := <-returned:
		if r.Code != 4 || r.Lost != nil {
			t.Errorf("got %+v, want code 4", r)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command has ended and Run waits for its guard, while the lease is renewed")
	}
}

// TestStoppedGuardDoesNotStopTheWrapper: when its pipe is full the command has no guard, and
// is ended. A pipe holds some ten minutes of orders, here a page of them.
func TestStoppedGuardDoesNotStopTheWrapper(t *testing.T) {
	o := shell("while :; do sleep 0.05; done")
	o.Margin = 20 * time.Millisecond
	until := time.Now().Add(30 * time.Second)
	returned := make(chan child.Result, 1)
	go func() {
		r, err := child.Run(lease{context.Background(), until}, o)
		if err != nil {
			t.Error(err)
		}
		returned <- r
	}()
	guard := guardOf(t, os.Getpid())
	if _, err := unix.FcntlInt(ordersOf(t, guard).Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	stop(t, guard)
	select {
	case r := <-returned:
		if r.Code != 143 || r.Lost == nil || !strings.Contains(r.Lost.Error(), "reads no orders") {
			t.Errorf("got %+v, want the end of a command without a guard", r)
		}
	case <-time.After(time.Until(until)):
		t.Fatal("the lease has ended and the wrapper waits for its guard")
	}
}

// TestKilledGuardEndsTheCommand: nothing runs without a guard, unless it was asked to.
func TestKilledGuardEndsTheCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	returned := make(chan child.Result, 1)
	go func() {
		r, err := child.Run(healthy(t), shell("echo $$ > "+path+"; while :; do sleep 0.05; done"))
		if err != nil {
			t.Error(err)
		}
		returned <- r
	}()
	guard := guardOf(t, os.Getpid())
	number(t, path) // the command runs
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-returned:
		if r.Lost == nil || !strings.Contains(r.Lost.Error(), "the guard process is gone") {
			t.Errorf("got %+v, want the end of a command without a guard", r)
		}
	case <-time.After(time.Minute):
		t.Fatal("the guard is gone and the command runs on")
	}
}

// renewed is a lease that has this long left at any time: its renewals are answered.
type renewed struct {
	*shaky
	left time.Duration
}

func (r renewed) Remaining() time.Duration { return r.left }

// TestContinuedGuardReadsBeforeItJudges: what it knew when it was stopped is over.
func TestContinuedGuardReadsBeforeItJudges(t *testing.T) {
	dir := t.TempDir()
	path, end := filepath.Join(dir, "pid"), filepath.Join(dir, "end")
	s := newShaky(t)
	l := renewed{s, time.Second}
	returned := make(chan child.Result, 1)
	go func() {
		r, err := child.Run(l, shell("echo $$ > "+path+"; while ! test -e "+end+"; do sleep 0.02; done; exit 4"))
		if err != nil {
			t.Error(err)
		}
		returned <- r
	}()
	guard := guardOf(t, os.Getpid())
	orders := ordersOf(t, guard)
	pid := number(t, path)
	await(t, 10*time.Second, "looks at the lease", func() bool { return s.looked() > 2 })
	stop(t, guard)
	<-time.After(2 * l.left)
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, "the guard to read", func() bool {
		n, err := unix.IoctlGetInt(int(orders.Fd()), unix.TIOCINQ)
		return err == nil && n == 0 || gone(pid)
	})
	looked := s.looked()
	await(t, 10*time.Second, "looks at the lease", func() bool { return s.looked() > looked+9 || gone(pid) })
	writeFile(t, end)
	if r := <-returned; r.Code != 4 || r.Lost != nil {
		t.Errorf("got %+v, want code 4: a guard that was stopped has killed a command whose lease was renewed", r)
	}
}

// TestGuardOutlivesSignalsToAll, such as those of a terminal or of whoever ends all that is
// called holdfast: then it is needed.
func TestGuardOutlivesSignalsToAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spirit")
	cmd := wrap(t, daemonize(path), time.Hour)
	pid := number(t, path)
	guard := guardOf(t, cmd.Process.Pid)
	all := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	await(t, 10*time.Second, "the guard to ignore signals", func() bool {
		_, line, _ := strings.Cut(readFile(fmt.Sprintf("/proc/%d/status", guard)), "SigIgn:\t")
		line, _, _ = strings.Cut(line, "\n")
		ignored, err := strconv.ParseUint(line, 16, 64)
		for _, s := range all {
			if ignored>>(s-1)&1 == 0 {
				return false
			}
		}
		return err == nil
	})
	for _, s := range all {
		if err := syscall.Kill(guard, s); err != nil {
			t.Fatal(err)
		}
	}
	strike(t, cmd, syscall.SIGKILL)
	await(t, 10*time.Second, "the end of the daemon", func() bool { return gone(pid) })
}

// TestGuardTakesItsLastOrders: what was written just before the wrapper died counts.
func TestGuardTakesItsLastOrders(t *testing.T) {
	guard := exec.Command(os.Args[0], "guard")
	orders, err := guard.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	stop(t, guard.Process.Pid)
	job := exec.Command("sleep", "60")
	job.Env = []string{child.MarkName + "=last"}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer job.Process.Kill() //nolint:errcheck // it has ended
	// The wrapper is one that was.
	if _, err := fmt.Fprintf(orders, "tree last %d false\n", 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := orders.Close(); err != nil {
		t.Fatal(err)
	}
	strike(t, guard, syscall.SIGCONT)
	if err := guard.Wait(); err != nil {
		t.Errorf("guard: %v", err)
	}
	if !gone(job.Process.Pid) {
		t.Error("the guard has ended, and what it was told of last lives")
	}
	job.Process.Kill() //nolint:errcheck // it has ended
	job.Wait()         //nolint:errcheck // killed
}

// TestWhatSIGKILLDoesNotEndIsNamed: the wrapper may not signal what has become somebody
// else's. It goes on waiting, and says for what.
func TestWhatSIGKILLDoesNotEndIsNamed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root has processes that it may not signal when it is root no more")
	}
	dir := t.TempDir()
	path, said := filepath.Join(dir, "spirit"), filepath.Join(dir, "said")
	cmd := wrap(t, fmt.Sprintf("%s daemon %s; while ! test -s %s; do sleep 0.01; done; exit 3", os.Args[0], path, path), time.Hour, "SAID="+said, "DROP="+path)
	pid := number(t, path)
	defer syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it has ended
	want := fmt.Sprintf("SIGKILL has not ended process %d (", pid)
	await(t, 10*time.Second, "word of what does not end", func() bool { return strings.Contains(readFile(said), want) })
	if gone(pid) || gone(cmd.Process.Pid) {
		t.Errorf("the wrapper has not waited: %v, %v", gone(pid), gone(cmd.Process.Pid))
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("wrapper: %v, want exit code 3", err)
	}
}

// TestGuardKillsNoStranger: the leader of the command was reaped while what it left behind
// has its grace, and somebody else's group got its number. Then the wrapper dies.
func TestGuardKillsNoStranger(t *testing.T) {
	dir := t.TempDir()
	leader, spirit := filepath.Join(dir, "leader"), filepath.Join(dir, "spirit")
	script := fmt.Sprintf("echo $$ > %s; %s daemon %s; while ! test -s %s; do sleep 0.01; done", leader, os.Args[0], spirit, spirit)
	cmd := wrap(t, script, time.Hour, "GRACE=1m")
	pid := number(t, spirit)
	pgid := number(t, leader)
	await(t, 10*time.Second, "the end of the leader", func() bool { return readFile(fmt.Sprintf("/proc/%d/stat", pgid)) == "" })
	startAs(t, pgid)
	strike(t, cmd, syscall.SIGKILL)
	await(t, 10*time.Second, "the end of the daemon", func() bool { return gone(pid) })
	guardsEnd(t)
	if gone(pgid) {
		t.Errorf("the guard has killed process group %d, which is not the command's any more", pgid)
	}
}

// startAs starts a process group with a number that is free, or skips the test.
func startAs(t *testing.T, pgid int) {
	t.Helper()
	for range 1000 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pgid-1)), 0); err != nil {
			t.Skip(err)
		}
		x := exec.Command("sleep", "60")
		x.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := x.Start(); err != nil {
			t.Fatal(err)
		}
		if x.Process.Pid == pgid {
			t.Cleanup(func() {
				x.Process.Kill() //nolint:errcheck // it has ended
				x.Wait()         //nolint:errcheck // likewise
			})
			return
		}
		x.Process.Kill() //nolint:errcheck // not this one
		x.Wait()         //nolint:errcheck // likewise
	}
	t.Skip("the number was not given again")
}
