// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// script makes histories by hand. Times are in seconds.
type script []porcupine.Operation

// does is one operation of a client between two times.
func (s *script) does(client int, call any, at, back int64, r Reply) *script {
	*s = append(*s, operation(client, call, at*1e9, back*1e9, r))
	return s
}

func history() *script { return &script{} }

func sum(texts ...string) uint32 {
	return crc32.Checksum([]byte(strings.Join(texts, "")), crc32.MakeTable(crc32.Castagnoli))
}

func tokenOf(n int) cluster.Token { return cluster.Token(n) }

func appendCall(token int, text string) AppendCall {
	return AppendCall{Lock: "a", Token: tokenOf(token), Data: []byte(text)}
}

// The words of hand-made histories, all about lock a.
func plain() AcquireCall            { return AcquireCall{Lock: "a"} }
func brief() AcquireCall            { return AcquireCall{Lock: "a", TTL: 5 * time.Second} }
func release(token int) ReleaseCall { return ReleaseCall{"a", tokenOf(token)} }
func renew(token int) RenewCall     { return RenewCall{"a", tokenOf(token)} }
func broke(token int) BreakCall     { return BreakCall{"a", tokenOf(token)} }
func show() ShowCall                { return ShowCall{"a"} }
func read() ReadCall                { return ReadCall{"a"} }
func lost() Reply                   { return Reply{Unknown: true} }
func held() Reply                   { return Reply{Held: true} }
func refused() Reply                { return Reply{Refused: true} }
func got(token int) Reply           { return Reply{Token: tokenOf(token)} }
func shown(token int) Reply         { return Reply{Token: tokenOf(token), Length: -1} }
func at(offset int64) Reply         { return Reply{Offset: offset} }
func held5() *script                { return history().does(0, plain(), 0, 1, got(5)) }
func brief5() *script               { return history().does(0, brief(), 0, 1, got(5)) }

// handMade is a history and whether it is right.
type handMade struct {
	history *script
	want    bool
}

// judgeAll is the model's own control: for each rule, there are histories that
// keep it and some that break it.
func judgeAll(t *testing.T, all map[string]handMade) {
	t.Helper()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			v := checkOperations(*c.history, HistoryOptions{})
			if got := len(v.Bad) == 0; got != c.want || v.Undecided > 0 {
				t.Errorf("linearizable %v, want %v: %v", got, c.want, v.Bad)
			}
		})
	}
}

func TestModelOfGrantsAndLeases(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"a grant that its client did not hear of, and another": {
			history().does(0, brief(), 0, 9, got(9)).does(1, show(), 1, 2, shown(5)).does(1, show(), 3, 4, shown(0)), true},
		"a grant that was broken before its client heard of it, and another": {
			history().does(0, plain(), 0, 9, got(9)).does(1, broke(0), 1, 2, Reply{}).does(1, plain(), 3, 4, got(7)).does(1, release(7), 5, 6, Reply{}), true},
		"a break of nothing": {
			history().does(1, broke(0), 1, 2, Reply{}).does(0, plain(), 3, 4, got(7)), false},
		"a grant that ended too soon to be unheard": {
			history().does(0, brief(), 0, 4, got(9)).does(1, show(), 1, 2, shown(5)), false},
		"one after the other":             {held5().does(0, release(5), 2, 3, Reply{}).does(1, plain(), 4, 5, got(7)), true},
		"two holders":                     {held5().does(1, plain(), 2, 3, got(7)), false},
		"two holders of concurrent calls": {history().does(0, plain(), 0, 5, got(5)).does(1, plain(), 0, 5, got(7)), false},
		"one token twice":                 {held5().does(0, release(5), 2, 3, Reply{}).does(1, plain(), 4, 5, got(5)), false},
		"a token falls":                   {held5().does(0, release(5), 2, 3, Reply{}).does(1, plain(), 4, 5, got(4)), false},
		"held by nobody":                  {history().does(0, plain(), 0, 1, held()), false},
		"held by somebody":                {held5().does(1, plain(), 2, 3, held()), true},
		"held after the release":          {held5().does(0, release(5), 2, 3, Reply{}).does(1, plain(), 4, 5, held()), false},
		"another token releases":          {held5().does(0, release(4), 2, 3, Reply{}), false},
		"released twice":                  {held5().does(0, release(5), 2, 3, Reply{}).does(0, release(5), 4, 5, Reply{}), false},
		"a live token is refused":         {held5().does(0, release(5), 2, 3, refused()), false},
		"a dead token is refused":         {held5().does(0, release(5), 2, 3, Reply{}).does(0, renew(5), 4, 5, refused()), true},
		"a dead token is renewed":         {held5().does(0, release(5), 2, 3, Reply{}).does(0, renew(5), 4, 5, Reply{}), false},

		"a lease ends":                         {brief5().does(1, plain(), 2, 6, got(7)), true},
		"a lease ends too soon":                {brief5().does(1, plain(), 2, 4, got(7)), false},
		"a renewed lease ends too soon":        {brief5().does(0, renew(5), 3, 4, Reply{}).does(1, plain(), 5, 7, got(7)), false},
		"a renewed lease ends":                 {brief5().does(0, renew(5), 3, 4, Reply{}).does(1, plain(), 5, 9, got(7)), true},
		"an append renews, too":                {brief5().does(0, appendCall(5, "x"), 3, 4, at(0)).does(1, plain(), 5, 7, got(7)), false},
		"a lease that ended is renewed":        {brief5().does(1, plain(), 2, 6, got(7)).does(0, renew(5), 7, 8, Reply{}), false},
		"a lease that may have ended is alive": {brief5().does(0, renew(5), 20, 21, Reply{}), true},
	})
}

func TestModelOfCallsWithoutAnAnswer(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"a lost grant explains held":              {history().does(0, plain(), 0, 0, lost()).does(1, plain(), 2, 3, held()), true},
		"a lost grant explains one token":         {history().does(0, plain(), 0, 0, lost()).does(1, plain(), 2, 3, got(7)).does(2, plain(), 4, 5, got(9)), false},
		"two lost grants are two":                 {history().does(0, plain(), 0, 0, lost()).does(3, plain(), 0, 0, lost()).does(1, plain(), 2, 3, got(7)).does(1, release(7), 4, 5, Reply{}).does(2, plain(), 6, 7, held()), true},
		"a lost grant is shown and goes":          {history().does(0, plain(), 0, 0, lost()).does(1, show(), 2, 3, shown(4)).does(1, show(), 4, 5, shown(0)), true},
		"a lost grant is shown under two":         {history().does(0, plain(), 0, 0, lost()).does(1, show(), 2, 3, shown(4)).does(1, show(), 4, 5, shown(6)), false},
		"a lost release explains the next":        {held5().does(0, release(5), 2, 2, lost()).does(1, plain(), 9, 10, got(7)), true},
		"a lost release may do nothing":           {held5().does(0, release(5), 2, 2, lost()).does(1, show(), 9, 10, shown(5)), true},
		"a lost release of another":               {held5().does(0, release(4), 2, 2, lost()).does(1, plain(), 9, 10, got(7)), false},
		"a lost break explains the next":          {held5().does(2, broke(0), 2, 2, lost()).does(1, plain(), 9, 10, got(7)), true},
		"a lost break explains one":               {held5().does(2, broke(0), 2, 2, lost()).does(1, plain(), 9, 10, got(7)).does(3, plain(), 11, 12, got(8)), false},
		"a break ends the grant":                  {held5().does(2, broke(0), 2, 3, Reply{}).does(1, plain(), 4, 5, got(7)), true},
		"a break ends it only once it was called": {held5().does(1, plain(), 2, 3, got(7)).does(2, broke(0), 4, 5, Reply{}), false},
		"a break of nothing":                      {history().does(2, broke(0), 2, 3, Reply{}), false},
		"a break is refused though it is held":    {held5().does(2, broke(5), 2, 3, refused()), false},
	})
}

func once(slot int) AcquireCall { return AcquireCall{Lock: "a", Slot: slot} }
func done(token int) DoneCall   { return DoneCall{"a", tokenOf(token)} }
func already() Reply            { return Reply{Done: true} }

func TestModelOfWhatIsDoneOnce(t *testing.T) {
	slot3 := func() *script { return history().does(0, once(3), 0, 1, got(5)) }
	brief3 := func() *script {
		return history().does(0, AcquireCall{Lock: "a", Slot: 3, TTL: 5 * time.Second}, 0, 1, got(5))
	}
	done3 := func() *script { return slot3().does(0, done(5), 2, 3, Reply{}) }
	judgeAll(t, map[string]handMade{
		"done, and refused":                       {done3().does(1, once(3), 4, 5, already()), true},
		"done, and granted":                       {done3().does(1, once(3), 4, 5, got(7)), false},
		"a later one is done, and it is granted":  {done3().does(1, once(2), 4, 5, got(7)), false},
		"a later one is done, and it is refused":  {done3().does(1, once(2), 4, 5, already()), true},
		"the next is granted":                     {done3().does(1, once(4), 4, 5, got(7)), true},
		"the next is refused":                     {done3().does(1, once(4), 4, 5, already()), false},
		"without a slot it is granted":            {done3().does(1, plain(), 4, 5, got(7)), true},
		"without a slot it is refused":            {done3().does(1, plain(), 4, 5, already()), false},
		"done while another waits":                {slot3().does(1, once(3), 1, 5, already()).does(0, done(5), 2, 3, Reply{}), true},
		"refused before it was done":              {slot3().does(1, once(3), 1, 2, already()).does(0, done(5), 3, 4, Reply{}), false},
		"held though it is done":                  {done3().does(1, plain(), 4, 5, got(7)).does(2, once(3), 6, 7, held()), false},
		"done, and held by another":               {done3().does(1, plain(), 4, 5, got(7)).does(2, once(3), 6, 7, already()), true},
		"released is not done":                    {slot3().does(0, release(5), 2, 3, Reply{}).does(1, once(3), 4, 5, already()), false},
		"released, and granted":                   {slot3().does(0, release(5), 2, 3, Reply{}).does(1, once(3), 4, 5, got(7)), true},
		"done is released":                        {done3().does(1, plain(), 4, 5, held()), false},
		"done under an old token":                 {brief3().does(1, once(3), 2, 6, got(7)).does(0, done(5), 7, 8, Reply{}), false},
		"done too late is not done":               {brief3().does(1, once(3), 2, 6, got(7)).does(0, done(5), 7, 8, refused()).does(1, release(7), 9, 10, Reply{}).does(2, once(3), 11, 12, already()), false},
		"a lost call may have marked it":          {slot3().does(0, done(5), 2, 2, lost()).does(1, once(3), 9, 10, already()), true},
		"a lost call may come late":               {slot3().does(0, done(5), 2, 2, lost()).does(1, show(), 3, 4, shown(5)).does(1, once(3), 9, 10, already()), true},
		"a lost call releases only what is done":  {slot3().does(0, done(5), 2, 2, lost()).does(1, once(3), 9, 10, got(7)), false},
		"a lost call, and the lease ends":         {brief3().does(0, done(5), 2, 2, lost()).does(1, once(3), 9, 10, got(7)), true},
		"a lost call too late":                    {brief3().does(0, done(5), 2, 2, lost()).does(1, once(3), 9, 10, got(7)).does(2, once(3), 11, 12, already()), false},
		"a lost call of a release marks nothing":  {slot3().does(0, release(5), 2, 2, lost()).does(1, once(3), 9, 10, already()), false},
		"a lost call of a lock without a slot":    {held5().does(0, done(5), 2, 2, lost()).does(1, once(1), 9, 10, already()), false},
		"a lost call after the end marks nothing": {slot3().does(2, broke(5), 2, 3, Reply{}).does(0, done(5), 4, 4, lost()).does(1, once(3), 9, 10, already()), false},
		"a break came before the lost call":       {slot3().does(0, done(5), 2, 2, lost()).does(2, broke(5), 3, 4, Reply{}).does(1, once(3), 9, 10, got(7)), true},
		"a refused break shows that it is marked": {slot3().does(0, done(5), 2, 2, lost()).does(2, broke(5), 3, 4, refused()).does(1, once(3), 9, 10, got(7)), false},
	})
}

// TestWindowsKnowWhatIsDone: what was done before a window began is done in it; where the call had no answer, it may be.
func TestWindowsKnowWhatIsDone(t *testing.T) {
	before := func(end any, r Reply) *script {
		return history().does(0, once(3), 0, 1, got(5)).does(0, end, 2, 3, r).does(1, plain(), 5, 6, got(7)).does(1, release(7), 7, 8, Reply{})
	}
	for name, c := range map[string]handMade{
		"done, and granted":                  {before(done(5), Reply{}).does(2, once(3), 9, 10, got(9)), false},
		"done, and refused":                  {before(done(5), Reply{}).does(2, once(3), 9, 10, already()), true},
		"perhaps done, and refused":          {before(done(5), lost()).does(2, once(3), 9, 10, already()), true},
		"released, and refused":              {before(release(5), Reply{}).does(2, once(3), 9, 10, already()), false},
		"released, and granted":              {before(release(5), Reply{}).does(2, once(3), 9, 10, got(9)), true},
		"perhaps done, refused, and granted": {before(done(5), lost()).does(2, once(3), 9, 10, already()).does(2, once(3), 11, 12, got(9)), false},
		"a refusal without a reason before":  {before(release(5), Reply{}).does(2, once(4), 9, 10, already()), false},
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

func TestModelOfReadsAndAppends(t *testing.T) {
	judgeAll(t, map[string]handMade{
		"a right read":               {held5().does(1, show(), 2, 3, shown(5)), true},
		"a stale read of a holder":   {held5().does(0, release(5), 2, 3, Reply{}).does(1, show(), 4, 5, shown(5)), false},
		"a stale read of no holder":  {held5().does(1, show(), 2, 3, shown(0)), false},
		"a read of nobody's token":   {held5().does(1, show(), 2, 3, shown(6)), false},
		"a stale read of the length": {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(1, show(), 4, 5, Reply{Token: 5, Length: 0}), false},
		"a right read of the length": {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(1, show(), 4, 5, Reply{Token: 5, Length: 2}), true},

		"appends in order":                 {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(0, appendCall(5, "z"), 4, 5, at(2)).does(0, read(), 6, 7, Reply{Length: 3, Sum: sum("xy", "z")}), true},
		"an append is lost":                {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(0, appendCall(5, "z"), 4, 5, at(0)), false},
		"an append is doubled":             {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(0, appendCall(5, "z"), 4, 5, at(4)), false},
		"the last append is lost":          {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(0, read(), 6, 7, Reply{}), false},
		"the file holds other bytes":       {held5().does(0, appendCall(5, "xy"), 2, 3, at(0)).does(0, read(), 6, 7, Reply{Length: 2, Sum: sum("yx")}), false},
		"an append before its grant":       {history().does(1, appendCall(5, "x"), 0, 1, at(0)).does(0, plain(), 2, 3, got(5)), false},
		"an append under an old token":     {held5().does(0, release(5), 2, 3, Reply{}).does(1, plain(), 4, 5, got(7)).does(0, appendCall(5, "x"), 6, 7, at(0)), false},
		"an append under an ended lease":   {brief5().does(1, plain(), 2, 9, got(7)).does(0, appendCall(5, "x"), 10, 11, at(0)), false},
		"an append under a live lease":     {brief5().does(0, appendCall(5, "x"), 10, 11, at(0)), true},
		"a late append is refused":         {brief5().does(1, plain(), 2, 9, got(7)).does(0, appendCall(5, "x"), 10, 11, refused()), true},
		"a right append is refused":        {held5().does(0, appendCall(5, "x"), 10, 11, refused()), false},
		"a lost append is there":           {held5().does(0, appendCall(5, "xy"), 2, 2, lost()).does(0, appendCall(5, "z"), 4, 5, at(2)), true},
		"a lost append is not there":       {held5().does(0, appendCall(5, "xy"), 2, 2, lost()).does(0, appendCall(5, "z"), 4, 5, at(0)), true},
		"a lost append is there in part":   {held5().does(0, appendCall(5, "xy"), 2, 2, lost()).does(0, appendCall(5, "z"), 4, 5, at(1)), false},
		"a lost append under an old token": {held5().does(0, release(5), 2, 3, Reply{}).does(0, appendCall(5, "xy"), 4, 4, lost()).does(1, plain(), 5, 6, got(7)).does(1, appendCall(7, "z"), 7, 8, at(2)), false},
	})
}

// TestLandedDecidesAboutLostAppends: with the file at hand, an append without an
// answer is where it is, or nowhere.
func TestLandedDecidesAboutLostAppends(t *testing.T) {
	h := history().does(0, AcquireCall{Lock: "a"}, 0, 1, Reply{Token: 5}).
		does(0, appendCall(5, "xy"), 2, 2, Reply{Unknown: true}).
		does(0, appendCall(5, "z"), 4, 5, Reply{Offset: 2})
	for _, c := range []struct {
		offset int64
		there  bool
		want   bool
	}{{0, true, true}, {0, false, false}, {3, true, false}} {
		landed := func(AppendCall) (int64, bool) { return c.offset, c.there }
		if v := checkOperations(*h, HistoryOptions{Landed: landed}); (len(v.Bad) == 0) != c.want {
			t.Errorf("landed at %d, %v: %v, want linearizable %v", c.offset, c.there, v.Bad, c.want)
		}
	}
}

// long is a right history of one lock and its file with everything in it, by
// four clients that are sometimes at it at once.
func long(n int, seed uint64) script {
	random := rand.New(rand.NewPCG(seed, 1))
	var s script
	token, now, length := 0, int64(0), int64(0)
	for i := range n {
		client := i % 4
		token += 1 + random.IntN(3)
		s.does(client, AcquireCall{Lock: "a", TTL: 10 * time.Second}, now, now+2, Reply{Token: tokenOf(token)})
		if random.IntN(3) == 0 {
			s.does((client+1)%4, AcquireCall{Lock: "a", Try: true}, now+1, now+3, Reply{Held: true})
		}
		text := fmt.Sprintf("line %d\n", i)
		s.does(client, appendCall(token, text), now+4, now+5, Reply{Offset: length})
		length += int64(len(text))
		switch random.IntN(12) {
		case 0: // its answer is lost
			s.does(client, ReleaseCall{"a", tokenOf(token)}, now+6, now+6, Reply{Unknown: true})
		case 1: // its lease ends
			now += 30
		case 2: // and a grant that nobody is told of
			s.does(client, ReleaseCall{"a", tokenOf(token)}, now+6, now+7, Reply{})
			s.does(client, AcquireCall{Lock: "a"}, now+8, now+8, Reply{Unknown: true})
			token++
		default:
			s.does(client, ReleaseCall{"a", tokenOf(token)}, now+6, now+7, Reply{})
		}
		now += 10
	}
	return s
}

func TestWindowsFindWhatTheWholeFinds(t *testing.T) {
	h := long(400, 3)
	v := checkOperations(h, HistoryOptions{Window: 50})
	if len(v.Bad) > 0 || v.Windows < 10 {
		t.Fatalf("a right history in %d windows: %v", v.Windows, v.Bad)
	}
	if v := checkOperations(h, HistoryOptions{}); len(v.Bad) > 0 || v.Windows != 1 {
		t.Fatalf("a right history in one piece: %+v", v)
	}
	// One damage in each of many places, in windows and in one piece.
	for i := range h {
		in, out := h[i].Input.(timedCall), h[i].Output.(Reply)
		if _, is := in.call.(AppendCall); !is || i%7 != 0 {
			continue
		}
		for _, size := range []int{50, len(h) + 1} {
			damaged := append(script(nil), h...)
			damaged[i].Output = Reply{Offset: out.Offset + 1}
			if v := checkOperations(damaged, HistoryOptions{Window: size}); v.Illegal == 0 {
				t.Errorf("a wrong offset in operation %d is not noticed in windows of %d", i, size)
			}
		}
	}
}

// TestLostAppendsThatLandedDoNotJoinWindows: an append without an answer is over when somebody
// knows of bytes behind it.
func TestLostAppendsThatLandedDoNotJoinWindows(t *testing.T) {
	h := long(400, 3)
	offsets := map[string]int64{}
	for i := range h {
		in, out := h[i].Input.(timedCall), h[i].Output.(Reply)
		if call, is := in.call.(AppendCall); is && i < len(h)/2 {
			offsets[string(call.Data)] = out.Offset
			h[i] = operation(h[i].ClientId, call, in.at, in.back, Reply{Unknown: true})
		}
	}
	landed := func(a AppendCall) (int64, bool) { return offsets[string(a.Data)], true }
	if v := checkOperations(h, HistoryOptions{Window: 50, Landed: landed}); len(v.Bad) > 0 || v.Windows < 10 {
		t.Errorf("%d windows: %v", v.Windows, v.Bad)
	}
}

// TestThinHistoryIsAFailure: a history that explains everything, or in which nobody did
// anything, proves nothing.
func TestThinHistoryIsAFailure(t *testing.T) {
	lots := &script{}
	for i := range int64(200) {
		lots.does(0, release(1), i, i, lost())
	}
	for name, c := range map[string]struct {
		history *script
		least   map[string]int
		spoil   func(*History)
		want    string
	}{
		"enough":                      {held5(), map[string]int{"AcquireCall": 1}, nil, ""},
		"a kind that nobody called":   {held5(), map[string]int{"AcquireCall": 1, "ReleaseCall": 1}, nil, "0 answers to ReleaseCall"},
		"enough permits":              {taken3(), map[string]int{PermitsCall: 2}, nil, ""},
		"no permits":                  {held5(), map[string]int{PermitsCall: 1}, nil, "0 answers to AcquireCall of permits"},
		"permits, and no lock":        {taken3(), map[string]int{"AcquireCall": 1}, nil, "0 answers to AcquireCall,"},
		"answers that never came":     {lots, nil, nil, "200 of 200 calls of the history had no answer"},
		"answers that never came, 2":  {lots, map[string]int{"ReleaseCall": 1}, nil, "0 answers to ReleaseCall"},
		"an answer that none may get": {held5(), nil, func(h *History) { h.Violation("client %d: no", 3) }, "client 3: no"},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := NewHistory(), &Report{}
			h.mu.operations = *c.history
			for _, op := range *c.history {
				if op.Output.(Reply).Unknown {
					h.mu.unknown++
				}
			}
			if c.spoil != nil {
				c.spoil(h)
			}
			h.Check(HistoryOptions{Least: c.least}, r)
			if all := fmt.Sprint(r.Violations()); c.want == "" && all != "[]" || !strings.Contains(all, c.want) {
				t.Errorf("got %v, want %q", all, c.want)
			}
		})
	}
}

// TestUndecidedIsAFailure gives porcupine no time at all.
func TestUndecidedIsAFailure(t *testing.T) {
	h := NewHistory()
	h.mu.operations = long(2000, 5)
	r := &Report{}
	v := h.Check(HistoryOptions{Limit: time.Nanosecond, Window: 4000}, r)
	if v.Undecided == 0 || len(r.Violations()) == 0 {
		t.Errorf("%+v, report %v", v, r.Violations())
	}
}

func TestFailureLeavesAPicture(t *testing.T) {
	h, r, dir := NewHistory(), &Report{}, t.TempDir()
	h.mu.operations = *history().does(0, AcquireCall{Lock: "a"}, 0, 1, Reply{Held: true})
	if v := h.Check(HistoryOptions{Pictures: dir}, r); v.Illegal != 1 {
		t.Errorf("%+v", v)
	}
	if _, err := os.Stat(filepath.Join(dir, "history-1-0.html")); err != nil {
		t.Error(err)
	}
}

func TestHistoryNotesTimes(t *testing.T) {
	h := NewHistory()
	h.Begin(0, AcquireCall{Lock: "a"})(Reply{Token: 3})
	h.Begin(0, AppendCall{Lock: "a", Token: 3})(Reply{Unknown: true})
	h.Begin(1, ReleaseCall{Lock: "a", Token: 3})(Reply{Unknown: true})
	all, unknown := h.Operations()
	if len(all) != 3 || unknown != 2 {
		t.Fatalf("%d operations, %d without an answer", len(all), unknown)
	}
	if all[0].Return < all[0].Call || all[1].Return != never || all[2].Return != all[2].Call {
		t.Errorf("times: %+v", all)
	}
}
