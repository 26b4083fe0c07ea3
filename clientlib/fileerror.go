// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// OffsetError says that an append with At was refused, because the file does not end
// there: nothing was appended. It is wire.ErrOffsetMismatch.
type OffsetError struct {
	File cluster.FileName
	// Expected is what At asked for, and End where the next append goes.
	Expected, End int64
	// Generation is the one that ends there.
	Generation cluster.Generation
	// Err is the *CallError behind it.
	Err error
}

// Error tells where the file ends.
func (e *OffsetError) Error() string {
	return fmt.Sprintf("append to %q at offset %d: it ends at %d (generation %d), and nothing was appended: read what came in between",
		e.File, e.Expected, e.End, e.Generation)
}

// Unwrap is the call's error, and so wire.ErrOffsetMismatch.
func (e *OffsetError) Unwrap() error { return e.Err }

// RotatedError is what a Follower's Read returns, once, where a file was rotated: all that
// stood in the generation before was read, and the next Read goes on with this one.
type RotatedError struct {
	File cluster.FileName
	// Generation begins now, at offset 0.
	Generation cluster.Generation
}

// Error tells which generation begins.
func (e *RotatedError) Error() string {
	return fmt.Sprintf("%q was rotated: generation %d begins", e.File, e.Generation)
}

// offsetError is nil for any other error, and where an earlier try may have been executed.
func offsetError(file cluster.FileName, at *int64, err error) *OffsetError {
	if e, ok := errors.AsType[*CallError](err); ok && e.Unknown {
		return nil
	}
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok || refusal.Status != cluster.StatusOffsetMismatch || refusal.Receipt == nil || at == nil {
		return nil
	}
	return &OffsetError{File: file, Expected: *at, End: refusal.Receipt.Offset, Generation: refusal.Receipt.Generation, Err: err}
}
