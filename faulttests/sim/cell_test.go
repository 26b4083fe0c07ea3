// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// cellOf returns what the volume of a seed owns: some are cell 0 of a site in which cell 1 has what begins with foreign/, most are no
// cell.
func cellOf(seed uint64) *cluster.Own {
	if rand.New(rand.NewPCG(seed, 37)).IntN(4) > 0 {
		return nil
	}
	d, err := cluster.Divide(1, []cluster.Pin{{Prefix: "foreign/", Cell: 1}})
	if err != nil {
		panic(err)
	}
	return &cluster.Own{Site: cluster.ID{byte(seed), 1}, Version: 1, Division: d}
}

// TestCellsBeginWithOneServerEach: no host is primary of all cells of a site. Others follow in turn.
func TestCellsBeginWithOneServerEach(t *testing.T) {
	for cell, order := range [][]cluster.ServerID{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}, {1, 2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScenario(t, volumetest.New(1), volumetest.ProfileLocal())
			d, err := cluster.Divide(4, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Cell = &cluster.Own{Site: cluster.ID{1}, Cell: cluster.CellID(cell), Version: 1, Division: d}
			c := newClusterWith(t, s, 1, 0, asMade)
			id, _ := c.one(t, "start")
			time.Sleep(2 * time.Second)
			to, err := c.server(id).node.Handover(t.Context(), 0)
			if id != order[0] || to != order[1] || err != nil {
				t.Errorf("cell %d: server %d is primary, and hands over to %d, %v; want %v", cell, id, to, err, order)
			}
			c.one(t, "handed over")
			time.Sleep(2 * time.Second)
			c.Kill(order[1])
			if id, _ := c.one(t, "it dies"); id != order[0] {
				t.Errorf("cell %d: server %d follows server %d, which died; want %v", cell, id, order[1], order)
			}
			c.End()
			c.Shutdown()
		})
	}
}
