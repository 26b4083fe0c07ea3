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

// group is a process group whose leader is the command. Its number cannot be
// given to strangers as long as the leader was not reaped.
type group struct {
	leader process
	ended  chan int
	mu     struct {
		sync.Mutex
		reaped bool
	}
}

// start forks the command. It is waited for on the thread that forked it,
// because PR_SET_PDEATHSIG means the death of that thread. Orphans of the command become
// our children.
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
			g.leader, _ = readProcess(pid) // without /proc its start is not known
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
			return 1 // somebody else reaped it: nothing in this process does
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

// reap takes note of what has become of the leader, if anything has. No signal is on its
// way to its number then.
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

// signal goes to every process of the group, as long as its number is its own.
func (g *group) signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.reaped {
		syscall.Kill(-g.leader.pid, s) //nolint:errcheck // ESRCH: all are gone
	}
}

// foreground says that in is our terminal and that we are in its foreground. Then
// the command must be, or it could not read.
func foreground(in *os.File) bool {
	pgrp, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// takeTerminal brings this process back into the foreground.
func takeTerminal(in *os.File) {
	// Who is in the background and takes the terminal is stopped by SIGTTOU.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCSPGRP, unix.Getpgrp()) //nolint:errcheck // the terminal is gone
}
