// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/hex"
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
	// GRPC, HTTP and Peer are host:port addresses for clients by gRPC, for clients by HTTP and
	// for other servers.
	GRPC string `json:"grpc"`
	HTTP string `json:"http"`
	Peer string `json:"peer"`
}

// Members are the servers of one cluster in order of their IDs.
type Members []Member

// Majority returns the smallest number of servers that is more than half.
func (m Members) Majority() int { return len(m)/2 + 1 }

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
		for _, addr := range []string{x.GRPC, x.HTTP, x.Peer} {
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
