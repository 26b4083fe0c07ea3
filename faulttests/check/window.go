// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// window is a piece of a lock's history in which nothing from before was still
// in progress, and the states in which it may have begun.
type window struct {
	init       knowledge
	operations []porcupine.Operation
}

// windows cuts operations, which are in order of their calls.
func windows(all []porcupine.Operation, size int) (cut []window) {
	begin, busy := 0, int64(math.MinInt64)
	for i, op := range all {
		if i-begin >= size && busy < op.Call {
			cut = append(cut, window{summary(all[:begin]), all[begin:i]})
			begin = i
		}
		busy = max(busy, op.Return)
	}
	return append(cut, window{summary(all[:begin]), all[begin:]})
}

// fate is what operations that were judged already tell of one grant.
type fate struct {
	hold
	mode          // from the beginning
	answered bool // its client got it as an answer
	shown    bool // or it was in an answer to another client
	over     bool
	opened   bool
}

// fates are what all these operations tell of the grants.
type fates map[cluster.Token]*fate

func (f fates) of(token cluster.Token) *fate {
	x := f[token]
	if x == nil {
		x = &fate{hold: hold{token: token, loose: true, ghost: true, until: never}} // of a call without an answer
		f[token] = x
	}
	return x
}

// granted records a grant that its client got as an answer.
func (f fates) granted(call AcquireCall, at int64, token cluster.Token) {
	x := f.of(token)
	k := call.kind()
	x.mode, x.weight, x.answered, x.loose, x.ghost, x.ttl, x.slot = k.mode, k.weight, true, false, false, int64(call.TTL), call.Slot
	if call.TTL > 0 {
		x.until = at + x.ttl
	}
}

// used notes a use of a token and what was said of it.
func (f fates) used(token cluster.Token, at int64, out Reply) {
	x := f.of(token)
	if x.over = x.over || out.Refused; x.until != never && !out.Unknown && !out.Refused {
		x.until = max(x.until, at+x.ttl)
	}
}

// note takes in one operation.
func (f fates) note(in timedCall, out Reply) {
	switch call := in.call.(type) {
	case AcquireCall:
		if !out.Unknown && !out.Held && !out.OtherLimit && !out.Done {
			f.granted(call, in.at, out.Token)
		}
	case ShowCall:
		for i, token := range out.tokens() {
			if x := f.of(token); !x.answered {
				x.mode, x.weight, x.shown = out.mode(), out.weight(i), true
			}
		}
	case ReleaseCall:
		f.ends(call.Token, out)
	case DoneCall:
		x := f.of(call.Token)
		x.over = x.over || !out.Unknown
		x.marks = x.marks || out.Unknown
	case BreakCall:
		if call.Token != 0 {
			f.ends(call.Token, out)
		}
	case DowngradeCall:
		if x := f.of(call.Token); out.Unknown {
			x.opens = true
		} else if x.over = x.over || out.Refused; !out.Refused {
			x.opened = true
		}
	case RenewCall:
		f.used(call.Token, in.at, out)
	case AppendCall:
		if !out.Shared && !out.Mismatch { // those are no use of it
			f.used(call.Token, in.at, out)
		}
	}
}

// ends notes the end of a grant, which may be still to come if there was no answer.
func (f fates) ends(token cluster.Token, out Reply) {
	x := f.of(token)
	x.over = x.over || !out.Unknown
	x.loose = x.loose || out.Unknown
}

// summary is what a lock may be when all these operations, which were judged
// already, have ended: the newest grants are over or not, and all appends are there.
func summary(all []porcupine.Operation) knowledge {
	var k knowledge
	var s lockState
	var appends []porcupine.Operation
	f, broken := fates{}, false
	for _, op := range all {
		in, out := op.Input.(timedCall), op.Output.(Reply)
		f.note(in, out)
		switch call := in.call.(type) {
		case AcquireCall:
			if out.Unknown {
				s.acquires = s.acquires.plus(call.kind(), 1)
				k = k.calls(in)
			}
			if out.Done {
				s.done = max(s.done, call.Slot)
			}
		case DoneCall:
			if !out.Unknown && !out.Refused {
				s.done = max(s.done, f.of(call.Token).slot)
			}
		case BreakCall:
			if call.Token == 0 && out.Unknown {
				s.breaks++
			}
			broken = broken || call.Token == 0 && !out.Unknown && !out.Refused && !out.Shared
		case AppendCall:
			if !out.Refused && !out.Shared && !out.Mismatch {
				appends = append(appends, op)
			}
		}
	}
	slices.SortFunc(appends, func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Output.(Reply).Offset, b.Output.(Reply).Offset)
	})
	for _, op := range appends {
		s = s.longer(op.Input.(timedCall).call.(AppendCall).Data)
	}
	for _, x := range f { // any order
		if k := (kind{x.mode, x.weight}); x.shown && !x.answered && s.acquires.of(k) > 0 {
			s.acquires = s.acquires.plus(k, -1) // this one explained it
		}
	}
	s = s.left(f, broken)
	k.may = []lockState{s}
	for token, x := range f { // any order
		if x.marks && x.slot > s.done && s.find(token) < 0 { // it has ended, by the call without an answer or before it
			marked := s
			marked.done = x.slot
			k.may = append(k.may, marked)
		}
	}
	return k
}

// outlived reports whether a later grant shows that x is over: permits are not given beside another limit, nor beside
// more than they leave. Who had the lock alone may have downgraded.
func (f fates) outlived(x *fate) bool {
	for token, y := range f { // any order
		if token > x.token && (y.limit != x.limit || x.limit > 0 && !(kind{x.mode, x.weight}).fits(uint64(y.weight))) {
			return true
		}
	}
	return false
}

// left adds the grants that may be left. broken is true if some were broken, but not known which.
func (s lockState) left(f fates, broken bool) lockState {
	// Of a token that only calls named, the acquire is still out.
	maps.DeleteFunc(f, func(_ cluster.Token, x *fate) bool { return !x.answered && !x.shown })
	for token, x := range f { // any order
		if s.top = max(s.top, token); !x.shared {
			s.base = max(s.base, token)
		}
	}
	var left []*fate
	for token, x := range f { // any order
		if token < s.base || x.over || f.outlived(x) {
			continue // an exclusive holder came after it, or its end is known
		}
		x.loose = x.loose || broken
		left = append(left, x)
	}
	// The last exclusive holder has downgraded, if others came since: else its grant is over.
	if x := f[s.base]; x != nil && !x.over && !x.shared {
		if s.top > s.base && !x.opened && !x.opens {
			left = slices.DeleteFunc(left, func(y *fate) bool { return y == x })
		} else if s.top > s.base || x.opened {
			x.opens, x.shared = false, true
		}
	}
	for _, x := range left {
		s = s.with(x.hold, x.mode)
	}
	return s
}
