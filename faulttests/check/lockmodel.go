// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// lockState is what a lock and its file may be. Nothing here was taken from the
// service's own table: it is what clients are promised, under the policy that
// locks survive failovers. Whose turn it is is not in it: that is for the log.
type lockState struct {
	// holds are the live grants, sorted, and never changed in place: any number that share the
	// lock, or one.
	holds []hold
	mode
	top  cluster.Token // the highest that was ever granted in an answer
	base cluster.Token // the highest of those that had the lock alone

	done     int   // the highest slot that is done
	acquires tally // without an answer, which may still be granted
	breaks   int   // of the only grant, without an answer

	length int64 // of the file
	sum    uint32
}

// LockModel is a lock and its file as clients understand them. Its state is the
// set of all states that the calls and answers so far allow.
func LockModel() porcupine.Model { return modelFrom(knowledge{may: []lockState{{}}}) }

// knowledge is what a lock may be, and the acquires without an answer so far, sorted.
type knowledge struct {
	may     []lockState
	unknown []unknownCall
}

// open counts the acquires without an answer that are not over.
func (k knowledge) open(now int64) (n tally) {
	for _, c := range k.unknown {
		if c.over == 0 || now <= c.over {
			n = n.plus(c.kind, 1)
		}
	}
	return n
}

// calls notes a call without an answer.
func (k knowledge) calls(in timedCall) knowledge {
	if call, is := in.call.(AcquireCall); is {
		c := unknownCall{call.kind(), in.over}
		i, _ := slices.BinarySearchFunc(k.unknown, c, unknownCall.compare)
		k.unknown = slices.Insert(slices.Clone(k.unknown), i, c)
	}
	return k
}

func (k knowledge) equal(o knowledge) bool {
	return slices.EqualFunc(k.may, o.may, lockState.equal) && slices.Equal(k.unknown, o.unknown)
}

func modelFrom(init knowledge) porcupine.Model {
	return porcupine.Model{
		Partition: partitionByLock,
		Init:      func() any { return knowledge{closest(init.may, math.MinInt64), init.unknown} },
		Step: func(state, in, out any) (bool, any) {
			next := step(state.(knowledge), in.(timedCall), out.(Reply))
			return len(next.may) > 0, next
		},
		Equal:             func(a, b any) bool { return a.(knowledge).equal(b.(knowledge)) },
		DescribeOperation: func(in, out any) string { return describe(in.(timedCall).call, out.(Reply)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// step is every state that may follow, none where the answer is wrong.
func step(from knowledge, in timedCall, out Reply) knowledge {
	next, open := knowledge{unknown: from.unknown}, from.open(in.at)
	for _, s := range meanwhile(from.may, in.back, ghostsOf(in, out)) {
		s, ok := s.within(open)
		if !ok {
			continue
		}
		if after, ok := s.after(in, out); ok {
			next.may = append(next.may, after...)
		}
	}
	next.may = closest(next.may, in.back)
	if out.Unknown {
		next = next.calls(in)
	}
	return next
}

// ghostsOf is how many ghosts an answer may speak of: those that are shown, as many as the permits are
// where too few are free, or two where it only matters whether there is a holder, or more than one.
func ghostsOf(in timedCall, out Reply) int {
	if call, is := in.call.(AcquireCall); is && out.Held {
		return max(2, int(call.Limit))
	}
	return max(2, len(out.tokens()))
}

// meanwhile adds what may have happened by itself until now, with no more ghosts than so many.
func meanwhile(from []lockState, now int64, ghosts int) []lockState {
	all := slices.Clone(from)
	for i := 0; i < len(all); i++ { // all grows
		for _, m := range all[i].next(now, ghosts) {
			if !slices.ContainsFunc(all, func(x lockState) bool { return x.stands(m) }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// next is each single thing that may have happened by itself until now.
func (s lockState) next(now int64, ghosts int) (more []lockState) {
	for _, c := range s.acquires {
		if s.ghosts() < ghosts && s.admits(c.kind) {
			g := s.with(ghost(c.weight), c.mode)
			g.acquires = g.acquires.plus(c.kind, -1)
			more = append(more, g)
		}
	}
	for i, h := range s.holds {
		if h.ends(now) {
			more = append(more, s.without(i))
		}
		if h.marks {
			more = append(more, s.finished(i))
		}
	}
	if len(s.holds) == 1 && s.breaks > 0 {
		b := s.without(0)
		b.breaks--
		more = append(more, b)
	}
	if s.alone() && s.holds[0].opens {
		more = append(more, s.opened())
	}
	return more
}

// closest leaves out what another state covers, and sorts.
func closest(all []lockState, now int64) (least []lockState) {
	for i, s := range all {
		covered := false
		for j, other := range all {
			if j != i && other.covers(s, now) && (j < i || !s.covers(other, now)) {
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

// after is what may follow one call and its answer; false where the answer is wrong.
func (s lockState) after(in timedCall, r Reply) ([]lockState, bool) {
	if r.Unknown {
		return s.unanswered(in), true
	}
	switch call := in.call.(type) {
	case AcquireCall:
		return s.acquired(call, in, r)
	case ShowCall:
		return s.shown(r)
	case BreakCall:
		if call.Token == 0 {
			return s.broken(r)
		}
		return s.byToken(call.Token, r, func(i int) []lockState { return []lockState{s.without(i)} })
	case ReleaseCall:
		return s.byToken(call.Token, r, func(i int) []lockState { return []lockState{s.without(i)} })
	case DoneCall:
		return s.byToken(call.Token, r, func(i int) []lockState { return []lockState{s.finished(i)} })
	case RenewCall:
		return s.byToken(call.Token, r, func(i int) []lockState { return []lockState{s.used(i, in.at)} })
	case DowngradeCall:
		return s.byToken(call.Token, r, func(i int) []lockState {
			switch {
			case r.Shared != (s.limit > 0):
				return nil
			case s.shared:
				return []lockState{s} // it is one already, and that is no use of it
			}
			return []lockState{s.used(i, in.at).opened()}
		})
	case AppendCall:
		return s.byToken(call.Token, r, func(i int) []lockState { return s.appended(call, i, in.at, r) })
	case ReadCall:
		if r.Length == s.length && r.Sum == s.sum {
			return []lockState{s}, true
		}
	}
	return nil, false
}

// acquired judges the answer to an acquire.
func (s lockState) acquired(call AcquireCall, in timedCall, r Reply) ([]lockState, bool) {
	done, k := call.Slot != 0 && call.Slot <= s.done, call.kind()
	switch {
	case r.Done || done: // whether others hold it or not
		return []lockState{s}, r.Done && done
	case r.OtherLimit: // of those who hold it: nobody waits for a lock that is free
		return []lockState{s}, !s.free() && s.limit != k.limit
	case r.Held && !s.free() && s.limit == k.limit && (!s.admits(k) || in.rival):
		return []lockState{s}, true
	case !r.Held && r.Token > s.top && s.admits(k):
		return []lockState{s.granted(call, in.at, r.Token)}, true
	}
	return nil, false
}

// byToken judges what names a token: refused if it is dead, else done by f.
func (s lockState) byToken(token cluster.Token, r Reply, f func(i int) []lockState) ([]lockState, bool) {
	i := s.find(token)
	if i < 0 || r.Refused {
		return []lockState{s}, i < 0 && r.Refused
	}
	next := f(i)
	return next, len(next) > 0
}

// broken judges a break that names no token, and means the only holder.
func (s lockState) broken(r Reply) ([]lockState, bool) {
	switch len(s.holds) {
	case 0:
		return []lockState{s}, r.Refused
	case 1:
		return []lockState{s.without(0)}, !r.Refused && !r.Shared
	}
	return []lockState{s}, r.Shared
}

// appended judges an append under a live token: only one that has the lock alone writes, and
// where an offset is expected, only there.
func (s lockState) appended(call AppendCall, i int, at int64, r Reply) []lockState {
	there := call.At == nil || *call.At == s.length
	switch {
	case r.Shared != s.shared || r.Mismatch && r.Shared:
	case r.Shared:
		return []lockState{s}
	case r.Mismatch && !there && r.Offset == s.length:
		return []lockState{s}
	case !r.Mismatch && there && r.Offset == s.length:
		return []lockState{s.used(i, at).longer(call.Data)}
	}
	return nil
}

func (s lockState) granted(call AcquireCall, at int64, token cluster.Token) lockState {
	k := call.kind()
	h := hold{token: token, ttl: int64(call.TTL), until: never, slot: call.Slot, weight: k.weight}
	if call.TTL > 0 {
		h.until = at + h.ttl
	}
	s.top = token
	if !k.shared {
		s.base = token
	}
	return s.with(h, k.mode)
}

func (s lockState) longer(data []byte) lockState {
	s.length += int64(len(data))
	s.sum = crc32.Update(s.sum, crc32.MakeTable(crc32.Castagnoli), data)
	return s
}

// shown returns the states in which a lock can be shown so. A token in no other answer is a ghost's.
func (s lockState) shown(r Reply) ([]lockState, bool) {
	told := r.tokens()
	distinct := len(slices.Compact(slices.Sorted(slices.Values(told))))
	if r.Length >= 0 && r.Length != s.length || distinct != len(told) || distinct != len(s.holds) || distinct > 0 && r.mode() != s.mode {
		return nil, false
	}
	next := s
	for n, token := range told {
		weight := r.weight(n)
		if i := s.find(token); i >= 0 {
			if s.holds[i].weight != weight {
				return nil, false
			}
			continue
		}
		i := slices.IndexFunc(next.holds, func(h hold) bool { return h.token == 0 && h.weight == weight })
		if i < 0 || token <= s.base || !s.shared && token <= s.top {
			return nil, false
		}
		next = next.changed(i, func(h *hold) { h.token = token })
		if next.top = max(next.top, token); !s.shared {
			next.base = token
		}
	}
	return []lockState{next}, true
}

// unanswered remembers that a call is out.
func (s lockState) unanswered(in timedCall) []lockState {
	loosen := func(token cluster.Token) []lockState {
		if i := s.find(token); i >= 0 {
			return []lockState{s.changed(i, func(h *hold) { h.loose = true })}
		}
		return []lockState{s}
	}
	switch call := in.call.(type) {
	case AcquireCall:
		s.acquires = s.acquires.plus(call.kind(), 1)
	case ReleaseCall:
		return loosen(call.Token)
	case DoneCall:
		if i := s.find(call.Token); i >= 0 {
			return []lockState{s.changed(i, func(h *hold) { h.marks = true })}
		}
	case BreakCall:
		if call.Token != 0 {
			return loosen(call.Token)
		}
		s.breaks++
	case DowngradeCall:
		if i := s.find(call.Token); i >= 0 && !s.shared {
			return []lockState{s.changed(i, func(h *hold) { h.opens = true })}
		}
	case AppendCall:
		if s.find(call.Token) >= 0 && !s.shared && (call.At == nil || *call.At == s.length) {
			return []lockState{s, s.longer(call.Data)}
		}
	}
	return []lockState{s}
}

// describe is one operation in a picture.
func describe(call any, r Reply) string {
	if a, ok := call.(AppendCall); ok {
		where := ""
		if a.At != nil {
			where = fmt.Sprintf(" at %d", *a.At)
		}
		return fmt.Sprintf("append %d bytes %.30q%s under %d -> %+v", len(a.Data), a.Data, where, a.Token, r)
	}
	return fmt.Sprintf("%T%+v -> %+v", call, call, r)
}
