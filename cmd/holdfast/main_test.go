// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaryEnv tells the tests where TestMain built the binary.
const binaryEnv = "HOLDFAST_TEST_BINARY"

func TestMain(m *testing.M) {
	if !electedMain() && !libraryMain() {
		os.Exit(build(m))
	}
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system's temporary directory
	binary := filepath.Join(dir, "holdfast")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the binary: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(binaryEnv, binary); err != nil {
		panic(err)
	}
	return m.Run()
}

// world is a running `holdfast dev`.
type world struct {
	t         *testing.T
	dir       string
	endpoints string
	page      string
	servers   []devServer
	cmd       *exec.Cmd
	logs      *logs
}

type devServer struct {
	ID     uint32 `json:"id"`
	Client string `json:"client"`
	PID    int    `json:"pid"`
}

// ended reports whether the process of the server is gone.
func (s devServer) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	return err != nil || strings.Contains(string(stat), ") Z ") // nobody may be there to reap it
}

// logs are the standard error of dev.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startDev(t *testing.T, flags ...string) *world {
	t.Helper()
	w := &world{t: t, logs: &logs{}}
	w.start(w.logs, flags...)
	return w
}

// start runs dev with its standard error going there.
func (w *world) start(stderr io.Writer, flags ...string) {
	t := w.t
	t.Helper()
	w.dir = filepath.Join(t.TempDir(), "volume")
	w.cmd = exec.Command(os.Getenv(binaryEnv), append([]string{"dev", "--dir", w.dir, "--base-port", fmt.Sprint(freeBase(t)), "-o", "json"}, flags...)...)
	w.cmd.Stderr = stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.cmd.Process.Kill()          //nolint:errcheck // it has ended
		for _, s := range w.servers { // else they write while their directory is removed
			await(t, fmt.Sprintf("the end of server %d", s.ID), s.ended)
		}
		if t.Failed() {
			t.Logf("dev said:\n%s", w.logs)
		}
	})
	var banner struct {
		Endpoints string      `json:"endpoints"`
		Page      string      `json:"page"`
		Servers   []devServer `json:"servers"`
	}
	if err := json.NewDecoder(out).Decode(&banner); err != nil {
		t.Fatalf("read dev's banner: %v", err)
	}
	w.endpoints, w.page, w.servers = banner.Endpoints, banner.Page, banner.Servers
}

// freeBase finds ports that nobody uses, below those that the kernel gives away.
func freeBase(t *testing.T) int {
	t.Helper()
	for range 100 {
		base := 20000 + rand.IntN(10000)
		var ports []int
		for _, offset := range []int{0, 200} {
			ports = append(ports, base+offset, base+offset+1, base+offset+2)
		}
		if free(ports...) {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func free(ports ...int) bool {
	for _, p := range ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			return false
		}
		if err := l.Close(); err != nil {
			return false
		}
	}
	return true
}

// result is how a command ended.
type result struct {
	out, errs string
	code      int
}

func (w *world) try(stdin string, args ...string) result {
	w.t.Helper()
	cmd := exec.Command(os.Getenv(binaryEnv), args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+w.endpoints)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	w.t.Logf("$ holdfast %s\n%s%s[%d, %v]", strings.Join(args, " "), r.out, r.errs, r.code, err)
	return r
}

// do is try for what must succeed.
func (w *world) do(stdin string, args ...string) string {
	w.t.Helper()
	r := w.try(stdin, args...)
	if r.code != 0 {
		w.t.Fatalf("holdfast %v: exit code %d", args, r.code)
	}
	return r.out
}

type status struct {
	Epoch   uint64               `json:"epoch"`
	Primary *struct{ ID uint32 } `json:"primary"`
	Servers []struct {
		ID   uint32 `json:"id"`
		Role string `json:"role"`
		PID  int    `json:"pid"`
	} `json:"servers"`
}

func (w *world) status() (s status) {
	w.t.Helper()
	cmd := exec.Command(os.Getenv(binaryEnv), "status", "-o", "json", "--endpoints", w.endpoints)
	out, err := cmd.Output()
	if _, told := errors.AsType[*exec.ExitError](err); err != nil && (!told || !bytes.Contains(out, []byte(`"servers"`))) {
		return s // nobody answers; a cluster that needs care has another code than 0
	}
	if err := json.Unmarshal(out, &s); err != nil {
		w.t.Fatalf("status: %v in %s", err, out)
	}
	return s
}

// primary waits until another server than `not` is primary and says which, and its process ID.
func (w *world) primary(not uint32) (id uint32, pid int) {
	w.t.Helper()
	await(w.t, "a primary", func() bool {
		for _, s := range w.status().Servers {
			if s.Role == "primary" && s.ID != not && s.PID > 0 { // 0: it could not be asked in time
				id, pid = s.ID, s.PID
				return true
			}
		}
		return false
	})
	return id, pid
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited for %s", what)
		case <-tick.C:
		}
	}
}

func (w *world) post(server int, path, body string) (int, map[string]any) {
	w.t.Helper()
	r, err := http.Post("http://"+w.servers[server].Client+path, "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close() //nolint:errcheck // read whole
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("POST %s %s\n%d %s", path, body, r.StatusCode, b)
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		w.t.Fatalf("%s: %v", b, err)
	}
	return r.StatusCode, v
}

func (w *world) file(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, "files", name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// equal compares without a library.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestOneDay is what somebody does with `holdfast dev` on the first day.
func TestOneDay(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	await(t, "a healthy cluster", func() bool { return w.try("", "status").code == 0 })
	// On another address the ports are free, so only the guard of the ID is in the way.
	r := w.try("", "server", "--id", "1", "--volume", w.dir, "--data-dir", "none", "--bind", "127.0.0.2")
	if r.code != 5 || !strings.Contains(r.errs, "an ID of its own") {
		t.Errorf("a second server 1: %+v", r)
	}
	w.interrupted()
	w.commands()
	w.repeats()
	w.within()
	w.overHTTP()
	w.failover()
	w.end()
}

// commands are the locks and files of a script.
func (w *world) commands() {
	t := w.t
	r := w.try("", "run", "job", "--", "sh", "-c", `echo "$HOLDFAST_LOCK $HOLDFAST_TOKEN $HOLDFAST_EPOCH"; exit 7`)
	equal(t, "exit code of run", r.code, 7)
	if !strings.HasPrefix(r.out, "job ") {
		t.Errorf("run's environment: %q", r.out)
	}
	w.do("one\n", "append", "log", "a/log")
	token := strings.TrimSpace(w.do("", "acquire", "log", "--ttl", "1m"))
	w.do("two\n", "append", "log", "a/log", "--token", token)
	equal(t, "held lock", w.try("", "acquire", "log", "--wait", "50ms", "-E", "42").code, 42)
	r = w.try("", "run", "log", "--wait", "0", "-o", "json", "--", "true")
	if r.code != 1 || r.out != "" || !strings.Contains(r.errs, `"status":"HELD"`) || !strings.Contains(r.errs, `"token":`+token) {
		t.Errorf("run on a held lock: %+v", r)
	}
	if out := w.do("", "ls"); !strings.Contains(out, "log") || !strings.Contains(out, token) {
		t.Errorf("ls does not show the lock: %q", out)
	}
	w.do("", "show", "log")
	w.do("", "renew", "log", "--token", token)
	w.do("", "break", "log", "--reason", "a test")
	equal(t, "append under a broken lock", w.try("three\n", "append", "log", "a/log", "--token", token).code, 3)
	equal(t, "release of a broken lock", w.try("", "release", "log", "--token", token).code, 3)
	equal(t, "file", w.file("a/log"), "one\ntwo\n")
	if err := os.Rename(filepath.Join(w.dir, "files/a/log"), filepath.Join(w.dir, "files/a/log.1")); err != nil {
		t.Fatal(err)
	}
	w.do("", "file", "rotate", "a/log", "--lock", "log")
	w.do("four\n", "append", "log", "a/log")
	equal(t, "file after the rotation", w.file("a/log"), "four\n")
}

// interrupted is a Ctrl-C while a command waits in line.
func (w *world) interrupted() {
	t := w.t
	token := strings.TrimSpace(w.do("", "acquire", "busy"))
	cmd := exec.Command(os.Getenv(binaryEnv), "acquire", "busy", "--wait", "forever", "--endpoints", w.endpoints)
	cmd.Stderr = w.logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) func() bool {
		return func() bool {
			return strings.Contains(w.try("", "show", "busy", "-o", "json").out, fmt.Sprintf(`"queue_length":%d`, n))
		}
	}
	await(t, "the queue", waiting(1))
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // the code says it
	equal(t, "exit code of an interrupted acquire", cmd.ProcessState.ExitCode(), 130)
	await(t, "the end of the queue", waiting(0))
	w.do("", "release", "busy", "--token", token)
}

// repeats are commands that a script runs twice because it does not know better.
func (w *world) repeats() {
	t := w.t
	for range 2 {
		w.do("once\n", "append", "r", "r.log", "--client-id", "script", "--request-id", "1")
	}
	equal(t, "file", w.file("r.log"), "once\n")
	first := w.do("", "acquire", "r", "--client-id", "script", "--request-id", "2")
	equal(t, "token of the repeat", w.do("", "acquire", "r", "--client-id", "script", "--request-id", "2"), first)
	for range 2 {
		w.do("", "release", "r", "--token", strings.TrimSpace(first), "--client-id", "script", "--request-id", "3")
	}
	if out := w.do("", "outcome", "script", "1"); !strings.HasPrefix(out, "executed: OK") {
		t.Errorf("outcome: %q", out)
	}
	big := strings.Repeat("0123456789abcde\n", 100_000) // 1.6 MB
	equal(t, "append of too much", w.try(big, "append", "--whole", "big", "big").code, 2)
	w.do(big, "append", "--whole", "big", "big", "--split")
	if w.file("big") != big {
		t.Error("the file that was appended in pieces is another one")
	}
}

// within are commands under a lock that are about this very lock, and others.
func (w *world) within() {
	t, self := w.t, os.Getenv(binaryEnv)
	under := func(lock string, flags []string, script string) result {
		args := append(append([]string{"run", lock, "--wait", "0"}, flags...), "--", "sh", "-c", strings.ReplaceAll(script, "holdfast", self))
		return w.try("", args...)
	}
	r := under("above", nil, "echo under | holdfast append above above.log && holdfast run above --wait 5s -E 42 -- echo below")
	if r.code != 42 || strings.Contains(r.out, "below") || !strings.Contains(r.errs, "it would wait for its own end") || !strings.Contains(r.errs, "its token is in HOLDFAST_TOKEN") {
		t.Errorf("a run within a run of the same lock: %+v", r)
	}
	equal(t, "file", w.file("above.log"), "under\n")
	if r = under("above", []string{"--shared"}, "holdfast run above --shared -- echo below"); r.code != 0 || r.out != "below\n" {
		t.Errorf("a run within a run that shares the lock: %+v", r)
	}
	lost := []string{"--on-lost", "leave", "--lost-exit-code", "33"}
	r = under("above", lost, "holdfast break above --reason test && holdfast acquire above --ttl 1s > /dev/null && holdfast run above -- echo below")
	if r.code != 33 || !strings.Contains(r.out, "below") {
		t.Errorf("a run within a run that has lost the lock to somebody else: %+v", r)
	}
	if r = under("above", nil, "holdfast run beside -- env | grep -c '^HOLDFAST_LOCK='"); r.out != "1\n" {
		t.Errorf("the inner of two runs names two locks: %+v", r)
	}
	token := strings.TrimSpace(w.do("", "acquire", "above"))
	equal(t, "exit code of a command that is not there, under a lock that is not free", w.try("", "run", "above", "--", "/not/there").code, 127)
	w.do("", "release", "above", "--token", token)
}

func (w *world) overHTTP() {
	t := w.t
	for i := range w.servers {
		code, v := w.post(i, "/v1/acquire", fmt.Sprintf(`{"lock":"http/%d","ttl":"30s"}`, i))
		equal(t, "HTTP code", code, http.StatusOK)
		equal(t, "status", v["status"], any("OK"))
		code, _ = w.post(i, "/v1/acquire", fmt.Sprintf(`{"lock":"http/%d","ttl":"30s"}`, i))
		equal(t, "HTTP code of a held lock", code, http.StatusLocked)
	}
}

// failover moves the primary role, kills its primary, and starts that again.
func (w *world) failover() {
	t := w.t
	old, _ := w.primary(0)
	held := w.cmdUnderLock()
	w.do("", "handover")
	id, pid := w.primary(old)
	before := w.status().Epoch
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.do("after the kill\n", "append", "log", "a/log")
	equal(t, "file", w.file("a/log"), "four\nafter the kill\n")
	w.primary(id)
	if after := w.status().Epoch; after <= before {
		t.Errorf("epoch %d after %d", after, before)
	}
	// The command has lived through both, and ends with its own code.
	if err := held.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	held.Wait() //nolint:errcheck // the code says it
	equal(t, "exit code of the command that was under a lock all the time", held.ProcessState.ExitCode(), 4)

	hint := fmt.Sprintf("server %d (pid %d) died", id, pid)
	await(t, "dev's word on the dead server", func() bool { return strings.Contains(w.logs.String(), hint) })
	_, behind, _ := strings.Cut(w.logs.String(), hint)
	_, line, _ := strings.Cut(behind, "dev      |   ")
	line, _, _ = strings.Cut(line, "\n")
	again := exec.Command("sh", "-c", "exec "+line)
	again.Stderr = w.logs
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		again.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it has ended
		again.Wait()                          //nolint:errcheck // likewise
	})
	await(t, "the return of the dead server", func() bool {
		for _, s := range w.status().Servers {
			if s.ID == id && s.Role == "replica" && s.PID == again.Process.Pid {
				return true
			}
		}
		return false
	})
	if err := again.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Errorf("a server that was told to end: %v", err)
	}
}

// cmdUnderLock starts a command that ends with 4 when it is told to.
func (w *world) cmdUnderLock() *exec.Cmd {
	w.t.Helper()
	ready := filepath.Join(w.t.TempDir(), "ready")
	cmd := exec.Command(os.Getenv(binaryEnv), "run", "long", "--ttl", "2s", "--endpoints", w.endpoints, "--", "sh", "-c",
		"trap 'exit 4' TERM; echo x > "+ready+"; while :; do sleep 0.05; done")
	cmd.Stderr = w.logs
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	await(w.t, "the command under the lock", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	return cmd
}

// end is Ctrl-C, and a look at what is left.
func (w *world) end() {
	t := w.t
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("dev: %v", err)
	}
	for _, s := range w.servers {
		if err := syscall.Kill(s.PID, 0); err == nil {
			t.Errorf("server %d lives", s.ID)
		}
	}
	w.do("", "fsck", "--volume", w.dir)
	w.do("", "doctor", w.dir)
	equal(t, "no service", w.try("", "ls", "--timeout", "200ms").code, 4)
	equal(t, "no service to run under", w.try("", "run", "x", "--timeout", "200ms", "--", "true").code, 4)
}

// TestKilledDevLeavesNothing kills the process that the servers hang on.
func TestKilledDevLeavesNothing(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.servers {
		await(t, fmt.Sprintf("the end of server %d", s.ID), s.ended)
	}
	w.cmd.Wait() //nolint:errcheck // killed
}

// TestRunLosesItsLock breaks the lock of a running command.
func TestRunLosesItsLock(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	cmd := w.cmdUnderLock()
	w.do("", "break", "long", "--reason", "a test")
	began := time.Now()
	cmd.Wait() //nolint:errcheck // the code says it
	equal(t, "exit code", cmd.ProcessState.ExitCode(), 3)
	t.Logf("ended %v after the break", time.Since(began).Round(time.Millisecond))
}
