// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
)

// TestWrongCellNamesTheRightOne, in each form of an answer.
func TestWrongCellNamesTheRightOne(t *testing.T) {
	out := locktable.Outcome{Status: cluster.StatusWrongCell, Cell: 3, Lock: "p/x"}
	if b, ok := convert.AppendOutcome(nil, 1, &out); ok {
		t.Errorf("a frame without the cell: %x", b)
	}
	err := wire.AnswerError(convert.FromOutcome(&out))
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || !errors.Is(err, wire.ErrWrongCell) || e.Cell != 3 || e.Answer().GetCell() != 3 {
		t.Errorf("%+v", err)
	}
}
