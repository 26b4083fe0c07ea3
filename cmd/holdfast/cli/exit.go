// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/why"
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
	// exitDone is for an acquire, or a run, of a slot that is done.
	exitDone = 7
	// exitStuck is for a server whose former term hangs in the filesystem (EX_SOFTWARE).
	exitStuck = 70
	// exitRemoved is for a server that was removed from its cluster (EX_CONFIG): to start it again is of no use.
	exitRemoved = 78
)

// usageError reports a mistake on the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// conflictError is an error with an exit code of its own, such as that of -E for a lock that was not acquired.
type conflictError struct {
	err  error
	code int
	// wait is how long the command waited for the lock; 0 for a single try.
	wait time.Duration
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
	if errors.Is(err, cluster.ErrRemoved) {
		return exitRemoved
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
	case cluster.StatusHeld, cluster.StatusWaitTimeout, cluster.StatusLockChanged:
		return exitHeld
	case cluster.StatusAlreadyDone:
		return exitDone
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
		return a.adviceOnFiles(err)
	}
	switch status {
	case cluster.StatusHeld, cluster.StatusWaitTimeout:
		return a.adviceToWait(status)
	case cluster.StatusLockChanged:
		return "do anew what rested on it: acquire it without --after-token, and with --remember for the next time"
	case cluster.StatusOtherLimit:
		return "use the --limit of the others, or wait until nobody has the lock: " + a.about("holdfast show", aLock, "holdfast ls")
	case cluster.StatusWrongCell:
		return "see which cell has a name with holdfast site status DIR --lock NAME"
	case cluster.StatusInvalidToken, cluster.StatusLeaseExpired:
		return a.adviceOnToken(err)
	case cluster.StatusSecondaryMode, cluster.StatusServerFencing, cluster.StatusNoQuorum:
		return "no server takes requests now: see holdfast status, and try again"
	case cluster.StatusStorageUnavailable:
		return "the volume or the file takes no writes: look for a full disk or a lost mount, see holdfast status"
	case cluster.StatusFileQuarantined:
		return "look at the file, then go on in a new one with " + a.rotation()
	case cluster.StatusOffsetMismatch:
		if a.command != "append" {
			return "begin at the end of the file, or before it"
		}
		return "read what was appended in between, then append at the end of the file (offset)"
	case cluster.StatusFileSealed:
		return "go on in a new file with " + a.rotation()
	case cluster.StatusInvalidArgument:
		if strings.Contains(err.Error(), "adopt_existing") { // the name of the flag elsewhere
			return "to take the file with what is in it, add --adopt-existing; else name another file"
		}
		return ""
	case cluster.StatusUnknown:
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Committed {
			return "" // the error's text has it
		}
		id := a.request
		if id.client == "" {
			return "see what became of it with " + a.about("holdfast show", aLock, "holdfast ls") + " or holdfast status, then try again"
		}
		return fmt.Sprintf("repeat the command with --client-id %s --request-id %d: it executes at most once; or ask holdfast outcome %s %d%s",
			id.client, cmp.Or(a.first, id.request), id.client, id.request, a.inCell())
	case cluster.StatusUnauthenticated:
		return "set HOLDFAST_KEY to a key, or use the path of the volume as the endpoint, as the user that the servers run as"
	case cluster.StatusLimited:
		return "see the limits with holdfast whoami" + a.about(" and holdfast can acquire", aLock, "") + "; release something, or have an administrator raise the quota"
	case cluster.StatusTooLarge:
		return "append in pieces with --split"
	case cluster.StatusStaleRequest:
		return "it is no longer known whether it was executed before: if this is a repeat, check first; a new request needs a higher --request-id, or another --client-id"
	default:
		return ""
	}
}

// adviceOnFiles is for what a command has not found on its own host, or may not use there; "" if the error says itself what to do.
func (a *app) adviceOnFiles(err error) string {
	_, start := errors.AsType[*child.StartError](err)
	switch text := err.Error(); {
	case start:
		return ""
	case errors.Is(err, fs.ErrPermission):
		return "try it as the user to whom that belongs: what is on a volume belongs to the user that the servers run as"
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(text, "open volume: ") && !strings.Contains(text, "mounted"):
		return "name the directory of a volume: is the share mounted? holdfast init makes a new volume"
	}
	return ""
}

// adviceToWait is for a lock that others hold.
func (a *app) adviceToWait(status cluster.Status) string {
	look := "see what to do with " + a.about("holdfast why", aLock, "holdfast ls")
	switch {
	case status == cluster.StatusWaitTimeout:
		return "wait longer, or " + look
	case a.command == "flock":
		return "wait for it with -w 60 in place of -n, or " + look
	}
	return "wait for it with --wait 1m, or " + look
}

// adviceOnToken is for a token that is not the live one of its lock.
func (a *app) adviceOnToken(err error) string {
	show := a.about("holdfast show", aLock, "holdfast ls")
	if a.command == "break" {
		return "see who holds it, and under which token, with " + show
	}
	if _, ok := errors.AsType[*proofError](err); ok {
		return "its holder gets a new proof with " + a.about("holdfast proof", aLock, "holdfast proof") + ` --token "$TOKEN"`
	}
	if errors.Is(err, clientlib.ErrLost) { // it says itself what to do
		return "see who holds it now with " + show
	}
	return "see who holds it, and under which token, with " + show + "; if the token was yours, the lock was lost, and others may have had it since: acquire it again, and do anew what you did under it"
}

// rotation is the command that goes on in a new file.
func (a *app) rotation() string {
	file, lock := a.subjects[aFile], a.subjects[aLock]
	if file == "" || lock == "" {
		return "holdfast file rotate; holdfast file ls has the file and its lock"
	}
	return fmt.Sprintf("holdfast file rotate %s --lock %s", why.Word(file), why.Word(lock))
}
