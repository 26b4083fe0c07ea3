// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// The word of a primary that has resigned, which comes when another one has long been primary.
func TestLateNominationEndsNoHealthyTerm(t *testing.T) {
	for name, late := range map[string]time.Duration{"at once": 100 * time.Millisecond, "20 s late": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 0)
				first, _ := c.one(t, "start")
				old := c.epochOf(first)
				time.Sleep(time.Second)
				if to, err := c.server(first).node.Handover(t.Context(), 2); err != nil || to != 2 {
					t.Fatal(to, err)
				}
				id, _ := c.one(t, "after the handover")
				epochs := c.epoch()
				time.Sleep(late)
				if err := c.server(3).node.HandleHandover(old); !errors.Is(err, node.ErrLateHandover) {
					t.Errorf("server 3 answers %v to the word of epoch %d", err, old)
				}
				time.Sleep(10 * time.Second)
				if now, _ := c.one(t, "afterwards"); now != id || c.epoch() != epochs {
					t.Errorf("a healthy term of server %d was ended by a word that is older than it: server %d is primary", id, now)
				}
				c.End()
				c.Shutdown()
			})
		})
	}
}

// epochOf is the epoch of a server that is primary.
func (c *Cluster) epochOf(id cluster.ServerID) cluster.Epoch {
	return c.server(id).node.Status().Epoch
}

// Messages that arrive up to minutes late, out of their order, when nobody waits for their
// answers: handovers, pings, votes and pushes. They cost time and end no term.
func TestLateMessagesEndNoTerm(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds = 30
				c := newCluster(t, seed, rounds)
				c.Outages = true
				c.one(t, "start")
				rng := rand.New(rand.NewPCG(seed, 17))
				c.Net.Late(func(_, _ cluster.ServerID) time.Duration { // Net calls it with its mutex held
					if rng.IntN(10) > 0 {
						return 0
					}
					return time.Duration(rng.Int64N(int64(3 * time.Minute)))
				})
				for range 10 {
					time.Sleep(5 * time.Second)
					id, _ := c.one(t, "between handovers")
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _ = c.server(id).node.Handover(ctx, 0) // its word may be the late one
					cancel()
				}
				c.Net.Late(nil)
				time.Sleep(healing)
				id, _ := c.one(t, "when they end")
				epochs := c.epoch()
				time.Sleep(4 * time.Minute)
				if now, _ := c.one(t, "minutes later"); now != id || c.epoch() != epochs {
					t.Errorf("server %d was primary and server %d is; %d epochs became %d by words that came late", id, now, epochs, c.epoch())
				}
				c.finish(t, rounds)
			})
		})
	}
}

// yieldBeside has a server claim that did not see the primary for a moment, and sleep before its claim has a
// number: it yields, and the number is burned.
func (c *Cluster) yieldBeside(t *testing.T, id cluster.ServerID) {
	t.Helper()
	x := c.server(id)
	gate := volumetest.NewGate()
	x.host.SetHook(func(k volumetest.Call) volumetest.Action {
		if k.Op == volumetest.OpRename && strings.HasSuffix(k.Name, ".claim") {
			return volumetest.Pause(gate)
		}
		return volumetest.Proceed()
	})
	first := c.Primaries()[0]
	c.Net.Isolate(first, true) // for less than it takes to end its term
	<-gate.Arrived()
	c.Net.Isolate(first, false)
	time.Sleep(2 * time.Second)
	x.host.SetHook(nil)
	gate.Resume()
	time.Sleep(3 * time.Second)
	if now, _ := c.one(t, "afterwards"); now != first {
		t.Fatalf("server %d is primary: the claim did not yield", now)
	}
}

// A claim that yields before its first fence leaves its server a replica of the term that
// goes on.
func TestWhoYieldedFollowsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		first, _ := c.one(t, "start")
		time.Sleep(time.Second)
		id := first%3 + 1
		c.yieldBeside(t, id)
		out, err := c.server(first).node.Do(t.Context(), &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: 1, Lock: "l", TTL: time.Minute})
		if err != nil {
			t.Fatal(out, err)
		}
		time.Sleep(3 * time.Second)
		if r, _ := c.server(id).node.Read(t.Context(), func(serving.View) {}); r.LSN < out.LSN {
			t.Errorf("server %d stands at LSN %d (%v) three seconds after LSN %d was committed", id, r.LSN, r.Status, out.LSN)
		}
		c.End()
		c.Shutdown()
	})
}

// A number above that of the term, which never began, is no later term: a handover is not
// too late because of it.
func TestHandoverBelowABurnedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		first, _ := c.one(t, "start")
		time.Sleep(time.Second)
		c.yieldBeside(t, first%3+1)
		to, err := c.server(first).node.Handover(t.Context(), 0)
		if err != nil {
			t.Fatalf("handover below a burned number: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		if ids := c.Primaries(); len(ids) != 1 || ids[0] != to {
			t.Errorf("200 ms after the handover to server %d these are primary: %v", to, ids)
		}
		c.End()
		c.Shutdown()
	})
}

// A push that was long on its way says what was true when it was sent: a replica that hears
// nothing else is as old as that.
func TestLatePushMakesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0)
		first, _ := c.one(t, "start")
		other := first%3 + 1
		time.Sleep(5 * time.Second)
		age := func() time.Duration {
			r, err := c.server(other).node.Read(t.Context(), func(serving.View) {})
			if err != nil || r.Status != cluster.StatusOK {
				t.Fatal(r, err)
			}
			return r.Age
		}
		if d := age(); d > 1100*time.Millisecond {
			t.Errorf("fed by an idle primary it is %v old", d)
		}
		c.Net.Late(func(from, to cluster.ServerID) time.Duration {
			if from == first && to == other {
				return time.Minute
			}
			return 0
		})
		time.Sleep(3 * time.Second)
		c.Net.Late(nil)
		c.Net.Cut(first, other)
		time.Sleep(time.Minute)
		if d := age(); d < 59*time.Second {
			t.Errorf("a push that was on its way for a minute makes it %v old", d)
		}
		c.Net.Heal()
		time.Sleep(5 * time.Second)
		if d := age(); d > 1100*time.Millisecond {
			t.Errorf("fed again it is %v old", d)
		}
		c.End()
		c.Shutdown()
	})
}

// TestHandoverIsBounded: a successor that does not answer, or a volume that hangs, holds up nobody
// who asks for a handover, however long he would wait.
func TestHandoverIsBounded(t *testing.T) {
	for name, harm := range map[string]func(*Cluster) (mend func()){
		"the successor is out of reach": func(c *Cluster) func() {
			c.Net.Isolate(2, true)
			return c.Net.Heal
		},
		"the volume hangs": func(c *Cluster) func() { return c.Hang(1).Resume },
	} {
		t.Run(name, func(t *testing.T) {
			quiet(t, func(t *testing.T, c *Cluster) {
				mend := harm(c)
				began, answered := time.Now(), make(chan error, 1)
				var to cluster.ServerID
				go func() {
					var err error
					to, err = c.server(1).node.Handover(context.WithoutCancel(t.Context()), 2)
					answered <- err
				}()
				select {
				case err := <-answered:
					if err == nil || to != 2 {
						t.Errorf("answered server %d, %v, want 2 and why nobody knows", to, err)
					}
				case <-time.After(4 * time.Second):
					t.Errorf("there is no answer after %v", time.Since(began))
				}
				mend()
				c.one(t, "after that")
			})
		})
	}
}
