// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// membersText is the text of a list of servers.
const membersText = `{"version":2,"highest_id":4,"servers":[{"id":1,"client":"h1:1","peer":"h1:2"},{"id":2,"grpc":"h2:1","http":"h2:3","peer":"h2:2"},{"id":4,"client":"h4:1","peer":"h4:2","joining":true}]}`

func member(id cluster.ServerID) cluster.Member {
	return cluster.Member{ID: id, Client: fmt.Sprintf("h%d:1", id), Peer: fmt.Sprintf("h%d:2", id)}
}

// firstServers are those with which the clusters of these tests began.
func firstServers() cluster.Members { return cluster.Members{member(1), member(2), member(3)} }

func members(c cluster.ClientID, id cluster.RequestID, kind cluster.ChangeKind, server cluster.Member) locktable.Request {
	return locktable.Request{Op: locktable.OpMembers, Client: c, ID: id, Members: &locktable.MembersRequest{First: firstServers(), Change: cluster.MemberChange{Kind: kind, Server: server}}}
}

// TestChangeOfNothingIsRefused: a request to change the servers says which change, and is refused before anything looks at that.
func TestChangeOfNothingIsRefused(t *testing.T) {
	q := locktable.Request{Op: locktable.OpMembers, Client: "ann", ID: 1}
	if status, why := q.Validate(cluster.DefaultTiming()); status != cluster.StatusInvalidArgument || why != "no change of the servers is given" {
		t.Errorf("got %v %q", status, why)
	}
}

// TestMembersAreState: the list is part of the hash, of exports as it was when they began, of clones, and of what is restored.
func TestMembersAreState(t *testing.T) {
	h := busy(t)
	if _, made := h.table.Members(); made {
		t.Error("a list that nothing made")
	}
	export := h.table.BeginExport()
	out := h.want(ok, members("ana", 1, cluster.AddServer, member(4)))
	if out.Version != 2 || out.Token != 0 || out.LSN != h.table.LSN() {
		t.Errorf("it is told as %+v", out)
	}
	for more := true; more; {
		var all []locktable.Entity
		if all, more = export.Next(100, nil); slices.ContainsFunc(all, func(e locktable.Entity) bool { return e.Members != nil }) {
			t.Error("an export has the list that came after it began")
		}
	}
	clone, hash := h.table.Clone(), h.table.Hash()
	h.want(ok, members("ana", 2, cluster.RemoveServer, cluster.Member{ID: 3}))
	if list, _ := clone.Members(); list.Version != 2 || clone.Hash() != hash || clone.Check() != nil {
		t.Errorf("a clone has version %d: %v", list.Version, clone.Check())
	}
	h.reload()
	list, made := h.table.Members()
	if want := (cluster.Membership{Version: 3, HighestID: 4, Servers: slices.Concat(firstServers()[:2], cluster.Members{{ID: 4, Client: "h4:1", Peer: "h4:2", Joining: true}})}); !made || list.Text() != want.Text() {
		t.Errorf("the list is %s, want %s", list.Text(), want.Text())
	}
	forgot := h.table.ForgetMembers()
	if _, made := forgot.Members(); made || forgot.Check() != nil {
		t.Errorf("a table that forgot has a list: %t, %v", made, forgot.Check())
	}
	if forgot.Hash() == h.table.Hash() { // they differ in nothing else
		t.Error("the list is no part of the hash")
	}
	if _, made := h.table.Members(); !made {
		t.Error("the table forgot with its copy")
	}
}

// TestMembersFollow: a record whose version does not follow, or which brings a removed ID back, belongs to no log.
func TestMembersFollow(t *testing.T) {
	h := newHarness(t)
	of := func(version uint64, highest cluster.ServerID, ids ...cluster.ServerID) record {
		list := cluster.Membership{Version: version, HighestID: highest}
		for _, id := range ids {
			list.Servers = append(list.Servers, member(id))
		}
		return record{Kind: locktable.KindMembers, Members: list.Text()}
	}
	h.illegal("a first list that is not version 2", of(3, 3, 1, 2))
	h.illegal("no list", record{Kind: locktable.KindMembers, Members: "{}"})
	h.illegal("half a request", record{Kind: locktable.KindMembers, Members: membersText, Client: "ana"})
	h.want(ok, members("ana", 1, cluster.RemoveServer, cluster.Member{ID: 2}))
	h.illegal("the same version", of(2, 3, 1, 3))
	h.illegal("a version too many", of(4, 3, 1, 3))
	h.illegal("a removed ID", of(3, 3, 1, 2, 3))
	h.illegal("a lower highest ID", of(3, 1, 1))
	again := of(3, 3, 1)
	again.Client, again.Request = "ana", 1
	h.illegal("a request that was executed", again)
	h.apply([]record{func() record { r := of(3, 9, 1, 9); r.LSN, r.Epoch = h.table.LSN()+1, h.epoch; return r }()})
}

// TestMembersOfAState are refused where they cannot have come from a log.
func TestMembersOfAState(t *testing.T) {
	list := cluster.Membership{Version: 2, HighestID: 3, Servers: firstServers()}
	first, none := cluster.FirstMembership(firstServers()), list
	none.Servers = nil
	for what, lists := range map[string][]cluster.Membership{"that of CLUSTER": {first}, "twice": {list, list}, "none": {none}} {
		_, err := locktable.Restore(7, func(yield func(locktable.Entity, error) bool) {
			for i := range lists {
				if !yield(locktable.Entity{Members: &lists[i]}, nil) {
					return
				}
			}
		})
		if !errors.Is(err, locktable.ErrBadState) {
			t.Errorf("a state with a list of servers, %s: %v", what, err)
		}
	}
}
