// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxPending is how many events may wait in a watcher's buffer.
	maxPending = 4096
	// maxCollected is how many may wait until the first Take, besides those of a resume.
	maxCollected = 1 << 18
)

// Kinds is a set of kinds of records.
type Kinds uint64

// KindsOf returns the set of these kinds. Without any it is the default of a watch: all but appends.
func KindsOf(kinds ...locktable.Kind) Kinds {
	var set Kinds
	for _, k := range kinds {
		set |= 1 << k
	}
	if len(kinds) == 0 {
		set = all &^ (1 << locktable.KindAppend)
	}
	return set & all
}

const (
	// all leaves out what no watch gets: which clients come and go, the feature level, the list of servers, what the cell owns, and what locks forget.
	all Kinds = 1<<(locktable.MaxKind+1) - 2 - 1<<locktable.KindOpenClient - 1<<locktable.KindForgetClient - 1<<locktable.KindAlready - 1<<locktable.KindLevel - 1<<locktable.KindMembers - 1<<locktable.KindOwn - 1<<locktable.KindForgetMark
	// changes is what changes the state that a reset has.
	changes = all &^ (1<<locktable.KindAppend | 1<<locktable.KindQuarantine | 1<<locktable.KindRotate | 1<<locktable.KindSeal)
)

// Options say what to watch.
type Options struct {
	// Lock is one name. If it is empty, all names that begin with Prefix are watched.
	Lock   cluster.LockName
	Prefix string
	// Kinds is which events the watch gets, besides those that concern all.
	Kinds Kinds
	// Resume begins with the events after After. Without it the watch collects for a reset, see
	// Settle.
	Resume bool
	After  cluster.LSN
}

// Watcher is one watch. Take, Settle and Close belong to one goroutine.
type Watcher struct {
	h    *Hub
	wake wake.Signal

	// Owned by Hub.mu.
	target   string
	exact    bool
	kinds    Kinds
	settling bool // collects for a reset
	began    cluster.LSN
	at       int  // its place in the index
	touched  bool // it is in Hub.mu.touched

	mu struct {
		sync.Mutex
		events []*pb.Event
		limit  int
		after  cluster.LSN // events up to here are left out
		taken  cluster.LSN // up to here everything was taken
		end    *End
		endLSN cluster.LSN // up to here everything was in events when it ended
	}
}

// Batch is what a watcher takes at once.
type Batch struct {
	Events []*pb.Event
	// Everything that is watched up to LSN was taken with this batch.
	LSN   cluster.LSN
	Epoch cluster.Epoch
	// End is not nil in the last batch.
	End *End
}

// Watch begins a watch, or returns why it cannot. The caller closes the watcher.
func (h *Hub) Watch(o Options) (*Watcher, *End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
	if end := h.refusal(); end != nil {
		return nil, end
	}
	w := &Watcher{h: h, wake: wake.NewSignal(), target: o.Prefix, kinds: o.Kinds, settling: !o.Resume, began: h.mu.end.LSN}
	if o.Lock != "" {
		w.target, w.exact = string(o.Lock), true
	}
	w.mu.limit = maxCollected
	if o.Resume {
		if end := h.resume(w, o.After); end != nil {
			return nil, end
		}
	}
	h.mu.index.add(w)
	h.updateDemand()
	return w, nil
}

// resume puts the events after an LSN into the buffer of a new watcher.
func (h *Hub) resume(w *Watcher, after cluster.LSN) *End {
	if after > h.mu.end.LSN && h.fedByPrimary() {
		return &End{Gap: true, Why: "ahead", Message: fmt.Sprintf("LSN %d was asked for, and this volume ends at LSN %d: nobody was ever told more", after, h.mu.end.LSN)}
	}
	chunks, ok := h.since(after)
	if !ok {
		return &End{Gap: true, Why: "forgotten", Message: fmt.Sprintf("the events after LSN %d are not kept here any more", after)}
	}
	w.mu.after, w.mu.taken = after, after
	for _, c := range chunks {
		events, err := c.all()
		if err != nil {
			return &End{Gap: true, Why: "unreadable", Message: fmt.Sprintf("the events up to LSN %d cannot be read: %v", c.end.LSN, err)}
		}
		for i := range events {
			e := &events[i]
			if e.lsn <= after || !w.wants(e.kind) || !w.matches(e) {
				continue
			}
			m, err := e.message(c.at)
			if err != nil {
				return &End{Gap: true, Why: "unreadable", Message: fmt.Sprintf("the event of LSN %d cannot be read: %v", e.lsn, err)}
			}
			w.mu.events = append(w.mu.events, m)
		}
	}
	w.mu.limit += len(w.mu.events)
	if len(w.mu.events) > 0 {
		w.wake.Notify()
	}
	return nil
}

func (w *Watcher) matches(e *event) bool {
	switch {
	case concernsAll(e.kind):
		return true
	case w.exact:
		return e.lock == w.target
	default:
		return len(e.lock) >= len(w.target) && e.lock[:len(w.target)] == w.target
	}
}

// wants reports whether events of a kind are put into the buffer.
func (w *Watcher) wants(k locktable.Kind) bool {
	set := w.kinds
	if w.settling {
		set |= changes
	}
	return all&(1<<k) != 0 && (set&(1<<k) != 0 || concernsAll(k))
}

// add puts an event into the buffer, or cuts the watcher. Called with Hub.mu held.
func (w *Watcher) add(e *pb.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.end != nil || cluster.LSN(e.GetLsn()) <= w.mu.after:
	case len(w.mu.events) < w.mu.limit:
		w.mu.events = append(w.mu.events, e)
	default:
		message := fmt.Sprintf("the watcher was cut because it fell %d events behind: resume it after LSN %d, and read faster", len(w.mu.events), w.mu.taken)
		if w.settling {
			message = fmt.Sprintf("%d events came while the table was read: watch less, or begin again", len(w.mu.events))
		}
		w.mu.end = &End{Status: cluster.StatusCancelled, Message: message}
		w.mu.endLSN, w.mu.events = w.mu.taken, nil
		w.h.mu.cut = append(w.h.mu.cut, w)
	}
}

// finish ends the watch after what is in its buffer.
func (w *Watcher) finish(why *End, at cluster.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.end == nil {
		w.mu.end, w.mu.endLSN = why, at
	}
	w.wake.Notify()
}

// Wake returns a channel that yields a value when there is something to take.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take empties the buffer. It never waits.
func (w *Watcher) Take() Batch {
	// Read before the buffer: what was distributed by then is in it.
	b := Batch{LSN: cluster.LSN(w.h.upto.Load()), Epoch: cluster.Epoch(w.h.epoch.Load())}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.End = w.mu.end; b.End != nil {
		b.LSN = w.mu.endLSN
	}
	b.Events, w.mu.events = w.mu.events, nil
	if n := len(b.Events); n > 0 {
		b.LSN = max(b.LSN, cluster.LSN(b.Events[n-1].GetLsn()))
	}
	b.LSN = max(b.LSN, w.mu.taken)
	w.mu.taken, w.mu.limit = b.LSN, maxPending
	return b
}

// Settle ends the collecting for a reset whose last reading was at this LSN. It returns all that
// changed what is watched since the watch began, up to there; Take goes on after it. It returns
// false if the watch has ended, or the table is not the one of the feed: Take returns why.
func (w *Watcher) Settle(at cluster.LSN) (changed []*pb.Event, ok bool) {
	h := w.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
	w.settling = false
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.end == nil && (at < w.began || h.mu.end.LSN < at) {
		// The table is not the one of the feed.
		w.mu.end = &End{Gap: true, Why: "raced", Message: fmt.Sprintf("the table was at LSN %d, the events went from %d to %d", at, w.began, h.mu.end.LSN)}
		w.mu.endLSN = w.mu.taken
	}
	if w.mu.end != nil {
		w.mu.events = nil
		w.mu.endLSN = w.mu.taken
		return nil, false
	}
	w.mu.after, w.mu.taken = at, at
	var rest []*pb.Event
	for _, e := range w.mu.events {
		switch {
		case cluster.LSN(e.GetLsn()) <= at:
			changed = append(changed, e)
		case w.wants(locktable.Kind(e.GetKind())):
			rest = append(rest, e)
		}
	}
	w.mu.events, w.mu.limit = rest, len(rest)+maxPending
	if len(rest) > 0 {
		w.wake.Notify()
	}
	return changed, true
}

// Close ends the watch. The hub forgets it.
func (w *Watcher) Close() {
	h := w.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.index.remove(w)
	if h.mu.index.count == 0 {
		h.updateDemand()
	}
}
