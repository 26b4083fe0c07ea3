// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// roster is the primary, server 1, of a list of servers that it changes.
type roster struct {
	fake
	mu      sync.Mutex
	addr    string // its own
	version uint64
	highest uint32
	primary uint32
	servers []*pb.Server
	asked   []string
}

func newRoster() *roster {
	r := &roster{version: 1, highest: 3, primary: 1}
	for id := uint32(1); id <= 3; id++ {
		r.servers = append(r.servers, &pb.Server{Id: id, Role: pb.Role_ROLE_REPLICA, Client: fmt.Sprintf("h%d:7601", id), Peer: fmt.Sprintf("h%d:7801", id), Reachable: true, Able: true})
	}
	return r
}

func (r *roster) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &pb.StatusResponse{
		Status: pb.Status_STATUS_OK, ClusterId: "0123456789abcdef0123456789abcdef", ServerId: r.primary, Role: pb.Role_ROLE_PRIMARY, FeatureLevel: 5,
		Primary: &pb.Primary{Id: r.primary, Client: r.addr}, MembersVersion: r.version, HighestServerId: r.highest,
	}
	for _, x := range r.servers {
		role := pb.Role_ROLE_REPLICA
		if x.GetId() == r.primary {
			role = pb.Role_ROLE_PRIMARY
		}
		s.Servers = append(s.Servers, &pb.Server{Id: x.GetId(), Role: role, Client: x.GetClient(), Peer: x.GetPeer(), Reachable: true, Able: true, Joining: x.GetJoining(), Joins: x.GetJoins()})
	}
	return s, nil
}

// ChangeMembers changes the list as it is told. A server that is added is a member by the next answer, unless its host is "typo".
func (r *roster) ChangeMembers(_ context.Context, q *pb.ChangeMembersRequest) (*pb.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, strings.Join(strings.Fields(fmt.Sprintf("%s %d %s %s v%d force=%t", q.GetChange(), q.GetServer(), q.GetClient(), q.GetPeer(), q.GetIfVersion(), q.GetForce())), " "))
	if q.GetIfVersion() != 0 && q.GetIfVersion() != r.version {
		return refused(pb.Status_STATUS_INVALID_ARGUMENT, "", "the list of servers was changed meanwhile"), nil
	}
	r.version++
	switch q.GetChange() {
	case "add":
		joins := ""
		if strings.HasPrefix(q.GetClient(), "typo") {
			joins = "it does not answer at " + q.GetPeer()
		}
		r.highest = q.GetServer()
		r.servers = append(r.servers, &pb.Server{Id: q.GetServer(), Client: q.GetClient(), Peer: q.GetPeer(), Joining: joins != "", Joins: joins})
	case "remove":
		for i, x := range r.servers {
			if x.GetId() == q.GetServer() {
				r.servers = append(r.servers[:i:i], r.servers[i+1:]...)
				break
			}
		}
	}
	a := ok("", 0)
	a.MembersVersion = r.version
	return a, nil
}

func (r *roster) Handover(_ context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, fmt.Sprintf("handover %d", q.GetTo()))
	r.primary = q.GetTo()
	for _, x := range r.servers {
		if x.GetId() == q.GetTo() && strings.HasPrefix(x.GetClient(), "late") {
			r.primary = 2 // elected, since that one does not know yet that it is a member
		}
	}
	return ok("", 0), nil
}

// TestMember: each command asks the primary for the change that it names, and replace for all that it takes.
func TestMember(t *testing.T) {
	for name, x := range map[string]struct {
		args  string
		code  int
		says  string
		asked string
	}{
		"ls":                     {"member ls", 0, "version 1 of the list of servers; IDs up to 3 were used", ""},
		"ls in JSON":             {"member ls -o json", 0, `"members_version":1`, ""},
		"add":                    {"member add 4=hostD", 0, "server 4 joins; start it with: holdfast server --id 4 --volume DIR (version 2 of the list)", "add 4 hostD:7601 hostD:7801 v0 force=false"},
		"add at a version":       {"member add 4=hostD --if-version 1 -o json", 0, `"members_version":2`, "add 4 hostD:7601 hostD:7801 v1 force=false"},
		"add at another version": {"member add 4=hostD --if-version 7", 2, "was changed meanwhile", "add 4 hostD:7601 hostD:7801 v7 force=false"},
		"add nothing":            {"member add 4", 2, "use ID=HOST", ""},
		"set":                    {"member set 2=hostB:7700", 0, "it listens there when it is started again", "set 2 hostB:7700 hostB:7900 v0 force=false"},
		"remove":                 {"member remove 3", 0, "server 3 is removed, for good (version 2 of the list)", "remove 3 v0 force=false"},
		"remove by force":        {"member remove 3 --force", 0, "server 3 is removed", "remove 3 v0 force=true"},
		"remove none":            {"member remove three", 2, "is no ID", ""},
		"replace":                {"member replace 2=hostE", 0, "server 4 is in the place of server 2 (version 3 of the list)", "add 4 hostE:7601 hostE:7801 v1 force=false, remove 2 v0 force=false"},
		"replace the primary":    {"member replace 1=hostE", 0, "server 4 is in the place of server 1", "add 4 hostE:7601 hostE:7801 v1 force=false, handover 4, remove 1 v0 force=false"},
		"replace by a late one":  {"member replace 1=late", 0, "server 4 is in the place of server 1", "add 4 late:7601 late:7801 v1 force=false, handover 4, remove 1 v0 force=false"},
		"replace, again":         {"member replace 2=h3", 0, "server 3 is in the place of server 2", "remove 2 v0 force=false"},
		"replace, a typo":        {"member replace 2=typo --wait 300ms", 5, "server 4 is no member yet: it does not answer at typo:7801. Type the same again", "add 4 typo:7601 typo:7801 v1 force=false"},
		"replace at its place":   {"member replace 2=h2", 2, "needs an address of its own", ""},
		"replace nobody":         {"member replace 9=hostE", 2, "server 9 is not in the list", ""},
	} {
		r := newRoster()
		addr := startService(t, r)
		r.mu.Lock()
		r.addr = addr
		r.mu.Unlock()
		got := run("", addr, words(x.args)...)
		if got.code != x.code || !strings.Contains(got.out+got.errs, x.says) {
			t.Errorf("%s: got %+v, want %d and %q", name, got, x.code, x.says)
		}
		if asked := strings.Join(r.asked, ", "); asked != x.asked {
			t.Errorf("%s: asked %q, want %q", name, asked, x.asked)
		}
	}
}

// TestStatusShowsWhoJoins, and why; that degrades nothing.
func TestStatusShowsWhoJoins(t *testing.T) {
	r := newRoster()
	r.servers = append(r.servers, &pb.Server{Id: 4, Client: "typo:7601", Joining: true, Joins: "it does not answer at typo:7801"})
	r.addr = startService(t, r)
	if got := run("", r.addr, "status"); !strings.Contains(got.out, "joins: it does not answer at typo:7801") {
		t.Errorf("got %+v", got)
	}
}
