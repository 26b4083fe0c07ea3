// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

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

// identity is a client as the service knows it, and the numbers of its requests.
type identity struct {
	id ClientID
	// chosen is set where the ID is Options.ClientID, not one that the service made.
	chosen bool
	seq    sequence
	// doubted is set when a request has ended without an answer that holds for all its attempts.
	doubted atomic.Bool
}

// settled reports whether every request has its answer, so that no caller needs its outcome. It
// is false for a self-chosen identity, whose other processes may ask.
func (i *identity) settled() bool {
	i.seq.mu.Lock()
	defer i.seq.mu.Unlock()
	return !i.chosen && !i.doubted.Load() && i.seq.mu.low == i.seq.mu.next
}

func newIdentity(id ClientID, chosen bool, first RequestID) *identity {
	i := &identity{id: id, chosen: chosen}
	i.seq.mu.next, i.seq.mu.low, i.seq.mu.floor = first, first, first
	i.seq.low.Store(uint64(first))
	return i
}

// take numbers a request. Under a self-chosen ID it waits its turn, and returns
// ErrInvalidArgument if too many requests wait for locks.
func (i *identity) take(ctx context.Context, p waitClass) (RequestID, error) {
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

// waitClass is the state of a request: how soon it will be answered, or that it was.
type waitClass uint8

const (
	prompt waitClass = iota
	// waiting: it may be in a queue for hours.
	waiting
	// answered: its answer is known, and what it got is being handed out.
	answered
	// done: it is not open any more.
	done
)

// sequence numbers the requests of one client.
//
// Invariant: low is the lowest number that was taken and is not done, or next if there is none.
// So it never falls, and no request is below it that could still be sent. floor is the same
// without waits and answered requests.
type sequence struct {
	low atomic.Uint64 // a copy of mu.low, which every attempt reads
	mu  struct {
		sync.Mutex
		next, low, floor RequestID
		ring             []waitClass   // of the requests from low to next; see open
		waits            int           // of those that are open
		moved            chan struct{} // closed when floor moves; nil if no call waits for that
	}
}

// take returns the next number, which is open until done. If the window of a self-chosen identity
// is full, it returns 0 and a channel that is closed when that may have changed; nil = too many
// waits.
func (s *sequence) take(p waitClass, windowed bool) (RequestID, <-chan struct{}) {
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
	s.grow()
	s.mu.next++
	*s.open(id) = p
	if p == waiting {
		s.mu.waits++
	}
	s.advance() // a wait does not hold the floor
	return id, nil
}

// open returns the state of a request from low on and below next. It is called with mu held, as
// is grow.
func (s *sequence) open(id RequestID) *waitClass {
	return &s.mu.ring[uint64(id)%uint64(len(s.mu.ring))]
}

// grow makes room for one more request.
func (s *sequence) grow() {
	n := len(s.mu.ring)
	if s.mu.next-s.mu.low < RequestID(n) {
		return
	}
	bigger := make([]waitClass, max(8, 2*n))
	for id := s.mu.low; id < s.mu.next; id++ {
		bigger[uint64(id)%uint64(len(bigger))] = *s.open(id)
	}
	s.mu.ring = bigger
}

// done ends a request: it is not sent again, and no caller wants its answer.
func (s *sequence) done(id RequestID) { s.become(id, done) }

// answered notes that a request has its answer, and that what it got is still to be handed out.
// It holds up no other request any more: releasing that takes one.
func (s *sequence) answered(id RequestID) { s.become(id, answered) }

func (s *sequence) become(id RequestID, now waitClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id < s.mu.low || id >= s.mu.next {
		return
	}
	p := s.open(id)
	if *p == waiting {
		s.mu.waits--
	}
	*p = now
	s.advance()
}

// expects reports whether a request of this client is open, so that its grant has a caller.
func (i *identity) expects(id RequestID) bool {
	s := &i.seq
	s.mu.Lock()
	defer s.mu.Unlock()
	return id >= s.mu.low && id < s.mu.next && *s.open(id) != done
}

// advance moves low and floor over what is done. It is called with mu held.
func (s *sequence) advance() {
	before := s.mu.floor
	for s.mu.low < s.mu.next && *s.open(s.mu.low) == done {
		s.mu.low++
	}
	s.low.Store(uint64(s.mu.low))
	for s.mu.floor = max(s.mu.floor, s.mu.low); s.mu.floor < s.mu.next; s.mu.floor++ {
		if *s.open(s.mu.floor) == prompt {
			break
		}
	}
	if s.mu.floor != before && s.mu.moved != nil {
		close(s.mu.moved)
		s.mu.moved = nil
	}
}

// lowWater returns the lowest number that is still open. For a request that is open it is at most
// that request's number.
func (s *sequence) lowWater() RequestID { return RequestID(s.low.Load()) }
