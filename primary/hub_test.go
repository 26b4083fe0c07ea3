// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// watched begins a term that feeds a hub, and a watch of everything from its beginning on.
func watched(t *testing.T, timing cluster.Timing) (*term, *watch.Hub, *watch.Watcher) {
	t.Helper()
	h := watch.New(time.Second)
	x := serve(t, newDisk(t), 1, primary.Options{Watch: h.Feed(false), Timing: timing})
	w, end := h.Watch(watch.Options{Resume: true, Kinds: watch.KindsOf()})
	if end != nil {
		t.Fatalf("watch: %+v", end)
	}
	return x, h, w
}

// told is what a watcher takes now.
func told(h *watch.Hub, w *watch.Watcher) (words string) {
	h.Flush()
	for _, e := range w.Take().Events {
		words += fmt.Sprintf(" %v:%s", locktable.Kind(e.Kind), e.Lock)
	}
	return words
}

func TestWatchersAreToldWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h, w := watched(t, cluster.Timing{})
		defer x.end() //nolint:errcheck // it has ended
		g := x.ok(acquire("c1", 1, "l", 0))
		waits := x.later(acquire("c2", 1, "l", time.Minute))
		x.ok(release("c1", 2, "l", g.Token))
		if out := <-waits; out.Status != cluster.StatusOK {
			t.Fatalf("the waiter: %v", out.Status)
		}
		if got, want := told(h, w), " term: grant:l enqueue:l release:l grant:l"; got != want {
			t.Errorf("told%s, want%s", got, want)
		}
		x.p.End(errors.New("enough"))
		synctest.Wait()
		h.Flush()
		if b := w.Take(); b.End == nil || b.End.Status != cluster.StatusSecondaryMode || b.LSN != x.p.LSN() {
			t.Errorf("the end: %+v", b)
		}
	})
}

// An event leaves like an answer: durable, and then checked.
func TestNoEventLeavesBeforeTheCheck(t *testing.T) {
	for op, name := range map[string]string{volumetest.OpDatasync: "epochs/", volumetest.OpReadAt: "epochs/"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, h, w := watched(t, cluster.Timing{})
				told(h, w)
				gate := volumetest.NewGate()
				x.host.SetHook(on(op, name, volumetest.Pause(gate)))
				answer := x.later(acquire("c1", 1, "l", 0))
				x.unanswered(answer, "before the check")
				if got := told(h, w); got != "" {
					t.Errorf("told%s while %s hangs", got, op)
				}
				x.host.SetHook(nil)
				gate.Resume()
				<-answer
				if got := told(h, w); got != " grant:l" {
					t.Errorf("told%s afterwards", got)
				}
				x.end() //nolint:errcheck // it is stopped
			})
		})
	}
}

func lossesOf(all []watch.Loss) (losses []*pb.Loss) {
	for _, l := range all {
		losses = append(losses, l.Ended)
	}
	return losses
}

// So does a loss: until what ends the grant is committed, the token may live on.
func TestNoLossIsToldBeforeTheCheck(t *testing.T) {
	for _, op := range []string{volumetest.OpDatasync, volumetest.OpReadAt} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, h, _ := watched(t, cluster.Timing{})
				x.ok(acquire("c1", 1, "l", 0))
				var losses []*pb.Loss
				defer h.Losses("c1", 0, func(l []watch.Loss) { losses = append(losses, lossesOf(l)...) })()
				gate := volumetest.NewGate()
				x.host.SetHook(on(op, "epochs/", volumetest.Pause(gate)))
				broken := x.later(&locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "l", Actor: "me", Reason: "it hangs"})
				if h.Flush(); len(losses) > 0 {
					t.Errorf("told %v while %s hangs", losses, op)
				}
				x.host.SetHook(nil)
				gate.Resume()
				<-broken
				if h.Flush(); len(losses) != 1 {
					t.Errorf("told %v afterwards", losses)
				}
				x.end() //nolint:errcheck // it is stopped
			})
		})
	}
}

// Who listens at a server over the end of a term is told when the next one clears the
// table: it is a loss of everybody's.
func TestAClearIsToldToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, h := newDisk(t), watch.New(time.Second)
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		x := serve(t, d, 1, primary.Options{Watch: h.Feed(false), Timing: timing})
		x.ok(acquire("c1", 1, "l", 0))
		var losses []*pb.Loss
		defer h.Losses("c1", 0, func(l []watch.Loss) { losses = append(losses, lossesOf(l)...) })()
		x.kill()
		if h.Flush(); len(losses) > 0 {
			t.Errorf("told %v by the end of a term", losses)
		}
		y := serve(t, d, 2, primary.Options{Watch: h.Feed(false), Timing: timing})
		defer y.end() //nolint:errcheck // it is stopped
		synctest.Wait()
		h.Flush()
		var locks []string
		for _, x := range losses {
			if locks = append(locks, x.Lock); x.Reason != pb.LossReason_LOSS_REASON_FORCE_CLEARED || x.Lsn == 0 {
				t.Errorf("told %v", x)
			}
		}
		if !slices.Equal(locks, []string{"l", ""}) { // its own, and everybody's
			t.Errorf("told of %q", locks)
		}
	})
}

func TestHoldersAreToldTheirLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h, _ := watched(t, cluster.Timing{})
		defer x.end() //nolint:errcheck // it is stopped
		var losses []*pb.Loss
		stop := h.Losses("c1", 0, func(l []watch.Loss) { losses = append(losses, lossesOf(l)...) })
		defer stop()
		grants := map[cluster.LockName]cluster.Token{}
		for i, lock := range []cluster.LockName{"own", "other", "broken", "expired"} {
			grants[lock] = x.ok(acquire("c1", cluster.RequestID(i+1), lock, 0)).Token
		}
		waits := x.later(acquire("c2", 1, "broken", time.Minute))
		// The use of a token, and what is refused, end nothing.
		x.ok(appendTo("c1", 9, "own", grants["own"], "f", "data"))
		x.sees(release("c2", 9, "own", grants["other"]), cluster.StatusInvalidToken)
		x.ok(release("c1", 10, "own", grants["own"]))
		x.ok(release("~c3", 1, "other", grants["other"]))
		x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "broken", Actor: "me", Reason: "it hangs"})
		successor := <-waits
		time.Sleep(40 * time.Second)
		h.Flush()
		want := []*pb.Loss{
			{Lock: "other", Reason: pb.LossReason_LOSS_REASON_RELEASED, RequestId: 2},
			{Lock: "broken", Reason: pb.LossReason_LOSS_REASON_BROKEN, RequestId: 3, Actor: "me", Message: "it hangs", SuccessorToken: uint64(successor.Token)},
			{Lock: "expired", Reason: pb.LossReason_LOSS_REASON_EXPIRED, RequestId: 4},
		}
		if len(losses) != len(want) {
			t.Fatalf("losses: %v", losses)
		}
		for i, l := range losses {
			m := want[i]
			if l.Lock != m.Lock || l.Reason != m.Reason || l.RequestId != m.RequestId || l.Token != uint64(grants[cluster.LockName(l.Lock)]) ||
				l.Actor != m.Actor || l.Message != m.Message || l.SuccessorToken != m.SuccessorToken || l.Lsn <= l.Token || l.Epoch == 0 {
				t.Errorf("loss %v, want %v", l, m)
			}
		}
		var again []*pb.Loss
		h.Losses("c1", cluster.LSN(losses[0].Lsn), func(l []watch.Loss) { again = lossesOf(l) })()
		if len(again) != 2 || again[0] != losses[1] {
			t.Errorf("told again: %v", again)
		}
	})
}

// lookout looks at the hub when an answer leaves.
type lookout func(locktable.Outcome)

func (f lookout) Answer(_ *serving.AsyncRequest, out locktable.Outcome) { f(out) }

func (lookout) Flush() {}

// Whoever has an answer may read, and begin to watch: the hub was handed the records before.
func TestTheHubHearsBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h, w := watched(t, cluster.Timing{})
		defer x.end() //nolint:errcheck // it is stopped
		told(h, w)
		seen := make(chan string, 1)
		x.p.Submit([]*serving.AsyncRequest{{Request: *acquire("c1", 1, "l", 0), Abandoned: new(atomic.Bool), To: lookout(func(out locktable.Outcome) {
			h.Flush()
			b := w.Take()
			seen <- fmt.Sprintf("%v, up to %d of %d, %d events", out.Status, b.LSN, out.LSN, len(b.Events))
		})}})
		if got, want := <-seen, fmt.Sprintf("OK, up to %d of %[1]d, 1 events", x.p.LSN()); got != want {
			t.Errorf("when the answer left: %s, want %s", got, want)
		}
	})
}

// A reading never sees what the hub was not handed: a reset rests on that.
func TestTheHubIsNeverBehindAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h, _ := watched(t, cluster.Timing{})
		defer x.end() //nolint:errcheck // it is stopped
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for c := range 4 {
			go func() {
				for i := cluster.RequestID(1); ctx.Err() == nil; i += 2 {
					client := cluster.ClientID(fmt.Sprintf("c%d", c))
					if out := x.do(acquire(client, i, cluster.LockName(client), 0)); out.Status == cluster.StatusOK {
						x.do(release(client, i+1, cluster.LockName(client), out.Token))
					}
					time.Sleep(time.Millisecond)
				}
			}()
		}
		for range 50 {
			w, end := h.Watch(watch.Options{Kinds: watch.KindsOf()})
			if end != nil {
				t.Fatalf("%+v", end)
			}
			var at cluster.LSN
			x.read(func(v serving.View) { at = v.At.LSN })
			if _, ok := w.Settle(at); !ok {
				t.Errorf("read LSN %d: %+v", at, w.Take().End)
			}
			w.Close()
			time.Sleep(700 * time.Microsecond)
		}
		stop()
		synctest.Wait()
		time.Sleep(time.Second)
	})
}
