// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The words of hand-made histories of a lock that is shared.
func share() AcquireCall                { return AcquireCall{Lock: "a", Shared: true} }
func try() AcquireCall                  { return AcquireCall{Lock: "a", Try: true} }
func tryShare() AcquireCall             { return AcquireCall{Lock: "a", Shared: true, Try: true} }
func briefShare() AcquireCall           { return AcquireCall{Lock: "a", Shared: true, TTL: 5 * time.Second} }
func downgrade(token int) DowngradeCall { return DowngradeCall{"a", tokenOf(token)} }
func sharing() Reply                    { return Reply{Shared: true} }

// together is how a lock was shown that these hold.
func together(tokens ...int) Reply {
	r := Reply{Token: tokenOf(tokens[0]), Shared: true, Length: -1}
	for _, token := range tokens[1:] {
		r.Others = append(r.Others, tokenOf(token))
	}
	return r
}

// shared56 is a lock that clients 0 and 1 share.
func shared56() *script {
	return history().does(0, share(), 0, 1, got(5)).does(1, share(), 0, 1, got(6))
}

func TestModelOfSharing(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"two share":                           {shared56(), true},
		"two share, whatever the order":       {history().does(0, share(), 0, 9, got(6)).does(1, share(), 0, 9, got(5)), true},
		"a token falls among sharers":         {history().does(0, share(), 0, 1, got(6)).does(1, share(), 2, 3, got(5)), false},
		"one token for two sharers":           {history().does(0, share(), 0, 1, got(5)).does(1, share(), 2, 3, got(5)), false},
		"alone beside a sharer":               {shared56().does(2, plain(), 2, 3, got(7)), false},
		"a sharer beside one alone":           {held5().does(1, share(), 2, 3, got(6)), false},
		"alone when one of two has left":      {shared56().does(0, release(5), 2, 3, Reply{}).does(2, plain(), 4, 5, got(7)), false},
		"alone when both have left":           {shared56().does(0, release(5), 2, 3, Reply{}).does(1, release(6), 2, 3, Reply{}).does(2, plain(), 4, 5, got(7)), true},
		"shared when who was alone has left":  {held5().does(0, release(5), 2, 3, Reply{}).does(1, share(), 4, 5, got(6)), true},
		"both renew":                          {shared56().does(0, renew(5), 2, 3, Reply{}).does(1, renew(6), 2, 3, Reply{}), true},
		"one releases and the other is dead":  {shared56().does(0, release(5), 2, 3, Reply{}).does(1, renew(6), 4, 5, refused()), false},
		"one releases and is alive":           {shared56().does(0, release(5), 2, 3, Reply{}).does(0, renew(5), 4, 5, Reply{}), false},
		"held for who wants it alone":         {shared56().does(2, try(), 2, 3, held()), true},
		"held for a sharer among sharers":     {shared56().does(2, tryShare(), 2, 3, held()), false},
		"held for a sharer behind one alone":  {shared56().does(2, plain(), 2, 9, got(9)).does(3, tryShare(), 3, 4, held()).does(0, release(5), 5, 6, Reply{}).does(1, release(6), 5, 6, Reply{}), true},
		"held behind one who came later":      {shared56().does(3, tryShare(), 2, 3, held()).does(2, plain(), 4, 9, got(9)).does(0, release(5), 5, 6, Reply{}).does(1, release(6), 5, 6, Reply{}), false},
		"held behind one without an answer":   {shared56().does(2, plain(), 2, 2, lost()).does(3, tryShare(), 5, 6, held()), true},
		"held for a sharer beside one alone":  {held5().does(1, tryShare(), 2, 3, held()), true},
		"held for a sharer though it is free": {history().does(0, tryShare(), 0, 1, held()), false},

		"a sharer's lease ends":                    {history().does(0, briefShare(), 0, 1, got(5)).does(1, plain(), 2, 6, got(7)), true},
		"a sharer's lease ends too soon":           {history().does(0, briefShare(), 0, 1, got(5)).does(1, plain(), 2, 4, got(7)), false},
		"one lease of two ends":                    {shared56().does(2, briefShare(), 2, 3, got(7)).does(3, plain(), 4, 20, got(9)), false},
		"a sharer's lease may end or not":          {history().does(0, briefShare(), 0, 1, got(5)).does(1, briefShare(), 0, 1, got(6)).does(0, renew(5), 9, 10, refused()).does(1, renew(6), 9, 10, Reply{}), true},
		"a lease that ended beside one that lives": {history().does(0, briefShare(), 0, 1, got(5)).does(1, briefShare(), 0, 1, got(6)).does(2, plain(), 8, 9, got(7)).does(1, renew(6), 10, 11, Reply{}), false},

		"a break takes one of two":             {shared56().does(2, broke(5), 2, 3, Reply{}).does(1, renew(6), 4, 5, Reply{}).does(0, renew(5), 4, 5, refused()), true},
		"a break of one takes the other":       {shared56().does(2, broke(5), 2, 3, Reply{}).does(1, renew(6), 4, 5, refused()), false},
		"a break has to say whom":              {shared56().does(2, broke(0), 2, 3, sharing()), true},
		"a break that does not say whom":       {shared56().does(2, broke(0), 2, 3, Reply{}), false},
		"a break of the only sharer":           {history().does(0, share(), 0, 1, got(5)).does(2, broke(0), 2, 3, Reply{}).does(1, plain(), 4, 5, got(7)), true},
		"a break has to say whom of one":       {history().does(0, share(), 0, 1, got(5)).does(2, broke(0), 2, 3, sharing()), false},
		"a lost break of the one that is left": {shared56().does(2, broke(0), 2, 2, lost()).does(0, release(5), 3, 4, Reply{}).does(1, renew(6), 5, 6, refused()), true},
		"a lost break of two":                  {shared56().does(2, broke(0), 2, 2, lost()).does(1, renew(6), 5, 6, refused()), false},
	})
}

func TestModelOfDowngrades(t *testing.T) {
	lostly := func(s *script) *script { return s.does(0, downgrade(5), 2, 2, lost()) }
	judgeAll(t, map[string]handMade{
		"a downgrade lets others in":           {held5().does(0, downgrade(5), 2, 3, Reply{}).does(1, share(), 4, 5, got(6)).does(0, renew(5), 6, 7, Reply{}), true},
		"a downgrade is no release":            {held5().does(0, downgrade(5), 2, 3, Reply{}).does(1, plain(), 4, 5, got(6)), false},
		"a sharer before the downgrade":        {held5().does(1, share(), 2, 3, got(6)).does(0, downgrade(5), 4, 5, Reply{}), false},
		"a downgrade again":                    {held5().does(0, downgrade(5), 2, 3, Reply{}).does(0, downgrade(5), 4, 5, Reply{}), true},
		"a downgrade of a shared token":        {shared56().does(0, downgrade(5), 2, 3, Reply{}), true},
		"a downgrade of a dead token":          {held5().does(0, release(5), 2, 3, Reply{}).does(0, downgrade(5), 4, 5, refused()), true},
		"a downgrade revives a token":          {held5().does(0, release(5), 2, 3, Reply{}).does(0, downgrade(5), 4, 5, Reply{}), false},
		"a downgrade is refused":               {held5().does(0, downgrade(5), 2, 3, refused()), false},
		"a lost downgrade explains a sharer":   {lostly(held5()).does(1, share(), 9, 10, got(6)).does(0, release(5), 11, 12, Reply{}), true},
		"a lost downgrade may do nothing":      {lostly(held5()).does(0, appendCall(5, "x"), 9, 10, at(0)), true},
		"a lost downgrade is no release":       {lostly(held5()).does(1, plain(), 9, 10, got(6)), false},
		"a lost downgrade does not come back":  {lostly(held5()).does(1, share(), 4, 5, got(6)).does(1, release(6), 6, 7, Reply{}).does(0, appendCall(5, "x"), 9, 10, at(0)), false},
		"a downgrade renews":                   {brief5().does(0, downgrade(5), 3, 4, Reply{}).does(1, plain(), 5, 7, got(7)), false},
		"a downgraded lease ends all the same": {brief5().does(0, downgrade(5), 3, 4, Reply{}).does(1, plain(), 5, 9, got(7)), true},

		"a sharer writes":                   {shared56().does(0, appendCall(5, "x"), 2, 3, at(0)), false},
		"a sharer may not write":            {shared56().does(0, appendCall(5, "x"), 2, 3, sharing()), true},
		"who has it alone may not write":    {held5().does(0, appendCall(5, "x"), 2, 3, sharing()), false},
		"a dead token is told it shares":    {held5().does(0, release(5), 2, 3, Reply{}).does(0, appendCall(5, "x"), 4, 5, sharing()), false},
		"a write before the downgrade":      {held5().does(0, appendCall(5, "x"), 2, 3, at(0)).does(0, downgrade(5), 4, 5, Reply{}).does(0, appendCall(5, "y"), 6, 7, sharing()), true},
		"a write after the downgrade":       {held5().does(0, downgrade(5), 2, 3, Reply{}).does(0, appendCall(5, "x"), 4, 5, at(0)), false},
		"a lost write of a sharer is there": {shared56().does(0, appendCall(5, "xy"), 2, 2, lost()).does(0, read(), 4, 5, Reply{Length: 2, Sum: sum("xy")}), false},
	})
}

func TestModelShowsAllSharers(t *testing.T) {
	lostly := func() *script { return history().does(0, share(), 0, 0, lost()) }
	judgeAll(t, map[string]handMade{
		"both are shown":                           {shared56().does(2, show(), 2, 3, together(5, 6)), true},
		"one is shown of two":                      {shared56().does(2, show(), 2, 3, together(5)), false},
		"another is shown":                         {shared56().does(2, show(), 2, 3, together(5, 7)), false},
		"three are shown of two":                   {shared56().does(2, show(), 2, 3, together(5, 6, 7)), false},
		"shown as free":                            {shared56().does(2, show(), 2, 3, shown(0)), false},
		"shown as held alone":                      {history().does(0, share(), 0, 1, got(5)).does(2, show(), 2, 3, shown(5)), false},
		"shown as shared":                          {held5().does(2, show(), 2, 3, together(5)), false},
		"shown as it was":                          {shared56().does(0, release(5), 2, 3, Reply{}).does(2, show(), 4, 5, together(5, 6)), false},
		"shown as shared after a downgrade":        {held5().does(0, downgrade(5), 2, 3, Reply{}).does(2, show(), 4, 5, together(5)), true},
		"a lost sharer is shown":                   {lostly().does(1, share(), 2, 3, got(7)).does(2, show(), 4, 5, together(4, 7)), true},
		"two are shown of one lost":                {lostly().does(1, share(), 2, 3, got(7)).does(2, show(), 4, 5, together(4, 7, 8)), false},
		"a lost sharer explains held":              {lostly().does(1, try(), 2, 3, held()), true},
		"a lost sharer does not explain held":      {lostly().does(1, tryShare(), 2, 3, held()), false},
		"a lost sharer is older than who is alone": {held5().does(1, share(), 2, 2, lost()).does(0, downgrade(5), 3, 4, Reply{}).does(2, show(), 5, 6, together(4, 5)), false},
		"a lost sharer came behind who is alone":   {held5().does(1, share(), 2, 2, lost()).does(0, downgrade(5), 3, 4, Reply{}).does(2, show(), 5, 6, together(5, 6)), true},
		"a lost sharer goes and stays away":        {lostly().does(2, show(), 2, 3, together(4)).does(2, show(), 4, 5, shown(0)).does(2, show(), 6, 7, together(4)), false},
		"one lost sharer is no two":                {lostly().does(2, try(), 2, 3, held()).does(1, plain(), 4, 5, got(7)).does(1, release(7), 6, 7, Reply{}).does(2, try(), 8, 9, held()), false},
		"two lost sharers are two":                 {lostly().does(3, share(), 0, 0, lost()).does(2, try(), 2, 3, held()).does(1, plain(), 4, 5, got(7)).does(1, release(7), 6, 7, Reply{}).does(2, try(), 8, 9, held()), true},
	})
}

// expecting is an append that is to go to an offset.
func expecting(token int, text string, offset int64) AppendCall {
	a := appendCall(token, text)
	a.At = &offset
	return a
}

func mismatch(end int64) Reply { return Reply{Mismatch: true, Offset: end} }

func TestModelOfExpectedOffsetsAndReads(t *testing.T) {
	two := func() *script { return held5().does(0, appendCall(5, "xy"), 2, 3, at(0)) }
	judgeAll(t, map[string]handMade{
		"it goes there":                       {two().does(0, expecting(5, "z", 2), 4, 5, at(2)), true},
		"it goes elsewhere":                   {two().does(0, expecting(5, "z", 0), 4, 5, at(2)), false},
		"it goes there though the end is not": {two().does(0, expecting(5, "z", 0), 4, 5, at(0)), false},
		"the end is told":                     {two().does(0, expecting(5, "z", 0), 4, 5, mismatch(2)), true},
		"another end is told":                 {two().does(0, expecting(5, "z", 0), 4, 5, mismatch(3)), false},
		"the end is where it was expected":    {two().does(0, expecting(5, "z", 2), 4, 5, mismatch(2)), false},
		"nobody expected an offset":           {two().does(0, appendCall(5, "z"), 4, 5, mismatch(2)), false},
		"a mismatch writes nothing":           {two().does(0, expecting(5, "z", 0), 4, 5, mismatch(2)).does(0, read(), 6, 7, Reply{Length: 3, Sum: sum("xy", "z")}), false},
		"a mismatch under a dead token":       {two().does(0, release(5), 4, 5, Reply{}).does(0, expecting(5, "z", 0), 6, 7, mismatch(2)), false},
		"a lost one is there":                 {two().does(0, expecting(5, "z", 2), 4, 4, lost()).does(0, read(), 6, 7, Reply{Length: 3, Sum: sum("xy", "z")}), true},
		"a lost one is not there":             {two().does(0, expecting(5, "z", 2), 4, 4, lost()).does(0, read(), 6, 7, Reply{Length: 2, Sum: sum("xy")}), true},
		"a lost one is elsewhere":             {two().does(0, expecting(5, "z", 0), 4, 4, lost()).does(0, read(), 6, 7, Reply{Length: 3, Sum: sum("xy", "z")}), false},

		"a read amid appends":            {two().does(1, read(), 4, 7, Reply{Length: 2, Sum: sum("xy")}).does(0, appendCall(5, "z"), 5, 6, at(2)), true},
		"a read of the append under way": {two().does(1, read(), 4, 7, Reply{Length: 3, Sum: sum("xy", "z")}).does(0, appendCall(5, "z"), 5, 6, at(2)), true},
		"a read of half of it":           {two().does(1, read(), 4, 7, Reply{Length: 1, Sum: sum("x")}).does(0, appendCall(5, "z"), 5, 6, at(2)), false},
		"a stale read":                   {two().does(0, appendCall(5, "z"), 4, 5, at(2)).does(1, read(), 6, 7, Reply{Length: 2, Sum: sum("xy")}), false},
		"a read that goes back":          {two().does(0, appendCall(5, "z"), 4, 9, at(2)).does(1, read(), 5, 6, Reply{Length: 3, Sum: sum("xy", "z")}).does(1, read(), 7, 8, Reply{Length: 2, Sum: sum("xy")}), false},
		"a read of other bytes":          {two().does(1, read(), 4, 5, Reply{Length: 2, Sum: sum("yx")}), false},
	})
}

// longShared is a right history of a lock that is had alone and shared in turns, with
// downgrades, ends without an answer and grants that nobody is told of.
func longShared(n int, seed uint64) script {
	random := rand.New(rand.NewPCG(seed, 1))
	var s script
	token, now, length := 0, int64(0), int64(0)
	next := func() int { token += 1 + random.IntN(3); return token }
	for i := range n {
		var holders []int
		if i%2 == 0 {
			holders = append(holders, next())
			s.does(0, plain(), now, now+1, got(token))
			text := fmt.Sprintf("line %d\n", i)
			s.does(0, expecting(token, text, length), now+2, now+3, at(length))
			length += int64(len(text))
			if random.IntN(2) == 0 {
				s.does(0, release(token), now+4, now+5, Reply{})
				now += 6
				continue
			}
			s.does(0, downgrade(token), now+4, now+5, Reply{})
		}
		now += 6
		for c := 1; c <= 1+random.IntN(3); c++ {
			holders = append(holders, next())
			s.does(c, share(), now+int64(c), now+5, got(token))
		}
		s.does(9, show(), now+6, now+7, together(holders...))
		for c, token := range holders {
			switch random.IntN(8) {
			case 0: // without an answer; it is done before the next one who wants it alone
				s.does(c, release(token), now+8, now+8, lost())
			case 1:
				s.does(9, broke(token), now+8, now+9, Reply{})
			default:
				s.does(c, release(token), now+8, now+9, Reply{})
			}
		}
		if random.IntN(6) == 0 {
			s.does(8, share(), now+9, now+9, lost())
			next()
		}
		now += 12
	}
	slices.SortStableFunc(s, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return s
}

func TestWindowsOfSharing(t *testing.T) {
	seeds, damages := uint64(3), 2 // of nine operations
	if testing.Short() {
		seeds, damages = 1, 1
	}
	for seed := range seeds {
		h := longShared(80, seed)
		if v := checkOperations(h, HistoryOptions{Window: 40}); len(v.Bad) > 0 || v.Windows < 10 {
			t.Fatalf("seed %d: a right history in %d windows: %v", seed, v.Windows, v.Bad)
		}
		if v := checkOperations(h, HistoryOptions{}); len(v.Bad) > 0 || v.Windows != 1 {
			t.Fatalf("seed %d: a right history in one piece: %+v", seed, v)
		}
		// One damage in each of many places, in windows and in one piece.
		for i := range h {
			if i%9 >= damages {
				continue
			}
			damaged := append(script(nil), h...)
			switch in, out := h[i].Input.(timedCall), h[i].Output.(Reply); in.call.(type) {
			case ShowCall: // one of them not, or twice
				if i%2 == 0 && len(out.Others) > 0 {
					out.Token, out.Others = out.Others[0], out.Others[1:]
				} else {
					out.Others = append(slices.Clone(out.Others), out.Token)
				}
				damaged[i].Output = out
			case AcquireCall: // before it could be
				if out.Unknown {
					continue
				}
				damaged[i].Output = Reply{Held: true}
			case ReleaseCall:
				if out.Unknown {
					continue
				}
				damaged[i].Output = refused()
			default:
				continue
			}
			for _, size := range []int{40, len(h) + 1} {
				if v := checkOperations(damaged, HistoryOptions{Window: size}); v.Illegal == 0 {
					t.Errorf("seed %d: %s is not noticed in windows of %d", seed, describe(h[i].Input.(timedCall).call, damaged[i].Output.(Reply)), size)
				}
			}
		}
	}
}
