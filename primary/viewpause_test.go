// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"
	"time"
)

// What changes just behind the beginning of one writing is seen at the end of the next.
func TestPauseBehindViews(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		took, cost time.Duration
		rows       int
		want       time.Duration
	}{
		{0, 0, 1, 900 * ms},
		{20 * ms, 15 * ms, 1000, 860 * ms},
		{300 * ms, 80 * ms, manyRows, 300 * ms},
		{600 * ms, 80 * ms, manyRows, 600 * ms}, // storage is slow: half of the time at most
		{400 * ms, 100 * ms, manyRows + 1, 4900 * ms},
		{4 * time.Second, time.Second, 100_000, 49 * time.Second},
	} {
		got := pauseBehindViews(time.Second, test.took, test.cost, test.rows)
		if got != test.want {
			t.Errorf("behind %v of %d rows that cost %v: %v, want %v", test.took, test.rows, test.cost, got, test.want)
		}
		if test.rows <= manyRows && test.took <= 300*ms && 2*test.took+got > time.Second {
			t.Errorf("behind %v of %d rows the views are %v behind", test.took, test.rows, 2*test.took+got)
		}
	}
}
