// SPDX-License-Identifier: Apache-2.0

package check

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The words of hand-made histories of a lock with a limit.
func permits(weight, limit uint32) AcquireCall {
	return AcquireCall{Lock: "a", Limit: limit, Weight: weight}
}

func tryPermits(weight, limit uint32) AcquireCall {
	return AcquireCall{Lock: "a", Limit: limit, Weight: weight, Try: true}
}

func briefPermits(weight, limit uint32) AcquireCall {
	return AcquireCall{Lock: "a", Limit: limit, Weight: weight, TTL: 5 * time.Second}
}

func otherLimit() Reply { return Reply{OtherLimit: true} }

// permitted is how a lock with a limit was shown whose holders have so many permits.
func permitted(limit uint32, weights []uint32, tokens ...int) Reply {
	r := together(tokens...)
	r.Limit, r.Weights = limit, weights
	return r
}

// taken3 is a lock of which client 0 has one permit of four, and client 1 two.
func taken3() *script {
	return history().does(0, permits(1, 4), 0, 1, got(5)).does(1, permits(2, 4), 0, 1, got(6))
}

func TestModelOfPermits(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"as many as there are":            {taken3().does(2, permits(1, 4), 2, 3, got(7)), true},
		"one more than there are":         {taken3().does(2, permits(2, 4), 2, 3, got(7)), false},
		"one more, of concurrent calls":   {history().does(0, permits(2, 3), 0, 5, got(5)).does(1, permits(2, 3), 0, 5, got(6)), false},
		"more than the limit, of a free":  {history().does(0, permits(4, 3), 0, 1, got(5)), false},
		"without a weight it is one":      {taken3().does(2, permits(0, 4), 2, 3, got(7)).does(3, tryPermits(1, 4), 4, 5, held()), true},
		"one after the other":             {history().does(0, permits(3, 3), 0, 1, got(5)).does(0, release(5), 2, 3, Reply{}).does(1, permits(3, 3), 4, 5, got(6)), true},
		"one has left, and there is room": {taken3().does(1, release(6), 2, 3, Reply{}).does(2, permits(3, 4), 4, 5, got(7)), true},
		"one has left, and too few":       {taken3().does(0, release(5), 2, 3, Reply{}).does(2, permits(3, 4), 4, 5, got(7)), false},
		"a token falls among holders":     {taken3().does(2, permits(1, 4), 2, 3, got(4)), false},
		"both renew":                      {taken3().does(0, renew(5), 2, 3, Reply{}).does(1, renew(6), 2, 3, Reply{}), true},
		"one releases, the other is dead": {taken3().does(0, release(5), 2, 3, Reply{}).does(1, renew(6), 4, 5, refused()), false},

		"held, for too many":               {taken3().does(2, tryPermits(2, 4), 2, 3, held()), true},
		"held though there is room":        {taken3().does(2, tryPermits(1, 4), 2, 3, held()), false},
		"held though it is free":           {history().does(0, tryPermits(1, 4), 0, 1, held()), false},
		"held behind one who needs more":   {taken3().does(2, permits(4, 4), 2, 9, got(9)).does(3, tryPermits(1, 4), 3, 4, held()).does(0, release(5), 5, 6, Reply{}).does(1, release(6), 5, 6, Reply{}), true},
		"held behind one who needs less":   {history().does(0, permits(1, 4), 0, 1, got(5)).does(2, permits(1, 4), 2, 9, got(9)).does(3, tryPermits(2, 4), 3, 4, held()), false},
		"held behind one of another limit": {taken3().does(2, permits(5, 5), 2, 9, got(9)).does(3, tryPermits(1, 4), 3, 4, held()).does(0, release(5), 5, 6, Reply{}).does(1, release(6), 5, 6, Reply{}), false},
		"held behind one who came later":   {taken3().does(3, tryPermits(1, 4), 2, 3, held()).does(2, permits(4, 4), 4, 9, got(9)).does(0, release(5), 5, 6, Reply{}).does(1, release(6), 5, 6, Reply{}), false},
		"held behind one without answer":   {taken3().does(2, permits(4, 4), 2, 2, lost()).does(3, tryPermits(1, 4), 5, 6, held()), true},
		"held, where the limit is another": {taken3().does(2, tryPermits(1, 3), 2, 3, held()), false},
		"held alone, where it has a limit": {taken3().does(2, try(), 2, 3, held()), false},
		"held for a sharer":                {taken3().does(2, tryShare(), 2, 3, held()), false},

		"another limit is granted":          {taken3().does(2, permits(1, 5), 2, 3, got(7)), false},
		"another limit is refused":          {taken3().does(2, permits(1, 5), 2, 3, otherLimit()), true},
		"the same limit is refused":         {taken3().does(2, permits(1, 4), 2, 3, otherLimit()), false},
		"too many of the limit are refused": {taken3().does(2, permits(2, 4), 2, 3, otherLimit()), false},
		"a limit that nobody uses":          {history().does(0, permits(1, 4), 0, 1, otherLimit()), false},
		"another limit when all have left":  {taken3().does(0, release(5), 2, 3, Reply{}).does(1, release(6), 2, 3, Reply{}).does(2, permits(5, 5), 4, 5, got(7)), true},
		"the old limit when all have left":  {taken3().does(0, release(5), 2, 3, Reply{}).does(1, release(6), 2, 3, Reply{}).does(2, permits(1, 5), 4, 5, otherLimit()), false},
		"alone beside permits":              {taken3().does(2, plain(), 2, 3, got(7)), false},
		"alone is refused beside permits":   {taken3().does(2, plain(), 2, 3, otherLimit()), true},
		"a sharer beside permits":           {taken3().does(2, share(), 2, 3, got(7)), false},
		"a sharer is refused":               {taken3().does(2, share(), 2, 3, otherLimit()), true},
		"permits beside one alone":          {held5().does(1, permits(1, 4), 2, 3, got(6)), false},
		"permits are refused, held alone":   {held5().does(1, permits(1, 4), 2, 3, otherLimit()), true},
		"permits are held, held alone":      {held5().does(1, permits(1, 4), 2, 3, held()), false},
		"permits beside sharers":            {shared56().does(2, permits(1, 4), 2, 3, got(7)), false},
		"permits are refused, shared":       {shared56().does(2, permits(1, 4), 2, 3, otherLimit()), true},
		"one alone is refused beside one":   {held5().does(1, plain(), 2, 3, otherLimit()), false},
	})
}

func TestModelOfEndsOfPermits(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"a lease ends":                    {history().does(0, briefPermits(2, 3), 0, 1, got(5)).does(1, permits(2, 3), 2, 6, got(7)), true},
		"a lease ends too soon":           {history().does(0, briefPermits(2, 3), 0, 1, got(5)).does(1, permits(2, 3), 2, 4, got(7)), false},
		"a renewed lease ends too soon":   {history().does(0, briefPermits(2, 3), 0, 1, got(5)).does(0, renew(5), 3, 4, Reply{}).does(1, permits(2, 3), 5, 7, got(7)), false},
		"it ended, and is renewed":        {history().does(0, briefPermits(2, 3), 0, 1, got(5)).does(1, permits(2, 3), 2, 6, got(7)).does(0, renew(5), 7, 8, Reply{}), false},
		"it need not end where both fit":  {history().does(0, briefPermits(1, 3), 0, 1, got(5)).does(1, permits(2, 3), 8, 9, got(7)).does(0, renew(5), 10, 11, Reply{}), true},
		"one of two leases ends":          {history().does(0, briefPermits(2, 4), 0, 1, got(5)).does(1, permits(2, 4), 0, 1, got(6)).does(2, permits(3, 4), 8, 9, got(7)), false},
		"a lease ends for another limit":  {history().does(0, briefPermits(1, 3), 0, 1, got(5)).does(1, permits(1, 4), 2, 6, got(7)), true},
		"another limit, and it lives":     {history().does(0, briefPermits(1, 3), 0, 1, got(5)).does(1, permits(1, 4), 2, 6, got(7)).does(0, renew(5), 7, 8, Reply{}), false},
		"a break makes room":              {taken3().does(2, broke(6), 2, 3, Reply{}).does(3, permits(3, 4), 4, 5, got(7)), true},
		"a break makes room for its own":  {taken3().does(2, broke(5), 2, 3, Reply{}).does(3, permits(3, 4), 4, 5, got(7)), false},
		"a break has to say whom":         {taken3().does(2, broke(0), 2, 3, sharing()), true},
		"a break that does not say whom":  {taken3().does(2, broke(0), 2, 3, Reply{}), false},
		"a permit writes":                 {taken3().does(0, appendCall(5, "x"), 2, 3, at(0)), false},
		"a permit writes nothing":         {taken3().does(0, appendCall(5, "x"), 2, 3, sharing()), true},
		"all permits write":               {history().does(0, permits(3, 3), 0, 1, got(5)).does(0, appendCall(5, "x"), 2, 3, at(0)), false},
		"a downgrade is refused":          {taken3().does(0, downgrade(5), 2, 3, sharing()), true},
		"a downgrade of a permit":         {taken3().does(0, downgrade(5), 2, 3, Reply{}), false},
		"a downgrade of a dead permit":    {taken3().does(0, release(5), 2, 3, Reply{}).does(0, downgrade(5), 4, 5, refused()), true},
		"a sharer's downgrade is refused": {shared56().does(0, downgrade(5), 2, 3, sharing()), false},
		"a lost downgrade does nothing":   {taken3().does(0, downgrade(5), 2, 2, lost()).does(2, share(), 9, 10, got(7)), false},
	})
}

func TestModelShowsPermits(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"both are shown":                  {taken3().does(2, show(), 2, 3, permitted(4, []uint32{1, 2}, 5, 6)), true},
		"whatever the order":              {taken3().does(2, show(), 2, 3, permitted(4, []uint32{2, 1}, 6, 5)), true},
		"another limit is shown":          {taken3().does(2, show(), 2, 3, permitted(5, []uint32{1, 2}, 5, 6)), false},
		"another weight is shown":         {taken3().does(2, show(), 2, 3, permitted(4, []uint32{1, 1}, 5, 6)), false},
		"each other's weight is shown":    {taken3().does(2, show(), 2, 3, permitted(4, []uint32{2, 1}, 5, 6)), false},
		"one is shown of two":             {taken3().does(2, show(), 2, 3, permitted(4, []uint32{1}, 5)), false},
		"shown without a limit":           {taken3().does(2, show(), 2, 3, together(5, 6)), false},
		"sharers are shown with a limit":  {shared56().does(2, show(), 2, 3, permitted(4, []uint32{1, 1}, 5, 6)), false},
		"one alone is shown with a limit": {held5().does(2, show(), 2, 3, permitted(4, []uint32{4}, 5)), false},
	})
}

func TestModelOfPermitsWithoutAnAnswer(t *testing.T) {
	lostOne := func() *script { return history().does(0, tryPermits(2, 3), 0, 0, lost()) }
	lostTwo := func() *script { return lostOne().does(9, permits(1, 3), 0, 0, lost()) }
	judgeAll(t, map[string]handMade{
		"it explains too few":             {lostOne().does(1, tryPermits(2, 3), 2, 3, held()), true},
		"it explains no more than it has": {lostOne().does(1, tryPermits(1, 3), 2, 3, held()), false},
		"two explain it together":         {lostTwo().does(1, tryPermits(1, 3), 2, 3, held()), true},
		"three of one explain it":         {history().does(0, permits(1, 3), 0, 0, lost()).does(8, permits(1, 3), 0, 0, lost()).does(9, permits(1, 3), 0, 0, lost()).does(1, tryPermits(1, 3), 2, 3, held()), true},
		"two of one do not":               {history().does(0, permits(1, 3), 0, 0, lost()).does(8, permits(1, 3), 0, 0, lost()).does(1, tryPermits(1, 3), 2, 3, held()), false},
		"it explains another limit":       {lostOne().does(1, permits(1, 4), 2, 3, otherLimit()), true},
		"it explains no limit of its own": {lostOne().does(1, permits(1, 3), 2, 3, otherLimit()), false},
		"it explains a refusal of alone":  {lostOne().does(1, try(), 2, 3, otherLimit()), true},
		"it explains no held alone":       {lostOne().does(1, try(), 2, 3, held()), false},
		"it need not be there":            {lostOne().does(1, permits(3, 3), 2, 3, got(7)), true},
		"it goes, and stays away":         {lostOne().does(1, tryPermits(2, 3), 2, 3, held()).does(1, permits(3, 3), 4, 5, got(7)).does(1, release(7), 6, 7, Reply{}).does(1, tryPermits(2, 3), 8, 9, held()), false},
		"it is no second limit":           {lostOne().does(1, permits(1, 4), 2, 3, got(7)).does(2, tryPermits(3, 4), 4, 5, held()).does(2, show(), 6, 7, permitted(4, []uint32{1, 2}, 7, 8)), false},
		"it is shown":                     {lostOne().does(1, permits(1, 3), 2, 3, got(7)).does(2, show(), 4, 5, permitted(3, []uint32{2, 1}, 4, 7)), true},
		"it is shown with another weight": {lostOne().does(1, permits(1, 3), 2, 3, got(7)).does(2, show(), 4, 5, permitted(3, []uint32{1, 1}, 4, 7)), false},
		"it is shown with another limit":  {lostOne().does(2, show(), 4, 5, permitted(4, []uint32{2}, 4)), false},
		"shown, and there is no room":     {lostOne().does(2, show(), 2, 3, permitted(3, []uint32{2}, 4)).does(1, permits(2, 3), 4, 5, got(7)).does(2, show(), 6, 7, permitted(3, []uint32{2, 2}, 4, 7)), false},
		"it came, and there was no room":  {history().does(1, permits(2, 3), 0, 1, got(5)).does(0, permits(2, 3), 1, 1, lost()).does(2, show(), 2, 3, permitted(3, []uint32{2, 2}, 5, 6)), false},
		"a lost release makes room":       {taken3().does(1, release(6), 2, 2, lost()).does(2, permits(3, 4), 9, 10, got(7)), true},
		"a lost release makes no more":    {taken3().does(0, release(5), 2, 2, lost()).does(2, permits(3, 4), 9, 10, got(7)), false},
		"a lost release may do nothing":   {taken3().does(1, release(6), 2, 2, lost()).does(2, tryPermits(2, 4), 9, 10, held()), true},
		"a lost break of two":             {taken3().does(2, broke(0), 2, 2, lost()).does(1, renew(6), 5, 6, refused()), false},
	})
}

// TestPermitsWithoutAnAnswerAreOver: what is left of such an acquire is over in bounded time.
func TestPermitsWithoutAnAnswerAreOver(t *testing.T) {
	lostAt := func(at int64) *script { return history().does(0, permits(2, 3), at, at, lost()) }
	for name, c := range map[string]handMade{
		"held, in time":               {lostAt(0).does(1, tryPermits(2, 3), 58, 59, held()), true},
		"held for ever":               {lostAt(0).does(1, tryPermits(2, 3), 61, 62, held()), false},
		"another limit, in time":      {lostAt(0).does(1, permits(2, 4), 58, 59, otherLimit()), true},
		"another limit for ever":      {lostAt(0).does(1, permits(2, 4), 61, 62, otherLimit()), false},
		"one of another kind is left": {lostAt(0).does(9, permits(1, 3), 50, 50, lost()).does(1, tryPermits(2, 3), 61, 62, held()), false},
	} {
		for _, window := range []int{0, 1} {
			v := checkOperations(*c.history, HistoryOptions{Linger: time.Minute, Window: window})
			if got := len(v.Bad) == 0; got != c.want {
				t.Errorf("%s, in windows of %d: linearizable %v, want %v: %v", name, window, got, c.want, v.Bad)
			}
		}
	}
}

// TestWindowsKnowPermits: what was taken before a window began is taken in it, as far as it may not have ended.
func TestWindowsKnowPermits(t *testing.T) {
	brief := func() *script { return history().does(0, briefPermits(2, 3), 0, 1, got(5)) }
	for name, c := range map[string]handMade{
		"taken, and granted":                  {taken3().does(2, permits(2, 4), 4, 5, got(7)), false},
		"taken, and there is room":            {taken3().does(2, permits(1, 4), 4, 5, got(7)), true},
		"taken, and another limit":            {taken3().does(2, permits(1, 5), 4, 5, otherLimit()), true},
		"taken, and shown":                    {taken3().does(2, show(), 4, 5, permitted(4, []uint32{1, 2}, 5, 6)), true},
		"one refused, and no holder":          {taken3().does(2, permits(1, 5), 4, 5, otherLimit()).does(2, show(), 6, 7, permitted(4, []uint32{1, 2}, 5, 6)), true},
		"refused for a lost one, and granted": {history().does(0, permits(2, 3), 0, 0, lost()).does(1, permits(1, 4), 2, 3, otherLimit()).does(1, permits(3, 3), 4, 5, got(7)), true},
		"it ended for another":                {brief().does(1, permits(2, 3), 8, 9, got(7)).does(2, tryPermits(1, 3), 10, 11, held()), false},
		"it ended, and is not back":           {brief().does(1, permits(2, 3), 8, 9, got(7)).does(0, renew(5), 10, 11, Reply{}), false},
		"it may have ended":                   {brief().does(1, permits(1, 3), 8, 9, got(7)).does(2, permits(2, 3), 10, 11, got(9)).does(0, renew(5), 12, 13, refused()), true},
		"it ended for another limit":          {brief().does(1, permits(1, 4), 8, 9, got(7)).does(0, renew(5), 10, 11, Reply{}), false},
		"it ended for one alone":              {brief().does(1, plain(), 8, 9, got(7)).does(0, renew(5), 10, 11, Reply{}), false},
		"one of two ended for a third":        {brief().does(3, briefPermits(1, 3), 1, 2, got(6)).does(1, permits(1, 3), 8, 9, got(7)).does(0, renew(5), 10, 11, Reply{}).does(3, renew(6), 12, 13, Reply{}), false},
		"any of two ended for a third":        {brief().does(3, briefPermits(1, 3), 1, 2, got(6)).does(1, permits(1, 3), 8, 9, got(7)).does(0, renew(5), 10, 11, Reply{}).does(3, renew(6), 12, 13, refused()), true},
		"one alone, over by a lease": {history().does(0, AcquireCall{Lock: "a", TTL: 5 * time.Second}, 0, 1, got(5)).does(0, downgrade(5), 2, 3, Reply{}).
			does(1, permits(1, 4), 9, 10, got(7)).does(2, tryPermits(4, 4), 12, 13, held()).does(0, renew(5), 14, 15, refused()), true},
		"a lost one was shown": {history().does(0, permits(2, 3), 0, 0, lost()).does(2, show(), 2, 3, permitted(3, []uint32{2}, 4)).
			does(1, permits(3, 3), 4, 5, got(7)).does(1, release(7), 6, 7, Reply{}).does(1, tryPermits(2, 3), 8, 9, held()), false},
		"a lost one of another kind was not": {history().does(0, permits(2, 3), 0, 0, lost()).does(9, permits(1, 3), 0, 0, lost()).does(2, show(), 2, 3, permitted(3, []uint32{2}, 4)).
			does(1, permits(3, 3), 4, 5, got(7)).does(1, release(7), 6, 7, Reply{}).does(1, tryPermits(3, 3), 8, 9, held()), true},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size < 6; size++ {
				v := checkOperations(*c.history, HistoryOptions{Window: size})
				if got := len(v.Bad) == 0; got != c.want {
					t.Errorf("windows of %d: linearizable %v, want %v: %v", size, got, c.want, v.Bad)
				}
			}
		})
	}
}

// longPermits is a right history of a lock that is used with one limit after the other, and alone, with refusals, ends
// without an answer and grants that nobody is told of.
func longPermits(n int, seed uint64) script {
	random := rand.New(rand.NewPCG(seed, 1))
	var s script
	token, now := 0, int64(0)
	next := func() int { token += 1 + random.IntN(3); return token }
	for i := range n {
		limit, taken := uint32(2+i%3), uint32(0)
		var holders []int
		var weights []uint32
		for c := 1; taken < limit && c < 4; c++ {
			w := 1 + uint32(random.IntN(int(limit-taken)))
			holders, weights, taken = append(holders, next()), append(weights, w), taken+w
			s.does(c, permits(w, limit), now+int64(c), now+5, got(token))
		}
		s.does(7, tryPermits(limit-taken+1, limit), now+6, now+7, held())
		s.does(8, permits(1, limit+1), now+6, now+7, otherLimit())
		s.does(9, show(), now+6, now+7, permitted(limit, weights, holders...))
		for c, token := range holders {
			switch random.IntN(8) {
			case 0: // without an answer; it is done before the next one with another limit
				s.does(c, release(token), now+8, now+8, lost())
			case 1:
				s.does(9, broke(token), now+8, now+9, Reply{})
			default:
				s.does(c, release(token), now+8, now+9, Reply{})
			}
		}
		if random.IntN(6) == 0 {
			s.does(5, permits(1, limit), now+9, now+9, lost())
			next()
		}
		if now += 12; i%4 == 0 {
			s.does(0, plain(), now, now+1, got(next()))
			s.does(0, release(token), now+2, now+3, Reply{})
			now += 6
		}
	}
	slices.SortStableFunc(s, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return s
}

// spoiled is the operation with another answer, false where there is none that must be noticed.
func spoiled(op porcupine.Operation) (porcupine.Operation, bool) {
	in, out := op.Input.(timedCall), op.Output.(Reply)
	if out.Unknown {
		return op, false
	}
	switch in.call.(type) {
	case ShowCall:
		out.Weights = append([]uint32{out.Weights[0] + 1}, out.Weights[1:]...)
	case AcquireCall:
		switch {
		case out.Held:
			out = otherLimit()
		case out.OtherLimit:
			out = held()
		default:
			out = otherLimit()
		}
	case ReleaseCall:
		out = refused()
	default:
		return op, false
	}
	op.Output = out
	return op, true
}

func TestWindowsOfPermits(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		h := longPermits(60, seed)
		for _, window := range []int{40, len(h) + 1} {
			for _, linger := range []time.Duration{0, 15 * time.Second} {
				if v := checkOperations(h, HistoryOptions{Window: window, Linger: linger}); len(v.Bad) > 0 || v.Undecided > 0 {
					t.Fatalf("seed %d: a right history in %d windows, what is left over after %v: %v", seed, v.Windows, linger, v.Bad)
				}
			}
		}
		for i := range h {
			bad, is := spoiled(h[i])
			if i%5 > 0 || !is {
				continue
			}
			damaged := append(script(nil), h...)
			damaged[i] = bad
			for _, size := range []int{40, len(h) + 1} {
				if v := checkOperations(damaged, HistoryOptions{Window: size, Linger: 15 * time.Second}); v.Illegal == 0 {
					t.Errorf("seed %d: %s is not noticed in windows of %d", seed, describe(bad.Input.(timedCall).call, bad.Output.(Reply)), size)
				}
			}
		}
	}
}
