// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// electedEnv names the file that a test binary locks which runs as an elected command.
const electedEnv = "HOLDFAST_TEST_ELECTED"

// electedMain is the main of such a command: the kernel tells whether another one is
// there. SIGTERM ends it with code 4.
func electedMain() (is bool) {
	name := os.Getenv(electedEnv)
	if name == "" {
		return false
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		fmt.Println("overlap", os.Getenv("HOLDFAST_TOKEN"), err)
		os.Exit(1)
	}
	fmt.Println("lead", os.Getenv("HOLDFAST_TOKEN"))
	<-told
	os.Exit(4)
	return true
}

// candidate is one `holdfast elect` with a command.
type candidate struct {
	t    *testing.T
	cmd  *exec.Cmd
	mu   sync.Mutex
	said []string // lines of its commands
	errs bytes.Buffer
}

// candidate starts one. All commands lock the same file.
func (w *world) candidate(value string, args ...string) *candidate {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	args = append([]string{"elect", "web", "--ttl", "4s", "--value", value}, args...)
	c := &candidate{t: w.t, cmd: exec.Command(os.Getenv(binaryEnv), append(args, "--", self)...)}
	c.cmd.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+w.endpoints, electedEnv+"="+filepath.Join(filepath.Dir(w.dir), "elected"))
	c.cmd.Stderr = &c.errs
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go c.read(out)
	w.t.Cleanup(func() {
		c.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it has ended
		c.cmd.Process.Kill()                  //nolint:errcheck // it has ended
		c.cmd.Wait()                          //nolint:errcheck // it was killed, or its end was looked at
		w.t.Logf("candidate %s: %q\n%s", value, c.lines(), &c.errs)
	})
	return c
}

func (c *candidate) read(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		c.mu.Lock()
		c.said = append(c.said, s.Text())
		c.mu.Unlock()
	}
}

func (c *candidate) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said...)
}

// term is the token under which its last command began; 0 for none yet.
func (c *candidate) term() (token uint64) {
	c.t.Helper()
	for _, line := range c.lines() {
		word, rest, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(rest, 10, 64)
		if word != "lead" || err != nil {
			c.t.Fatalf("a command said %q", line)
		}
		token = n
	}
	return token
}

// awaitTerm waits until one of them leads under a token higher than this one.
func awaitTerm(t *testing.T, after uint64, all ...*candidate) (who *candidate, token uint64) {
	t.Helper()
	await(t, fmt.Sprintf("a leader after token %d", after), func() bool {
		for _, c := range all {
			if n := c.term(); n > after {
				who, token = c, n
				return true
			}
		}
		return false
	})
	return who, token
}

func (c *candidate) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// observer is a `holdfast elect` that tells who leads.
func (w *world) observer() (tokens func() []uint64) {
	w.t.Helper()
	cmd := exec.Command(os.Getenv(binaryEnv), "elect", "web", "-o", "json", "--endpoints", w.endpoints)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	var mu sync.Mutex
	var told []uint64
	go func() {
		for d := json.NewDecoder(out); ; {
			var l struct {
				Token uint64 `json:"token"`
			}
			if d.Decode(&l) != nil {
				return
			}
			mu.Lock()
			told = append(told, l.Token)
			mu.Unlock()
		}
	}()
	w.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGINT) //nolint:errcheck // it is waited for
		cmd.Wait()                         //nolint:errcheck // the code says it
		equal(w.t, "exit code of an observer", cmd.ProcessState.ExitCode(), 130)
	})
	return func() []uint64 {
		mu.Lock()
		defer mu.Unlock()
		return append([]uint64(nil), told...)
	}
}

// TestElect has three candidates over whatever happens to leaders and servers. The kernel
// judges that no two commands run at the same time.
func TestElect(t *testing.T) {
	w := startDev(t)
	primary, pid := w.primary(0)
	if r := w.try("", "elect", "web", "--leader"); r.code != 1 || r.out != "web: no leader\n" {
		t.Errorf("nobody leads: %+v", r)
	}
	told := w.observer()
	await(t, "the observer", func() bool { return len(told()) == 1 })
	a, b := w.candidate("a"), w.candidate("b")
	leader, token := awaitTerm(t, 0, a, b)
	other := map[*candidate]*candidate{a: b, b: a}
	var terms []uint64
	next := func(what string, after uint64, all ...*candidate) {
		t.Helper()
		terms = append(terms, token)
		began := time.Now()
		leader, token = awaitTerm(t, after, all...)
		t.Logf("%s: token %d leads after %v", what, token, time.Since(began).Round(time.Millisecond))
		await(t, "the observer", func() bool { all := told(); return all[len(all)-1] == token })
	}

	r := w.try("", "elect", "web", "--leader", "-o", "json")
	if r.code != 0 || !strings.Contains(r.out, fmt.Sprintf(`"token":%d,`, token)) || !strings.Contains(r.out, `"value":"`) {
		t.Errorf("the leader: %+v", r)
	}

	// Whatever happens to one server, the leader stays.
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		id, next := w.primary(primary)
		if r := w.try("", "elect", "web", "--leader", "-o", "json"); !strings.Contains(r.out, fmt.Sprintf(`"token":%d,`, token)) {
			t.Errorf("the leader behind a failover: %+v", r)
		}
		if s == syscall.SIGSTOP {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		primary, pid = id, next
	}

	// The guard ends the command of a leader that is stopped, before the other one leads.
	stopped := leader
	stopped.signal(syscall.SIGSTOP)
	next("SIGSTOP", token, other[leader])
	stopped.signal(syscall.SIGCONT)
	leader.signal(syscall.SIGTERM)
	gone := leader
	next("SIGTERM", token, stopped)
	gone.cmd.Wait() //nolint:errcheck // the code says it
	equal(t, "exit code behind SIGTERM", gone.cmd.ProcessState.ExitCode(), 4)

	once := w.candidate("once", "--once", "-o", "json")
	leader.signal(syscall.SIGKILL)
	next("SIGKILL", token, once)
	w.do("", "break", "web", "--reason", "a test") // nobody else waits: who breaks a lock does not wait for its holder
	once.cmd.Wait()                                //nolint:errcheck // the code says it
	equal(t, "exit code of a loss with --once", once.cmd.ProcessState.ExitCode(), 3)
	if !strings.Contains(once.errs.String(), `"status":"LEASE_EXPIRED"`) || !strings.Contains(once.errs.String(), `"broken"`) {
		t.Errorf("it said %s", &once.errs)
	}
	await(t, "nobody", func() bool { all := told(); return all[len(all)-1] == 0 })
}
