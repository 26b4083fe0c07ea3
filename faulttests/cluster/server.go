// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	killSignal = syscall.SIGKILL
	termSignal = syscall.SIGTERM
)

// Server is one server, with the processes that run under its ID one after the other. Its
// methods are safe for use by several goroutines, but only one should start and stop it.
type Server struct {
	Member hf.Member
	// Binary is that of its next process; "" = the cluster's.
	Binary string

	c   *Cluster
	log string // file that all its processes append to

	// host is the supervisor that runs the processes of a server of a cell; nil = the test does.
	host *Server
	cell hf.CellID

	mu struct {
		sync.Mutex
		process *process // the newest, nil before the first
		paused  bool
	}
}

// process is one run of the binary.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // once done is closed
}

// Start begins a process. It does not wait until the server serves.
func (s *Server) Start() {
	s.c.t.Helper()
	if _, err := s.start(); err != nil {
		s.c.t.Errorf("start server %d: %v", s.Member.ID, err)
	}
}

func (s *Server) start() (*process, error) {
	p, err := s.launch(s.log)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.process, s.mu.paused = p, false
	return p, nil
}

// launch runs a process under this server's ID and appends what it says to a file.
func (s *Server) launch(log string, args ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the process has its own descriptor
	what := "--volume"
	if s.c.site {
		what = "--site"
	}
	all := slices.Concat([]string{"server", "--id", fmt.Sprint(s.Member.ID), what, s.c.DirOf(s.Member.ID), "--data-dir", "none"}, s.c.opt.Args, args)
	if s.c.opt.Net != nil {
		// By their addresses they are on three hosts, but one kernel has the disk.
		all = append(all, "--unsafe-filesystem")
	}
	cmd := s.c.Command(all...)
	if s.Binary != "" {
		cmd.Path = s.Binary
	}
	if s.c.opt.Net != nil {
		cmd = s.c.opt.Net.enter(s.Member.ID, cmd)
	}
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	fmt.Fprintf(f, "--- test: process %d begins at %s\n", cmd.Process.Pid, time.Now().Format(time.StampMilli))
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Second runs another process under the same ID, with further arguments, until it
// ends by itself, and returns its output. It is killed at the limit; then
// running is true.
func (s *Server) Second(limit time.Duration, args ...string) (said string, running bool, err error) {
	log := filepath.Join(s.c.t.TempDir(), "second.log")
	p, err := s.launch(log, args...)
	if err != nil {
		return "", false, err
	}
	select {
	case <-p.done:
	case <-time.After(limit):
		running = true
		_ = p.cmd.Process.Kill() // it may have ended this moment
		<-p.done
	}
	b, err := os.ReadFile(log)
	if err != nil {
		return "", running, err
	}
	return string(b), running, p.err
}

// Kill ends the process as kill -9 does, and waits until it is gone.
func (s *Server) Kill() {
	pid := s.PID()
	s.signal(killSignal)
	s.await()
	if s.host != nil {
		s.gone(pid)
		s.setPaused(false)
	}
}

// Stop freezes the process, and waits until it is. The signal goes to one thread, and on a busy
// machine the others run on until that one had its turn. If it hangs in a system call, it is not
// waited for any longer.
func (s *Server) Stop() {
	s.setPaused(true)
	s.signal(syscall.SIGSTOP)
	Poll(s.c.t.Context(), 2*time.Second, s.frozen)
}

// frozen reports whether a thread of the process has stopped: from then on none of them runs, though
// one may still be within a system call.
func (s *Server) frozen() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.PID()))
	return err == nil && slices.ContainsFunc(threads, func(name string) bool {
		b, err := os.ReadFile(name)
		_, state, _ := strings.Cut(string(b), ") ")
		return err == nil && (strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t"))
	})
}

// Cont continues a frozen process.
func (s *Server) Cont() {
	s.signal(syscall.SIGCONT)
	s.setPaused(false)
}

// Term sends SIGTERM to the process, and waits until it is gone. If that takes too long, it
// fails the test and kills the process.
func (s *Server) Term() {
	s.c.t.Helper()
	s.signal(termSignal)
	s.awaitTerm()
}

func (s *Server) awaitTerm() {
	s.c.t.Helper()
	p := s.current()
	if p == nil {
		return
	}
	select {
	case <-p.done:
	case <-time.After(Patience):
		s.c.t.Errorf("server %d still runs %v after SIGTERM", s.Member.ID, Patience)
		s.Kill()
	}
}

// Running reports whether there is a process, frozen or not.
func (s *Server) Running() bool {
	if s.host != nil {
		return s.PID() != 0
	}
	p := s.current()
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID returns the process ID of the newest process, 0 before the first; of a supervised server, 0 while there is none.
func (s *Server) PID() int {
	if s.host != nil {
		if p := s.child(); p != nil {
			return p.Pid
		}
		return 0
	}
	if p := s.current(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// Ended waits until the process ends by itself, and returns its error from Wait; false at the limit.
func (s *Server) Ended(limit time.Duration) (error, bool) {
	p := s.current()
	if p == nil {
		return nil, true
	}
	select {
	case <-p.done:
		return p.err, true
	case <-time.After(limit):
		return nil, false
	}
}

// Log returns the output of all processes of the server.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail returns the last n lines of the log.
func (s *Server) Tail(n int) string {
	lines := strings.Split(strings.TrimRight(s.Log(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// ResidentBytes returns the resident memory of the process now.
func (s *Server) ResidentBytes() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("no VmRSS for process %d", s.PID())
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.process
}

func (s *Server) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = paused
}

// answers reports whether the process runs and is not frozen. Of a supervised one it says only the latter: to ask costs less than to look for it.
func (s *Server) answers() bool {
	s.mu.Lock()
	paused := s.mu.paused
	s.mu.Unlock()
	return !paused && (s.host != nil || s.Running())
}

// signal is harmless where the process has ended: Go does not reuse its ID.
func (s *Server) signal(sig syscall.Signal) {
	if s.host != nil {
		s.signalChild(sig)
		return
	}
	if p := s.current(); p != nil {
		_ = p.cmd.Process.Signal(sig)
	}
}

func (s *Server) await() {
	if p := s.current(); p != nil {
		<-p.done
	}
}
