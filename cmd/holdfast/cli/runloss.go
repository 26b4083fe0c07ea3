// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// lossFlags are the flags for what `holdfast run` does when its lock is in jeopardy, asked for,
// or lost.
type lossFlags struct {
	grace  time.Duration
	warn   string
	onLost string
	onAsk  string
	code   int
}

func (f *lossFlags) flags(fl *pflag.FlagSet) {
	fl.DurationVar(&f.grace, "grace", 0, "between SIGTERM and SIGKILL when the lock is lost (default a quarter of --ttl)")
	fl.StringVar(&f.warn, "warn", "", "a signal for the command's group when the lock is in jeopardy or asked for, like USR1 or HUP")
	fl.StringVar(&f.onAsk, "on-ask", "", "another signal for when an operator asks for the lock (holdfast break --grace), like TERM")
	fl.StringVar(&f.onLost, "on-lost", string(child.Terminate), "what a loss does to the command: terminate, kill or leave")
	fl.IntVar(&f.code, "lost-exit-code", exitLost, "the exit code when the lock was lost")
}

// check fills in the defaults and refuses values that cannot work with the TTL.
func (f *lossFlags) check(ttl, margin time.Duration) error {
	if f.grace == 0 {
		f.grace = ttl / 4
	}
	if f.grace < 0 || f.grace > ttl/2 {
		return usagef("--grace %v: use at most half of --ttl %v: a renewal must have its time before the command is ended", f.grace, ttl)
	}
	if !slices.Contains([]child.OnLost{child.Terminate, child.Kill, child.Leave}, child.OnLost(f.onLost)) {
		return usagef("--on-lost %q: use terminate, kill or leave", f.onLost)
	}
	if f.code < 0 || f.code > 255 {
		return usagef("--lost-exit-code %d: use 0 to 255", f.code)
	}
	if f.onAsk != "" && (f.asked() == 0 || f.asked() == syscall.SIGKILL || f.asked() == syscall.SIGSTOP) {
		return usagef("--on-ask %q: use a signal that the command can catch, like TERM", f.onAsk)
	}
	if f.warn == "" {
		return nil
	}
	if s := f.warning(); s == 0 || s == syscall.SIGKILL || s == syscall.SIGSTOP {
		return usagef("--warn %q: use a signal that the command can catch, like USR1 or HUP", f.warn)
	}
	// A lock is in jeopardy when half of its lease has passed.
	if longest := ttl*2/5 - margin; child.OnLost(f.onLost) == child.Terminate && f.grace > longest {
		return usagef("--grace %v: use at most %v of --ttl %v with --warn: a warning must leave time before the command is ended", f.grace, longest, ttl)
	}
	return nil
}

// warning returns the signal of --warn, 0 for none.
func (f *lossFlags) warning() syscall.Signal { return signalOf(f.warn) }

// asked returns the signal of --on-ask, 0 for none.
func (f *lossFlags) asked() syscall.Signal { return signalOf(f.onAsk) }

func signalOf(name string) syscall.Signal {
	return unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
}

// lossResult is the JSON form of a loss.
type lossResult struct {
	// Reason is a clientlib.LossReason, or "unguarded": the command was ended because its
	// guard had died or hung.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Actor broke the lock, with Why as the reason; "" if it was not broken.
	Actor string `json:"actor,omitempty"`
	Why   string `json:"why,omitempty"`
	// LSN and Epoch are those of the record that ended the grant, Successor is the token of the
	// next grant; 0 = not known.
	LSN       cluster.LSN   `json:"lsn,omitempty"`
	Epoch     cluster.Epoch `json:"epoch,omitempty"`
	Successor cluster.Token `json:"successor,omitempty"`
	// LastAppend is the last append under the token, by any client; nil = none is known.
	LastAppend *wire.Receipt `json:"last_append,omitempty"`
	// Final is true if it is known that no append came after LastAppend.
	Final bool `json:"last_append_final,omitempty"`
}

const reasonUnguarded = "unguarded"

// lossWait bounds the query how a grant ended: a client that is cut off gets no answer.
const lossWait = time.Second

// loss returns why the command was ended, with what the service knows of the end of the grant.
func (r *running) loss(lock *clientlib.Lock, why error) *lossResult {
	known := lossOf(lock, why)
	out := &lossResult{Reason: string(known.Reason), Message: why.Error()}
	if !known.Final {
		ctx, cancel := context.WithTimeout(context.Background(), lossWait)
		defer cancel()
		if full, err := lock.Loss(ctx); err == nil && full.LSN != 0 {
			known = full
		}
	}
	// An expired lease, or one that was released then, does not explain why it was given up.
	if end := known.Reason; end == clientlib.LossBroken || end == clientlib.LossCleared || out.Reason == string(clientlib.LossRefused) {
		out.Reason = string(end)
	}
	out.Actor, out.Why = known.Actor, known.Message
	out.LSN, out.Epoch, out.Successor, out.Final = known.LSN, known.Epoch, known.Successor, known.Final
	if a := known.LastAppend; a != nil {
		out.LastAppend = &wire.Receipt{
			File: a.File, Offset: a.Offset, Length: a.Length, CRC32C: a.CRC32C, LSN: a.LSN, Token: a.Token, Epoch: a.Epoch, Generation: a.Generation,
		}
	}
	return out
}

// lossOf returns what this process knows of the loss.
func lossOf(lock *clientlib.Lock, why error) *clientlib.LostError {
	if e, ok := errors.AsType[*clientlib.LostError](why); ok {
		return e
	}
	e := &clientlib.LostError{Lock: lock.Name(), Token: lock.Token(), Reason: reasonUnguarded}
	if errors.Is(why, child.ErrNotRenewed) {
		if e.Reason = clientlib.LossNotRenewed; lock.State().Final {
			e.Reason = clientlib.LossHeldTooLong
		}
	}
	return e
}

// text describes the loss for people, "" if it adds nothing to what was printed before.
func (l *lossResult) text() string {
	if l.LSN == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the grant ended at LSN %d (%s)", l.LSN, l.Reason)
	if l.Actor != "" {
		fmt.Fprintf(&b, ", broken by %s: %s", l.Actor, l.Why)
	}
	if l.Successor != 0 {
		fmt.Fprintf(&b, "; the next one has token %d", l.Successor)
	}
	switch a := l.LastAppend; {
	case a != nil:
		fmt.Fprintf(&b, "; the last append under it is %d bytes at offset %d of %s, LSN %d", a.Length, a.Offset, a.File, a.LSN)
	case l.Final:
		b.WriteString("; nothing was appended under it")
	}
	return b.String()
}
