// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// refusing is a transport to servers that are not there.
type refusing struct{}

var errRefused = errors.New("refused")

func (refusing) Ping(context.Context, cluster.ServerID, Ping) (Pong, error) {
	return Pong{}, errRefused
}
func (refusing) PreVote(context.Context, cluster.ServerID, Ask) (Vote, error) {
	return Vote{}, errRefused
}

func listOf(ids ...cluster.ServerID) (all cluster.Members) {
	for _, id := range ids {
		all = append(all, cluster.Member{ID: id})
	}
	return all
}

func joined(all cluster.Members, id cluster.ServerID) cluster.Members {
	return append(all, cluster.Member{ID: id, Joining: true})
}

// alone is server 1 of a list, which hears nobody.
func alone(all cluster.Members) *Elector {
	return New(Options{Self: 1, Nonce: 1, Members: all, Timing: cluster.DefaultTiming(), Transport: refusing{}, Status: func() Status { return Status{} }})
}

// TestOtherVotersDecideAnew: a claim that other voters decided on is confirmed by those of now.
func TestOtherVotersDecideAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(listOf(1))
		e.mu.began = time.Now()
		time.Sleep(time.Millisecond)
		if err := e.Confirm(t.Context()); err != nil {
			t.Errorf("the list is the same: %v", err)
		}
		e.SetMembers(joined(listOf(1), 2))
		if err := e.Confirm(t.Context()); err != nil || e.offerOutdated() {
			t.Errorf("a server joins: %v", err)
		}
		e.SetMembers(listOf(1, 2, 3))
		if err := e.Confirm(t.Context()); !errors.Is(err, ErrYield) || !e.offerOutdated() {
			t.Errorf("one of three: %v", err)
		}
	})
}

// TestUnlistedServerIsNotAnswered: only who would hear a server as primary counts for it as reached.
func TestUnlistedServerIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(joined(listOf(1, 2), 3))
		answers := func(when string, id cluster.ServerID, want bool) {
			t.Helper()
			if pong := e.HandlePing(Ping{From: id, Nonce: uint64(id), Seq: 1}); (pong.From == 1) != want {
				t.Errorf("%s: server %d gets %+v", when, id, pong)
			}
		}
		answers("a member", 2, true)
		answers("one that joins", 3, true)
		answers("one that is not listed", 4, false)
		e.SetMembers(listOf(1, 4))
		answers("added", 4, true)
		answers("removed", 2, false)
	})
}

// TestStrangerIsAnsweredAsTheServer: who has not proved which server it is learns what this one is, as that server would, and is not heard.
func TestStrangerIsAnsweredAsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(listOf(1, 2))
		if pong := e.HandlePing(Ping{From: 2, Stranger: true, Seq: 3, Status: Status{Epoch: 9}}); pong.From != 1 || pong.Seq != 3 {
			t.Errorf("a stranger gets %+v", pong)
		}
		if e.Majority() || e.Peers()[0].Heard >= 0 {
			t.Errorf("a stranger counts: %+v", e.Peers())
		}
		if pong := e.HandlePing(Ping{From: 4, Stranger: true, Seq: 1}); pong.From != 0 {
			t.Errorf("a stranger as a server that is not listed gets %+v", pong)
		}
	})
}

// pings has a server ping this one now.
func pings(e *Elector, id cluster.ServerID, seq uint64) {
	e.HandlePing(Ping{From: id, Nonce: uint64(id), Seq: seq})
}

// TestWhoCounts: members count in a majority, servers that join and those that were removed do not.
func TestWhoCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(joined(listOf(1, 2, 3), 4))
		seq := uint64(0)
		counts := func(when string, want bool, from ...cluster.ServerID) {
			t.Helper()
			time.Sleep(2 * e.opt.Timing.MajorityWindow)
			seq++
			for _, id := range from {
				pings(e, id, seq)
			}
			if got := e.Majority(); got != want {
				t.Errorf("%s: a majority: %v", when, got)
			}
		}
		counts("nobody", false)
		counts("one that joins", false, 4)
		counts("a member", true, 2)
		e.SetMembers(listOf(1, 2, 3, 4))
		counts("two of four", false, 4)
		counts("three of four", true, 3, 4)
		if e.MajorityOf(listOf(1, 2, 5)) || !e.MajorityOf(listOf(1, 3, 5)) || !e.MajorityOf(listOf(1, 2)) || !e.MajorityOf(joined(listOf(1), 2)) {
			t.Error("the majority of another list")
		}
		e.SetMembers(listOf(1, 2, 3))
		counts("one that was removed", false, 4)
		e.SetMembers(listOf(1, 2))
		e.opt.Status = func() Status { return Status{Role: RolePrimary} }
		counts("one of two, and the volume", true)
	})
}

// TestWhoJoinsIsAble where it would have a majority as a member, and never asks for votes.
func TestWhoJoinsIsAble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			members cluster.Members
			reached []cluster.ServerID
			want    bool
		}{
			{listOf(2), nil, false}, {listOf(2), []cluster.ServerID{2}, true},
			{listOf(2, 3), []cluster.ServerID{2}, true}, {listOf(2, 3), nil, false},
			{listOf(2, 3, 4), []cluster.ServerID{2}, false}, {listOf(2, 3, 4), []cluster.ServerID{2, 4}, true},
		} {
			e := alone(append(cluster.Members{{ID: 1, Joining: true}}, x.members...))
			e.opt.Status = func() Status { return Status{Able: true} }
			now := time.Now()
			for _, id := range x.reached {
				p := e.peerLocked(id)
				p.answered, p.answeredAt, p.tried = 1, now, true
			}
			for _, p := range e.mu.peers {
				p.tried = true
			}
			st := e.status(now)
			if st.Able != x.want {
				t.Errorf("%v of %v: able %v", x.reached, x.members.IDs(), st.Able)
			}
			e.loop.tried = true
			if e.ready(now.Add(time.Minute), st) {
				t.Errorf("%v of %v: it asks for votes", x.reached, x.members.IDs())
			}
		}
	})
}

// TestWhoIsLonely: only members that could vote keep an operator's permission, and the volume, from being asked; and one that joins
// has nothing to ask for.
func TestWhoIsLonely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			members cluster.Members
			live    []cluster.ServerID
			lonely  bool
		}{
			{listOf(1, 2, 3), nil, true}, {listOf(1, 2, 3), []cluster.ServerID{2}, false},
			{joined(listOf(1, 2, 3), 4), []cluster.ServerID{4}, true}, {listOf(1, 2, 3, 4), []cluster.ServerID{4}, true},
			{listOf(1), nil, false}, {joined(listOf(2, 3), 1), []cluster.ServerID{2}, false},
		} {
			e := alone(listOf(1)) // by the first list it would never be lonely
			e.SetMembers(x.members)
			now := time.Now()
			for _, id := range x.live {
				p := e.peerLocked(id)
				p.answered, p.answeredAt, p.tried = 1, now, true
				p.answer = report{at: now, status: Status{Role: RoleReplica}}
			}
			if asked := e.VolumeVote().Asked; asked != x.lonely {
				t.Errorf("%v live of %v: the volume is asked: %t", x.live, x.members, asked)
			}
		}
	})
}

// TestLooksAtOtherVotersCountForNothing: the volume has no vote by what was seen before the list had other voters.
func TestLooksAtOtherVotersCountForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := alone(listOf(1, 2))
		sees := func(others ...cluster.ServerID) {
			look := Look{Began: time.Now(), Ended: time.Now(), Signs: map[cluster.ServerID]Sign{1: {}}}
			for _, id := range others {
				look.Signs[id] = Sign{Beat: 5}
			}
			e.Saw(look)
		}
		votes := func(when string, want bool) {
			t.Helper()
			if v := e.VolumeVote(); v.Yes != want {
				t.Errorf("%s: %+v", when, v)
			}
		}
		time.Sleep(time.Minute)
		sees(2)
		time.Sleep(stillFor(e.opt.Timing))
		sees(2)
		votes("server 2 was still", true)
		e.SetMembers(joined(listOf(1, 2), 3))
		votes("server 3 joins", true)
		e.SetMembers(listOf(1, 3))
		votes("server 3 is in the place of server 2", false)
		sees(2) // it was under way
		votes("a look that began before", false)
		sees(3)
		time.Sleep(stillFor(e.opt.Timing))
		sees(3)
		votes("server 3 was still", true)
	})
}
