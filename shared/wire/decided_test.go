// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestDecided(t *testing.T) {
	always := map[cluster.Status]bool{
		cluster.StatusOK: true, cluster.StatusWaitTimeout: true, cluster.StatusCancelled: true, cluster.StatusLeaseExpired: true,
	}
	for _, s := range cluster.Statuses() {
		for _, committed := range []bool{false, true} {
			for _, named := range []bool{false, true} {
				want := always[s] || s == cluster.StatusInvalidToken && named || s != cluster.StatusInvalidToken && committed
				if got := wire.Decided(s, committed, named); got != want {
					t.Errorf("%v, committed %v, named %v: %v", s, committed, named, got)
				}
			}
		}
	}
}
