// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// ID is the random identity of a volume and of the cluster that uses it.
type ID [16]byte

// String returns the ID in hexadecimal.
func (c ID) String() string { return hex.EncodeToString(c[:]) }

// MarshalText implements encoding.TextMarshaler.
func (c ID) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *ID) UnmarshalText(b []byte) error {
	id, err := hex.DecodeString(string(b))
	if err != nil || len(id) != len(c) {
		return fmt.Errorf("cluster ID %q: want %d hexadecimal digits", b, 2*len(c))
	}
	copy(c[:], id)
	return nil
}

// Member is one server of the cluster as CLUSTER lists it.
type Member struct {
	ID ServerID `json:"id"`
	// Client and Peer are host:port addresses, for clients and for other servers.
	Client string `json:"client"`
	Peer   string `json:"peer"`
	// OldHTTP is the address for HTTP in a CLUSTER from when gRPC and HTTP had one each; Client is that of gRPC then.
	// The server takes every client at both. It is "" in a volume that was made since.
	OldHTTP string `json:"http,omitempty"`
	// Joining is set in a Membership for a server that was added and has not been able yet: it neither counts nor claims.
	Joining bool `json:"joining,omitempty"`
}

// HTTPAddress returns the address for HTTP that servers of every version know: OldHTTP if there is one, else Client.
func (m Member) HTTPAddress() string { return cmp.Or(m.OldHTTP, m.Client) }

// Members are the servers of one cluster in order of their IDs.
type Members []Member

// memberJSON is a member in CLUSTER: with client and peer, or, as older servers wrote it, with grpc, http and peer.
type memberJSON struct {
	ID      ServerID `json:"id"`
	Client  string   `json:"client,omitempty"`
	GRPC    string   `json:"grpc,omitempty"`
	HTTP    string   `json:"http,omitempty"`
	Peer    string   `json:"peer"`
	Joining bool     `json:"joining,omitempty"`
}

// MarshalJSON implements json.Marshaler. Members that came from an older server are written as that one did, so that
// it can read them.
func (m Members) MarshalJSON() ([]byte, error) {
	all := make([]memberJSON, len(m))
	for i, x := range m {
		if x.OldHTTP != "" {
			all[i] = memberJSON{ID: x.ID, GRPC: x.Client, HTTP: x.OldHTTP, Peer: x.Peer, Joining: x.Joining}
		} else {
			all[i] = memberJSON{ID: x.ID, Client: x.Client, Peer: x.Peer, Joining: x.Joining}
		}
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler. It does not Validate.
func (m *Members) UnmarshalJSON(b []byte) error {
	var all []memberJSON
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*m = make(Members, len(all))
	for i, x := range all {
		if x.Client != "" && (x.GRPC != "" || x.HTTP != "") {
			return fmt.Errorf("server %d has an address under \"client\" and another under \"grpc\" or \"http\": it is one or the other", x.ID)
		}
		(*m)[i] = Member{ID: x.ID, Client: cmp.Or(x.Client, x.GRPC), Peer: x.Peer, OldHTTP: x.HTTP, Joining: x.Joining}
	}
	return nil
}

// Majority returns the smallest number of servers that is more than half.
func (m Members) Majority() int { return len(m)/2 + 1 }

// VolumeVotes reports whether the volume has a vote in elections, as if it were a third server: of two, one
// alone is no majority.
func (m Members) VolumeVotes() bool { return len(m) == 2 }

// Voters returns the servers that do not only join: those that are asked, and count, when one is to be primary.
func (m Members) Voters() Members {
	return slices.DeleteFunc(slices.Clone(m), func(x Member) bool { return x.Joining })
}

// Find returns the member with the given ID; false if there is none.
func (m Members) Find(id ServerID) (Member, bool) {
	i := slices.IndexFunc(m, func(x Member) bool { return x.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return m[i], true
}

// IDs returns the IDs in order.
func (m Members) IDs() []ServerID {
	ids := make([]ServerID, len(m))
	for i, x := range m {
		ids[i] = x.ID
	}
	return ids
}

// Validate checks that there are servers, that IDs start at 1 and rise, and
// that no address is empty or used twice.
func (m Members) Validate() error {
	if len(m) == 0 {
		return fmt.Errorf("no servers: name at least one")
	}
	used := map[string]ServerID{}
	for i, x := range m {
		if x.ID == 0 {
			return fmt.Errorf("server IDs start at 1")
		}
		if i > 0 && m[i-1].ID >= x.ID {
			return fmt.Errorf("server %d: IDs must rise and be distinct", x.ID)
		}
		addrs := []string{x.Client, x.Peer}
		if x.OldHTTP != "" {
			addrs = append(addrs, x.OldHTTP)
		}
		for _, addr := range addrs {
			if addr == "" {
				return fmt.Errorf("server %d: an address is missing", x.ID)
			}
			if other, ok := used[addr]; ok {
				return fmt.Errorf("servers %d and %d share the address %s", other, x.ID, addr)
			}
			used[addr] = x.ID
		}
	}
	return nil
}
