// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// reported keeps what is reported of calls. It is their serving.Tracer and serving.Trace.
type reported struct {
	mu     sync.Mutex
	stages []serving.Stages
}

func (r *reported) Begin(string) serving.Trace { return r }
func (r *reported) ID() string                 { return "0af7651916cd43dd8448eb211c80319c" }
func (r *reported) Forward(cluster.ServerID) (string, func(cluster.Status)) {
	panic("a primary forwards nothing")
}

func (r *reported) Report(s serving.Stages) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stages = append(r.stages, s)
}

// last returns what was reported last, of so many.
func (r *reported) last(t *testing.T, n int) serving.Stages {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stages) != n {
		t.Fatalf("%d calls were reported, want %d: %+v", len(r.stages), n, r.stages)
	}
	return r.stages[n-1]
}

// into returns what traces calls into r.
func into(r *reported) *serving.Traces {
	s := &serving.Traces{}
	s.Set(r)
	return s
}

// TestTracedCall wants each stage of a call where its time went.
func TestTracedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter.Meter{}
		r := &reported{}
		traces := into(r)
		x := serve(t, newDisk(t), 1, primary.Options{Meter: m, Slow: 500 * time.Millisecond, Traces: traces})
		defer x.end() //nolint:errcheck // the test's
		ctx := traces.Begin(t.Context(), "")
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpDatasync {
				time.Sleep(600 * time.Millisecond)
			}
			return volumetest.Proceed()
		})
		began := time.Now()
		out, err := x.p.Do(ctx, acquire("a", 1, "l", 0))
		if err != nil || out.Status != cluster.StatusOK {
			t.Fatal(out, err)
		}
		s := r.last(t, 1)
		if s.Op != "acquire" || s.Lock != "l" || s.Status != cluster.StatusOK || s.Epoch != out.Epoch || s.Writes {
			t.Errorf("reported %+v", s)
		}
		if !s.Put.Equal(s.Ready) || s.Put.Before(began) || s.Synced.Sub(s.Commit) < 600*time.Millisecond || s.Checked.Before(s.Synced) || s.Answered.Before(s.Checked) {
			t.Errorf("the stages are %+v", s)
		}
		if lines := x.log.having("slow call"); len(lines) != 1 || !strings.Contains(lines[0], `"trace":"`+r.ID()) {
			t.Errorf("the slow call does not name its trace: %v", lines)
		}
		if e := m.Snapshot().Exemplars[locktable.OpAcquire]; e.Trace != r.ID() || e.Seconds < 0.6 || e.Seconds > 2 {
			t.Errorf("the exemplar is %+v", e)
		}
		x.host.SetHook(nil)
		x.ok(acquire("b", 1, "other", 0)) // not traced
		if _, err := x.p.Do(ctx, appendTo("a", 2, "l", out.Token, "f", "four")); err != nil {
			t.Fatal(err)
		}
		if s := r.last(t, 2); s.Op != "append" || s.File != "f" || !s.Writes || s.Checked.IsZero() || s.Answered.Before(s.Checked) {
			t.Errorf("reported %+v", s)
		}
		if _, err := x.p.Do(ctx, acquire("c", 1, "l", 0)); err != nil {
			t.Fatal(err)
		}
		if s := r.last(t, 3); s.Status != cluster.StatusHeld || s.Checked.IsZero() {
			t.Errorf("a refusal is reported as %+v", s)
		}
		traces.Set(nil)
		if _, err := x.p.Do(unsearched{ctx, t}, acquire("d", 1, "l", 0)); err != nil {
			t.Fatal(err)
		}
		r.last(t, 3)
	})
}

// unsearched is a context in which nothing is looked for.
type unsearched struct {
	context.Context
	t *testing.T
}

func (c unsearched) Value(key any) any {
	c.t.Errorf("nothing is traced, and the context is searched for %T", key)
	return c.Context.Value(key)
}

// TestTracedWait: the wait for a lock is a stage of its own.
func TestTracedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reported{}
		traces := into(r)
		x := serve(t, newDisk(t), 1, primary.Options{Traces: traces})
		a := x.ok(acquire("a", 1, "l", 0))
		answer := make(chan locktable.Outcome, 1)
		go func() {
			out, err := x.p.Do(traces.Begin(t.Context(), ""), acquire("b", 1, "l", time.Minute))
			if err != nil {
				t.Error(err)
			}
			answer <- out
		}()
		time.Sleep(10 * time.Second)
		x.ok(release("a", 2, "l", a.Token))
		<-answer
		s := r.last(t, 1)
		if wait := s.Ready.Sub(s.Put); wait < 9*time.Second || wait > 11*time.Second {
			t.Errorf("it waited for %v", wait)
		}
		if rest := s.Answered.Sub(s.Ready); rest < 0 || rest > time.Second {
			t.Errorf("the rest took %v", rest)
		}
		x.end() //nolint:errcheck // the test's
	})
}

// outcomes is the serving.ResultSink of async requests.
type outcomes chan locktable.Outcome

func (c outcomes) Answer(_ *serving.AsyncRequest, out locktable.Outcome) { c <- out }
func (c outcomes) Flush()                                                {}

// TestTracedSubmit reports each traced request of a batch once, also when the term ends first.
func TestTracedSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		r, to := &reported{}, make(outcomes, 10)
		var all []*serving.AsyncRequest
		for i, lock := range []cluster.LockName{"l", "m", "l"} {
			o := &serving.AsyncRequest{Request: *acquire(cluster.ClientID(rune('a'+i)), 1, lock, time.Minute), To: to, Abandoned: new(atomic.Bool)}
			if i != 1 {
				o.Trace = r
			}
			all = append(all, o)
		}
		x.p.Submit(all)
		<-to
		<-to
		if s := r.last(t, 1); s.Lock != "l" || s.Checked.IsZero() {
			t.Errorf("reported %+v", s)
		}
		x.end() //nolint:errcheck // the test's
		if out := <-to; out.Status != cluster.StatusUnknown {
			t.Errorf("the one that waits is answered %v", out.Status)
		}
		if s := r.last(t, 2); s.Status != cluster.StatusUnknown || !s.Checked.IsZero() {
			t.Errorf("reported %+v", s)
		}
	})
}

// BenchmarkSubmitTraced is what traces cost a term: where they are off, for a call that is sampled, and for one that is not. Each
// call has the context of a request over HTTP, in which a trace would be looked for.
func BenchmarkSubmitTraced(b *testing.B) {
	for name, tracer := range map[string]serving.Tracer{"off": nil, "sampled": sampling(true), "unsampled": sampling(false)} {
		b.Run(name, func(b *testing.B) {
			traces := &serving.Traces{}
			traces.Set(tracer)
			p, to := benchPrimaryOf(b, b.TempDir(), primary.Options{Traces: traces}), make(outcomes, 1)
			released := locktable.Request{Op: locktable.OpRelease, Client: "c", ID: 1, Lock: "l", Token: 1}
			b.Run("session", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					o := &serving.AsyncRequest{Request: released, To: to, Abandoned: new(atomic.Bool)}
					if t := traces.Tracer(); t != nil {
						o.Trace = t.Begin("")
					}
					p.Submit([]*serving.AsyncRequest{o})
					<-to
				}
			})
			b.Run("call", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ctx, cancel := context.WithCancel(serving.WithRemote(b.Context(), nil))
					q := released
					if _, err := p.Do(traces.Begin(ctx, ""), &q); err != nil {
						b.Fatal(err)
					}
					cancel()
				}
			})
		})
	}
}

// sampling is a tracer that traces all calls, or none.
type sampling bool

func (s sampling) Begin(string) serving.Trace {
	if s {
		return dropped{}
	}
	return nil
}

// dropped is a trace that nobody keeps.
type dropped struct{}

func (dropped) ID() string            { return "" }
func (dropped) Report(serving.Stages) {}
func (dropped) Forward(cluster.ServerID) (string, func(cluster.Status)) {
	return "", func(cluster.Status) {}
}
