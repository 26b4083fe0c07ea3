// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"strings"
	"testing"
)

func listed(ids ...ServerID) (m Members) {
	for _, id := range ids {
		m = append(m, Member{ID: id, Client: "h" + string('0'+rune(id)) + ":1", Peer: "h" + string('0'+rune(id)) + ":2"})
	}
	return m
}

func TestMembershipChanges(t *testing.T) {
	joins := listed(1, 2, 4)
	joins[2].Joining = true
	base := Membership{Version: 7, HighestID: 5, Servers: joins}
	for what, x := range map[string]struct {
		c       MemberChange
		want    string // the IDs that are left
		problem string
	}{
		"add":                 {MemberChange{Kind: AddServer, Server: listed(6)[0], IfVersion: 7}, "1 2 4+ 6+", ""},
		"another version":     {MemberChange{Kind: AddServer, Server: listed(6)[0], IfVersion: 6}, "", "it has version 7, and not 6"},
		"add one of the list": {MemberChange{Kind: AddServer, Server: listed(2)[0]}, "", "in the list already"},
		"add a removed one":   {MemberChange{Kind: AddServer, Server: listed(3)[0]}, "", "may still run under it. Use one above 5"},
		"add the last ID":     {MemberChange{Kind: AddServer, Server: Member{ID: 1<<32 - 1, Client: "x:1", Peer: "x:2"}}, "", "far above 5, the highest one so far: use 6"},
		"add a skipped one":   {MemberChange{Kind: AddServer, Server: listed(5)[0]}, "", "not free"},
		"set keeps joining":   {MemberChange{Kind: SetServer, Server: Member{ID: 4, Client: "x:1", Peer: "x:2"}}, "1 2 4+", ""},
		"set shares":          {MemberChange{Kind: SetServer, Server: Member{ID: 4, Client: "h1:1", Peer: "x:2"}}, "", "share the address"},
		"set lacks one":       {MemberChange{Kind: SetServer, Server: Member{ID: 4, Peer: "x:2"}}, "", "an address is missing"},
		"set another":         {MemberChange{Kind: SetServer, Server: listed(3)[0]}, "", "not in the list, which has [1 2 4]"},
		"no address":          {MemberChange{Kind: SetServer, Server: Member{ID: 1, Client: "a\"b:1", Peer: "x:2"}}, "", "characters that no address has"},
		"long address":        {MemberChange{Kind: SetServer, Server: Member{ID: 1, Client: strings.Repeat("h", 300), Peer: "x:2"}}, "", "300 bytes"},
		"remove":              {MemberChange{Kind: RemoveServer, Server: Member{ID: 2}}, "1 4+", ""},
		"remove another":      {MemberChange{Kind: RemoveServer, Server: Member{ID: 3}}, "", "not in the list"},
	} {
		if err := x.c.Validate(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		before := base.Text()
		next, err := base.With(x.c)
		if base.Text() != before {
			t.Fatalf("%s: the list itself is changed to %s", what, base.Text())
		}
		if x.problem != "" {
			if err == nil || !strings.Contains(err.Error(), x.problem) || errors.Is(err, ErrVersion) != (what == "another version") {
				t.Errorf("%s: %v, want %q", what, err, x.problem)
			}
			continue
		}
		if err != nil || next.Version != 8 || next.Follows(base) != nil || idsOf(next) != x.want {
			t.Errorf("%s: %s, %v, %v; want %s", what, next.Text(), err, next.Follows(base), x.want)
		}
		if again, err := ParseMembership(next.Text()); err != nil || again.Text() != next.Text() {
			t.Errorf("%s: %s is read as %s, %v", what, next.Text(), again.Text(), err)
		}
	}
	alone, err := base.With(MemberChange{Kind: RemoveServer, Server: Member{ID: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.With(MemberChange{Kind: RemoveServer, Server: Member{ID: 1}}); err == nil || !strings.Contains(err.Error(), "the last member") {
		t.Errorf("the last member is removed: %v", err)
	}
	if next, ok := base.WithMember(4); !ok || idsOf(next) != "1 2 4" || next.Follows(base) != nil || idsOf(base) != "1 2 4+" {
		t.Errorf("it is made a member: %t, %s", ok, next.Text())
	}
	for _, id := range []ServerID{1, 3, 9} {
		if _, ok := base.WithMember(id); ok {
			t.Errorf("server %d did not join and is made a member", id)
		}
	}
}

func idsOf(m Membership) string {
	var all []string
	for _, x := range m.Servers {
		id := string('0' + rune(x.ID))
		if x.Joining {
			id += "+"
		}
		all = append(all, id)
	}
	return strings.Join(all, " ")
}

// That a server is removed is never said of one that was not, by any version before or after.
func TestRemovedIsForEver(t *testing.T) {
	m := FirstMembership(listed(1, 3))
	if m.Version != 1 || m.HighestID != 3 || !m.Removed(2) || m.Removed(3) || m.Removed(4) {
		t.Errorf("first: %s", m.Text())
	}
	for _, c := range []MemberChange{
		{Kind: AddServer, Server: listed(4)[0]}, {Kind: RemoveServer, Server: Member{ID: 3}}, {Kind: AddServer, Server: listed(6)[0]}, {Kind: RemoveServer, Server: Member{ID: 6}},
	} {
		next, err := m.With(c)
		if err != nil {
			t.Fatal(err)
		}
		for id := range ServerID(9) {
			if m.Removed(id) && !next.Removed(id) {
				t.Errorf("server %d is back in %s", id, next.Text())
			}
			if _, there := next.Servers.Find(id); there && m.Removed(id) {
				t.Errorf("an older list says that server %d of %s was removed", id, next.Text())
			}
		}
		m = next
	}
	if !m.Removed(6) || m.HighestID != 6 {
		t.Errorf("the highest ID is forgotten: %s", m.Text())
	}
}

func TestMemberChangesThatAreNone(t *testing.T) {
	for what, c := range map[string]MemberChange{
		"no kind": {Server: listed(1)[0]}, "another kind": {Kind: 4, Server: listed(1)[0]}, "no ID": {Kind: AddServer, Server: Member{Client: "a", Peer: "b"}},
		"joins": {Kind: SetServer, Server: Member{ID: 1, Client: "a", Peer: "b", Joining: true}}, "removal with addresses": {Kind: RemoveServer, Server: listed(1)[0]},
	} {
		if c.Validate() == nil {
			t.Errorf("%s is a change", what)
		}
	}
}

// What is read is valid, and has one text.
func FuzzMembership(f *testing.F) {
	f.Add(FirstMembership(listed(1, 2, 3)).Text())
	f.Add(`{"version":9,"highest_id":7,"servers":[{"id":2,"grpc":"a:1","http":"a:2","peer":"a:3"},{"id":7,"client":"b","peer":"c","joining":true}]}`)
	f.Add(`{"version":1,"highest_id":1,"servers":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMembership(text)
		if err != nil {
			return
		}
		if m.Validate() != nil || m.Text() != text {
			t.Fatalf("%q is read as %+v: %v", text, m, m.Validate())
		}
	})
}
