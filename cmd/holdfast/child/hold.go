// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// HoldOptions say for what a lease is held, and what happens when it is lost.
type HoldOptions struct {
	// File is what keeps the lease: it is held until no process has it open.
	File *OpenFile
	// OnLost is what a loss does to the processes that have the file; "" = Terminate.
	OnLost OnLost
	// Grace and Margin are those of Options.
	Grace, Margin time.Duration
	// Guard is the command of the guard process, which must call Guard; nil = none.
	Guard []string
	// Say prints for the user what happens.
	Say func(text string)
	// Begin is called when everything is in place; its error ends Hold. It must not wait for long:
	// the guard knows of no renewal meanwhile.
	Begin func() error
	// Release ends Hold while processes have the file.
	Release <-chan os.Signal
}

// holdPoll is how often Hold looks whether the file was closed.
const holdPoll = 50 * time.Millisecond

// Hold returns when no process has the file any more, or when Release says so. If the lease is lost
// before, or was not renewed in time, the processes that have the file are ended as Run ends a
// command; lost has the reason then. When this process is killed, or is stopped until the lease runs
// out, the guard kills them.
func Hold(lease Lease, opt HoldOptions) (lost, err error) {
	r := &runner{
		lease: lease, file: opt.File, speaker: newSpeaker(opt.Say),
		opt: Options{OnLost: opt.OnLost, Grace: opt.Grace, Margin: opt.Margin},
	}
	defer r.speaker.end()
	if opt.OnLost == Leave {
		opt.Guard = nil // there is nothing to guard
	}
	guard, err := startGuard(opt.Guard, opt.File.file)
	if err != nil {
		return nil, err
	}
	defer guard.dismiss()
	r.guard = guard
	if guard != nil {
		opt.File.Spare(guard.cmd.Process.Pid)
	}
	if err := errors.Join(guard.open(), r.extend()); err != nil {
		return nil, err
	}
	opt.File.onUser = guard.know
	opt.File.find()                     // while its users are still this user's
	if err := opt.Begin(); err != nil { // nothing begins without a guard
		return nil, err
	}
	r.hold(opt.Release)
	return r.lost, nil
}

// hold watches the lease and the file.
func (r *runner) hold(release <-chan os.Signal) {
	closing := time.NewTicker(holdPoll)
	defer closing.Stop()
	t := time.NewTicker(r.tick())
	defer t.Stop()
	gone := r.lease.Context().Done()
	for {
		select {
		case <-release:
			return
		case <-closing.C:
			if r.file.closed() {
				return
			}
		case <-gone:
			gone = nil
			r.end(context.Cause(r.lease.Context()))
		case <-t.C:
			r.look()
		}
		if r.lost != nil && r.opt.OnLost == Leave {
			return
		}
	}
}

// descriptorOfGuard is the number of the first descriptor that os/exec passes on.
const descriptorOfGuard = 3

// open tells the guard that its tree is the processes that have the file, but for this one.
func (g *guard) open() error { return g.tell("file", os.Getpid()) }

// know tells the guard of a process that has the file.
func (g *guard) know(p process) {
	g.tell("user", p.pid, p.start) //nolint:errcheck // the next extend notices
}

// opened is the guard's side of open.
func opened(keeper int) *OpenFile {
	unix.CloseOnExec(descriptorOfGuard)
	o, err := NewOpenFile(os.NewFile(descriptorOfGuard, "the lock file"))
	if err != nil {
		return nil
	}
	o.Spare(keeper)
	if err := o.As(Guards); err != nil {
		return nil
	}
	return o
}

// subject names for people what is under the lease.
func (r *runner) subject() string {
	if r.file == nil {
		return "the command"
	}
	live, _ := r.file.find()
	return fmt.Sprintf("each process that has the lock file open (%s)", list(live))
}
