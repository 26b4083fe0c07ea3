// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// withdrawing is a server whose rules let everybody acquire until it withdraws that.
type withdrawing struct {
	access.Authenticator
	t     *testing.T
	s     *service.Service
	rules atomic.Pointer[access.Rules]
}

func (x *withdrawing) Rules() *access.Rules { return x.rules.Load() }

func (x *withdrawing) allow(rules ...access.Rule) {
	r, err := access.Compile(&access.File{Rules: rules}, x.rules.Load().Version()+1)
	if err != nil {
		x.t.Error(err)
	}
	x.rules.Store(r)
}

func (x *withdrawing) withdraw() {
	x.allow()
	x.s.EndForbidden()
}

// queueTerm is a term in which acquires wait. It answers cancels.
type queueTerm struct {
	*term
	// before, if not nil, is called before the first request is taken.
	before func()

	mu      sync.Mutex
	taken   []locktable.Op        // in their order
	acquire *serving.AsyncRequest // waits
	// cancelled is set once a cancel was executed.
	cancelled bool
	// answers are those of the next cancels; then they are CANCELLED, and so is the acquire.
	answers []cluster.Status
}

func (t *queueTerm) Submit(all []*serving.AsyncRequest) {
	if before := t.before; before != nil && len(all) > 0 {
		t.before = nil
		before()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	answer := func(o *serving.AsyncRequest, status cluster.Status) { // as by a term: the session waits for nothing
		go func() {
			o.To.Answer(o, locktable.Outcome{Status: status})
			o.To.Flush()
		}()
	}
	for _, o := range all {
		t.taken = append(t.taken, o.Request.Op)
		if o.Request.Op != locktable.OpCancel {
			t.acquire = o
		} else if len(t.answers) > 0 {
			answer(o, t.answers[0])
			t.answers = t.answers[1:]
		} else {
			answer(o, cluster.StatusCancelled)
			t.cancelled = true
		}
	}
	if t.cancelled && t.acquire != nil { // an acquire that comes after its cancel, too
		answer(t.acquire, cluster.StatusCancelled)
		t.acquire = nil
	}
}

// cancels returns how many cancels were handed in.
func (t *queueTerm) cancels() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, op := range t.taken {
		if op == locktable.OpCancel {
			n++
		}
	}
	return n
}

// queueing is a backend with such a term.
type queueing struct {
	*roleless
	t *queueTerm
}

func (q queueing) Term() serving.Term { return q.t }

// hook is a tracer that traces nothing: it is asked after a request was checked, and before it is handed in.
type hook struct{ f func() }

func (h hook) Begin(string) serving.Trace { h.f(); return nil }

// inQueue runs a test with a session that hands in an acquire, which waits.
func inQueue(t *testing.T, prepare func(x *withdrawing, q *queueTerm, traces *serving.Traces), test func(x *withdrawing, q *queueTerm, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x, q, traces := &withdrawing{t: t}, &queueTerm{term: newTerm()}, &serving.Traces{}
		x.allow(access.Rule{Who: []string{"anonymous"}, May: []access.Verb{access.Acquire}, Locks: []string{"**"}})
		x.s = service.New(queueing{&roleless{}, q}, service.Options{Authenticator: x, Traces: traces})
		v := New(x.s, zerolog.Nop())
		prepare(x, q, traces)
		p := dial(t, v, hello(), &pb.SessionRequest{Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Acquire{
			Acquire: &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 60000, WaitMs: proto.Int64(-1)},
		}}}})
		test(x, q, p)
		v.Close()
	})
}

// refused wants the acquire to be answered with the refusal.
func (p *peer) refused() {
	p.t.Helper()
	p.kinds()
	if a := p.last.GetAnswers(); len(a) != 1 || a[0].GetStatus() != pb.Status_STATUS_UNAUTHENTICATED {
		p.t.Errorf("it is told %v", p.last)
	}
}

// TestRulesChangeWhileAnAcquireIsHandedIn: whoever may not wait for the lock by then does not, whenever the rules change.
func TestRulesChangeWhileAnAcquireIsHandedIn(t *testing.T) {
	for when, prepare := range map[string]func(x *withdrawing, q *queueTerm, traces *serving.Traces){
		"after it was checked": func(x *withdrawing, _ *queueTerm, traces *serving.Traces) { traces.Set(hook{x.withdraw}) },
		"before it is taken":   func(x *withdrawing, q *queueTerm, _ *serving.Traces) { q.before = x.withdraw },
		"before it is taken, where a cancel finds nothing": func(x *withdrawing, q *queueTerm, _ *serving.Traces) {
			q.before, q.answers = x.withdraw, []cluster.Status{cluster.StatusStaleRequest}
		},
	} {
		t.Run(when, func(t *testing.T) {
			inQueue(t, prepare, func(_ *withdrawing, q *queueTerm, p *peer) {
				time.Sleep(time.Second)
				if p.refused(); q.cancels() == 0 {
					t.Error("its place is kept")
				}
			})
		})
	}
}

// TestCancelThatFailsIsHandedInAgain after a pause, a few times, and then with the next look at the rules.
func TestCancelThatFailsIsHandedInAgain(t *testing.T) {
	for _, failures := range []int{1, maxLeaves, maxLeaves + 1} {
		inQueue(t, func(_ *withdrawing, q *queueTerm, _ *serving.Traces) {
			q.answers = slices.Repeat([]cluster.Status{cluster.StatusStorageUnavailable}, failures)
		}, func(x *withdrawing, q *queueTerm, p *peer) {
			x.withdraw()
			synctest.Wait()
			if n := q.cancels(); n != 1 {
				t.Errorf("%d cancels at once", n)
			}
			time.Sleep(10 * time.Second)
			if n := q.cancels(); n != min(failures, maxLeaves)+1 {
				t.Errorf("%d failures: %d cancels", failures, n)
			}
			if failures > maxLeaves {
				x.s.EndForbidden()
				time.Sleep(time.Second)
			}
			if p.refused(); q.cancels() != failures+1 {
				t.Errorf("%d failures: %d cancels at the end", failures, q.cancels())
			}
		})
	}
}
