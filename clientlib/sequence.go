// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// identity is the client that the service knows us as.
type identity struct {
	id cluster.ClientID
	// chosen says that the ID is the user's, not one made by OpenClient.
	chosen bool
	seq    sequence
}

func newIdentity(id cluster.ClientID, chosen bool, first cluster.RequestID) *identity {
	i := &identity{id: id, chosen: chosen}
	i.seq.mu.next, i.seq.mu.low = first, first
	i.seq.mu.open = map[cluster.RequestID]struct{}{}
	return i
}

// sequence numbers the requests of one client.
//
// Invariant: low is the lowest number that was taken and is not done, or next if
// there is none. So it never falls, and no request is below it that could still be sent.
type sequence struct {
	mu struct {
		sync.Mutex
		next, low cluster.RequestID
		open      map[cluster.RequestID]struct{}
	}
}

// take returns the next number. It stays open until done.
func (s *sequence) take() cluster.RequestID {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.next
	s.mu.next++
	s.mu.open[id] = struct{}{}
	return id
}

// done says that the request is not sent again and its answer not wanted again.
func (s *sequence) done(id cluster.RequestID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.open, id)
	for s.mu.low < s.mu.next {
		if _, open := s.mu.open[s.mu.low]; open {
			return
		}
		s.mu.low++
	}
}

// lowWater is the lowest number that is still cared about. For a request that
// is open it is at most that request's number.
func (s *sequence) lowWater() cluster.RequestID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.low
}
