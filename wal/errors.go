// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// What can be wrong with a log.
var (
	// ErrZero means that all bytes are zero: nothing was written here.
	ErrZero = errors.New("all zero")
	// ErrCorrupt means that the bytes are not what was written.
	ErrCorrupt = errors.New("corrupt")
	// ErrGap means that records or files are missing.
	ErrGap = errors.New("log has a gap")
	// ErrFeatureLevel means that a newer binary wrote something that this one must not interpret.
	ErrFeatureLevel = errors.New("written by a newer version")
	// ErrFull means that the batch does not fit and that no prepared segment is
	// left. Nothing was written and the log stays usable.
	ErrFull = errors.New("log is full: no prepared segment")
	// ErrTooLarge means that the batch can never be written as one frame: split it.
	// Nothing was written and the log stays usable.
	ErrTooLarge = errors.New("batch is too large for one frame")
	// ErrPoisoned means that a write or sync of this log failed once, or that it
	// was closed. This process can never know what is durable; only a new term,
	// which begins with a scan, can find out.
	ErrPoisoned = errors.New("log is poisoned")
)

// ScanError is why and where a scan gave up. It never means that the log is empty.
type ScanError struct {
	// File is the segment, or "" for the directory.
	File string
	// Offset in File of what is wrong.
	Offset int64
	// Reason is for people.
	Reason string
	// Err is ErrCorrupt, ErrGap, ErrFeatureLevel or the error of the storage.
	Err error
	// Unlisted is the first LSN of a segment that must exist, because a CLOSE names it,
	// and that the listing of the directory does not show. 0 = none.
	Unlisted cluster.LSN
}

func (e *ScanError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("scan log: %s: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("scan log: %s at offset %d: %s: %v", e.File, e.Offset, e.Reason, e.Err)
}

func (e *ScanError) Unwrap() error { return e.Err }
