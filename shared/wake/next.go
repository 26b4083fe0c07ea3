// SPDX-License-Identifier: Apache-2.0

package wake

import "time"

// Next returns how long it is from now to the next of some regular looks with this period: three to five quarters of it. Looks with one period
// come to meet so, within two of them, and those with a multiple of it meet some of them: a process wakes once for all that is due. To wake
// up is most of what an idle server does. A clock that is set moves where they meet, and does no more.
func Next(now time.Time, period time.Duration) time.Duration {
	quarter := period / 4
	switch left := now.Truncate(period).Add(period).Sub(now); {
	case left >= 3*quarter:
		return left
	case left <= quarter:
		return period + left
	case left >= 2*quarter: // it is late: the next one comes earlier, and then there is less than a period left
		return 3 * quarter
	default:
		return 5 * quarter
	}
}

// Longest is the longest that Next returns for a period.
func Longest(period time.Duration) time.Duration { return period/4 + period }

// Looks is a timer of regular looks, see Next. Whoever receives from C calls Again.
type Looks struct {
	*time.Timer
	period time.Duration
}

// Every begins looks with this period.
func Every(period time.Duration) *Looks {
	return &Looks{time.NewTimer(Next(time.Now(), period)), period}
}

// Again has the next look come.
func (l *Looks) Again() { l.Reset(Next(time.Now(), l.period)) }
