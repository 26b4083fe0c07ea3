// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// OwnOf returns what a cell says in its status that it owns; nil if it is no cell. It returns an error for what no cell says.
func OwnOf(c *pb.Cell) (*cluster.Own, error) {
	if c == nil {
		return nil, nil
	}
	o := &cluster.Own{Cell: cluster.CellID(c.GetCell()), Version: c.GetVersion()}
	if err := o.Site.UnmarshalText([]byte(c.GetSiteId())); err != nil {
		return nil, fmt.Errorf("what a cell owns: %w", err)
	}
	for _, r := range c.GetRanges() {
		o.Ranges = append(o.Ranges, cluster.Range{From: cluster.NameHash(r.GetFrom()), Cell: cluster.CellID(r.GetCell())})
	}
	for _, p := range c.GetPins() {
		o.Pins = append(o.Pins, cluster.Pin{Prefix: p.GetPrefix(), Cell: cluster.CellID(p.GetCell())})
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("what a cell owns: %w", err)
	}
	return o, nil
}
