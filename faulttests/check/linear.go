// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// HistoryOptions control how a history is judged.
type HistoryOptions struct {
	// Limit bounds the decision about one window of one lock; 0 = 5 minutes. A window
	// that is undecided by then is a failure.
	Limit time.Duration
	// Window is about how many operations of a lock are judged at once; 0 = 2000. A
	// history is cut only where no operation was in progress.
	Window int
	// Pictures is a directory for a page that shows each window that failed; "" = none.
	Pictures string
	// Linger is how long after its caller left an acquire without an answer may still be granted, and
	// that grant may last: a wait and a lease without a client, failovers included.
	// 0 = for ever: then it explains a lock that is stuck, or an unknown holder.
	Linger time.Duration
	// Landed finds an append without an answer in the file: at which offset, if it is there.
	// nil = that is not known; then it may be there or not.
	Landed func(AppendCall) (offset int64, there bool)
	// Least is how many calls of each kind must have been answered, by the names of their
	// types, or PermitsCall: a kind without calls would not be judged at all.
	Least map[string]int
}

// A call without an answer explains much that comes after it. A history with more of them than
// mostUnanswered, and than one in unansweredShare, proves too little.
const (
	mostUnanswered  = 100
	unansweredShare = 50
)

// HistoryVerdict is the result of judging a history.
type HistoryVerdict struct {
	Operations, Indeterminate int
	Locks, Windows            int
	// Illegal and Undecided count windows.
	Illegal, Undecided int
	Took               time.Duration
	Bad                []string
}

// Check has porcupine decide about each lock, and adds the verdict to the report as I4.
func (h *History) Check(o HistoryOptions, r *Report) HistoryVerdict {
	all, unknown := h.Operations()
	v := checkOperations(all, o)
	v.Indeterminate = unknown
	v.Bad = append(append(v.Bad, h.bad()...), thin(all, unknown, o.Least)...)
	r.Checked(I4, v.Operations)
	r.Findings(v.Bad)
	r.Figure("histories", "%d operations on %d locks in %d windows, %d without an answer, %d undecided, in %v",
		v.Operations, v.Locks, v.Windows, v.Indeterminate, v.Undecided, v.Took.Round(time.Millisecond))
	return v
}

// thin returns the reasons why a history proves too little.
func thin(all []porcupine.Operation, unknown int, least map[string]int) (bad []string) {
	if unknown > max(mostUnanswered, len(all)/unansweredShare) {
		bad = append(bad, fmt.Sprintf("%d of %d calls of the history had no answer", unknown, len(all)))
	}
	answered := map[string]int{}
	for _, op := range all {
		if !op.Output.(Reply).Unknown {
			answered[kindOf(op.Input.(timedCall).call)]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(least)) {
		if answered[kind] < least[kind] {
			bad = append(bad, fmt.Sprintf("the history has %d answers to %s, at least %d are wanted", answered[kind], kind, least[kind]))
		}
	}
	return bad
}

// PermitsCall is the name of an acquire of permits in HistoryOptions.Least, which is counted for itself.
const PermitsCall = "AcquireCall of permits"

// kindOf names a call by its type.
func kindOf(call any) string {
	if acquire, is := call.(AcquireCall); is && acquire.Limit > 0 {
		return PermitsCall
	}
	return reflect.TypeOf(call).Name()
}

func checkOperations(all []porcupine.Operation, o HistoryOptions) (v HistoryVerdict) {
	o.Limit = cmp.Or(o.Limit, 5*time.Minute)
	o.Window = cmp.Or(o.Window, 2000)
	began := time.Now()
	v.Operations = len(all)
	for _, part := range partitionByLock(all) {
		v.Locks++
		name := lockOf(part[0])
		for i, w := range windows(bounded(settle(part, o.Landed), o.Linger), o.Window) {
			v.Windows++
			model := modelFrom(w.init)
			result, info := porcupine.CheckOperationsVerbose(model, w.operations, o.Limit)
			if result == porcupine.Ok {
				continue
			}
			bad := fmt.Sprintf("I4: lock %s, window %d of %d operations: %s", name, i, len(w.operations), result)
			if result == porcupine.Unknown {
				v.Undecided++
			} else {
				v.Illegal++
			}
			if o.Pictures != "" {
				picture := filepath.Join(o.Pictures, fmt.Sprintf("history-%d-%d.html", v.Locks, i))
				if err := porcupine.VisualizePath(model, info, picture); err != nil {
					picture = err.Error()
				}
				bad += ", see " + picture
			}
			v.Bad = append(v.Bad, bad)
		}
	}
	v.Took = time.Since(began)
	return v
}

// settle decides about appends without an answer from what is in the file, as
// far as that is known: an append that is not there is left out, and one that is there took
// effect before any answer that mentions bytes after it.
func settle(part []porcupine.Operation, landed func(AppendCall) (int64, bool)) (settled []porcupine.Operation) {
	for _, op := range part {
		in, out := op.Input.(timedCall), op.Output.(Reply)
		in.rival = rival(op, part)
		op.Input = in
		settled = append(settled, unheard(op, part)...)
		call, is := in.call.(AppendCall)
		if !is || !out.Unknown || landed == nil {
			settled = append(settled, op)
			continue
		}
		offset, there := landed(call)
		if !there {
			continue
		}
		op.Output = Reply{Offset: offset}
		op.Return = behind(part, offset)
		op.Input = timedCall{call: in.call, at: in.at, back: op.Return}
		settled = append(settled, op)
	}
	slices.SortStableFunc(settled, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return settled
}

// bounded notes until when an acquire without an answer explains anything.
func bounded(part []porcupine.Operation, linger time.Duration) []porcupine.Operation {
	for i, op := range part {
		in := op.Input.(timedCall)
		if _, is := in.call.(AcquireCall); is && linger > 0 {
			in.over = in.left + int64(linger)
			part[i].Input = in
		}
	}
	return part
}

// rival reports whether an exclusive request may have been in the queue during a call, or one for more
// permits: then a shared lock is not granted to further readers, or lighter requests, either. A request
// that got no answer may have stood there at any later time.
func rival(op porcupine.Operation, part []porcupine.Operation) bool {
	held, is := op.Input.(timedCall).call.(AcquireCall)
	if !is || !held.kind().shared || !op.Output.(Reply).Held {
		return false
	}
	return slices.ContainsFunc(part, func(o porcupine.Operation) bool {
		call, is := o.Input.(timedCall).call.(AcquireCall)
		return is && call.kind().holdsUp(held.kind()) && !call.Try && o.Call < op.Return && (o.Return > op.Call || o.Output.(Reply).Unknown)
	})
}

// unheard are the grants that an acquire may have had before the one that was
// answered: if its client does not learn of a grant before that has ended, it
// waits in the queue again. Each took a lease or a break meanwhile.
func unheard(op porcupine.Operation, part []porcupine.Operation) (grants []porcupine.Operation) {
	in, out := op.Input.(timedCall), op.Output.(Reply)
	call, is := in.call.(AcquireCall)
	if !is || out.Unknown {
		return nil
	}
	n := int64(0)
	if call.TTL > 0 {
		n = (op.Return - op.Call) / int64(call.TTL)
	}
	for _, o := range part {
		_, broke := o.Input.(timedCall).call.(BreakCall)
		if out := o.Output.(Reply); broke && !out.Refused && !out.Shared && o.Call < op.Return && (o.Return > op.Call || out.Unknown) {
			n++
		}
	}
	for ; n > 0; n-- {
		grants = append(grants, operation(op.ClientId, call, op.Call, op.Return, Reply{Unknown: true}))
	}
	return grants
}

// behind returns when a client first knew of bytes after the offset.
func behind(part []porcupine.Operation, offset int64) int64 {
	first := never
	for _, op := range part {
		out := op.Output.(Reply)
		if out.Unknown || out.Refused {
			continue
		}
		knows := false
		switch op.Input.(timedCall).call.(type) {
		case AppendCall:
			knows = out.Offset > offset && !out.Shared
		case ShowCall, ReadCall:
			knows = out.Length > offset
		}
		if knows {
			first = min(first, op.Return)
		}
	}
	return first
}
