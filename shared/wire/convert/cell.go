// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// FromOwn converts what a cell owns, nil for nil.
func FromOwn(o *cluster.Own) *pb.Cell {
	if o == nil {
		return nil
	}
	c := &pb.Cell{SiteId: o.Site.String(), Cell: uint32(o.Cell), Version: o.Version}
	for _, r := range o.Ranges {
		c.Ranges = append(c.Ranges, &pb.CellRange{From: uint64(r.From), Cell: uint32(r.Cell)})
	}
	for _, p := range o.Pins {
		c.Pins = append(c.Pins, &pb.CellPin{Prefix: p.Prefix, Cell: uint32(p.Cell)})
	}
	return c
}
