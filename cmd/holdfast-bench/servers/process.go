// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// endWait is how long a process may take to end after SIGTERM.
const endWait = 10 * time.Second

// Process is a server process, of Holdfast or of a peer. It ends when this program does.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// Command describes a process to start.
type Command struct {
	Name string
	Args []string
	Dir  string
	// Env is added to that of this program.
	Env []string
	// Log is the file to which its output is appended.
	Log string
	// User is the user that runs it; nil = the one that runs this program.
	User *syscall.Credential
}

// Start starts a process.
func (c Command) Start() (*Process, error) {
	f, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the process has its own descriptor
	p := &Process{name: c.Name, log: c.Log, cmd: c.prepare(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait() //nolint:errcheck // the log says more
	}()
	return p, nil
}

// Run runs a command to its end.
func (c Command) Run() error {
	if out, err := c.prepare().CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// prepare puts it into a group of its own, so that Ctrl-C ends this program first and
// this program ends it.
func (c Command) prepare() *exec.Cmd {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: c.User}
	return cmd
}

// PID returns its process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended returns a channel that is closed when it has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Signal sends a signal; it returns nil for a process that has ended.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends it as kill -9 does, and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Stop ends the processes, all at the same time, with a signal that asks them to end. It kills
// those that do not end in time, and returns an error for them.
func Stop(all []*Process, wish syscall.Signal) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Signal(wish), p.Signal(syscall.SIGCONT))
	}
	late := time.After(endWait)
	for _, p := range all {
		select {
		case <-p.done:
		case <-late:
			errs = append(errs, fmt.Errorf("%s (pid %d) did not end within %v and was killed: see %s", p.name, p.PID(), endWait, p.log))
			errs = append(errs, p.Kill())
			late = time.After(0) // for the others, too
		}
	}
	return errors.Join(errs...)
}

// Tail returns the end of its log, for an error message.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// host is an address of loopback from which no client connects: connections leave
// from 127.0.0.1, so a port here stays free while its server is down.
const host = "127.0.0.2"

// FreeAddresses returns n addresses on loopback whose ports the kernel chose. They are not
// reserved until the servers listen.
func FreeAddresses(n int) ([]string, error) {
	var all []string
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close() //nolint:errcheck // it has no connections
		}
	}()
	for range n {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			return nil, fmt.Errorf("find a free port on loopback: %w", err)
		}
		open = append(open, l)
		all = append(all, l.Addr().String())
	}
	return all, nil
}
