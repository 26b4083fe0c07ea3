// SPDX-License-Identifier: Apache-2.0

package serve

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: maxPercent, 1 << 20: maxPercent, 32 << 20: 200, 64 << 20: 100, 1 << 30: minPercent} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes live: %d %%, want %d %%", live, got, want)
		}
	}
}
