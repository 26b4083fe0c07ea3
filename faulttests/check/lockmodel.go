// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// lockState is what a lock and its file may be. Nothing here was taken from the
// service's own table: it is what clients are promised, under the policy that
// locks survive failovers.
type lockState struct {
	token cluster.Token // of the live grant; 0 = free, or a ghost holds it
	// ghost says that the grant of a call without an answer is live. Nobody knows its token.
	ghost bool
	// loose says that the live grant may end at any time: an unanswered release
	// of it is under way, or its client, who got no answer, lets it go.
	loose bool
	// until is when the live lease may end by itself at the earliest; ttl is its length.
	until, ttl int64
	top        cluster.Token // the highest that was ever granted and told

	acquires int // without an answer, which may still be granted
	breaks   int // of any grant, without an answer

	length int64 // of the file
	sum    uint32
}

// LockModel is a lock and its file as clients understand them. Its state is the
// set of all states that the calls and answers so far allow.
func LockModel() porcupine.Model { return modelFrom([]lockState{{}}) }

func modelFrom(init []lockState) porcupine.Model {
	return porcupine.Model{
		Partition: partitionByLock,
		Init:      func() any { return closest(init) },
		Step: func(state, in, out any) (bool, any) {
			next := step(state.([]lockState), in.(timedCall), out.(Reply))
			return len(next) > 0, next
		},
		Equal:             func(a, b any) bool { return slices.Equal(a.([]lockState), b.([]lockState)) },
		DescribeOperation: func(in, out any) string { return describe(in.(timedCall).call, out.(Reply)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// step is every state that may follow, none where the answer is wrong.
func step(from []lockState, in timedCall, out Reply) (next []lockState) {
	for _, s := range meanwhile(from, in.back) {
		if after, ok := s.after(in, out); ok {
			next = append(next, after...)
		}
	}
	return closest(next)
}

// meanwhile adds what may have happened by itself until now.
func meanwhile(from []lockState, now int64) []lockState {
	all := slices.Clone(from)
	for i := 0; i < len(all); i++ { // all grows
		s := all[i]
		var more []lockState
		switch {
		case s.free() && s.acquires > 0:
			g := s
			g.acquires--
			g.ghost, g.loose, g.until = true, true, never
			more = append(more, g)
		case !s.free() && (s.loose || s.until != never && now >= s.until):
			more = append(more, s.ended())
		case !s.free() && s.breaks > 0:
			b := s.ended()
			b.breaks--
			more = append(more, b)
		}
		for _, m := range more {
			if !slices.ContainsFunc(all, func(x lockState) bool { return x.covers(m) }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// closest leaves out what another state covers, and sorts.
func closest(all []lockState) (least []lockState) {
	for i, s := range all {
		covered := false
		for j, other := range all {
			if j != i && other.covers(s) && (j < i || !s.covers(other)) {
				covered = true
				break
			}
		}
		if !covered {
			least = append(least, s)
		}
	}
	slices.SortFunc(least, lockState.compare)
	return least
}

// covers says that whatever can follow o can follow s as well.
func (s lockState) covers(o lockState) bool {
	same := s
	same.loose, same.until, same.acquires, same.breaks = o.loose, o.until, o.acquires, o.breaks
	return same == o && (s.loose || !o.loose) && (s.loose || s.until <= o.until) && s.acquires >= o.acquires && s.breaks >= o.breaks
}

// compare sorts states in any fixed order.
func (s lockState) compare(o lockState) int {
	flags := func(s lockState) (n int) {
		if s.ghost {
			n++
		}
		if s.loose {
			n += 2
		}
		return n
	}
	return cmp.Or(cmp.Compare(s.token, o.token), cmp.Compare(s.top, o.top), cmp.Compare(s.length, o.length), cmp.Compare(s.sum, o.sum),
		cmp.Compare(flags(s), flags(o)), cmp.Compare(s.until, o.until), cmp.Compare(s.acquires, o.acquires), cmp.Compare(s.breaks, o.breaks))
}

func (s lockState) free() bool { return s.token == 0 && !s.ghost }

// ended is the state without its grant.
func (s lockState) ended() lockState {
	s.token, s.ghost, s.loose, s.until, s.ttl = 0, false, false, 0, 0
	return s
}

// used is the state after the service heard of the live grant at a call.
func (s lockState) used(at int64) lockState {
	if s.until != never {
		s.until = max(s.until, at+s.ttl)
	}
	return s
}

// after is what may follow one call and its answer; false where the answer is wrong.
func (s lockState) after(in timedCall, r Reply) ([]lockState, bool) {
	if r.Unknown {
		return s.unanswered(in), true
	}
	one := func(s lockState) ([]lockState, bool) { return []lockState{s}, true }
	switch call := in.call.(type) {
	case AcquireCall:
		switch {
		case r.Held && !s.free():
			return one(s)
		case !r.Held && s.free() && r.Token > s.top:
			return one(s.granted(call, in.at, r.Token))
		}
	case ReleaseCall:
		switch live := s.live(call.Token); {
		case live && !r.Refused:
			return one(s.ended())
		case !live && r.Refused:
			return one(s)
		}
	case RenewCall:
		switch live := s.live(call.Token); {
		case live && !r.Refused:
			return one(s.used(in.at))
		case !live && r.Refused:
			return one(s)
		}
	case BreakCall:
		switch hits := !s.free() && (call.Token == 0 || s.live(call.Token)); {
		case hits && !r.Refused:
			return one(s.ended())
		case !hits && r.Refused:
			return one(s)
		}
	case AppendCall:
		switch live := s.live(call.Token); {
		case live && !r.Refused && r.Offset == s.length:
			return one(s.used(in.at).longer(call.Data))
		case !live && r.Refused:
			return one(s)
		}
	case ShowCall:
		return s.shown(r)
	case ReadCall:
		if r.Length == s.length && r.Sum == s.sum {
			return one(s)
		}
	}
	return nil, false
}

// live says that the token is the live one.
func (s lockState) live(token cluster.Token) bool { return s.token == token && token != 0 }

func (s lockState) granted(call AcquireCall, at int64, token cluster.Token) lockState {
	s.token, s.top, s.ttl, s.until = token, token, int64(call.TTL), never
	if call.TTL > 0 {
		s.until = at + s.ttl
	}
	return s
}

func (s lockState) longer(data []byte) lockState {
	s.length += int64(len(data))
	s.sum = crc32.Update(s.sum, crc32.MakeTable(crc32.Castagnoli), data)
	return s
}

// shown is what may be if a lock was shown so. A token that nobody was told of is a ghost's.
func (s lockState) shown(r Reply) ([]lockState, bool) {
	if r.Length >= 0 && r.Length != s.length {
		return nil, false
	}
	switch {
	case r.Token == s.token && !s.ghost:
		return []lockState{s}, true
	case s.ghost && r.Token > s.top:
		s.token, s.top, s.ghost = r.Token, r.Token, false
		return []lockState{s}, true
	}
	return nil, false
}

// unanswered remembers that a call is out.
func (s lockState) unanswered(in timedCall) []lockState {
	switch call := in.call.(type) {
	case AcquireCall:
		s.acquires++
	case ReleaseCall:
		s.loose = s.loose || s.live(call.Token)
	case BreakCall:
		if call.Token == 0 {
			s.breaks++
		} else {
			s.loose = s.loose || s.live(call.Token)
		}
	case AppendCall:
		if s.live(call.Token) {
			return []lockState{s, s.longer(call.Data)}
		}
	}
	return []lockState{s}
}

// describe is one operation in a picture.
func describe(call any, r Reply) string {
	if a, ok := call.(AppendCall); ok {
		return fmt.Sprintf("append %d bytes %.30q under %d -> %+v", len(a.Data), a.Data, a.Token, r)
	}
	return fmt.Sprintf("%T%+v -> %+v", call, call, r)
}
