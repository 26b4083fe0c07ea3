// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is a process group whose leader is the command. The kernel cannot give its number to
// other processes as long as the leader was not reaped.
type group struct {
	leader process
	ended  chan int
	mu     struct {
		sync.Mutex
		reaped bool
	}
}

// start forks the command. The thread that forks it also waits for it,
// because PR_SET_PDEATHSIG acts at the death of that thread. Orphans of the command become
// children of this process.
func start(opt Options) (*group, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	g := &group{ended: make(chan int, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		attr := &syscall.SysProcAttr{Setpgid: true}
		if opt.OnLost != Leave {
			attr.Pdeathsig = syscall.SIGKILL
		}
		tty := foreground(opt.Stdin)
		if tty {
			attr.Foreground, attr.Ctty = true, int(opt.Stdin.Fd())
		}
		pid, err := syscall.ForkExec(opt.Path, opt.Args, &syscall.ProcAttr{
			Env: opt.Env, Sys: attr,
			Files: []uintptr{opt.Stdin.Fd(), opt.Stdout.Fd(), opt.Stderr.Fd()},
		})
		if err == nil {
			g.leader, _ = readProcess(pid) // without /proc its start time is not known
			g.leader.pid = pid
		}
		started <- err
		if err == nil {
			code := g.wait(tty)
			if tty {
				takeTerminal(opt.Stdin)
			}
			g.ended <- code
		}
	}()
	return g, <-started
}

// wait waits for the leader. A command that was stopped from the terminal is
// continued: it would hold the lock and do nothing.
func (g *group) wait(tty bool) int {
	for {
		err := unix.Waitid(unix.P_PID, g.leader.pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		ws, changed, err := g.reap()
		switch {
		case err != nil:
			return 1 // another part of this process reaped it: there is none
		case !changed:
		case ws.Stopped():
			if tty && ws.StopSignal() == unix.SIGTSTP {
				g.signal(syscall.SIGCONT)
			}
		case ws.Signaled():
			return 128 + int(ws.Signal())
		case ws.Exited():
			return ws.ExitStatus()
		}
	}
}

// reap polls the state of the leader, and reaps it if it has ended. It excludes signal, so that
// no signal goes to its number afterwards.
func (g *group) reap() (ws unix.WaitStatus, changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pid, err := unix.Wait4(g.leader.pid, &ws, unix.WUNTRACED|unix.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return ws, false, nil
	}
	changed = pid != 0
	g.mu.reaped = err != nil || changed && !ws.Stopped()
	return ws, changed, err
}

// signal sends a signal to every process of the group, unless the leader was reaped.
func (g *group) signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.reaped {
		syscall.Kill(-g.leader.pid, s) //nolint:errcheck // ESRCH: all are gone
	}
}

// foreground reports whether in is the terminal of this process, and this process is in its
// foreground. Then the command must be in the foreground, or it could not read.
func foreground(in *os.File) bool {
	pgrp, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// takeTerminal brings this process back into the foreground.
func takeTerminal(in *os.File) {
	// A background process that takes the terminal would be stopped by SIGTTOU.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCSPGRP, unix.Getpgrp()) //nolint:errcheck // the terminal is gone
}
