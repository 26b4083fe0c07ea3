// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// timeOfDay is what the clock on the wall of a story's machine shows: each few seconds somebody
// sets it by hours, forth or back, or it goes too fast or too slow. It is a function of the moment
// alone, so that a schedule is the same however often it is asked. See primary.Options.
func (s *Story) timeOfDay(host cluster.ServerID) func(time.Time) time.Time {
	return func(now time.Time) time.Time {
		at := time.Duration(now.UnixNano())
		rng := rand.New(rand.NewPCG(s.Clocks, uint64(host)<<32|uint64(at/wallSet)))
		off := time.Duration(rng.Int64N(int64(24*time.Hour))) - 12*time.Hour
		if rng.IntN(3) == 0 {
			off = 0
		}
		rate := []float64{1, 1, 0.4, 3}[rng.IntN(4)]
		return now.Round(0).Add(off + time.Duration((rate-1)*float64(at%wallSet)))
	}
}

// wallSet is how long a clock on a wall goes on before it is set again.
const wallSet = 5 * time.Second
