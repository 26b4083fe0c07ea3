// SPDX-License-Identifier: Apache-2.0

// Package child runs a command under a lease, and ends the command and all its
// descendants before the lease could expire (Linux).
//
// When the lease is lost or was not renewed in time, the whole tree gets SIGTERM, and
// SIGKILL after a grace period but never later than a margin before the last
// known end of the lease. This depends on local timers only.
//
// The tree is the command's process group and all its descendants, including those that
// have left the group (setsid) or their parents (daemons): see tree. When the command
// ends by itself, the rest of its tree is ended too: nothing of it may continue to run
// when the lock is free.
//
// Hold does the same for a lease that is not that of a command: a shell has a file open, and the
// lease is held until no process has it open any more. The tree then is the processes that share
// the open file.
//
// Two mechanisms cover the death of this process. The kernel kills the
// command itself (PR_SET_PDEATHSIG); and a guard, a second small process, kills
// the tree when this process is gone, or is stopped until the lease runs out.
//
// Not covered are: orphans that have wiped or hidden their environment, if this process was
// killed, or had children before (as after exec in a shell with background jobs); and a
// SIGKILL of both this process and the guard. Processes of other users, and processes that
// hang in a filesystem, cannot be ended: Run waits for them and reports them through
// Options.Say.
package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Lease is the lease under which the command runs.
type Lease interface {
	// Context ends when the lease is lost; its cause says why.
	Context() context.Context
	// Remaining returns how long the lease lasts at least, counted locally.
	Remaining() time.Duration
	// Jeopardy returns why the lease was not renewed for long; nil if it is not in jeopardy.
	Jeopardy() error
	// Asked describes who asks the holder to release the lock, why and until when; "" if no
	// release is asked for.
	Asked() string
}

// OnLost is what happens to the command when the lease is lost.
type OnLost string

const (
	// Terminate sends SIGTERM, and SIGKILL after the grace period but before the lease ends.
	Terminate OnLost = "terminate"
	// Kill sends SIGKILL at once.
	Kill OnLost = "kill"
	// Leave does nothing. The command continues without the lease, also when this process dies.
	Leave OnLost = "leave"
)

// Options are the command to run and what to do with it.
type Options struct {
	// Path is the executable; Args are the arguments, the first being the command's name.
	Path string
	Args []string
	Env  []string
	// Stdin, Stdout and Stderr are given to the command as they are.
	Stdin, Stdout, Stderr *os.File
	// OnLost is what a loss of the lease does to the command; "" = Terminate.
	OnLost OnLost
	// Warn is sent to the command's group each time the lease comes into jeopardy,
	// and when the holder is asked to release the lock; 0 = no signal.
	Warn syscall.Signal
	// OnAsk is sent instead of Warn when the holder is asked to release the lock; 0 = Warn.
	OnAsk syscall.Signal
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// Margin is how long before the end of the lease the tree must be dead.
	Margin time.Duration
	// Signals are passed on to the group.
	Signals <-chan os.Signal
	// Guard is the command of the guard process, which must call Guard; nil = none.
	Guard []string
	// Say prints for the user what happens to the command; nil = nothing is printed. It may
	// block: only the end of Run waits for it, at most a second.
	Say func(text string)
}

// Result describes how the command ended.
type Result struct {
	// Code is its exit code, 128+n if signal n ended it.
	Code int
	// Lost is why the command was ended early, or continued without the lease; nil
	// if it had the lease to its end.
	Lost error
}

// ErrNotRenewed is the reason of a loss when the lease was close to its end and not renewed.
var ErrNotRenewed = errors.New("the lease could not be renewed in time")

// StartError reports that the command could not be started.
type StartError struct {
	Path string
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

// Unwrap returns the operating system's error.
func (e *StartError) Unwrap() error { return e.Err }

// The exit codes of shells for a command that could not be started.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// Code returns the exit code that a shell would use: 127 if there is no such command, else 126.
func (e *StartError) Code() int {
	if errors.Is(e.Err, os.ErrNotExist) {
		return CodeNotFound
	}
	return CodeNotExecutable
}

// Run runs the command to its end, and returns when its whole tree has ended. It considers every
// child that this process gets meanwhile a descendant of the command, so a process may run only
// one command at a time, and no other children. Returns a *StartError if the command could not be
// started; a loss of the lease is in Result.Lost.
func Run(lease Lease, opt Options) (Result, error) {
	if opt.OnLost == Leave {
		opt.Guard = nil // there is nothing to guard
	}
	r := &runner{lease: lease, opt: opt, tree: newTree(), speaker: newSpeaker(opt.Say)}
	defer r.speaker.end()
	// The guard is started first: it gets the group's number as soon as there is one.
	guard, err := startGuard(opt.Guard)
	if err != nil {
		return Result{}, err
	}
	defer guard.dismiss()
	r.guard = guard
	if guard != nil {
		r.tree.spare(guard.cmd.Process.Pid)
	}
	if err := errors.Join(guard.find(r.tree), r.extend()); err != nil {
		return Result{}, err
	}
	r.opt.Env = withMark(opt.Env, r.tree.mark)
	if r.group, err = start(r.opt); err != nil {
		return Result{}, &StartError{Path: opt.Path, Err: err}
	}
	guard.watch(r.group.leader)
	code := r.wait()
	r.sweep()
	return Result{Code: code, Lost: r.lost}, nil
}

type runner struct {
	lease Lease
	opt   Options
	guard *guard
	group *group
	tree  *tree
	// file is set in place of group and tree if its users are what the lease is for.
	file    *OpenFile
	speaker *speaker
	lost    error
	// asked is the latest text of Lease.Asked that was passed on to the command.
	asked string
	// warned is true while the lease is in jeopardy and the command was warned.
	warned bool
	// killAt is when the tree is killed at the latest; zero until it was asked to end. It
	// is killed earlier if the lease ends earlier.
	killAt time.Time
	killed bool
	// shot is true if the command itself was alive when SIGKILL was sent.
	shot bool
	// complainAt is when processes that survived SIGKILL are reported; zero until it was sent.
	complainAt time.Time
}

// grace returns how long the tree has between SIGTERM and SIGKILL.
func (r *runner) grace() time.Duration {
	if r.opt.OnLost == Kill && r.lost != nil {
		return 0
	}
	return r.opt.Grace
}

// reserve returns how long before its end the lease is given up.
func (r *runner) reserve() time.Duration {
	switch r.opt.OnLost {
	case Leave:
		return 0 // nothing has to be done in time
	case Kill:
		return r.opt.Margin
	default:
		return r.opt.Grace + r.opt.Margin
	}
}

// tick returns how often the lease is polled: timers alone would not notice that
// the machine slept.
func (r *runner) tick() time.Duration {
	return max(min(r.opt.Margin/4, 250*time.Millisecond), 5*time.Millisecond)
}

// wait passes signals on and watches the lease until the command has ended.
func (r *runner) wait() int {
	t := time.NewTicker(r.tick())
	defer t.Stop()
	// Orphans that have ended are reaped: a command may run, and leave some, for months.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	gone := r.lease.Context().Done()
	for {
		select {
		case code := <-r.group.ended:
			r.noteEnd(code)
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
			select {
			case <-ended:
				r.tree.reap(r.group.leader.pid)
			default:
			}
		}
	}
}

// find lists the running processes that are under the lease; see tree.find.
func (r *runner) find() (live []process, sure bool) {
	if r.file != nil {
		return r.file.find()
	}
	return r.tree.find(r.tree.wrapper)
}

// leader reads the process of the command itself.
func (r *runner) leader() (p process, found bool) {
	if r.group == nil {
		return process{}, false
	}
	return readProcess(r.group.leader.pid)
}

// signal sends a signal to the command's group, if there is one.
func (r *runner) signal(s syscall.Signal) {
	if r.group != nil {
		r.group.signal(s)
	}
}

// noteEnd records the command's end. If the guard killed the command, because this process was
// stopped or late, that is a loss of the lease, too.
func (r *runner) noteEnd(code int) {
	if r.guard == nil || r.shot || code != 128+int(syscall.SIGKILL) || r.lease.Remaining() > r.guardMargin() {
		return
	}
	if r.lost == nil {
		r.lost = cmp.Or(context.Cause(r.lease.Context()), ErrNotRenewed)
	}
	r.speaker.say(fmt.Sprintf("lock lost: %v: this process was late, its guard has killed the command", r.lost))
}

// look polls the lease: it warns the command, and ends it when it must end.
func (r *runner) look() {
	left := r.lease.Remaining()
	if r.lost == nil {
		r.warn(left)
		r.pass()
		if left <= r.reserve() {
			r.end(ErrNotRenewed)
		} else if err := r.extend(); err != nil {
			r.end(err)
		}
	}
	if r.lost == nil || r.opt.OnLost == Leave {
		return
	}
	if r.killed || left <= r.opt.Margin || !time.Now().Before(r.killAt) {
		r.kill()
	}
}

// warn sends the command the signal Warn when the lease comes into jeopardy, once each time.
func (r *runner) warn(left time.Duration) {
	why := r.lease.Jeopardy()
	switch {
	case why != nil && !r.warned:
		next := r.subject() + " is ended"
		if r.opt.OnLost == Leave {
			next = "it is lost"
		}
		in := max(left-r.reserve(), 0).Round(10 * time.Millisecond)
		r.speaker.say(fmt.Sprintf("lock in jeopardy: %v: %s in %v unless a renewal is answered", why, next, in))
		if r.opt.Warn != 0 {
			r.group.signal(r.opt.Warn)
		}
	case why == nil && r.warned:
		r.speaker.say("lock safe again: a renewal was answered")
	}
	r.warned = why != nil
}

// pass sends the command the signal OnAsk when a release is asked for, once for each request.
func (r *runner) pass() {
	asked := r.lease.Asked()
	if asked != "" && asked != r.asked {
		r.speaker.say(asked)
		if s := cmp.Or(r.opt.OnAsk, r.opt.Warn); s != 0 {
			r.group.signal(s)
			r.group.signal(syscall.SIGCONT) // a stopped command would not handle the signal
		}
	}
	r.asked = asked
}

// end begins to end the tree, for this reason.
func (r *runner) end(why error) {
	if r.lost != nil {
		return
	}
	r.lost = why
	if r.file != nil {
		r.file.As(Lost) //nolint:errcheck // the loss comes first
	}
	if r.opt.OnLost == Leave {
		r.speaker.say(fmt.Sprintf("lock lost: %v: %s runs on without it", why, r.subject()))
		return
	}
	r.speaker.say(fmt.Sprintf("lock lost: %v: ending %s", why, r.subject()))
	if found := r.ask(); !found && r.grace() > 0 { // there is no /proc
		r.signal(syscall.SIGTERM)
		r.signal(syscall.SIGCONT)
	}
	r.look()
}

// ask sends SIGTERM to all processes of the tree that it finds, and starts the grace period.
// found is false if it found none.
func (r *runner) ask() (found bool) {
	r.killAt = time.Now().Add(r.grace())
	if r.grace() == 0 {
		return false
	}
	live, _ := r.find()
	signalAll(live, syscall.SIGTERM, syscall.SIGCONT) // a stopped process would not handle it
	return len(live) > 0
}

// kill sends SIGKILL to all processes of the tree that it finds now. It is called repeatedly:
// one call may miss a process that forks.
func (r *runner) kill() {
	if p, found := r.leader(); found && !p.ended {
		if !r.shot && r.opt.OnLost != Kill {
			r.speaker.say("the command did not end by itself: SIGKILL")
		}
		r.shot = true
	}
	r.killed = true
	r.signal(syscall.SIGKILL) // before what takes longer
	live, _ := r.find()
	r.strike(live)
}

const (
	// complainAfter is how long a process may survive SIGKILL before it is reported,
	// complainEvery how often it is reported again.
	complainAfter = 2 * time.Second
	complainEvery = time.Minute
)

// strike sends SIGKILL to the remaining processes, and reports those that survive it: as long
// as they live the lock is held, and Run does not return.
func (r *runner) strike(live []process) {
	signalAll(live, syscall.SIGKILL)
	switch now := time.Now(); {
	case len(live) == 0:
	case r.complainAt.IsZero():
		r.complainAt = now.Add(complainAfter)
	case !now.Before(r.complainAt):
		r.complainAt = now.Add(complainEvery)
		whose := "which the command started"
		if r.file != nil {
			whose = "which has the lock file open"
		}
		r.speaker.say(fmt.Sprintf("SIGKILL has not ended %s, %s: it hangs in the kernel or belongs to another user; waiting for its end, with the lock if that is not lost", list(live), whose))
	}
}

// list formats processes for people.
func list(live []process) string {
	names := make([]string, len(live))
	for i, p := range live {
		names[i] = fmt.Sprintf("process %d (%s)", p.pid, p.name)
	}
	return strings.Join(names, ", ")
}

// guardMargin returns how long before the end of the lease the guard kills the tree: a little
// later than this process would.
func (r *runner) guardMargin() time.Duration { return r.opt.Margin / 2 }

// extend sends the guard the present end of the lease. It reads the clock first: if this
// process is stopped in between, the guard gets an earlier end, not a later one.
func (r *runner) extend() error {
	now := boottime()
	return r.guard.extend(now + r.lease.Remaining() - r.guardMargin())
}

const (
	// sweepFirst is the first pause between two polls of a sweep, sweepLast the longest.
	sweepFirst = 2 * time.Millisecond
	sweepLast  = 100 * time.Millisecond
)

// sweep ends the processes that the command left running: with SIGTERM first, while the lease
// lasts.
func (r *runner) sweep() {
	if r.lost != nil && r.opt.OnLost == Leave {
		return
	}
	asked := r.lost != nil
	pause := sweepFirst
	for empty := 0; ; pause = min(2*pause, sweepLast) {
		r.tree.reap(0)
		live, sure := r.tree.find(r.tree.wrapper)
		if len(live) > 0 {
			empty = 0
		} else if empty++; sure || empty > 1 {
			return
		}
		if gone := r.lease.Context(); r.opt.OnLost == Leave && gone.Err() != nil {
			r.lost = context.Cause(gone)
			return
		}
		left := min(r.lease.Remaining()-r.opt.Margin, time.Until(r.killAt))
		switch {
		case len(live) == 0:
		case !asked:
			asked = true
			r.speaker.say("the command has ended, processes that it started have not: ending them")
			r.ask()
		case left <= 0:
			if !r.killed {
				r.killed, pause = true, sweepFirst
			}
			r.strike(live)
		default:
			pause = min(pause, left)
		}
		if r.lost == nil {
			r.extend() //nolint:errcheck // the tree is ending anyway
		}
		<-time.After(max(pause, sweepFirst))
	}
}
