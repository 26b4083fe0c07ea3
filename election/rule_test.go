// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func able() election.Status { return election.Status{Able: true} }

// voted is a voter that answered.
func voted(id cluster.ServerID, st election.Status) election.Voter {
	return election.Voter{ID: id, Answer: election.Voted, Vote: election.Vote{From: id, Status: st}}
}

// hears is a voter that hears another primary.
func hears(id, primary cluster.ServerID) election.Voter {
	v := voted(id, able())
	v.Vote.HearsPrimary, v.Vote.Primary = true, primary
	return v
}

// sees is a voter to whom others are live and able.
func sees(id cluster.ServerID, live ...cluster.ServerID) election.Voter {
	v := voted(id, able())
	v.Vote.Live = live
	return v
}

func gives(id cluster.ServerID, a election.Answer) election.Voter {
	return election.Voter{ID: id, Answer: a}
}

const (
	second = time.Second
	stale  = 6 * time.Second
)

type (
	poll = election.Poll
	// ruling is a case of the rule that its name cites.
	ruling struct {
		rule string
		in   poll // server 2 of three and able, unless it says otherwise
		want election.Verdict
	}
)

func voters(v ...election.Voter) []election.Voter { return v }

// primaries are the cases of rules 1 to 5: what votes count and which server is primary.
func primaries() []ruling {
	unable := election.Status{}
	primary := election.Status{Role: election.RolePrimary, Epoch: 4}
	fencing := election.Status{Role: election.RoleFencing, Epoch: 4}
	stuck := election.Status{Role: election.RolePrimary, Progress: 2 * second}
	noVolume := election.Status{Able: true, Storage: stale}
	waiting := election.Status{Role: election.RoleFencing, Epoch: 4, Progress: 4 * second}
	hanging := election.Status{Role: election.RoleFencing, Epoch: 4, Progress: stale}
	return []ruling{
		{"1. Who is not able yields", poll{Self: 1, Storage: stale, Voters: voters(voted(2, unable), voted(3, unable))}, election.Yield},
		{"2. A conflicted voter does not count", poll{Voters: voters(gives(1, election.Conflicted), gives(3, election.Silent))}, election.Undecided},
		{"2. A voter without storage does not count", poll{Voters: voters(gives(1, election.Silent), voted(3, noVolume))}, election.Undecided},
		{"2. A voter without storage does not go first", poll{Voters: voters(voted(1, noVolume), voted(3, unable))}, election.Claim},
		{"2. A stranger does not count", poll{Voters: voters(gives(1, election.Silent), voted(7, unable))}, election.Undecided},
		{"2. A vote in another's name does not count", poll{Voters: voters(gives(1, election.Silent), election.Voter{ID: 3, Answer: election.Voted, Vote: election.Vote{From: 1}})}, election.Undecided},
		{"2. This server is no voter", poll{Voters: voters(gives(1, election.Silent), voted(2, unable))}, election.Undecided},
		{"3. A live primary forbids", poll{Voters: voters(gives(1, election.Waiting), voted(3, primary))}, election.Yield},
		{"3. A fencing server forbids", poll{Voters: voters(voted(1, fencing), voted(3, unable))}, election.Yield},
		{"3. A live primary forbids in any order", poll{Order: election.AnyOrder, Voters: voters(voted(1, unable), voted(3, primary))}, election.Yield},
		{"3. A stuck primary does not forbid", poll{Storage: second, Voters: voters(gives(1, election.Silent), voted(3, stuck))}, election.Claim},
		{"3. A stuck primary forbids without proof that the share works", poll{Storage: 3 * second, Voters: voters(gives(1, election.Silent), voted(3, stuck))}, election.Yield},
		{"3. A takeover that waits for the volume forbids", poll{Storage: second, Voters: voters(gives(1, election.Silent), voted(3, waiting))}, election.Yield},
		{"3. A takeover that hangs does not forbid", poll{Storage: second, Voters: voters(gives(1, election.Silent), voted(3, hanging))}, election.Claim},
		{"3. A takeover that hangs forbids without proof that the share works", poll{Storage: 3 * second, Voters: voters(gives(1, election.Silent), voted(3, hanging))}, election.Yield},
		{"4. Who hears a live primary forbids", poll{Voters: voters(gives(1, election.Silent), hears(3, 1))}, election.Yield},
		{"4. A primary that votes has its own word", poll{Voters: voters(voted(1, unable), hears(3, 1))}, election.Claim},
		{"4. A primary that may still vote is waited for", poll{Voters: voters(gives(1, election.Waiting), hears(3, 1))}, election.Undecided},
		{"4. Who hears this server itself does not forbid", poll{Voters: voters(gives(1, election.Silent), hears(3, 2))}, election.Claim},
		{"5. A lower fencing claim does not stop a claim", poll{Claimed: 5, Order: election.AnyOrder, Voters: voters(voted(1, fencing), voted(3, unable))}, election.Claim},
		{"5. A higher fencing claim does", poll{Claimed: 3, Order: election.AnyOrder, Voters: voters(voted(1, fencing), voted(3, unable))}, election.Yield},
		{"5. A lower primary does", poll{Claimed: 5, Order: election.AnyOrder, Voters: voters(voted(1, primary), voted(3, unable))}, election.Yield},
	}
}

// orders are the cases of rules 6 to 11: who goes first and what is enough.
func orders() []ruling {
	unable := election.Status{}
	candidate := election.Status{Role: election.RoleCandidate}
	two := cluster.Members{{ID: 1}, {ID: 2}}
	five := cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}, {ID: 5}}
	return []ruling{
		{"6. An able lower server goes first", poll{Voters: voters(voted(1, able()), gives(3, election.Silent))}, election.Yield},
		{"6. An unable lower server does not", poll{Voters: voters(voted(1, unable), voted(3, able()))}, election.Claim},
		{"6. A lower server that others hear goes first", poll{Voters: voters(gives(1, election.Silent), sees(3, 1))}, election.Yield},
		{"6. A lower server that speaks for itself", poll{Voters: voters(voted(1, unable), sees(3, 1))}, election.Claim},
		{"6. A higher server that others hear does not matter", poll{Voters: voters(sees(1), gives(3, election.Silent))}, election.Yield},
		{"6. Nor does one that is silent", poll{Self: 1, Voters: voters(sees(2, 3), gives(3, election.Silent))}, election.Claim},
		{"6. In turn, the highest server goes first", poll{First: 2, Voters: voters(gives(1, election.Silent), voted(3, able()))}, election.Yield},
		{"6. In turn, the lowest one goes behind it", poll{First: 1, Voters: voters(voted(1, able()), voted(3, able()))}, election.Claim},
		{"6. In turn, round and round", poll{First: 5, Voters: voters(voted(1, able()), gives(3, election.Silent))}, election.Yield},
		{"7. Who is claiming goes first", poll{Voters: voters(voted(1, unable), voted(3, candidate))}, election.Yield},
		{"8. Patience drops the order", poll{Order: election.AnyOrder, Voters: voters(voted(1, able()), voted(3, candidate))}, election.Claim},
		{"9. Without a majority nothing is decided", poll{Voters: voters(gives(1, election.Silent), gives(3, election.Silent))}, election.Undecided},
		{"9. One of two is no majority", poll{Members: two, Voters: voters(gives(1, election.Silent))}, election.Undecided},
		{"9. Two of five are no majority", poll{Members: five, Voters: voters(gives(1, election.Silent), voted(3, able()), gives(4, election.Silent), gives(5, election.Silent))}, election.Undecided},
		{"9. One of two and the volume are", poll{Members: two, Volume: 1, Voters: voters(gives(1, election.Silent))}, election.Claim},
		{"9. One of two and the volume do not outvote a primary", poll{Members: two, Volume: 1, Voters: voters(voted(1, election.Status{Role: election.RolePrimary}))}, election.Yield},
		{"9. One of two and the volume outvote a stalled primary", poll{Members: two, Volume: 1, Storage: second, Voters: voters(voted(1, election.Status{Role: election.RolePrimary, Storage: stale}))}, election.Claim},
		{"9. Who may still forbid it is waited for", poll{Members: two, Volume: 1, Voters: voters(gives(1, election.Waiting))}, election.Undecided},
		{"9. One of five and one vote of the volume are not", poll{Members: five, Volume: 1, Voters: voters(gives(1, election.Silent), gives(3, election.Silent), gives(4, election.Silent), gives(5, election.Silent))}, election.Undecided},
		{"9. One of five and a permission are", poll{Members: five, Volume: 3, Voters: voters(gives(1, election.Silent), gives(3, election.Silent), gives(4, election.Silent), gives(5, election.Silent))}, election.Claim},
		{"9. A permission does not outvote who hears a primary", poll{Members: five, Volume: 3, Voters: voters(gives(1, election.Silent), hears(3, 5), gives(4, election.Silent), gives(5, election.Silent))}, election.Yield},
		{"9. Three of five are", poll{Members: five, Voters: voters(gives(1, election.Silent), voted(3, able()), voted(4, able()), gives(5, election.Silent))}, election.Claim},
		{"9. One of one is", poll{Members: two[1:], Voters: nil}, election.Claim},
		{"10. Who may still forbid is waited for", poll{Voters: voters(gives(1, election.Waiting), voted(3, able()))}, election.Undecided},
		{"10. Who is silent is not", poll{Voters: voters(gives(1, election.Silent), voted(3, able()))}, election.Claim},
		{"11. Otherwise this server claims", poll{Voters: voters(voted(1, unable), voted(3, unable))}, election.Claim},
	}
}

func TestDecide(t *testing.T) {
	for _, c := range append(primaries(), orders()...) {
		in := c.in
		in.Timing = cluster.DefaultTiming()
		in.Able = in.Storage <= in.Timing.StorageTimeout
		if in.Self == 0 {
			in.Self = 2
		}
		if in.Members == nil {
			in.Members = cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}}
		}
		if got := election.Decide(in); got != c.want {
			t.Errorf("%s: got %v, want %v", c.rule, got, c.want)
		}
	}
}

// A verdict other than Undecided does not change when a waiting voter answers.
func TestDecideIsFinal(t *testing.T) {
	kinds := []election.Voter{
		gives(0, election.Waiting), gives(0, election.Silent), gives(0, election.Conflicted), voted(0, able()), voted(0, election.Status{}),
		voted(0, election.Status{Role: election.RolePrimary}), voted(0, election.Status{Role: election.RoleCandidate}),
		hears(0, 1), hears(0, 3), sees(0, 1), sees(0, 3), voted(0, election.Status{Storage: stale}),
	}
	as := func(v election.Voter, id cluster.ServerID) election.Voter {
		v.ID, v.Vote.From = id, id
		return v
	}
	for self := cluster.ServerID(1); self <= 3; self++ {
		in := election.Poll{Self: self, Members: cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}}, Timing: cluster.DefaultTiming(), Able: true}
		other := [][]cluster.ServerID{1: {2, 3}, 2: {1, 3}, 3: {1, 2}}[self]
		for _, a := range kinds {
			in.Voters = []election.Voter{as(a, other[0]), gives(other[1], election.Waiting)}
			early := election.Decide(in)
			for _, b := range kinds[1:] {
				in.Voters = []election.Voter{as(a, other[0]), as(b, other[1])}
				if late := election.Decide(in); early != election.Undecided && late != early {
					t.Errorf("server %d: %v became %v by %+v after %+v", self, early, late, b, a)
				}
			}
		}
	}
}
