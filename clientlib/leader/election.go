// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/clientlib"
)

var (
	// ErrResigned is the cause of a Leadership's Context after Resign, and the error of its
	// methods then.
	ErrResigned = errors.New("this leader has resigned")
	// ErrNotRenewed is the cause of a Leadership's Context when no renewal was answered in
	// time and the lease could end Options.Grace later.
	ErrNotRenewed = errors.New("leadership could not be renewed in time: stop at once, the lease is about to end")
	// ErrAsked is the cause of a Leadership's Context when an operator asks the leader to release
	// the lock (holdfast break --grace): stop, and resign, before the grant is ended.
	ErrAsked = errors.New("this leader is asked to let go")
	// ErrNoLeader is the error of Election.Leader when there is no leader.
	ErrNoLeader = errors.New("nobody leads")
)

// OverrunExitCode is the exit code of a process that the default of Options.OnOverrun ends.
const OverrunExitCode = 3

// Options say how an election is held. Every candidate should use the same TTL.
type Options struct {
	// TTL is how long the others wait, at most, when a leader dies or is cut off. 0 =
	// clientlib.DefaultTTL.
	TTL time.Duration
	// Grace is how long the work of a leader may take to stop: the Context of a
	// Leadership ends that long before the lease could. 0 = a quarter of TTL; at most half
	// of it, for a renewal must have its time.
	Grace time.Duration
	// Value is what a leader publishes of itself in Run, say the address where it serves: UTF-8,
	// at most clientlib.MaxMetadata bytes.
	Value string
	// OnOverrun is called when leadership was lost and the function of Run has not returned at
	// Leadership.Deadline: by then another candidate may lead. nil writes a line to the standard
	// error and ends the process with OverrunExitCode. If it returns, Run waits for the function.
	OnOverrun func(*Leadership)
	// Log gets what happens in Run. nil = silent.
	Log *slog.Logger
}

// Election is one election, as a candidate or an observer sees it. It is safe for use
// by several goroutines, each of them a candidate of its own.
type Election struct {
	c    *clientlib.Client
	name clientlib.LockName
	o    Options
}

// NewElection makes an election. It does not use the network; the error is about the options. The
// leader is the holder of the lock of this name: elections and locks share their names.
func NewElection(c *clientlib.Client, name clientlib.LockName, o Options) (*Election, error) {
	if err := name.Validate(); err != nil {
		return nil, fmt.Errorf("election options: %w", err)
	}
	if o.TTL == 0 {
		o.TTL = clientlib.DefaultTTL
	}
	if o.TTL < time.Millisecond || o.TTL%time.Millisecond != 0 {
		return nil, fmt.Errorf("election options: TTL %v: use whole milliseconds", o.TTL)
	}
	if o.Grace == 0 {
		o.Grace = o.TTL / 4
	}
	if o.Grace < 0 || o.Grace > o.TTL/2 {
		return nil, fmt.Errorf("election options: grace %v: use at most half of the TTL %v, for a renewal must have its time", o.Grace, o.TTL)
	}
	if err := checkValue(o.Value); err != nil {
		return nil, fmt.Errorf("election options: %w", err)
	}
	if o.OnOverrun == nil {
		o.OnOverrun = exit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Election{c: c, name: name, o: o}, nil
}

func checkValue(s string) error {
	if len(s) > clientlib.MaxMetadata || !utf8.ValidString(s) {
		return fmt.Errorf("the value has %d bytes or is not UTF-8: use at most %d", len(s), clientlib.MaxMetadata)
	}
	return nil
}

// exit is the default of Options.OnOverrun. Deferred calls do not run: they would be
// work without a lease, too.
func exit(l *Leadership) {
	fmt.Fprintf(os.Stderr, "holdfast: leadership of %q (token %d) is over, and what it did has not stopped within its grace: this process ends: %v\n",
		l.Name(), l.Token(), context.Cause(l.Context()))
	os.Exit(OverrunExitCode)
}

// Name returns the name of the election, and of its lock.
func (e *Election) Name() clientlib.LockName { return e.name }

// Campaign waits in the queue until this candidate leads, and publishes value from then on. It
// waits as long as ctx lasts, over failovers too; a candidate that is cut off for longer than TTL
// goes to the end of the queue. If no primary answers for the client's Budget, it returns an
// error. The Leadership does not end with ctx.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	l, err := e.campaign(ctx, context.WithoutCancel(ctx), value)
	if err == nil {
		l.start()
	}
	return l, err
}

// campaign makes a Leadership that is not watched yet. Its Context is a child of parent.
func (e *Election) campaign(ctx, parent context.Context, value string) (*Leadership, error) {
	if err := checkValue(value); err != nil {
		return nil, fmt.Errorf("campaign for %q: %w", e.name, err)
	}
	o := clientlib.AcquireOptions{TTL: e.o.TTL, Wait: clientlib.Forever, Metadata: value}
	lock, err := e.c.Acquire(ctx, e.name, o)
	for errors.Is(err, clientlib.ErrWaitTimeout) {
		// A candidate that is not heard for a TTL loses its place: back to the end of the queue.
		lock, err = e.c.Acquire(ctx, e.name, o)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	return newLeadership(e, lock, parent), nil
}
