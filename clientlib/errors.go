// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

var (
	// ErrClosed is the error of calls after Close.
	ErrClosed = errors.New("the client is closed")
	// ErrReleased is the cause of a Lock's Context after Release, and the error of
	// what is asked of the Lock then.
	ErrReleased = errors.New("the lock was released")
	// ErrLost is what every *LostError is.
	ErrLost = errors.New("the lock is lost")
)

// HeldError says that a lock is held and the caller did not want to wait. It is
// wire.ErrHeld.
type HeldError struct {
	Lock cluster.LockName
	// Holder is nil if only others wait.
	Holder *wire.Holder
	// QueueLength is how many wait.
	QueueLength int
}

// Error tells who holds the lock.
func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q is held", e.Lock)
	if h := e.Holder; h != nil {
		fmt.Fprintf(&b, " by client %s", h.Client)
		if h.Host != "" {
			fmt.Fprintf(&b, " on %s, process %d (%s)", h.Host, h.PID, h.Command)
		}
		fmt.Fprintf(&b, " under token %d", h.Token)
	}
	if e.QueueLength > 0 {
		fmt.Fprintf(&b, ", %d waiting", e.QueueLength)
	}
	b.WriteString(": try later, or wait for it")
	return b.String()
}

// Unwrap is wire.ErrHeld.
func (e *HeldError) Unwrap() error { return wire.ErrHeld }

// CallError is a call that did not succeed.
type CallError struct {
	Op   string // "acquire", "append", …
	Lock cluster.LockName
	// Client and Request name the request for Outcome; 0 for calls that change nothing.
	Client  cluster.ClientID
	Request cluster.RequestID
	// Unknown says that the request may have been executed. The error is wire.ErrUnknown then.
	Unknown bool
	// Tries counts the attempts.
	Tries int
	// Err is the refusal (a *wire.Error), the context's error, or the last failure.
	Err error
}

// Error tells what to do.
func (e *CallError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Lock != "" {
		fmt.Fprintf(&b, " %q", e.Lock)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Tries > 1 {
		fmt.Fprintf(&b, " (%d tries)", e.Tries)
	}
	if e.Unknown {
		fmt.Fprintf(&b, "; it may have been executed: ask for the outcome of request %d of client %s", e.Request, e.Client)
	} else if a := advice(e.Err, e.Client); a != "" {
		b.WriteString(": " + a)
	}
	return b.String()
}

// Unwrap is Err, and wire.ErrUnknown if that is so.
func (e *CallError) Unwrap() []error {
	if e.Unknown {
		return []error{e.Err, wire.ErrUnknown}
	}
	return []error{e.Err}
}

// advice says what to do about an error of a client's request, where its own text does not.
func advice(err error, client cluster.ClientID) string {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return ""
	}
	switch e.Status {
	case cluster.StatusWaitTimeout:
		return "wait longer, or see who holds the lock"
	case cluster.StatusInvalidToken, cluster.StatusLeaseExpired:
		return "acquire the lock again"
	case cluster.StatusFileQuarantined:
		return "rotate the file to go on"
	case cluster.StatusFileSealed:
		return "rotate the file to go on"
	case cluster.StatusStaleRequest:
		if client != "" && !client.Opened() {
			return "the service remembers only newer requests of this name; if a process on another host used it before, " +
				"that host's clock was ahead of this one's: set the clock, or Options.FirstRequest"
		}
		return "open a new client"
	case cluster.StatusTooLarge:
		return fmt.Sprintf("append at most %d bytes at a time", cluster.MaxAppend)
	case cluster.StatusStorageUnavailable:
		return "look at the volume with status"
	default:
		return ""
	}
}
