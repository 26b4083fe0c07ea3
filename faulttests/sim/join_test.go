// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// newcomer is a server as it is added.
func newcomer(id cluster.ServerID) cluster.MemberChange {
	return cluster.MemberChange{Kind: cluster.AddServer, Server: cluster.Member{ID: id, Client: fmt.Sprintf("h%d:1", id), Peer: fmt.Sprintf("h%d:3", id)}}
}

func removal(id cluster.ServerID) cluster.MemberChange {
	return cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: id}}
}

// change has the primary change the list of servers as an operator's command does, which repeats the request until it is answered.
func (c *Cluster) change(t *testing.T, request cluster.RequestID, x cluster.MemberChange) locktable.Outcome {
	t.Helper()
	var out locktable.Outcome
	var err error
	for began := time.Now(); time.Since(began) < healing; time.Sleep(50 * time.Millisecond) {
		for _, id := range c.Primaries() {
			q := &locktable.Request{Op: locktable.OpMembers, Client: "operator", ID: request, Members: &locktable.MembersRequest{Change: x}}
			if out, err = c.server(id).Do(t.Context(), q); err == nil && (out.Status == cluster.StatusOK || out.Status == cluster.StatusInvalidArgument) {
				return out
			}
		}
	}
	t.Fatalf("a change of the list is not answered: %v %q, %v", out.Status, out.Message, err)
	return out
}

// changes is change for one that has to be done.
func (c *Cluster) changes(t *testing.T, request cluster.RequestID, x cluster.MemberChange) {
	t.Helper()
	if out := c.change(t, request, x); out.Status != cluster.StatusOK {
		t.Fatalf("%+v: %v %q", x, out.Status, out.Message)
	}
}

// seenBy is what a server's status shows of another one.
func (c *Cluster) seenBy(by, id cluster.ServerID) (s serving.ServerStatus, listed bool) {
	x := c.server(by)
	if x == nil {
		return s, false
	}
	for _, s := range x.node.Status().Servers {
		if s.Member.ID == id {
			return s, true
		}
	}
	return s, false
}

// isMember reports whether all of these servers follow a list by which another one is a member.
func (c *Cluster) isMember(id cluster.ServerID, by ...cluster.ServerID) bool {
	for _, x := range by {
		if s, listed := c.seenBy(x, id); !listed || s.Member.Joining {
			return false
		}
	}
	return true
}

// within demands that something comes true.
func within(t *testing.T, limit time.Duration, what string, is func() bool) (took time.Duration) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if took = time.Since(began); took > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
	return took
}

// TestServerJoins: a server that is added is fed and becomes a member by itself, counts from then on, and may be primary; one that is removed
// does not.
func TestServerJoins(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		if err := c.Start(4); !errors.Is(err, cluster.ErrNoMember) {
			t.Fatalf("a server that is not listed starts: %v", err)
		}
		c.changes(t, 1, newcomer(4))
		within(t, time.Second, "the volume lists it", func() bool { return c.Start(4) == nil })
		took := within(t, 10*time.Second, "server 4 is a member", func() bool { return c.isMember(4, 1, 2, 3, 4) })
		t.Logf("a member after %v", took)
		if c.epoch() != 2 {
			t.Errorf("epoch %d", c.epoch())
		}
		c.changes(t, 2, removal(3))
		if err := c.server(3).ended(t); !errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("server 3 ended: %v", err)
		}
		c.Kill(3)
		c.Kill(2)
		time.Sleep(3 * time.Second)
		if id, _ := c.one(t, "1 and 4 of three"); id != 1 {
			t.Errorf("server %d is primary", id)
		}
		c.Kill(1)
		time.Sleep(10 * time.Second)
		if ids := c.Primaries(); len(ids) > 0 {
			t.Errorf("%v are primary, alone of three", ids)
		}
		c.startAgain(t, 2)
		c.one(t, "2 and 4 of three")
		c.changes(t, 3, removal(1))
	})
}

// TestEachServerIsReplaced by a new one, in turn, under the work of clients: nothing is lost, and nobody is deposed without need.
func TestEachServerIsReplaced(t *testing.T) {
	for name, profile := range map[string]volumetest.Profile{"one host": volumetest.ProfileLocal(), "stale caches": volumetest.ProfileNetwork()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { replaceEach(t, profile) })
		})
	}
}

func replaceEach(t *testing.T, profile volumetest.Profile) {
	const rounds = 20
	c := newClusterOn(t, profile, 3, rounds)
	c.one(t, "start")
	for old := cluster.ServerID(1); old <= 3; old++ {
		added := old + 3
		c.changes(t, cluster.RequestID(2*old), newcomer(added))
		within(t, 2*time.Minute, "the volume lists it", func() bool { return c.Start(added) == nil })
		within(t, 3*time.Minute, fmt.Sprintf("server %d is a member", added), func() bool { return c.isMember(added, added) })
		if id, _ := c.one(t, "with the new one"); id == old {
			within(t, healing, "a handover", func() bool { _, err := c.server(old).node.Handover(t.Context(), added); return err == nil })
			within(t, healing, "another primary", func() bool { id, _, err := c.AwaitPrimary(healing); return err == nil && id != old })
		}
		c.changes(t, cluster.RequestID(2*old+1), removal(old))
		if err := c.server(old).ended(t); !errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("server %d ended: %v", old, err)
		}
		c.Kill(old)
	}
	if n := c.epoch() - 2; n > 3 {
		t.Errorf("%d terms for 3 handovers at most", n)
	}
	c.finish(t, rounds)
}

// TestTypoInAnAddress: a server that never comes counts for nothing: it is seen to join, and two of three are a majority as before.
func TestTypoInAnAddress(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.changes(t, 1, newcomer(4))
		c.changes(t, 2, newcomer(5))
		time.Sleep(5 * time.Second)
		s, listed := c.seenBy(1, 4)
		if !listed || !s.Member.Joining || !strings.Contains(s.Joins, "does not answer at h4:3") {
			t.Errorf("server 4 is shown as %+v, why %q", s.Member, s.Joins)
		}
		c.Kill(1)
		if id, took := c.one(t, "two of three"); id != 2 || took > time.Second {
			t.Errorf("server %d is primary after %v", id, took)
		}
		c.changes(t, 3, removal(4))
		c.changes(t, 4, removal(5))
		c.startAgain(t, 1)
	})
}

// TestHandoverToANewMember: a server that became a member a moment ago does not know that, nor does MEMBERS show it yet. It takes over all the
// same when the primary names it.
func TestHandoverToANewMember(t *testing.T) { handOverWithANewMember(t, 4) }

// TestHandoverBesideANewMember: a server that was a member all the time learns of the new one while it takes over. Nobody voted, so nobody votes anew.
func TestHandoverBesideANewMember(t *testing.T) { handOverWithANewMember(t, 3) }

func handOverWithANewMember(t *testing.T, successor cluster.ServerID) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.changes(t, 1, newcomer(4))
		within(t, time.Second, "the volume lists it", func() bool { return c.Start(4) == nil })
		gate := c.holdMembers(1)
		within(t, 10*time.Second, "server 4 is a member", func() bool { return c.isMember(4, 1) })
		epoch := c.epoch()
		time.AfterFunc(20*time.Millisecond, gate.Resume)
		if to, err := c.server(1).node.Handover(t.Context(), successor); err != nil || to != successor {
			t.Fatalf("handed over to server %d, %v", to, err)
		}
		if id, took := c.one(t, "handed over"); id != successor || took > c.Timing.Heartbeat || c.epoch() != epoch+1 {
			t.Errorf("server %d is primary after %v, %d epochs became %d", id, took, epoch, c.epoch())
		}
	})
}

// TestHandoverWithoutMembers: MEMBERS that cannot be written keeps nobody from handing over.
func TestHandoverWithoutMembers(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		gate := c.holdMembers(1)
		c.changes(t, 1, newcomer(4))
		began := time.Now()
		if to, err := c.server(1).node.Handover(t.Context(), 2); err != nil || to != 2 || time.Since(began) > time.Second {
			t.Errorf("handed over to server %d after %v, %v", to, time.Since(began), err)
		}
		if id, _ := c.one(t, "handed over"); id != 2 {
			t.Errorf("server %d is primary", id)
		}
		gate.Resume()
	})
}

// holdMembers makes a server's writes of MEMBERS hang, until the gate opens.
func (c *Cluster) holdMembers(id cluster.ServerID) *volumetest.Gate {
	gate := volumetest.NewGate()
	c.server(id).host.SetHook(func(x volumetest.Call) volumetest.Action {
		if x.NewName == "MEMBERS" || x.Op == volumetest.OpReplaceRename && x.Name == "MEMBERS" {
			return volumetest.Pause(gate)
		}
		return volumetest.Proceed()
	})
	return gate
}

// TestServerThatJoinsCountsForNothing: it is no successor, makes no majority, and never claims, however able it is.
func TestServerThatJoinsCountsForNothing(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.Net.Older(4, true) // so it stays one that joins
		c.changes(t, 1, newcomer(4))
		within(t, time.Second, "the volume lists it", func() bool { return c.Start(4) == nil })
		within(t, 10*time.Second, "it waits for its level", func() bool {
			s, _ := c.seenBy(1, 4)
			return s.Member.Joining && strings.Contains(s.Joins, "level")
		})
		within(t, 10*time.Second, "it is able", func() bool { s, _ := c.seenBy(4, 4); return s.Able })
		if to, err := c.server(1).node.Handover(t.Context(), 4); err == nil {
			t.Errorf("handed over to server %d, which joins", to)
		}
		c.Kill(2)
		c.Kill(3)
		within(t, 10*time.Second, "no primary, one of three", func() bool { return len(c.Primaries()) == 0 })
		before := c.epoch()
		c.Kill(1)
		time.Sleep(20 * time.Second)
		if ids := c.Primaries(); len(ids) > 0 || c.epoch() != before {
			t.Errorf("%v are primary, %d epochs became %d", ids, before, c.epoch())
		}
		c.startAgain(t, 2, 3)
		if id, _ := c.one(t, "two of three"); id != 2 {
			t.Errorf("server %d is primary", id)
		}
	})
}

// TestLostServerOfTwoIsReplaced: of two servers, one is gone for good. A third one becomes a member all the same, while the volume votes for the
// primary, and then two of three are a majority.
func TestLostServerOfTwoIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 10
		c := newTwo(t, volumetest.ProfileLocal(), 4, rounds)
		c.one(t, "start")
		c.Kill(2)
		time.Sleep(5 * time.Second)
		c.changes(t, 1, newcomer(3))
		within(t, time.Second, "the volume lists it", func() bool { return c.Start(3) == nil })
		within(t, 10*time.Second, "server 3 is a member", func() bool { return c.isMember(3, 1, 3) })
		c.changes(t, 2, removal(2))
		within(t, 2*time.Second, "server 3 follows", func() bool { _, listed := c.seenBy(3, 2); return !listed })
		time.Sleep(5 * time.Second)
		c.Kill(1)
		if id, _ := c.one(t, "one of two, with the vote of the volume"); id != 3 {
			t.Errorf("server %d is primary", id)
		}
		c.startAgain(t, 1)
		c.finish(t, rounds)
	})
}

// TestListChangesBehindAServer that is cut off, of two: with its old list, the volume would vote for it, because it sees no primary among
// those that it knows. It reads the list on the volume, and claims nothing.
func TestListChangesBehindAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTwo(t, volumetest.ProfileLocal(), 6, 0)
		c.one(t, "start")
		time.Sleep(time.Second)
		c.Net.Isolate(2, true)
		c.changes(t, 1, newcomer(3))
		within(t, time.Second, "the volume lists it", func() bool { return c.Start(3) == nil })
		within(t, 10*time.Second, "server 3 is a member", func() bool { return c.isMember(3, 1, 3) })
		if _, err := c.server(1).node.Handover(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		within(t, healing, "server 3 is primary", func() bool { id, _, err := c.AwaitPrimary(healing); return err == nil && id == 3 })
		c.Kill(1)
		c.startAgain(t, 1)
		before := c.epoch()
		time.Sleep(time.Minute)
		if id, _ := c.one(t, "a minute later"); id != 3 || c.epoch() != before {
			t.Errorf("server %d is primary, %d epochs became %d", id, before, c.epoch())
		}
		if !c.isMember(3, 2) {
			t.Error("the server that is cut off does not know the list")
		}
		c.End()
		c.Shutdown()
	})
}
