// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The sentinels, one for each status but OK. An *Error is the one of its status.
var (
	ErrInternal           = errors.New("internal failure, nothing was done")
	ErrInvalidToken       = errors.New("the token is not the live one of this lock")
	ErrPermissionDenied   = errors.New("permission denied")
	ErrSecondaryMode      = errors.New("this server is not the primary")
	ErrServerFencing      = errors.New("this server is becoming primary")
	ErrHeld               = errors.New("the lock is held")
	ErrWaitTimeout        = errors.New("the wait ended before the lock came")
	ErrLeaseExpired       = errors.New("the lease has ended")
	ErrCancelled          = errors.New("the request was cancelled")
	ErrNoQuorum           = errors.New("the primary hears no majority")
	ErrStaleRequest       = errors.New("the request is below the client's low-water mark or its client is forgotten")
	ErrInvalidArgument    = errors.New("invalid argument")
	ErrTooLarge           = errors.New("too much data for one append")
	ErrStorageUnavailable = errors.New("the storage cannot take this now")
	ErrFileQuarantined    = errors.New("the protected file is quarantined")
	ErrOffsetMismatch     = errors.New("the file does not end at the expected offset")
	ErrFileSealed         = errors.New("the protected file is sealed")
	ErrUnknown            = errors.New("not known whether it was done: ask again with the same request ID")
)

// row is one status in all its encodings.
type row struct {
	status cluster.Status
	err    error
	// grpc is OK where the refusal is a value.
	grpc codes.Code
	http int
	text string
}

// statusTable is the one table. Row i is that of status i+1.
//
// HTTP codes that tools retry by themselves (408, 429, 5xx) are kept to what is
// worth a retry.
var statusTable = [...]row{
	{cluster.StatusOK, nil, codes.OK, http.StatusOK, "SUCCESS"},
	{cluster.StatusError, ErrInternal, codes.OK, http.StatusInternalServerError, "ERROR"},
	{cluster.StatusInvalidToken, ErrInvalidToken, codes.OK, http.StatusPreconditionFailed, "INVALID_TOKEN"},
	{cluster.StatusPermissionDenied, ErrPermissionDenied, codes.OK, http.StatusForbidden, "PERMISSION_DENIED"},
	{cluster.StatusSecondaryMode, ErrSecondaryMode, codes.Unavailable, http.StatusServiceUnavailable, "SECONDARY_MODE"},
	{cluster.StatusServerFencing, ErrServerFencing, codes.Unavailable, http.StatusServiceUnavailable, "SERVER_FENCING"},
	{cluster.StatusHeld, ErrHeld, codes.OK, http.StatusLocked, "FAIL"},
	{cluster.StatusWaitTimeout, ErrWaitTimeout, codes.OK, http.StatusLocked, "TIMEOUT"},
	{cluster.StatusLeaseExpired, ErrLeaseExpired, codes.OK, http.StatusGone, "EXPIRED"},
	{cluster.StatusCancelled, ErrCancelled, codes.OK, http.StatusConflict, "CANCELLED"},
	{cluster.StatusNoQuorum, ErrNoQuorum, codes.Unavailable, http.StatusServiceUnavailable, "NO_QUORUM"},
	{cluster.StatusStaleRequest, ErrStaleRequest, codes.OK, http.StatusConflict, "STALE_REQUEST"},
	{cluster.StatusInvalidArgument, ErrInvalidArgument, codes.OK, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{cluster.StatusTooLarge, ErrTooLarge, codes.OK, http.StatusRequestEntityTooLarge, "TOO_LARGE"},
	{cluster.StatusStorageUnavailable, ErrStorageUnavailable, codes.Unavailable, http.StatusServiceUnavailable, "STORAGE_UNAVAILABLE"},
	{cluster.StatusFileQuarantined, ErrFileQuarantined, codes.OK, http.StatusConflict, "FILE_QUARANTINED"},
	{cluster.StatusUnknown, ErrUnknown, codes.OK, http.StatusGatewayTimeout, "UNKNOWN"},
	{cluster.StatusOffsetMismatch, ErrOffsetMismatch, codes.OK, http.StatusPreconditionFailed, "OFFSET_MISMATCH"},
	{cluster.StatusFileSealed, ErrFileSealed, codes.OK, http.StatusConflict, "FILE_SEALED"},
}

// find returns the row of a status. What this binary does not know, a newer
// server's word or no answer at all, is UNKNOWN: the safe thing to believe.
func find(s cluster.Status) *row {
	if i := int(s) - 1; i >= 0 && i < len(statusTable) {
		return &statusTable[i]
	}
	return &statusTable[cluster.StatusUnknown-1]
}

// Err is the sentinel of a status, nil for OK.
func Err(s cluster.Status) error { return find(s).err }

// GRPCCode is codes.OK for a refusal that is a value, else the code of the error.
func GRPCCode(s cluster.Status) codes.Code { return find(s).grpc }

// HTTPCode is the code of the answer over HTTP.
func HTTPCode(s cluster.Status) int { return find(s).http }

// Text is the word of the status in a line of text.
func Text(s cluster.Status) string { return find(s).text }

// ParseText is the inverse of Text.
func ParseText(word string) (cluster.Status, bool) {
	for i := range statusTable {
		if statusTable[i].text == word {
			return statusTable[i].status, true
		}
	}
	return cluster.StatusNone, false
}

// StatusOf is the status of an error: that of an *Error or a sentinel in its
// chain, OK for nil. Any other error has none.
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
