// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Held is a value of Injection.Enter so long that only Detach ends it; then the call is made.
const Held = 10 * time.Minute

// Injection is a fault in one kind of system call of a server. strace injects it into the
// unmodified binary.
type Injection struct {
	// Call is the name of the system call, like "fdatasync".
	Call string
	// Path is the file or directory on which the call must operate, through any
	// descriptor or name. It need not exist yet. "" = any.
	Path string
	// Nth is the number of the call to fail, from 1, counted since the trace began. Each
	// thread counts for itself, so that it may be a later call of the process.
	Nth int
	// Always injects the fault into every later call too.
	Always bool

	// Error, like "EIO", is returned instead of making the call.
	Error string
	// Signal is sent when the call is made. SIGKILL prevents the call; SIGSTOP takes
	// effect right after it.
	Signal syscall.Signal
	// Enter delays the call, Exit its return. Other threads continue.
	Enter, Exit time.Duration
}

func (i Injection) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:when=%d", i.Call, i.Nth)
	if i.Always {
		b.WriteByte('+')
	}
	if i.Error != "" {
		fmt.Fprintf(&b, ":error=%s", i.Error)
	}
	if i.Signal != 0 {
		fmt.Fprintf(&b, ":signal=%d", int(i.Signal))
	}
	if i.Enter > 0 {
		fmt.Fprintf(&b, ":delay_enter=%d", i.Enter.Microseconds())
	}
	if i.Exit > 0 {
		fmt.Fprintf(&b, ":delay_exit=%d", i.Exit.Microseconds())
	}
	return b.String()
}

// Trace is an strace that is attached to a server's process. The process is not
// its child, and lives on when the trace ends.
type Trace struct {
	s      *Server
	inject Injection
	file   string
	cmd    *exec.Cmd
	said   bytes.Buffer // by strace itself; read once done is closed
	done   chan struct{}
}

// NeedStrace skips the test if processes cannot be traced here.
func NeedStrace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace: ", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to trace the servers")
	}
}

// tracedCalls are seen in a trace beside the struck one: what writes to a file.
const tracedCalls = "pwrite64,fdatasync,fsync"

// Trace attaches strace to the server's process, and returns when it watches
// every thread. It is detached when the test ends, at the latest.
func (s *Server) Trace(inject Injection) *Trace {
	t := s.c.t
	t.Helper()
	f, err := os.CreateTemp(s.c.logs, fmt.Sprintf("trace-server-%d-*.log", s.Member.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // strace opens it again
	x := &Trace{s: s, inject: inject, file: f.Name(), done: make(chan struct{})}
	args := []string{
		"-f", "-qq", "-ttt", "-y", "-s", "8", "-o", x.file, "-p", fmt.Sprint(s.PID()),
		"-e", "trace=" + inject.Call + "," + tracedCalls, "-e", "inject=" + inject.String(),
	}
	if inject.Path != "" {
		args = append(args, "-P", inject.Path)
	}
	x.cmd = exec.Command("strace", args...)
	x.cmd.SysProcAttr = processAttr()
	x.cmd.Stderr = &x.said
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(x.done)
		_ = x.cmd.Wait() // it is killed, or ends with the server
	}()
	t.Cleanup(x.Detach)
	watches := Poll(t.Context(), Patience, func() bool { return x.ended() || traced(s.PID()) })
	if _, _, struck := x.Struck(); !struck && (!watches || x.ended()) { // a server that was struck dead ends its strace
		x.Detach()
		t.Fatalf("strace does not watch server %d: %s", s.Member.ID, x.said.String())
	}
	return x
}

// Server returns the traced server.
func (x *Trace) Server() *Server { return x.s }

func (x *Trace) ended() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// traced reports whether every thread of a process has a tracer.
func traced(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		if err == nil && bytes.Contains(b, []byte("\nTracerPid:\t0\n")) {
			return false
		}
	}
	return true
}

// Detach ends the trace. A call that is held is made at once, also by a process
// that is stopped, which stays so.
func (x *Trace) Detach() {
	_ = x.cmd.Process.Kill() // it may have ended with the server
	<-x.done
}

// Call is one system call in a trace.
type Call struct {
	Name   string
	Thread int
	At     time.Time
	// Text is the line of strace.
	Text string
}

// entry is where strace begins to tell of a call.
var entry = regexp.MustCompile(`(?m)^(\d+) +(\d+)\.(\d{6}) (\w+)\(.*$`)

// Calls returns all calls so far, in order of their beginning.
func (x *Trace) Calls() (all []Call) {
	b, err := os.ReadFile(x.file)
	if err != nil {
		x.s.c.t.Errorf("read a trace: %v", err)
	}
	for _, m := range entry.FindAllStringSubmatch(string(b), -1) {
		var n [3]int64
		for i := range n {
			n[i], _ = strconv.ParseInt(m[i+1], 10, 64) // they are digits
		}
		all = append(all, Call{Name: m[4], Thread: int(n[0]), At: time.Unix(n[1], n[2]*1000), Text: m[0]})
	}
	return all
}

// Struck returns the first call with the injected fault, and its index among Calls;
// false while there is none.
func (x *Trace) Struck() (c Call, place int, ok bool) {
	count := map[int]int{}
	for i, c := range x.Calls() {
		if c.Name != x.inject.Call {
			continue
		}
		count[c.Thread]++
		if count[c.Thread] == x.inject.Nth {
			return c, i, true
		}
	}
	return c, 0, false
}

// Await waits until the fault was injected into a call, and fails the test at the limit.
func (x *Trace) Await(limit time.Duration) (c Call) {
	x.s.c.t.Helper()
	Await(x.s.c.t, limit, fmt.Sprintf("server %d to call %s", x.s.Member.ID, x.inject), func() (ok bool) {
		c, _, ok = x.Struck()
		return ok
	})
	return c
}
