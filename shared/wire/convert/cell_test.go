// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
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

// TestOwnComesBack from the message that tells it, and nothing else does.
func TestOwnComesBack(t *testing.T) {
	d, err := cluster.Divide(3, []cluster.Pin{{Prefix: "billing/", Cell: 3}, {Prefix: "a/", Cell: 0}})
	if err != nil {
		t.Fatal(err)
	}
	own := &cluster.Own{Site: cluster.ID{7}, Cell: 2, Version: 1, Division: d}
	if back, err := wire.OwnOf(convert.FromOwn(own)); err != nil || back.Text() != own.Text() {
		t.Errorf("%v, error %v; want %v", back, err, own)
	}
	if back, err := wire.OwnOf(convert.FromOwn(nil)); back != nil || err != nil {
		t.Errorf("of no cell: %v, error %v", back, err)
	}
	for name, spoil := range map[string]func(*pb.Cell){
		"site":    func(c *pb.Cell) { c.SiteId = "7" },
		"version": func(c *pb.Cell) { c.Version = 0 },
		"ranges":  func(c *pb.Cell) { c.Ranges = c.Ranges[1:] },
		"cell":    func(c *pb.Cell) { c.Cell = 4 },
	} {
		bad := convert.FromOwn(own)
		spoil(bad)
		if back, err := wire.OwnOf(bad); err == nil {
			t.Errorf("a bad %s was taken: %v", name, back)
		}
	}
}
