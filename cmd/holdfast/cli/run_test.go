// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// asProgram makes the test binary the program: run starts itself as its guard.
const asProgram = "HOLDFAST_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(os.Args[1:], cli.Process("")))
	}
	os.Exit(m.Run())
}

// program is the program with one server.
func program(addr string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "HOLDFAST_ENDPOINTS="+addr, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func runProgram(addr string, args ...string) result {
	cmd := program(addr, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run() //nolint:errcheck // the code says it
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// oneLock is a service with one lock, which is granted once under token 17.
type oneLock struct {
	fake
	mu *struct {
		sync.Mutex
		live  uint64 // the token; 0: it is free
		asked int    // how often somebody wanted it
		// stolen says that the lock is somebody else's as soon as a second one wants it, who
		// then gets it by waiting.
		stolen bool
	}
}

func newOneLock() oneLock {
	l := oneLock{}
	l.mu = new(struct {
		sync.Mutex
		live   uint64
		asked  int
		stolen bool
	})
	return l
}

func (l oneLock) now() (live uint64, asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.live, l.mu.asked
}

func (l oneLock) OpenClient(context.Context, *pb.OpenClientRequest) (*pb.Answer, error) {
	a := ok("", 0)
	a.ClientId = "@7"
	return a, nil
}

func (l oneLock) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	l.mu.Lock()
	l.mu.asked++
	stolen := l.mu.stolen && l.mu.asked > 1
	if stolen {
		l.mu.live = 18
	}
	granted := l.mu.live == 0 || stolen && q.GetWaitMs() != 0
	if granted {
		l.mu.live = 16 + uint64(l.mu.asked)
	}
	live := l.mu.live
	l.mu.Unlock()
	switch {
	case granted:
		a := ok(q.GetLock(), live)
		a.ClientId, a.RequestId, a.TtlMs, a.Marked = q.GetClientId(), q.GetRequestId(), q.GetTtlMs(), asksForMark(q)
		return a, nil
	case q.GetWaitMs() != 0:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(q.GetWaitMs()) * time.Millisecond):
		}
		return refused(pb.Status_STATUS_WAIT_TIMEOUT, q.GetLock(), ""), nil
	}
	a := refused(pb.Status_STATUS_HELD, q.GetLock(), "")
	a.Holder = &pb.LockHolder{ClientId: "@9", Token: live}
	return a, nil
}

func (l oneLock) Release(_ context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.GetToken() != l.mu.live {
		return refused(pb.Status_STATUS_INVALID_TOKEN, q.GetLock(), ""), nil
	}
	l.mu.live = 0
	return ok(q.GetLock(), q.GetToken()), nil
}

func (l oneLock) Verify(_ context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	if live, _ := l.now(); q.GetToken() != live {
		return refused(pb.Status_STATUS_INVALID_TOKEN, q.GetLock(), ""), nil
	}
	return ok(q.GetLock(), q.GetToken()), nil
}

// TestRunPassesTheLockOn: its command finds it in the environment, and when that has ended
// the lock is free.
func TestRunPassesTheLockOn(t *testing.T) {
	t.Setenv("HOLDFAST_LOCK", "outer")
	t.Setenv("HOLDFAST_TOKEN", "5")
	l := newOneLock()
	addr := startService(t, l)
	r := runProgram(addr, "run", "job", "-o", "json", "--", "env") // a shell would leave out doubles
	var got []string
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(line, "HOLDFAST_") && !strings.HasPrefix(line, asProgram) && !strings.HasPrefix(line, "HOLDFAST_RUN=") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	slices.Sort(got)
	want := []string{"HOLDFAST_ENDPOINTS=" + addr, "HOLDFAST_EPOCH=3", "HOLDFAST_LOCK=job", "HOLDFAST_TOKEN=17", "HOLDFAST_TOKEN_ENDPOINTS=" + addr}
	if r.code != 0 || !slices.Equal(got, want) || !strings.Contains(r.errs, `"exit_code":0`) {
		t.Errorf("got code %d, %q and %q, want the environment %q", r.code, got, r.errs, want)
	}
	if live, _ := l.now(); live != 0 {
		t.Errorf("the command has ended, and token %d is live", live)
	}
	if r := runProgram(addr, "run", "job", "--", "/not/there"); r.code != 127 {
		t.Errorf("a command that is not there: got %+v, want code 127", r)
	}
	if _, asked := l.now(); asked != 1 {
		t.Errorf("the lock was wanted %d times, want once: the second command is not there", asked)
	}
}

// TestRunWithinARun of the same lock does not wait for it, unless it has lost the lock.
func TestRunWithinARun(t *testing.T) {
	l := newOneLock()
	self := os.Args[0]
	r := runProgram(startService(t, l), "run", "job", "--", self, "run", "job", "--wait", "5s", "-E", "42", "--", "echo", "below")
	if r.code != 42 || r.out != "" || !strings.Contains(r.errs, "under token 17, by the holdfast run that this command runs in: it would wait for its own end") {
		t.Errorf("got %+v, want code 42 and a word of the run above", r)
	}
	l = newOneLock()
	l.mu.stolen = true
	r = runProgram(startService(t, l), "run", "job", "--", self, "run", "job", "--", "echo", "below")
	if r.code != 0 || r.out != "below\n" {
		t.Errorf("got %+v of a run whose outer one has lost the lock, want that it waits", r)
	}
}

// TestCommandsWithinARun that want its lock are refused at once, and not for as long as they would wait.
func TestCommandsWithinARun(t *testing.T) {
	self := os.Args[0]
	for _, command := range [][]string{
		{"acquire", "job", "--wait", "forever", "-E", "42"},
		{"acquire", "job", "--wait", "2s", "-E", "42", "--client-id", "script", "--request-id", "1"},
		{"acquire", "job", "--wait", "forever", "--shared", "-E", "42"},
		{"elect", "job", "--", "echo", "below"},
	} {
		want := 42
		if command[0] == "elect" {
			want = 1
		}
		r := runProgram(startService(t, newOneLock()), append([]string{"run", "job", "--", "timeout", "10", self}, command...)...)
		if r.code != want || r.out != "" || !strings.Contains(r.errs, "under token 17, by the holdfast run that this command runs in: it would wait for its own end") {
			t.Errorf("%q: got %+v, want code %d and a word of the run above", command, r, want)
		}
	}
	l := newOneLock()
	l.mu.stolen = true
	r := runProgram(startService(t, l), "run", "job", "--on-lost", "leave", "--", "env", "HOLDFAST_TOKEN=5", self, "acquire", "job", "--wait", "5s")
	if r.out != "18\n" {
		t.Errorf("got %+v of a command whose run has lost the lock, want that it waits", r)
	}
}

// TestRunEndsOtherwise: by a signal, which is the command's, and by a loss.
func TestRunEndsOtherwise(t *testing.T) {
	addr := startService(t, newOneLock())
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := program(addr, "run", "job", "--", "sh", "-c", "trap 'exit 9' TERM; echo x > "+ready+"; while :; do sleep 0.02; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.After(time.Minute); ; {
		if b, err := os.ReadFile(ready); err == nil && len(b) > 0 {
			break
		}
		select {
		case <-end:
			t.Fatal("the command does not start")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("a signal: %v, want the command's exit code 9", err)
	}
	r := runProgram(addr, "run", "job", "--ttl", "1s", "--lost-exit-code", "33", "--", "sleep", "60")
	if r.code != 33 || !strings.Contains(r.errs, "lock lost") {
		t.Errorf("a loss: got %+v, want code 33", r)
	}
}

// TestKilledRunReleases: when run was killed, its guard releases the lock.
func TestKilledRunReleases(t *testing.T) {
	l := newOneLock()
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := program(startService(t, l), "run", "job", "--ttl", "5m", "--", "sh", "-c", "echo x > "+ready+"; exec sleep 60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until := func(done func() bool) (over bool) {
		for end := time.Now().Add(time.Minute); !done() && time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		}
		return done()
	}
	if !until(func() bool { b, err := os.ReadFile(ready); return err == nil && len(b) > 0 }) {
		t.Fatal("the command does not start")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // killed
	if !until(func() bool { live, _ := l.now(); return live == 0 }) {
		live, _ := l.now()
		t.Errorf("run was killed, and token %d is live", live)
	}
}

// TestRunRefusesWhatCannotWork before it asks for the lock.
func TestRunRefusesWhatCannotWork(t *testing.T) {
	for flags, words := range map[string]string{
		"--grace 16s":                           "at most half of --ttl 30s",
		"--grace -1s":                           "at most half of --ttl 30s",
		"--grace 12s --warn USR1":               "a warning must leave time",
		"--on-lost wait":                        "use terminate, kill or leave",
		"--lost-exit-code 256":                  "use 0 to 255",
		"--lost-exit-code -1":                   "use 0 to 255",
		"--on-ask KILL":                         "a signal that the command can catch",
		"--on-ask STOP":                         "a signal that the command can catch",
		"--on-ask SIGNONE":                      "a signal that the command can catch",
		"--warn kill":                           "a signal that the command can catch",
		"--warn STOP":                           "a signal that the command can catch",
		"--warn NONE":                           "a signal that the command can catch",
		"--max-hold 29s":                        "at least --ttl 30s",
		"--ttl 0s":                              "use a duration like 30s",
		"--wait sometimes":                      "use seconds, a duration like 30s, forever",
		"--conflict-exit-code 256":              "use 0 to 255",
		"--grace 11s --warn USR1 --on-ask SEGX": "--on-ask", // the grace is right
	} {
		args := append(append([]string{"run", "job", "--endpoints", "127.0.0.1:1", "--timeout", "10ms"}, strings.Fields(flags)...), "--", "true")
		if r := run("", "", args...); r.code != 2 || !strings.Contains(r.errs, words) {
			t.Errorf("%s: got %+v, want code 2 and %q", flags, r, words)
		}
	}
	for _, args := range []string{"run job", "run job --", "run job true", "run -- job true", "run job more -- true", "run", "run a//b -- true"} {
		if r := run("", "", strings.Fields(args)...); r.code != 2 {
			t.Errorf("%s: got %+v, want code 2", args, r)
		}
	}
}
