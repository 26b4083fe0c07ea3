// SPDX-License-Identifier: Apache-2.0

package session

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// maxLeaves is how often a cancel is handed in again that was not executed, before the next look at the rules does that;
	// leavePause is the pause before it, which doubles.
	maxLeaves  = 5
	leavePause = 50 * time.Millisecond
)

// waiting has the acquires of a session that were handed in and may wait in a queue, perhaps for hours: the rules may come to forbid
// that meanwhile. It is used by the goroutines that hand in and answer requests, and by that which looks at new rules.
type waiting struct {
	mu struct {
		sync.Mutex
		term serving.Term
		all  map[*serving.AsyncRequest]place
	}
}

// place is what is known of an acquire that may wait.
type place struct {
	why    error // why its caller may not wait for the lock, once that was so; else nil
	asked  bool  // a cancel is under way, or was executed
	failed int   // how many cancels were not
}

// add notes those of some requests that may wait, before they are handed in to a term. It reports whether there are any.
func (w *waiting) add(term serving.Term, requests []*serving.AsyncRequest) bool {
	for i, o := range requests {
		if waits(o) {
			w.addFrom(term, requests[i:])
			return true
		}
	}
	return false
}

func (w *waiting) addFrom(term serving.Term, requests []*serving.AsyncRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.term = term; w.mu.all == nil {
		w.mu.all = map[*serving.AsyncRequest]place{}
	}
	for _, o := range requests {
		if waits(o) {
			w.mu.all[o] = place{}
		}
	}
}

// remove forgets a request that has its outcome. It returns why it was to be cancelled, nil if it was not.
func (w *waiting) remove(o *serving.AsyncRequest) error {
	if !waits(o) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	why := w.mu.all[o].why
	delete(w.mu.all, o)
	return why
}

// leaveQueues cancels the acquires that wait and that the caller may not wait for any more. Each of their places goes by a record, and
// its answer tells why. It is called when there are other rules, and again for a cancel that was not executed.
func (x *conn) leaveQueues() {
	allowed := x.v.s.Permission(x.caller.Load(), x.c.RemoteAddr())
	term, cancels := x.waiting.cancel(x, func(lock string) error { return allowed.Withdrawn(access.Acquire, lock, "") })
	if len(cancels) > 0 {
		term.Submit(cancels)
	}
}

// cancel returns cancels of the acquires that withdrawn has a reason against, by their locks, and the term to hand them in to.
func (w *waiting) cancel(x *conn, withdrawn func(lock string) error) (_ serving.Term, cancels []*serving.AsyncRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for o, p := range w.mu.all {
		if p.asked {
			continue
		}
		q := &o.Request
		why := withdrawn(string(q.Lock))
		if why == nil {
			continue
		}
		p.why, p.asked = why, true
		w.mu.all[o] = p
		cancels = append(cancels, &serving.AsyncRequest{
			Request: locktable.Request{Op: locktable.OpCancel, Client: q.Client, Target: q.ID, Identity: q.Identity},
			To:      leaving{x, o}, Abandoned: new(atomic.Bool), // it is to be done also where the client has gone
		})
	}
	return w.mu.term, cancels
}

// stays notes that an acquire was not cancelled, so that leaveQueues tries it again. It returns after which pause that is to be; ok is
// false if the acquire has its outcome, or if the next look at the rules is soon enough.
func (w *waiting) stays(o *serving.AsyncRequest) (pause time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, found := w.mu.all[o]
	if !found {
		return 0, false
	}
	pause = leavePause << min(p.failed, maxLeaves)
	p.asked, p.failed = false, p.failed+1
	w.mu.all[o] = p
	return pause, p.failed <= maxLeaves
}

// leaving gets the outcome of a cancel that the client did not ask for: of is the acquire, which has an answer of its own.
type leaving struct {
	x  *conn
	of *serving.AsyncRequest
}

// Answer implements serving.ResultSink. After OK, which is a grant, and CANCELLED the acquire has its outcome.
func (l leaving) Answer(_ *serving.AsyncRequest, out locktable.Outcome) {
	if out.Status == cluster.StatusOK || out.Status == cluster.StatusCancelled {
		return
	}
	if pause, ok := l.x.waiting.stays(l.of); ok {
		time.AfterFunc(pause, l.x.leaveQueues)
	}
}

// Flush implements serving.ResultSink.
func (leaving) Flush() {}
