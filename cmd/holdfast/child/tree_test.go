// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

// daemon leaves its parent, its group and its session, as daemons do: what is called
// "daemon" starts a "spirit" and ends. That ignores SIGTERM and writes its process ID.
// A "keeper" is a spirit that has one of its own, with nothing in the environment.
func daemon(role, path string) {
	if role == "daemon" {
		next := "spirit"
		if os.Getenv("KEPT") != "" {
			next = "keeper"
		}
		cmd := exec.Command(os.Args[0], next, path)
		if os.Getenv("WIPED") != "" {
			cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		return
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	if role == "keeper" {
		cmd := exec.Command(os.Args[0], "spirit", path)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		if err := cmd.Run(); err != nil {
			panic(err)
		}
		return
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		panic(err)
	}
	<-time.After(time.Minute) // nobody ends it who fails
}

// daemonize is a script that starts a daemon, which writes its ID, and stays.
func daemonize(path string) string {
	return fmt.Sprintf("%s daemon %s; while :; do sleep 0.05; done", os.Args[0], path)
}

// number reads a process ID from a file when it is there.
func number(t *testing.T, path string) int {
	t.Helper()
	await(t, 10*time.Second, path, func() bool { return strings.HasSuffix(readFile(path), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(path)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && !gone(pid) {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it is gone
		}
	})
	return pid
}

// wrap starts a process that runs a script under a lease of ttl.
func wrap(t *testing.T, script string, ttl time.Duration, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "wrapper", script, ttl.String())
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it has ended
		cmd.Wait()         //nolint:errcheck // likewise
	})
	return cmd
}

func strike(t *testing.T, cmd *exec.Cmd, s os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestDaemonsEndBeforeTheLease cuts a command off that has left a daemon which wants
// to live: nobody renews the lease any more.
func TestDaemonsEndBeforeTheLease(t *testing.T) {
	const brief, long = 3 * time.Second, time.Hour
	for _, c := range []struct {
		name   string
		ttl    time.Duration
		strike os.Signal // nil: the wrapper is well
		env    string
	}{
		{"wrapper alive", brief, nil, ""},
		{"wrapper alive, environment wiped", brief, nil, "WIPED=1"},
		{"wrapper stopped", brief, syscall.SIGSTOP, ""},
		{"wrapper stopped, environment wiped", brief, syscall.SIGSTOP, "WIPED=1"},
		{"wrapper killed", long, syscall.SIGKILL, ""},
		{"wrapper killed, environment wiped of a daemon's child", long, syscall.SIGKILL, "KEPT=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "spirit")
			until := time.Now().Add(c.ttl) // it began to count later
			cmd := wrap(t, daemonize(path), c.ttl, strings.Fields(c.env)...)
			pid := number(t, path)
			if c.strike != nil {
				strike(t, cmd, c.strike)
			}
			limit := min(time.Until(until), 10*time.Second)
			await(t, limit, fmt.Sprintf("the end of the daemon, process %d", pid), func() bool { return gone(pid) })
			if c.ttl == brief && time.Until(until) > brief/2 {
				t.Errorf("it ended %v before the lease", time.Until(until))
			}
		})
	}
}

// TestNestedRuns kills the outer of two wrappers: the tree of the inner one is part of its own.
func TestNestedRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spirit")
	script := fmt.Sprintf("exec %s wrapper '%s' 1h", os.Args[0], daemonize(path))
	cmd := wrap(t, script, time.Hour)
	pid := number(t, path)
	if marks := strings.Split(markOf(pid), ":"); len(marks) != 2 {
		t.Errorf("the marks of two runs: %q", marks)
	}
	strike(t, cmd, syscall.SIGKILL)
	await(t, 10*time.Second, "the end of the inner daemon", func() bool { return gone(pid) })
}

func markOf(pid int) string {
	for e := range strings.SplitSeq(readFile(fmt.Sprintf("/proc/%d/environ", pid)), "\x00") {
		if mark, is := strings.CutPrefix(e, child.MarkName+"="); is {
			return mark
		}
	}
	return ""
}

// TestStrangersLive has a process about that carries the mark as the command's do, but
// descends from somebody else, as a job does that was handed to a batch system; and an
// orphan of the same heir without the mark.
func TestStrangersLive(t *testing.T) {
	dir := t.TempDir()
	path, job, orphan := filepath.Join(dir, "spirit"), filepath.Join(dir, "job"), filepath.Join(dir, "orphan")
	cmd := wrap(t, daemonize(path), time.Hour)
	pid := number(t, path)
	batch := exec.Command("/bin/sh", "-c", fmt.Sprintf("%s=%s %s spirit %s & %s daemon %s; wait", child.MarkName, markOf(pid), os.Args[0], job, os.Args[0], orphan))
	if err := batch.Start(); err != nil {
		t.Fatal(err)
	}
	strangers := []int{number(t, job), number(t, orphan)}
	t.Cleanup(func() {
		for _, s := range strangers {
			syscall.Kill(s, syscall.SIGKILL) //nolint:errcheck // started above
		}
		batch.Wait() //nolint:errcheck // killed
	})
	strike(t, cmd, syscall.SIGKILL)
	await(t, 10*time.Second, "the end of the daemon", func() bool { return gone(pid) })
	guardsEnd(t)
	for _, s := range strangers {
		if gone(s) {
			t.Errorf("process %d was a stranger and is gone", s)
		}
	}
}

// guardsEnd waits until the guards of killed wrappers have done all that they do.
func guardsEnd(t *testing.T) {
	t.Helper()
	await(t, 10*time.Second, "the end of the guard", func() bool {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			if readFile(path) == os.Args[0]+"\x00guard\x00" {
				return false
			}
		}
		return true
	})
}

// TestStrangersOfTheWrapperLive lets the wrapper inherit a child from what it was before.
func TestStrangersOfTheWrapperLive(t *testing.T) {
	dir := t.TempDir()
	path, before := filepath.Join(dir, "spirit"), filepath.Join(dir, "before")
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("%s spirit %s & exec %s wrapper '%s daemon %s; sleep 0.3' 1h", os.Args[0], before, os.Args[0], os.Args[0], path))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stranger, pid := number(t, before), number(t, path)
	t.Cleanup(func() { syscall.Kill(stranger, syscall.SIGKILL) }) //nolint:errcheck // started above
	if err := cmd.Wait(); err != nil {
		t.Errorf("wrapper: %v", err)
	}
	if !gone(pid) || gone(stranger) {
		t.Errorf("the daemon is gone: %v; the stranger is gone: %v", gone(pid), gone(stranger))
	}
}

// TestDaemonThatTheCommandLeavesIsEnded: nothing runs on when the lock is free.
func TestDaemonThatTheCommandLeavesIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spirit")
	cmd := wrap(t, fmt.Sprintf("%s daemon %s; while ! test -s %s; do sleep 0.01; done; exit 3", os.Args[0], path, path), time.Hour)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("wrapper: %v, want exit code 3", err)
	}
	if pid := number(t, path); !gone(pid) {
		t.Errorf("process %d lives", pid)
	}
}

// TestOrphansAreReaped: a wrapper lives as long as its command, and must not collect
// what that leaves.
func TestOrphansAreReaped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orphans")
	wrap(t, fmt.Sprintf("for i in 1 2 3 4 5; do ( sh -c 'echo $$ >> %s' & ); done; while :; do sleep 0.05; done", path), time.Hour)
	await(t, 10*time.Second, "the orphans", func() bool { return strings.Count(readFile(path), "\n") == 5 })
	for pid := range strings.FieldsSeq(readFile(path)) {
		await(t, 5*time.Second, "the end of a zombie", func() bool { return readFile("/proc/"+pid+"/stat") == "" })
	}
}

// childrenOf lists the children of a process, ended or not, by whichever of its threads they
// were forked.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for word := range strings.FieldsSeq(readFile(list)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
