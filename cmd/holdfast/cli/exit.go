// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// The exit codes; rootHelp explains them.
const (
	exitOK          = 0
	exitHeld        = 1
	exitUsage       = 2
	exitLost        = 3
	exitUnavailable = 4
	exitFailed      = 5
	// exitPlanned is for recover without --yes: it printed its plan and changed nothing.
	exitPlanned = 6
	// exitRestart is for config reload: a setting was changed that needs a restart of the server.
	exitRestart = 6
	// exitInterrupted is a shell's code for a command that SIGINT ended.
	exitInterrupted = 130
	// exitFindings is for errors found by fsck and doctor. The codes of status are in health.go.
	exitFindings = 1
	// exitStuck is for a server whose former term hangs in the filesystem (EX_SOFTWARE).
	exitStuck = 70
)

// usageError reports a mistake on the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// conflictError reports that a lock was not acquired, with the exit code of -E.
type conflictError struct {
	err  error
	code int
}

func (e *conflictError) Error() string { return e.err.Error() }
func (e *conflictError) Unwrap() error { return e.err }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if e, ok := errors.AsType[*conflictError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if e, ok := errors.AsType[*child.StartError](err); ok {
		return e.Code()
	}
	if status, ok := wire.StatusOf(err); ok {
		return statusCode(status)
	}
	if _, ok := errors.AsType[*noServerError](err); ok || unanswered(err) {
		return exitUnavailable
	}
	return exitFailed
}

// unanswered reports whether a call found no server.
func unanswered(err error) bool {
	_, ok := errors.AsType[*clientlib.CallError](err) // callers handle errors with a status first
	return ok || errors.Is(err, remote.ErrNoServer)
}

func statusCode(s cluster.Status) int {
	switch s {
	case cluster.StatusOK:
		return exitOK
	case cluster.StatusHeld, cluster.StatusWaitTimeout:
		return exitHeld
	case cluster.StatusInvalidArgument, cluster.StatusTooLarge:
		return exitUsage
	case cluster.StatusInvalidToken, cluster.StatusLeaseExpired:
		return exitLost
	}
	if retry.OfStatus(s, false).Final() {
		return exitFailed
	}
	return exitUnavailable
}

// advice returns what the user can do about an error; "" if the error's text has it.
func (a *app) advice(err error) string {
	if _, ok := errors.AsType[*withinError](err); ok {
		return "use the lock as it is, its token is in HOLDFAST_TOKEN; or take another lock"
	}
	if _, ok := errors.AsType[*noServerError](err); ok {
		return "start it, or see in its log why not; a server that uses another --data-dir, or none, takes SIGHUP"
	}
	if e, ok := errors.AsType[*streamError](err); ok && (e.bytes > 0 || e.doubtful > 0) {
		return e.advice()
	}
	status, ok := wire.StatusOf(err)
	switch {
	case !ok && unanswered(err):
		return "name the servers with --endpoints or HOLDFAST_ENDPOINTS, and see that they run"
	case !ok:
		return ""
	}
	switch status {
	case cluster.StatusHeld:
		return "wait for it with --wait 1m, or see who holds it with holdfast show LOCK"
	case cluster.StatusWaitTimeout:
		return "wait longer, or see who holds it with holdfast show LOCK"
	case cluster.StatusInvalidToken, cluster.StatusLeaseExpired:
		if a.command == "break" {
			return "see who holds it, and under which token, with holdfast show LOCK"
		}
		if _, ok := errors.AsType[*proofError](err); ok {
			return "the holder gets a new one with holdfast proof LOCK --token N"
		}
		return "see who holds it, and under which token, with holdfast show LOCK; if the token was yours, the lock was lost: acquire it again and begin anew"
	case cluster.StatusSecondaryMode, cluster.StatusServerFencing, cluster.StatusNoQuorum:
		return "no server takes requests now: see holdfast status, and try again"
	case cluster.StatusStorageUnavailable:
		return "the volume or the file takes no writes: look for a full disk or a lost mount, see holdfast status"
	case cluster.StatusFileQuarantined:
		return "look at the file, then go on in a new one with holdfast file rotate FILE --lock LOCK"
	case cluster.StatusOffsetMismatch:
		if a.command != "append" {
			return "begin at the end of the file, or before it"
		}
		return "read what was appended in between, then append at the end of the file (offset)"
	case cluster.StatusFileSealed:
		return "go on in a new file with holdfast file rotate FILE --lock LOCK"
	case cluster.StatusUnknown:
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Committed {
			return "" // the error's text has it
		}
		id := a.request
		if id.client == "" {
			return "see what became of it with holdfast show LOCK or holdfast status, then try again"
		}
		return fmt.Sprintf("repeat the command with --client-id %s --request-id %d: it executes at most once; or ask holdfast outcome %s %d", id.client, cmp.Or(a.first, id.request), id.client, id.request)
	case cluster.StatusUnauthenticated:
		return "set HOLDFAST_KEY to a key, or use the path of the volume as the endpoint, as the user that the servers run as"
	case cluster.StatusLimited:
		return "see the limits with holdfast whoami, and of a lock's prefix with holdfast can acquire LOCK; release something, or have an administrator raise the quota"
	case cluster.StatusTooLarge:
		return "append in pieces with --split"
	case cluster.StatusStaleRequest:
		return "it is no longer known whether it was executed before: if this is a repeat, check first; a new request needs a higher --request-id, or another --client-id"
	default:
		return ""
	}
}
