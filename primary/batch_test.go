// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestLargeAppendsThatComeTogetherAreAllCommitted(t *testing.T) {
	for _, test := range []struct {
		name string
		size int
		n    int
		idle time.Duration
	}{
		{"the largest, to a verified file", 1 << 20, 4, 0},
		{"the largest, to one that rests", 1 << 20, 4, 2 * time.Second},
		{"many parked at once", 64 << 10, 70, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				time.Sleep(test.idle)
				data := strings.Repeat("x", test.size)
				var qs []*locktable.Request
				for i := range test.n {
					qs = append(qs, appendTo("c1", cluster.RequestID(i+3), "l", g.Token, "f", data))
				}
				for i, out := range x.together(qs...) {
					if out.Status != cluster.StatusOK {
						t.Errorf("append %d: %v %s", i, out.Status, out.Message)
					}
				}
				if got, want := len(content(d, "f")), 4+test.n*test.size; got != want {
					t.Errorf("file has %d bytes, want %d", got, want)
				}
				if x.p.State() != primary.StateServing {
					t.Errorf("the term is over: %v", x.end())
				}
			})
		})
	}
}

func TestTakeoverLogsMoreAgainThanOneSegmentHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		data := strings.Repeat("x", 300<<10)
		for i := range 12 {
			x.ok(appendTo("c1", cluster.RequestID(i+2), "l", g.Token, "f", data))
		}
		x.kill()
		for id := cluster.ServerID(2); id <= 3; id++ {
			y := serveLarge(t, d.Host(int(id), volumetest.ProfileLocal()), id, primary.Options{})
			if out := y.ok(appendTo("c1", 13, "l", g.Token, "f", data)); !out.Repeat {
				t.Errorf("server %d appended a repeat again", id)
			}
			y.kill()
		}
		if got, want := len(content(d, "f")), 12*len(data); got != want {
			t.Errorf("file has %d bytes, want %d", got, want)
		}
	})
}

// syncs counts the log's syncs from now on.
func (x *term) syncs() *atomic.Int64 {
	n := &atomic.Int64{}
	x.host.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpDatasync && strings.HasPrefix(c.Name, "epochs/0000000001/wal-0") {
			n.Add(1)
		}
		return volumetest.Proceed()
	})
	return n
}

// Whoever gives a lock on and stands in line for it again costs the next holder no sync of his own.
func TestPlacesInAQueueShareTheNextSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serveLarge(t, newDisk(t).Host(1, volumetest.ProfileLocal()), 1, primary.Options{}) // all in one segment
		defer x.end()
		holder, next := cluster.ClientID("c1"), cluster.ClientID("c2")
		token := x.ok(acquire(holder, 1, "l", 0)).Token
		n := x.syncs()
		place := x.later(acquire(next, 1, "l", locktable.WaitForever))
		for id := cluster.RequestID(2); id < 12; id++ {
			before := n.Load()
			x.unanswered(place, "without a release")
			x.ok(release(holder, 2*id, "l", token))
			if got := n.Load() - before; got != 1 {
				t.Errorf("the hand-over after a place was taken took %d syncs", got)
			}
			out := <-place
			token, holder, next = out.Token, next, holder
			place = x.later(acquire(next, 2*id+1, "l", locktable.WaitForever))
		}
	})
}

func TestPlacesInAQueueAreSyncedByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(acquire("c1", 1, "l", 0))
		n := x.syncs()
		for i := range 3 { // others that come do not make the first wait for longer
			x.later(acquire(cluster.ClientID([]string{"c2", "c3", "c4"}[i]), 1, "l", locktable.WaitForever))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if got := n.Load(); got != 1 {
			t.Errorf("%d syncs after three places in 3 ms, want 1", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		if got := len(y.queue("l")); got != 3 {
			t.Errorf("the next term knows of %d places, want 3", got)
		}
	})
}

// Whoever waits for an answer does not wait for the rest of a batch, nor does what needs a batch of
// its own, as a snapshot.
func TestAnswersEndTheRestOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		x.ok(acquire("c1", 1, "l", 0))
		for name, do := range map[string]func(){
			"refusal": func() { x.sees(acquire("c3", 1, "l", 0), cluster.StatusHeld) },
			"grant":   func() { x.ok(acquire("c3", 2, "m", 0)) },
			"snapshot": func() {
				if _, _, err := x.p.Export(t.Context()); err != nil {
					t.Error(err)
				}
			},
		} {
			x.later(acquire(cluster.ClientID(name), 1, "l", locktable.WaitForever))
			began := time.Now()
			do()
			if took := time.Since(began); took > 0 {
				t.Errorf("the %s was answered after %v", name, took)
			}
		}
	})
}
