// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The sentinels, one for each status except OK. errors.Is finds that of an *Error's status.
var (
	ErrInternal           = errors.New("internal failure, nothing was done")
	ErrInvalidToken       = errors.New("the token is not the live one of this lock")
	ErrPermissionDenied   = errors.New("permission denied")
	ErrUnauthenticated    = errors.New("no valid credential")
	ErrSecondaryMode      = errors.New("this server is not the primary")
	ErrServerFencing      = errors.New("this server is becoming primary")
	ErrHeld               = errors.New("the lock is held")
	ErrWaitTimeout        = errors.New("the wait ended before the lock came")
	ErrLeaseExpired       = errors.New("the lease has ended")
	ErrCancelled          = errors.New("the request was cancelled")
	ErrNoQuorum           = errors.New("the primary lost contact with a majority")
	ErrStaleRequest       = errors.New("the request is below the client's low-water mark or its client is forgotten")
	ErrInvalidArgument    = errors.New("invalid argument")
	ErrTooLarge           = errors.New("too much data for one append")
	ErrStorageUnavailable = errors.New("the storage cannot take this now")
	ErrFileQuarantined    = errors.New("the protected file is quarantined")
	ErrOffsetMismatch     = errors.New("the file does not end at the expected offset")
	ErrFileSealed         = errors.New("the protected file is sealed")
	ErrLimited            = errors.New("a quota does not leave room for this")
	ErrAlreadyDone        = errors.New("it is done already")
	ErrLockChanged        = errors.New("others may have had the lock since")
	ErrOtherLimit         = errors.New("the lock is used with another limit")
	ErrWrongCell          = errors.New("another cell of the site has this")
	ErrUnknown            = errors.New("not known whether it was done: ask again with the same request ID")
)

// row is one status in all its encodings.
type row struct {
	status cluster.Status
	err    error
	// grpc is codes.OK if the refusal is a value.
	grpc codes.Code
	http int
}

// statusTable is the one table. Row i is that of status i+1.
//
// HTTP codes that tools retry by themselves (408, 429, 5xx) are kept to what is
// worth a retry.
var statusTable = [...]row{
	{cluster.StatusOK, nil, codes.OK, http.StatusOK},
	{cluster.StatusError, ErrInternal, codes.OK, http.StatusInternalServerError},
	{cluster.StatusInvalidToken, ErrInvalidToken, codes.OK, http.StatusPreconditionFailed},
	{cluster.StatusPermissionDenied, ErrPermissionDenied, codes.OK, http.StatusForbidden},
	{cluster.StatusSecondaryMode, ErrSecondaryMode, codes.Unavailable, http.StatusServiceUnavailable},
	{cluster.StatusServerFencing, ErrServerFencing, codes.Unavailable, http.StatusServiceUnavailable},
	{cluster.StatusHeld, ErrHeld, codes.OK, http.StatusLocked},
	{cluster.StatusWaitTimeout, ErrWaitTimeout, codes.OK, http.StatusLocked},
	{cluster.StatusLeaseExpired, ErrLeaseExpired, codes.OK, http.StatusGone},
	{cluster.StatusCancelled, ErrCancelled, codes.OK, http.StatusConflict},
	{cluster.StatusNoQuorum, ErrNoQuorum, codes.Unavailable, http.StatusServiceUnavailable},
	{cluster.StatusStaleRequest, ErrStaleRequest, codes.OK, http.StatusConflict},
	{cluster.StatusInvalidArgument, ErrInvalidArgument, codes.OK, http.StatusBadRequest},
	{cluster.StatusTooLarge, ErrTooLarge, codes.OK, http.StatusRequestEntityTooLarge},
	{cluster.StatusStorageUnavailable, ErrStorageUnavailable, codes.Unavailable, http.StatusServiceUnavailable},
	{cluster.StatusFileQuarantined, ErrFileQuarantined, codes.OK, http.StatusConflict},
	{cluster.StatusUnknown, ErrUnknown, codes.OK, http.StatusGatewayTimeout},
	{cluster.StatusOffsetMismatch, ErrOffsetMismatch, codes.OK, http.StatusPreconditionFailed},
	{cluster.StatusFileSealed, ErrFileSealed, codes.OK, http.StatusConflict},
	{cluster.StatusUnauthenticated, ErrUnauthenticated, codes.Unauthenticated, http.StatusUnauthorized},
	{cluster.StatusLimited, ErrLimited, codes.ResourceExhausted, http.StatusTooManyRequests},
	{cluster.StatusLockChanged, ErrLockChanged, codes.OK, http.StatusPreconditionFailed},
	{cluster.StatusAlreadyDone, ErrAlreadyDone, codes.OK, http.StatusConflict},
	{cluster.StatusOtherLimit, ErrOtherLimit, codes.OK, http.StatusConflict},
	{cluster.StatusWrongCell, ErrWrongCell, codes.OK, http.StatusMisdirectedRequest},
}

// find returns the row of a status. What this binary does not know, a newer server's
// status or none at all, is UNKNOWN: the safe assumption.
func find(s cluster.Status) *row {
	if i := int(s) - 1; i >= 0 && i < len(statusTable) {
		return &statusTable[i]
	}
	return &statusTable[cluster.StatusUnknown-1]
}

// Err returns the sentinel of a status, nil for OK.
func Err(s cluster.Status) error { return find(s).err }

// GRPCCode returns codes.OK for a refusal that is a value, else the code of the error.
func GRPCCode(s cluster.Status) codes.Code { return find(s).grpc }

// HTTPCode returns the status code of the answer over HTTP.
func HTTPCode(s cluster.Status) int { return find(s).http }

// StatusOf returns the status of an error: that of an *Error or a sentinel in its chain, OK
// for nil. It returns false for any other error.
func StatusOf(err error) (cluster.Status, bool) {
	if err == nil {
		return cluster.StatusOK, true
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status, true
	}
	for i := range statusTable[1:] {
		if r := &statusTable[i+1]; errors.Is(err, r.err) {
			return r.status, true
		}
	}
	return cluster.StatusNone, false
}
