// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

var (
	// ErrClosed is the error of calls after Close.
	ErrClosed = errors.New("the client is closed")
	// ErrReleased is the cause of a Lock's Context after Release, and the error of its methods
	// then.
	ErrReleased = errors.New("the lock was released")
	// ErrLost is wrapped by every *LostError.
	ErrLost = errors.New("the lock is lost")
	// ErrNotAcquired is in the error of every Acquire that did not get the lock because others hold it or wait for it: a
	// *HeldError, one with ErrWaitTimeout, or one with the cause of a context that ended while the request waited. An
	// outage, a refusal or a wrong argument is something else.
	ErrNotAcquired = errors.New("the lock was not acquired: others hold it or wait for it")
)

// HeldError is the error of an Acquire that did not want to wait for a lock which others hold or
// wait for. It wraps ErrHeld.
type HeldError struct {
	Lock LockName
	// Holder is the holder, the oldest of several; nil if the lock is free and others wait.
	Holder *HolderInfo
	// QueueLength is how many requests wait.
	QueueLength int
}

// Error names the holder and its process.
func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q is held", e.Lock)
	if h := e.Holder; h != nil {
		fmt.Fprintf(&b, " by %s, under token %d", h.Person(), h.Token)
	}
	if e.QueueLength > 0 {
		fmt.Fprintf(&b, ", %d waiting", e.QueueLength)
	}
	b.WriteString(": try later, or wait for it")
	return b.String()
}

// Unwrap returns ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Is reports whether target is ErrNotAcquired.
func (e *HeldError) Is(target error) bool { return target == ErrNotAcquired }

// CallError is the error of a call that was refused, or got no answer in time.
type CallError struct {
	Op   string // "acquire", "append", …
	Lock LockName
	// Client and Request name the request for Outcome; 0 for calls that change nothing.
	Client  ClientID
	Request RequestID
	// Unknown reports whether the request may have been executed; the error then wraps
	// ErrUnknown.
	Unknown bool
	// Tries counts the attempts.
	Tries int
	// Err is the refusal, a *ServiceError, or the cause of the context's end, or the last
	// failure.
	Err error

	// notAcquired is set where an Acquire has waited in vain.
	notAcquired bool
}

// Error says what failed and what to do now.
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
	if e.Unknown && e.notAcquired {
		fmt.Fprintf(&b, "; the lock was not acquired, and request %d of client %s is cancelled", e.Request, e.Client)
	} else if e.Unknown {
		fmt.Fprintf(&b, "; it may have been executed: ask for the outcome of request %d of client %s", e.Request, e.Client)
	} else if a := advice(e.Err, e.Client); a != "" {
		b.WriteString(": " + a)
	}
	return b.String()
}

// Unwrap returns Err, and ErrUnknown if Unknown is set. That of an Acquire that has waited in vain returns ErrNotAcquired,
// too.
func (e *CallError) Unwrap() []error {
	all := []error{e.Err}
	if e.Unknown {
		all = append(all, ErrUnknown)
	}
	if e.notAcquired {
		all = append(all, ErrNotAcquired)
	}
	return all
}

// advice returns what to do about an error of a client's request, "" where the text of the error
// says it.
func advice(err error, client ClientID) string {
	e, ok := errors.AsType[*ServiceError](err)
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
	case cluster.StatusLockChanged:
		return "read anew what the lock protects: acquire it without AfterToken"
	case cluster.StatusOtherLimit:
		return "use the Limit of the others, or another lock"
	case cluster.StatusTooLarge:
		return fmt.Sprintf("append at most %d bytes at a time", MaxAppend)
	case cluster.StatusStorageUnavailable:
		return "look at the volume with status"
	default:
		return ""
	}
}

// OffsetError is the error of an append with At to a file that does not end there: nothing was
// appended. It wraps ErrOffsetMismatch.
type OffsetError struct {
	File FileName
	// Expected is the offset of At, and End where the next append goes, in bytes.
	Expected, End int64
	// Generation is the one that ends there.
	Generation Generation
	// Err is the *CallError with the refusal.
	Err error
}

// Error says where the file ends.
func (e *OffsetError) Error() string {
	return fmt.Sprintf("append to %q at offset %d: it ends at %d (generation %d), and nothing was appended: read what came in between",
		e.File, e.Expected, e.End, e.Generation)
}

// Unwrap returns Err, which wraps ErrOffsetMismatch.
func (e *OffsetError) Unwrap() error { return e.Err }

// RotatedError is what a Follower's Read returns, once, where a file was rotated: the generation
// before was read to its end, and the next Read goes on with this one.
type RotatedError struct {
	File FileName
	// Generation begins now, at offset 0.
	Generation Generation
}

// Error names the generation that begins.
func (e *RotatedError) Error() string {
	return fmt.Sprintf("%q was rotated: generation %d begins", e.File, e.Generation)
}

// offsetError makes an *OffsetError of the refusal of an append with At. It returns nil for any
// other error, and where an earlier try may have been executed.
func offsetError(file FileName, at *int64, err error) *OffsetError {
	if e, ok := errors.AsType[*CallError](err); ok && e.Unknown {
		return nil
	}
	refusal, ok := errors.AsType[*ServiceError](err)
	if !ok || refusal.Status != cluster.StatusOffsetMismatch || refusal.Receipt == nil || at == nil {
		return nil
	}
	return &OffsetError{File: file, Expected: *at, End: refusal.Receipt.Offset, Generation: refusal.Receipt.Generation, Err: err}
}
