// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/replication"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// gated is a follower whose door can be shut: what is pushed waits there.
type gated struct {
	follower
	door chan struct{}
	seen atomic.Pointer[func(push.Push)] // called for what came through the door
}

func newGated() *gated {
	g := &gated{door: make(chan struct{}, 1)}
	g.door <- struct{}{}
	g.hook = func(p push.Push) {
		<-g.door
		g.door <- struct{}{}
		if f := g.seen.Load(); f != nil {
			(*f)(p)
		}
	}
	return g
}

func (g *gated) shut() { <-g.door }
func (g *gated) open() { g.door <- struct{}{} }

// waiting is a term with two replicas whose answers wait for them.
func waiting(t *testing.T, mode cluster.PushAck) (*term, *gated, *gated) {
	t.Helper()
	timing := cluster.DefaultTiming()
	timing.PushAck = mode
	a, b := newGated(), newGated()
	x := serve(t, newDisk(t), 1, primary.Options{Timing: timing, Replicas: map[cluster.ServerID]replication.Link{2: a, 3: b}})
	// The first snapshot brings them on.
	x.ok(acquire("first", 1, "first", 0))
	synctest.Wait()
	return x, a, b
}

func TestAnswersWaitForAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a, b := waiting(t, cluster.PushAckAll)
		defer x.end()
		for i, shut := range []*gated{a, b} {
			shut.shut()
			q := acquire("c1", cluster.RequestID(i+2), "l", 0)
			q.Lock = cluster.LockName([]string{"l", "m"}[i])
			answer := x.later(q)
			time.Sleep(100 * time.Millisecond)
			x.unanswered(answer, "before a replica shows it")
			shut.open()
			out := <-answer
			if out.Status != cluster.StatusOK {
				t.Fatalf("%v %s", out.Status, out.Message)
			}
			for _, f := range []*gated{a, b} {
				if at, _ := f.stands(); at < out.LSN {
					t.Errorf("a replica stands at LSN %d, answered was %d", at, out.LSN)
				}
			}
		}
	})
}

// TestAppendsWaitToo, and reads of what replicas do not show yet.
func TestAppendsWaitToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a, _ := waiting(t, cluster.PushAckAll)
		defer x.end()
		g := x.ok(acquire("c1", 2, "l", 0))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "one\n"))
		a.shut()
		answer := x.later(appendTo("c1", 4, "l", g.Token, "f", "two\n"))
		time.Sleep(50 * time.Millisecond)
		x.unanswered(answer, "before a replica shows it")
		read := make(chan cluster.Status, 1)
		go func() {
			out, _ := x.p.Read(t.Context(), func(serving.View) {})
			read <- out.Status
		}()
		time.Sleep(50 * time.Millisecond)
		if len(read) > 0 {
			t.Error("a read told of what a replica does not show")
		}
		a.open()
		if out := <-answer; out.Status != cluster.StatusOK {
			t.Errorf("the append: %v", out.Status)
		}
		if s := <-read; s != cluster.StatusOK {
			t.Errorf("the read: %v", s)
		}
	})
}

func TestASilentReplicaIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a, b := waiting(t, cluster.PushAckAll)
		defer x.end()
		a.shut()
		began := time.Now()
		x.ok(acquire("c1", 2, "l", 0))
		bound := cluster.DefaultTiming().PushAckTimeout
		if took := time.Since(began); took < bound || took > bound+bound/2 {
			t.Errorf("answered after %v, the bound is %v", took, bound)
		}
		if w := x.p.Waited(); w[2] || !w[3] {
			t.Errorf("waited for: %v", w)
		}
		began = time.Now()
		x.ok(acquire("c1", 3, "m", 0))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("without it an answer takes %v", took)
		}
		a.open()
		time.Sleep(5 * time.Second)
		if w := x.p.Waited(); !w[2] || !w[3] {
			t.Errorf("it is back, waited for: %v", w)
		}
		b.shut()
		answer := x.later(acquire("c1", 4, "n", 0))
		time.Sleep(50 * time.Millisecond)
		x.unanswered(answer, "before the other one shows it")
		b.open()
		<-answer
	})
}

// TestAReplicaIsBackWhenItHasEverything, and not with its first word.
func TestAReplicaIsBackWhenItHasEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a, _ := waiting(t, cluster.PushAckAll)
		defer x.end()
		a.shut()
		x.flood(5000) // more than one push brings
		var pushes, early atomic.Int32
		look := func(p push.Push) {
			if len(p.Frames) > 0 || p.Chunk != nil {
				if pushes.Add(1) > 1 && x.p.Waited()[2] {
					early.Add(1)
				}
			}
		}
		a.seen.Store(&look)
		a.open()
		time.Sleep(10 * time.Second)
		if pushes.Load() < 2 || early.Load() > 0 || !x.p.Waited()[2] {
			t.Errorf("of %d pushes it counted before %d; in the end: %v", pushes.Load(), early.Load(), x.p.Waited())
		}
	})
}

// A replica that was silent once, and since answers each push at once, has never everything
// where records are committed all the time: it counts again when it is hardly behind.
func TestAReplicaIsBackUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.PushAck = cluster.PushAckAll
		a := newGated()
		gate := a.hook
		a.hook = func(p push.Push) {
			gate(p)
			time.Sleep(20 * time.Millisecond) // the way there and back
		}
		x := serve(t, newDisk(t), 1, primary.Options{Timing: timing, Replicas: map[cluster.ServerID]replication.Link{2: a}})
		defer x.end() //nolint:errcheck // it is stopped
		x.ok(acquire("first", 1, "first", 0))
		a.shut()
		x.ok(acquire("first", 2, "second", 0))
		a.open()
		early := func(id cluster.RequestID) (early int) {
			for i := range cluster.RequestID(100) {
				out := x.ok(acquire("busy", id+2*i, "busy", 0))
				if at, _ := a.stands(); at < out.LSN {
					early++
				}
				x.ok(release("busy", id+2*i+1, "busy", out.Token))
				time.Sleep(5 * time.Millisecond)
			}
			return early
		}
		if w := x.p.Waited(); w[2] {
			t.Fatal("a silent replica is waited for")
		}
		early(1)
		if w := x.p.Waited(); !w[2] {
			t.Error("it has answered each push at once, and nobody waits for it")
		}
		if n := early(1001); n > 0 {
			t.Errorf("%d of 100 answers told what it did not show", n)
		}
	})
}

// One that gets ever further behind does not count again, though it moves on.
func TestAReplicaThatIsSlowIsNotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.PushAck = cluster.PushAckAll
		a := newGated()
		gate := a.hook
		slow := true
		a.hook = func(p push.Push) {
			if gate(p); slow {
				time.Sleep(timing.PushAckTimeout + 100*time.Millisecond)
			}
		}
		x := serve(t, newDisk(t), 1, primary.Options{Timing: timing, Replicas: map[cluster.ServerID]replication.Link{2: a}})
		defer x.end() //nolint:errcheck // it is stopped
		id := cluster.RequestID(1)
		busy := func() {
			x.ok(release("busy", id+1, "busy", x.ok(acquire("busy", id, "busy", 0)).Token))
			id += 2
		}
		busy()
		for range 1000 {
			asked := time.Now()
			busy()
			if took := time.Since(asked); took > timing.PushAckTimeout/2 {
				t.Fatalf("request %d took %v: a replica that shows everything too late is waited for", id, took)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func TestAMajorityIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a, b := waiting(t, cluster.PushAckMajority)
		defer x.end()
		a.shut()
		began := time.Now()
		x.ok(acquire("c1", 2, "l", 0))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("one replica of two is silent, an answer takes %v", took)
		}
		b.shut()
		answer := x.later(acquire("c1", 3, "m", 0))
		time.Sleep(50 * time.Millisecond)
		x.unanswered(answer, "while nobody but the primary has it")
		b.open()
		<-answer
		a.open()
	})
}

// TestHeldBackAnswersEndWithTheTerm as UNKNOWN, and the repeat gets the answer.
func TestHeldBackAnswersEndWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		timing := cluster.DefaultTiming()
		timing.PushAck, timing.PushAckTimeout = cluster.PushAckAll, time.Hour
		a := newGated()
		x := serve(t, d, 1, primary.Options{Timing: timing, Replicas: map[cluster.ServerID]replication.Link{2: a}})
		x.ok(acquire("c1", 1, "first", 0))
		a.shut()
		answer := x.later(acquire("c1", 2, "l", 0))
		time.Sleep(50 * time.Millisecond)
		x.unanswered(answer, "before a replica shows it")
		x.p.End(errors.New("enough"))
		if out := <-answer; out.Status != cluster.StatusUnknown {
			t.Errorf("at the end of the term: %v", out.Status)
		}
		a.open()
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		if out := y.ok(acquire("c1", 2, "l", 0)); !out.Repeat || out.Status != cluster.StatusOK {
			t.Errorf("the repeat: %+v", out)
		}
		y.ok(&locktable.Request{Op: locktable.OpRelease, Client: "c1", ID: 3, Lock: "l", Token: y.ok(acquire("c1", 2, "l", 0)).Token})
	})
}

// An order that is held back for a replica is never told OK by the end of the term.
func TestHeldBackOrdersAreNotToldByTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.PushAck, timing.PushAckTimeout = cluster.PushAckAll, time.Hour
		a := newGated()
		x := serve(t, newDisk(t), 1, primary.Options{Timing: timing, Replicas: map[cluster.ServerID]replication.Link{2: a}})
		g := x.ok(acquire("c1", 1, "first", 0))
		x.ok(appendTo("c1", 2, "first", g.Token, "f", "one\n"))
		a.shut()
		to := &outlet{}
		x.p.Submit([]*serving.AsyncRequest{
			{Request: *acquire("c1", 3, "l", 0), To: to, Correlation: 1, Abandoned: new(atomic.Bool)},
			{Request: *appendTo("c1", 4, "first", g.Token, "f", "two\n"), To: to, Correlation: 2, Abandoned: new(atomic.Bool)},
		})
		time.Sleep(50 * time.Millisecond)
		if words := to.told(); len(words) > 0 {
			t.Errorf("told %q before a replica shows it", words)
		}
		x.p.End(errors.New("enough"))
		time.Sleep(50 * time.Millisecond)
		words := to.told()
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, ":OK") }) {
			t.Errorf("at the end of the term, what no replica shows is told: %q", words)
		}
		a.open()
		x.end() //nolint:errcheck // it was deposed
	})
}
