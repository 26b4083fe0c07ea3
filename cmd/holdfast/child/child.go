// SPDX-License-Identifier: Apache-2.0

// Package child runs a command under a lease: in a process group of its own,
// which is ended, whole, before the lease could expire (Linux).
//
// When the lease is lost or was not renewed in time, the group gets SIGTERM, and
// SIGKILL after a grace period but never later than a margin before the last
// known end of the lease. This goes by local timers and asks nobody.
//
// When the command has ended by itself, what is left of its group is ended too:
// nothing of it may run on when the lock is free.
//
// Against the death of this process there are two means. The kernel kills the
// command itself (PR_SET_PDEATHSIG); and a guard, a second small process, kills
// the group when this process is gone, or is stopped until the lease runs out.
//
// Not covered: processes that leave the group (setsid), a SIGKILL of the guard
// too, and processes that the kernel cannot end because they hang in a filesystem.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Lease is what the command runs under.
type Lease interface {
	// Context ends when the lease is lost; its cause says why.
	Context() context.Context
	// Remaining is how long the lease lasts at least, counted without asking anybody.
	Remaining() time.Duration
}

// Options say what to run and how.
type Options struct {
	// Path is the executable, Args the arguments with the name in front.
	Path string
	Args []string
	Env  []string
	// Stdin, Stdout and Stderr are given to the command as they are.
	Stdin, Stdout, Stderr *os.File
	// Grace lies between SIGTERM and SIGKILL.
	Grace time.Duration
	// Margin is how long before the end of the lease the group must be dead.
	Margin time.Duration
	// Signals are passed on to the group.
	Signals <-chan os.Signal
	// Guard is the command of the guard process, which must call Guard; nil = none.
	Guard []string
	// Say tells the user what happens to the command.
	Say func(text string)
}

// Result is how the command ended.
type Result struct {
	// Code is its exit code, 128+n when signal n ended it.
	Code int
	// Lost is why the group was ended before its time; nil if it was not.
	Lost error
}

// ErrNotRenewed says that the lease was close to its end and nobody renewed it.
var ErrNotRenewed = errors.New("the lease could not be renewed in time")

// StartError says that the command could not be started.
type StartError struct {
	Path string
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

// Unwrap is the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// The exit codes of shells for a command that could not be started.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// Code is the exit code that a shell would give.
func (e *StartError) Code() int {
	if errors.Is(e.Err, os.ErrNotExist) {
		return CodeNotFound
	}
	return CodeNotExecutable
}

// Run runs the command to its end.
func Run(lease Lease, opt Options) (Result, error) {
	// The guard is there first: it learns of the group as soon as there is one.
	guard, err := startGuard(opt.Guard)
	if err != nil {
		return Result{}, err
	}
	defer guard.dismiss()
	r := &runner{lease: lease, opt: opt, guard: guard}
	if err := r.extend(); err != nil {
		return Result{}, err
	}
	g, err := start(opt)
	if err != nil {
		return Result{}, &StartError{Path: opt.Path, Err: err}
	}
	r.group = g
	guard.watch(g.pid)
	code := r.wait()
	r.sweep()
	return Result{Code: code, Lost: r.lost}, nil
}

type runner struct {
	lease Lease
	opt   Options
	guard *guard
	group *group
	lost  error
	// killAt is when the group dies whatever happens; zero until SIGTERM was sent for a loss.
	killAt time.Time
	killed bool
}

// tick is how often the lease is looked at: timers alone would not notice that
// the machine slept.
func (r *runner) tick() time.Duration {
	return max(min(r.opt.Margin/4, 250*time.Millisecond), 5*time.Millisecond)
}

// wait passes signals on and watches the lease until the command has ended.
func (r *runner) wait() int {
	t := time.NewTicker(r.tick())
	defer t.Stop()
	gone := r.lease.Context().Done()
	for {
		select {
		case code := <-r.group.ended:
			return code
		case s := <-r.opt.Signals:
			if s, ok := s.(syscall.Signal); ok {
				r.group.signal(s)
			}
		case <-gone:
			gone = nil
			r.end(context.Cause(r.lease.Context()))
		case <-t.C:
			r.look()
		}
	}
}

// look ends the group when its time has come.
func (r *runner) look() {
	left := r.lease.Remaining()
	if r.lost == nil {
		if left <= r.opt.Grace+r.opt.Margin {
			r.end(ErrNotRenewed)
		} else if err := r.extend(); err != nil {
			r.end(err)
		}
	}
	if r.lost != nil && !r.killed && (left <= r.opt.Margin || !time.Now().Before(r.killAt)) {
		r.killed = true
		r.say("the command did not end by itself: SIGKILL")
		r.group.signal(syscall.SIGKILL)
	}
}

// end asks the group to end.
func (r *runner) end(why error) {
	if r.lost != nil {
		return
	}
	r.lost = why
	// What was the end of the lease stays the end, even of one that is known to be lost.
	r.killAt = time.Now().Add(min(r.opt.Grace, max(r.lease.Remaining()-r.opt.Margin, 0)))
	r.say(fmt.Sprintf("lock lost: %v: ending the command", why))
	r.group.signal(syscall.SIGTERM)
	r.group.signal(syscall.SIGCONT) // a stopped process would not hear it
	r.look()
}

// extend tells the guard how long the lease lasts now. It kills a little later
// than this process would.
func (r *runner) extend() error {
	return r.guard.extend(r.lease.Remaining() - r.opt.Margin/2)
}

func (r *runner) say(text string) {
	if r.opt.Say != nil {
		r.opt.Say(text)
	}
}

// sweep ends what the command left behind in its group: politely first, while
// the lease lasts.
func (r *runner) sweep() {
	if !r.group.alive() {
		return
	}
	r.say("the command has ended, processes of its group have not: ending them")
	if r.lost == nil {
		r.group.signal(syscall.SIGTERM)
		r.group.signal(syscall.SIGCONT)
		r.killAt = time.Now().Add(min(r.opt.Grace, max(r.lease.Remaining()-r.opt.Margin, 0)))
	}
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for r.group.alive() {
		if left := r.lease.Remaining(); left <= r.opt.Margin || !time.Now().Before(r.killAt) {
			r.group.signal(syscall.SIGKILL)
		} else if r.lost == nil {
			r.extend() //nolint:errcheck // the group is ending anyway
		}
		<-t.C
	}
}
