// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Of an older server's file every address is kept, and what is written again is what that server reads.
func TestMembersOfOlderServers(t *testing.T) {
	for _, x := range []struct {
		text    string
		want    Member
		http    string // HTTPAddress
		problem string
	}{
		{`[{"id":1,"client":"h:1","peer":"h:2"}]`, Member{ID: 1, Client: "h:1", Peer: "h:2"}, "h:1", ""},
		{`[{"id":1,"grpc":"h:1","http":"h:2","peer":"h:3"}]`, Member{ID: 1, Client: "h:1", OldHTTP: "h:2", Peer: "h:3"}, "h:2", ""},
		{`[{"id":1,"client":"h:1","http":"h:2","peer":"h:3"}]`, Member{}, "", "one or the other"},
		{`[{"id":1,"client":"h:1","grpc":"h:1","peer":"h:3"}]`, Member{}, "", "one or the other"},
		{`[{"id":1,"http":"h:2","peer":"h:3"}]`, Member{}, "", "missing"},
		{`[{"id":1,"client":"h:1"}]`, Member{}, "", "missing"},
		{`[{"id":1,"client":"h:1","peer":"h:1"}]`, Member{}, "", "share"},
		{`[{"id":1,"grpc":"h:1","http":"h:1","peer":"h:3"}]`, Member{}, "", "share"},
		{`[]`, Member{}, "", "at least one"},
		{`[{"id":"1"}]`, Member{}, "", "cannot unmarshal"},
	} {
		var m Members
		err := json.Unmarshal([]byte(x.text), &m)
		if err == nil {
			err = m.Validate()
		}
		if x.problem != "" {
			if err == nil || !strings.Contains(err.Error(), x.problem) {
				t.Errorf("%s: %v, want %q", x.text, err, x.problem)
			}
			continue
		}
		if err != nil || m[0] != x.want || m[0].HTTPAddress() != x.http {
			t.Errorf("%s: %+v, HTTP at %s, %v", x.text, m, m[0].HTTPAddress(), err)
		}
		if b, err := json.Marshal(m); string(b) != x.text || err != nil {
			t.Errorf("%s is written as %s, %v", x.text, b, err)
		}
	}
}

// What is read and valid is written and read as the same.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`[{"id":1,"client":"h:1","peer":"h:2"},{"id":2,"grpc":"i:1","http":"i:2","peer":"i:3"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Members
		if json.Unmarshal(b, &m) != nil || m.Validate() != nil {
			return
		}
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &again); err != nil || !slices.Equal(m, again) {
			t.Fatalf("%+v is written as %s and read as %+v, %v", m, written, again, err)
		}
	})
}
