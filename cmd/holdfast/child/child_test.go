// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"context"
	"errors"
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

// TestMain lets the test binary be the guard, and a wrapper that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guard":
			child.Guard(os.Stdin)
			return
		case "wrapper":
			wrapper(os.Args[2], os.Args[3])
			return
		case "role":
			inRole(child.Role(os.Args[2]), os.Args[3])
			return
		case "daemon", "keeper", "spirit":
			daemon(os.Args[1], os.Args[2])
			return
		}
	}
	// Orphans of these tests are this process's. Otherwise they would be those of the
	// first process, like everything on the machine, and a guard that did not know its own
	// would end all that, if the tests run as root.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	// The race detector lets every process linger for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// inRole has the descriptor 3 open in a role, and tells so.
func inRole(role child.Role, report string) {
	o, err := child.NewOpenFile(os.NewFile(3, "the lock file"))
	if err != nil {
		panic(err)
	}
	if err := o.Announce(role, []byte(report)); err != nil {
		panic(err)
	}
	fmt.Println("in role")
	<-time.After(time.Minute)
}

// lease is one that nobody renews.
type lease struct {
	ctx   context.Context
	until time.Time
}

func (l lease) Context() context.Context { return l.ctx }

func (l lease) Remaining() time.Duration { return time.Until(l.until) }

func (l lease) Jeopardy() error { return nil }

func (l lease) Asked() string { return "" }

func shell(script string) child.Options {
	return child.Options{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Grace: 200 * time.Millisecond, Margin: 100 * time.Millisecond,
		Guard: []string{os.Args[0], "guard"},
	}
}

func wrapper(script, ttl string) {
	d, err := time.ParseDuration(ttl)
	if err != nil {
		panic(err)
	}
	o := shell(script)
	o.OnLost = child.OnLost(os.Getenv("ON_LOST"))
	if grace, err := time.ParseDuration(os.Getenv("GRACE")); err == nil {
		o.Grace = grace
	}
	if path := os.Getenv("DROP"); path != "" {
		go func() { // becomes nobody when the command has started what it leaves
			for readFile(path) == "" {
				<-time.After(time.Millisecond)
			}
			if err := syscall.Setresuid(65534, 65534, 65534); err != nil {
				panic(err)
			}
		}()
	}
	if path := os.Getenv("SAID"); path != "" {
		said, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			panic(err)
		}
		o.Say = func(text string) { fmt.Fprintln(said, text) }
	}
	if d < time.Hour {
		o.Margin = d / 4 // those who wait for the end of the lease began to count before us
	}
	r, err := child.Run(lease{context.Background(), time.Now().Add(d)}, o)
	if err != nil {
		panic(err)
	}
	if r.Lost != nil && o.Say != nil {
		o.Say("lost: " + r.Lost.Error())
	}
	os.Exit(r.Code)
}

func healthy(t *testing.T) lease { return lease{t.Context(), time.Now().Add(time.Hour)} }

func TestExitCodes(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143, "kill -KILL $$": 137} {
		r, err := child.Run(healthy(t), shell(script))
		if err != nil || r.Code != want || r.Lost != nil {
			t.Errorf("%s: got code %d, lost %v, error %v, want code %d", script, r.Code, r.Lost, err, want)
		}
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/nowhere/at/all": 127, plain: 126} {
		o := shell("")
		o.Path = path
		_, err := child.Run(healthy(t), o)
		e, ok := errors.AsType[*child.StartError](err)
		if !ok || e.Code() != want {
			t.Errorf("%s: got %v, want a StartError with code %d", path, err, want)
		}
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	signals := make(chan os.Signal, 1)
	o := shell("trap 'exit 9' USR1; echo x > " + ready + "; while :; do sleep 0.02; done")
	o.Signals = signals
	go func() {
		await(t, 5*time.Second, "the command's start", func() bool { return len(readFile(ready)) > 0 })
		signals <- syscall.SIGUSR1
	}()
	if r, err := child.Run(healthy(t), o); err != nil || r.Code != 9 {
		t.Fatalf("got %+v, %v, want code 9", r, err)
	}
}

var errBroken = errors.New("an operator broke it")

func TestLossAsksTheCommandToEnd(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	ctx, lose := context.WithCancelCause(t.Context())
	o := shell("trap 'exit 5' TERM; echo x > " + ready + "; while :; do sleep 0.02; done")
	o.Grace = 10 * time.Second // a busy machine needs its time
	go func() {
		await(t, 5*time.Second, "the command's start", func() bool { return len(readFile(ready)) > 0 })
		lose(errBroken)
	}()
	r, err := child.Run(lease{ctx, time.Now().Add(time.Hour)}, o)
	if err != nil || r.Code != 5 || !errors.Is(r.Lost, errBroken) {
		t.Fatalf("got %+v, %v, want code 5 and %v", r, err, errBroken)
	}
}

// stubborn is a command with a child and a grandchild that ignore SIGTERM. Their
// process IDs are in the files a, b and c of dir.
func stubborn(t *testing.T, dir string) string {
	t.Helper()
	script := filepath.Join(dir, "script")
	text := fmt.Sprintf(`trap '' TERM
echo $$ > %s/$1
case $1 in a) sh $0 b & ;; b) sh $0 c & ;; esac
while :; do sleep 0.05; done
`, dir)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "exec sh " + script + " a"
}

func pids(t *testing.T, dir string) []int {
	t.Helper()
	var all []int
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(dir, name)
		await(t, 5*time.Second, path, func() bool { return strings.HasSuffix(readFile(path), "\n") })
		pid, err := strconv.Atoi(strings.TrimSpace(readFile(path)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
		t.Cleanup(func() {
			if t.Failed() && !gone(pid) {
				syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it is gone
			}
		})
	}
	return all
}

func TestGrandchildrenEndBeforeTheLease(t *testing.T) {
	dir := t.TempDir()
	l := lease{t.Context(), time.Now().Add(2 * time.Second)}
	o := shell(stubborn(t, dir))
	o.Margin = time.Second // Run's return comes later than the group's end
	r, err := child.Run(l, o)
	ended := time.Now()
	if err != nil || r.Code != 137 || !errors.Is(r.Lost, child.ErrNotRenewed) {
		t.Fatalf("got %+v, %v, want code 137 and %v", r, err, child.ErrNotRenewed)
	}
	for _, pid := range pids(t, dir) {
		if !gone(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
	if !ended.Before(l.until) {
		t.Errorf("ended %v after the lease", ended.Sub(l.until))
	}
}

// TestTheLeaseBoundsTheGrace: nothing has more grace than the lease has time.
func TestTheLeaseBoundsTheGrace(t *testing.T) {
	l := lease{t.Context(), time.Now().Add(4 * time.Second)}
	o := shell("trap '' TERM; while :; do sleep 0.05; done")
	o.Grace, o.Margin = time.Hour, 2*time.Second // Run's return comes later than the group's end
	r, err := child.Run(l, o)
	if ended := time.Now(); err != nil || r.Code != 137 || !ended.Before(l.until) {
		t.Errorf("got %+v, %v, %v after the lease, want code 137 before", r, err, ended.Sub(l.until))
	}
}

func TestWhatTheCommandLeavesIsEnded(t *testing.T) {
	dir := t.TempDir()
	r, err := child.Run(healthy(t), shell("(trap '' TERM; exec sleep 60) & echo $! > "+dir+"/a; exit 3"))
	if err != nil || r.Code != 3 || r.Lost != nil {
		t.Fatalf("got %+v, %v, want code 3", r, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(dir + "/a")))
	if err != nil || !gone(pid) {
		t.Errorf("process %d lives (%v)", pid, err)
	}
}

// TestWhatIsLeftIsAskedFirst: what the command left has its grace to finish.
func TestWhatIsLeftIsAskedFirst(t *testing.T) {
	dir := t.TempDir()
	ready, asked := filepath.Join(dir, "ready"), filepath.Join(dir, "asked")
	o := shell(fmt.Sprintf("(trap 'echo x > %[1]s; exit' TERM; echo x > %[2]s; while :; do sleep 0.02; done) & while ! test -s %[2]s; do sleep 0.02; done; exit 3", asked, ready))
	o.Grace = 10 * time.Second // a busy machine needs its time
	if r, err := child.Run(healthy(t), o); err != nil || r.Code != 3 || r.Lost != nil {
		t.Fatalf("got %+v, %v, want code 3", r, err)
	}
	if readFile(asked) == "" {
		t.Error("what the command left was not asked to end")
	}
}

// TestTheKernelEndsTheCommandWithItsWrapper, where the guard does not.
func TestTheKernelEndsTheCommandWithItsWrapper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	cmd := wrap(t, "echo $$ > "+path+"; while :; do sleep 0.05; done", time.Hour)
	pid := number(t, path)
	stop(t, guardOf(t, cmd.Process.Pid))
	strike(t, cmd, syscall.SIGKILL)
	await(t, 10*time.Second, "the end of the command", func() bool { return gone(pid) })
}

func TestGroupEndsWithAKilledWrapper(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "wrapper", stubborn(t, dir), "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := pids(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // killed
	for _, pid := range all {
		await(t, 5*time.Second, fmt.Sprintf("the end of process %d", pid), func() bool { return gone(pid) })
	}
}

// TestGroupEndsWithAStoppedWrapper pauses the process whose timers should end the command.
// When it goes on it takes that for the loss that it is, and says who has killed.
func TestGroupEndsWithAStoppedWrapper(t *testing.T) {
	dir := t.TempDir()
	ttl := 2 * time.Second
	said := filepath.Join(dir, "said")
	cmd := wrap(t, stubborn(t, dir), ttl, "SAID="+said)
	all := pids(t, dir)
	until := time.Now().Add(ttl)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		await(t, time.Until(until), fmt.Sprintf("the end of process %d", pid), func() bool { return gone(pid) })
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 137 {
		t.Errorf("wrapper: %v, want exit code 137", err)
	}
	for _, words := range []string{"its guard has killed the command", "lost: " + child.ErrNotRenewed.Error()} {
		if !strings.Contains(readFile(said), words) {
			t.Errorf("said %q, want %q", readFile(said), words)
		}
	}
	if strings.Contains(readFile(said), "did not end by itself") {
		t.Errorf("said %q of a command that its guard has killed", readFile(said))
	}
}

func readFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// gone reports whether a process runs no more; its zombie may wait for its parent.
func gone(pid int) bool {
	stat := readFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, behind, _ := strings.Cut(stat, ") ")
	return stat == "" || strings.HasPrefix(behind, "Z") || strings.HasPrefix(behind, "X")
}

func await(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Errorf("waited %v for %s", limit, what)
			return
		case <-tick.C:
		}
	}
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
}
