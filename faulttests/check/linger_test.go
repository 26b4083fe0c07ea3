// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"
)

// TestModelOfWhatIsLeftOfAnAcquire: a call without an answer explains at most one grant, which is
// over in bounded time, and so no stuck lock and no second holder whom nobody knows.
func TestModelOfWhatIsLeftOfAnAcquire(t *testing.T) {
	lostAt := func(seconds ...int64) *script {
		h := history()
		for i, at := range seconds {
			h.does(90+i, plain(), at, at, lost())
		}
		return h
	}
	for name, c := range map[string]struct {
		history *script
		want    bool
		forever bool // what is said where there is no bound
		whole   bool // a window does not know which of two calls the one before has used up
	}{
		"held, in time":                      {lostAt(0).does(1, try(), 58, 59, held()), true, true, false},
		"held, at the last moment":           {lostAt(0).does(1, try(), 60, 61, held()), true, true, false},
		"held for ever":                      {lostAt(0).does(1, try(), 61, 62, held()), false, true, false},
		"its caller waited long":             {history().does(9, plain(), 0, 50, lost()).does(1, try(), 100, 101, held()), true, true, false},
		"its caller waited, and left":        {history().does(9, plain(), 0, 50, lost()).does(1, try(), 111, 112, held()), false, true, false},
		"shown in time, and gone":            {lostAt(0).does(1, show(), 50, 51, shown(4)).does(1, plain(), 70, 71, got(6)), true, true, false},
		"shown in time, and there for ever":  {lostAt(0).does(1, show(), 50, 51, shown(4)).does(1, show(), 70, 71, shown(4)), false, true, false},
		"shown too late":                     {lostAt(0).does(1, show(), 70, 71, shown(4)), false, true, false},
		"asked in time and answered later":   {lostAt(0).does(1, try(), 59, 90, held()), true, true, false},
		"each explains one":                  {lostAt(0, 50).does(1, show(), 55, 56, shown(4)).does(1, show(), 57, 58, shown(6)), true, true, false},
		"each explains one, the first late":  {lostAt(0, 50).does(1, show(), 65, 66, shown(4)).does(1, show(), 67, 68, shown(6)), false, true, true},
		"one is left of two":                 {lostAt(0, 50).does(1, show(), 65, 66, shown(4)).does(1, try(), 67, 68, held()), true, true, false},
		"one explains one":                   {lostAt(0).does(1, show(), 5, 6, shown(4)).does(1, show(), 7, 8, shown(6)), false, false, false},
		"a second holder":                    {lostAt(0).does(1, plain(), 1, 2, got(5)).does(2, show(), 3, 4, shown(6)).does(1, renew(5), 5, 6, Reply{}), false, false, false},
		"two share it, one of them late":     {lostSharers(0, 50).does(1, show(), 65, 66, together(4, 6)), false, true, false},
		"two share it, both in time":         {lostSharers(0, 50).does(1, show(), 55, 56, together(4, 6)), true, true, false},
		"an unheard grant before the answer": {history().does(0, brief(), 0, 9, got(9)).does(1, show(), 1, 2, shown(5)).does(0, release(9), 10, 11, Reply{}).does(1, try(), 80, 81, held()), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, window := range []int{0, 1} {
				if window > 0 && c.whole {
					continue
				}
				bounded := checkOperations(*c.history, HistoryOptions{Linger: time.Minute, Window: window})
				forever := checkOperations(*c.history, HistoryOptions{Window: window})
				if got := len(bounded.Bad) == 0; got != c.want {
					t.Errorf("over in a minute, in windows of %d: %v, want %v: %v", window, got, c.want, bounded.Bad)
				}
				if got := len(forever.Bad) == 0; got != c.forever {
					t.Errorf("for ever, in windows of %d: %v, want %v: %v", window, got, c.forever, forever.Bad)
				}
			}
		})
	}
}

func lostSharers(seconds ...int64) *script {
	h := history()
	for i, at := range seconds {
		h.does(90+i, share(), at, at, lost())
	}
	return h
}

// TestLongHistoriesWithABound: right histories stay right, whatever the bound, if what is left of
// a call is over in time.
func TestLongHistoriesWithABound(t *testing.T) {
	for seed := range uint64(3) {
		for _, h := range []script{long(300, seed), longShared(300, seed)} {
			for _, window := range []int{0, 50} {
				if v := checkOperations(h, HistoryOptions{Linger: 15 * time.Second, Window: window}); len(v.Bad) > 0 || v.Undecided > 0 {
					t.Errorf("seed %d, windows of %d: %v", seed, window, v.Bad)
				}
			}
		}
	}
}
