// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
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
