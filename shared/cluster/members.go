// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
)

// Member is one server of the cluster as CLUSTER lists it.
type Member struct {
	ID ServerID `json:"id"`
	// GRPC, HTTP and Peer are host:port addresses: clients by gRPC, clients by HTTP, other servers.
	GRPC string `json:"grpc"`
	HTTP string `json:"http"`
	Peer string `json:"peer"`
}

// Members are the servers of one cluster in order of their IDs.
type Members []Member

// Majority is the smallest number of servers that is more than half.
func (m Members) Majority() int { return len(m)/2 + 1 }

// Find returns the member with the given ID.
func (m Members) Find(id ServerID) (Member, bool) {
	i := slices.IndexFunc(m, func(x Member) bool { return x.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return m[i], true
}

// IDs lists the IDs in order.
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
