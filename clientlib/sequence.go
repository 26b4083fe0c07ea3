// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// chosenWindow and chosenWaits bound what a self-chosen identity has under way,
	// because the service keeps only its last 64 receipts. While a request is open,
	// fewer than chosenWindow others can be executed that have higher numbers, as
	// many with lower ones, and chosenWaits waits: 62 in all, so its receipt stays.
	chosenWindow = 24
	// chosenWaits is how many of its Acquires may wait at a time.
	chosenWaits = 16
)

// identity is a client that the service knows us as.
type identity struct {
	id cluster.ClientID
	// chosen says that the ID is the user's, not one made by OpenClient.
	chosen bool
	seq    sequence
	// doubted says that a request ended without an answer that holds for all its attempts.
	doubted atomic.Bool
}

// settled says that every request has its answer, so that nobody asks what became of one. A
// self-chosen identity may have other processes that ask.
func (i *identity) settled() bool {
	i.seq.mu.Lock()
	defer i.seq.mu.Unlock()
	return !i.chosen && !i.doubted.Load() && i.seq.mu.low == i.seq.mu.next
}

func newIdentity(id cluster.ClientID, chosen bool, first cluster.RequestID) *identity {
	i := &identity{id: id, chosen: chosen}
	i.seq.mu.next, i.seq.mu.low, i.seq.mu.floor = first, first, first
	i.seq.low.Store(uint64(first))
	return i
}

// take numbers a request. Under a self-chosen ID it waits its turn.
func (i *identity) take(ctx context.Context, p patience) (cluster.RequestID, error) {
	for {
		id, moved := i.seq.take(p, i.chosen)
		switch {
		case id != 0:
			return id, nil
		case moved == nil:
			return 0, wire.Invalid(fmt.Sprintf("client %s has %d waits under way, and of a self-chosen ID the service remembers but the last 64 requests: leave ClientID empty, or use several", i.id, chosenWaits))
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, ended(ctx)
		}
	}
}

// patience is how soon a request is answered.
type patience int

const (
	prompt patience = iota
	// waiting: it may stand in a queue for hours.
	waiting
	// answered: its answer is known, and what it got is being handed out.
	answered
	// done is that of a request which is open no more.
	done
)

// sequence numbers the requests of one client.
//
// Invariant: low is the lowest number that was taken and is not done, or next if
// there is none. So it never falls, and no request is below it that could still be sent.
// floor is the same, waits and what was answered left out.
type sequence struct {
	low atomic.Uint64 // a copy of mu.low, which is asked for with every attempt
	mu  struct {
		sync.Mutex
		next, low, floor cluster.RequestID
		open             []patience    // of the requests from low on
		waits            int           // of those that are open
		moved            chan struct{} // closed when floor moves; nil if nobody waits for that
	}
}

// take returns the next number. It stays open until done. Where the window of a
// self-chosen identity is full, it returns what to wait for; nil = too many waits.
func (s *sequence) take(p patience, windowed bool) (cluster.RequestID, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case windowed && p == waiting && s.mu.waits >= chosenWaits:
		return 0, nil
	case windowed && s.mu.next-s.mu.floor >= chosenWindow:
		if s.mu.moved == nil {
			s.mu.moved = make(chan struct{})
		}
		return 0, s.mu.moved
	}
	id := s.mu.next
	s.mu.next++
	s.mu.open = append(s.mu.open, p)
	if p == waiting {
		s.mu.waits++
	}
	s.advance() // a wait does not hold the floor
	return id, nil
}

// done says that the request is not sent again and its answer not wanted again.
func (s *sequence) done(id cluster.RequestID) { s.become(id, done) }

// answered says that too, but what the request got is still to be handed out. It holds up
// no other request: to give that back takes one.
func (s *sequence) answered(id cluster.RequestID) { s.become(id, answered) }

func (s *sequence) become(id cluster.RequestID, now patience) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id < s.mu.low || id >= s.mu.next {
		return
	}
	p := &s.mu.open[id-s.mu.low]
	if *p == waiting {
		s.mu.waits--
	}
	*p = now
	s.advance()
}

// expects says that a request of this client is open: what it gets, somebody wants.
func (i *identity) expects(id cluster.RequestID) bool {
	s := &i.seq
	s.mu.Lock()
	defer s.mu.Unlock()
	return id >= s.mu.low && id < s.mu.next && s.mu.open[id-s.mu.low] != done
}

// advance moves low and floor over what is done. It is called with mu held.
func (s *sequence) advance() {
	before := s.mu.floor
	for ; s.mu.low < s.mu.next && s.mu.open[0] == done; s.mu.low++ {
		s.mu.open = s.mu.open[1:]
	}
	s.low.Store(uint64(s.mu.low))
	for s.mu.floor = max(s.mu.floor, s.mu.low); s.mu.floor < s.mu.next; s.mu.floor++ {
		if s.mu.open[s.mu.floor-s.mu.low] == prompt {
			break
		}
	}
	if s.mu.floor != before && s.mu.moved != nil {
		close(s.mu.moved)
		s.mu.moved = nil
	}
}

// lowWater is the lowest number that is still cared about. For a request that
// is open it is at most that request's number.
func (s *sequence) lowWater() cluster.RequestID { return cluster.RequestID(s.low.Load()) }
