// SPDX-License-Identifier: Apache-2.0

package cluster

// Status is the result of a request. Statuses are numbered for ever, because they cross the
// wire and are part of receipts: append only.
type Status uint8

// The statuses of Holdfast.
const (
	// StatusNone is the zero value: no answer yet.
	StatusNone Status = 0
	// StatusOK: the request was executed.
	StatusOK Status = 1
	// StatusError: an internal failure that left nothing done.
	StatusError Status = 2
	// StatusInvalidToken: the token is not the live one of its lock.
	StatusInvalidToken Status = 3
	// StatusPermissionDenied: the caller may not do this.
	StatusPermissionDenied Status = 4
	// StatusSecondaryMode: this server is not the primary; the answer names the primary if it is known.
	StatusSecondaryMode Status = 5
	// StatusServerFencing: this server is becoming primary; retry soon.
	StatusServerFencing Status = 6
	// StatusHeld: the lock is held, or others wait for it, and the caller did not want to wait.
	StatusHeld Status = 7
	// StatusWaitTimeout: the wait ended before the lock came.
	StatusWaitTimeout Status = 8
	// StatusLeaseExpired: the lease of this grant has ended.
	StatusLeaseExpired Status = 9
	// StatusCancelled: the request was cancelled and will never execute.
	StatusCancelled Status = 10
	// StatusNoQuorum: the primary does not hear a majority and admits nothing.
	StatusNoQuorum Status = 11
	// StatusStaleRequest: the request ID is below the client's low-water mark or its client is forgotten; it was not executed now.
	StatusStaleRequest Status = 12
	// StatusInvalidArgument: the request itself is wrong; repeating it is useless.
	StatusInvalidArgument Status = 13
	// StatusTooLarge: the data is over MaxAppend.
	StatusTooLarge Status = 14
	// StatusStorageUnavailable: the volume or the file cannot take this now; nothing was done.
	StatusStorageUnavailable Status = 15
	// StatusFileQuarantined: the protected file is quarantined; rotate it to go on.
	StatusFileQuarantined Status = 16
	// StatusUnknown: the term ended while the request was in flight: ask again with the same request ID.
	StatusUnknown Status = 17
	// StatusOffsetMismatch: the file does not end at the offset that the append expected; the answer names its end.
	StatusOffsetMismatch Status = 18
	// StatusFileSealed: nothing is appended to this generation of the file any more; rotate it to go on.
	StatusFileSealed Status = 19
	// StatusUnauthenticated: the credential is missing, wrong, expired or revoked.
	StatusUnauthenticated Status = 20
	// StatusLimited: a quota does not leave room for this now; nothing was done. A rate names when to ask again, a count does not.
	StatusLimited Status = 21
	// StatusLockChanged: somebody was granted the lock after the token that the request names, or it is not known any more that nobody was.
	StatusLockChanged Status = 22
	// StatusAlreadyDone: the slot that an acquire is for is done: nothing is left to do for it.
	StatusAlreadyDone Status = 23
	// StatusOtherLimit: who holds the lock, or waits for it, does so with another limit, or with none.
	StatusOtherLimit Status = 24
	// StatusWrongCell: another cell of this site has the lock or the file; the answer names it, as far as this cell knows.
	StatusWrongCell Status = 25
)

var statusWords = [...]string{
	StatusNone:               "NONE",
	StatusOK:                 "OK",
	StatusError:              "ERROR",
	StatusInvalidToken:       "INVALID_TOKEN",
	StatusPermissionDenied:   "PERMISSION_DENIED",
	StatusSecondaryMode:      "SECONDARY_MODE",
	StatusServerFencing:      "SERVER_FENCING",
	StatusHeld:               "HELD",
	StatusWaitTimeout:        "WAIT_TIMEOUT",
	StatusLeaseExpired:       "LEASE_EXPIRED",
	StatusCancelled:          "CANCELLED",
	StatusNoQuorum:           "NO_QUORUM",
	StatusStaleRequest:       "STALE_REQUEST",
	StatusInvalidArgument:    "INVALID_ARGUMENT",
	StatusTooLarge:           "TOO_LARGE",
	StatusStorageUnavailable: "STORAGE_UNAVAILABLE",
	StatusFileQuarantined:    "FILE_QUARANTINED",
	StatusUnknown:            "UNKNOWN",
	StatusOffsetMismatch:     "OFFSET_MISMATCH",
	StatusFileSealed:         "FILE_SEALED",
	StatusUnauthenticated:    "UNAUTHENTICATED",
	StatusLimited:            "LIMITED",
	StatusLockChanged:        "LOCK_CHANGED",
	StatusAlreadyDone:        "ALREADY_DONE",
	StatusOtherLimit:         "OTHER_LIMIT",
	StatusWrongCell:          "WRONG_CELL",
}

// Statuses returns every status that may answer a request, in order of their numbers.
func Statuses() []Status {
	all := make([]Status, 0, len(statusWords)-1)
	for s := StatusOK; int(s) < len(statusWords); s++ {
		all = append(all, s)
	}
	return all
}

// String returns the name of the status, as in JSON.
func (s Status) String() string {
	if int(s) < len(statusWords) {
		return statusWords[s]
	}
	return "INVALID"
}

// ParseStatus returns the status with this name; false if there is none.
func ParseStatus(word string) (Status, bool) {
	for s, w := range statusWords {
		if w == word && Status(s) != StatusNone {
			return Status(s), true
		}
	}
	return StatusNone, false
}
