// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestServingClockCountsOnlyTimeInWhichItServed(t *testing.T) {
	for _, test := range []struct {
		name    string
		step    time.Duration
		stalled bool
		want    time.Duration
	}{
		{"on time", 50 * time.Millisecond, false, 50 * time.Millisecond},
		{"just late enough", primary.Tick + primary.Lateness, false, primary.Tick + primary.Lateness},
		{"asleep", time.Hour, false, primary.Tick},
		{"stalled", 50 * time.Millisecond, true, 0},
		{"set back", -time.Second, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c primary.ServingClock
			start := time.Unix(1000, 0)
			zero := c.Advance(start, true)
			if got := c.Advance(start.Add(test.step), test.stalled) - zero; got != test.want {
				t.Errorf("counted %v of %v, want %v", got, test.step, test.want)
			}
		})
	}
}

func TestClockStandsStillWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		waiting := x.later(acquire("c2", 1, "l", 40*time.Second))
		time.Sleep(10 * time.Second)
		x.p.SetQuorum(false)
		x.sees(acquire("c3", 1, "other", 0), cluster.StatusNoQuorum)
		x.sees(release("c1", 2, "l", g.Token), cluster.StatusNoQuorum)
		if out, err := x.p.Renew(t.Context(), "l", g.Token); err != nil || out.Status != cluster.StatusNoQuorum {
			t.Errorf("renew: %v %v", out.Status, err)
		}
		if _, _, out, err := x.p.KeepAlive(t.Context(), "c1", serving.Belief{Held: 1}); err != nil || out.Status != cluster.StatusNoQuorum {
			t.Errorf("keep-alive: %v %v", out.Status, err)
		}
		if out, err := x.p.Read(t.Context(), func(serving.View) {}); err != nil || out.Status != cluster.StatusNoQuorum {
			t.Errorf("read: %v %v", out.Status, err)
		}
		time.Sleep(10 * time.Minute)
		x.unanswered(waiting, "while the clock stood still")
		x.p.SetQuorum(true)
		left, live := x.remaining("l", g.Token)
		if !live || left < 19*time.Second || left > 20*time.Second+time.Second {
			t.Errorf("ten minutes without a quorum: live %v, %v left of 30 s, 10 s of them used", live, left)
		}
		if out := <-waiting; out.Status != cluster.StatusOK {
			t.Errorf("the waiter: %v", out.Status)
		}
	})
}

func TestClockStandsStillWhileStorageStalls(t *testing.T) {
	for _, test := range []struct {
		name string
		busy bool // a second call waits while the first one's frame syncs
	}{
		{"in the core loop", false},
		{"beside the core loop", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				gate := volumetest.NewGate()
				x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "epochs/0000000001/wal-0", 1, volumetest.Pause(gate)))
				if test.busy {
					x.stallBeside(gate)
				} else {
					x.later(acquire("c2", 1, "m", 0))
				}
				<-gate.Arrived()
				time.Sleep(10 * time.Minute)
				gate.Resume()
				if left, live := x.remaining("l", g.Token); !live || left < 29*time.Second {
					t.Errorf("ten minutes of stalled storage: live %v, %v left", live, left)
				}
			})
		})
	}
}

// stallBeside fills a batch, and more, so that it is committed beside the core loop.
func (x *term) stallBeside(gate *volumetest.Gate) {
	release := make(chan struct{})
	in := make(chan struct{})
	go x.p.Read(x.t.Context(), func(serving.View) { close(in); <-release }) //nolint:errcheck // it only holds the loop
	<-in
	for i := range 200 {
		x.later(acquire("c2", cluster.RequestID(i+1), cluster.LockName("many/"+string(rune('a'+i%26))+string(rune('a'+i/26))), 0))
	}
	close(release)
	<-gate.Arrived()
}

// The clock stands still while storage stalls, also where the core loop goes on beside the
// commit that hangs, and its batch is not full.
func TestClockStandsStillBesideACommitThatHangs(t *testing.T) {
	for range 8 { // the committer may have taken the second request with the first
		testClockBesideACommitThatHangs(t)
	}
}

func testClockBesideACommitThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		held := make(chan func())
		hold := func() {
			go func() { held <- x.holdLoop() }()
			synctest.Wait()
		}
		hold()
		release := <-held
		hold()
		release()
		release = <-held
		flying := x.later(acquire("c2", 1, "m", 0))
		hold()
		release() // the next round takes the acquire, and what holds the loop again
		release = <-held
		beside := x.later(acquire("c3", 1, "n", 0))
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "epochs/0000000001/wal-0", 1, volumetest.Pause(gate)))
		release() // somebody waits already: the committer takes the batch
		<-gate.Arrived()
		time.Sleep(40 * time.Second) // the lease has 30
		gate.Resume()
		for _, f := range []<-chan locktable.Outcome{flying, beside} {
			if out := <-f; out.Status != cluster.StatusOK {
				t.Errorf("in flight: %v", out.Status)
			}
		}
		if left, live := x.remaining("l", g.Token); !live || left < 29*time.Second {
			t.Errorf("a lease of 30 s has %v left after storage has stalled for 40 s (live: %v)", left, live)
		}
	})
}
