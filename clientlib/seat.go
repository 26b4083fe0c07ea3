// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// seat is a place for an identity. The first request from it opens the identity,
// and opens another one when the service has forgotten it.
//
// A wait keeps its number open for as long as it stands, and the low-water mark
// of its identity with it; the service would have to remember everything that
// this identity asked since. So each wait has a seat of its own, taken from a pool
// and given back when the wait is settled, and all else goes from the main seat,
// whose mark moves on. A grant belongs to the seat that it was waited for on,
// which is kept alive with it. A self-chosen identity has but one seat; see window.
type seat struct {
	c       *Client
	opening chan struct{} // holds one word while nobody opens it
	users   int           // waits and what settles them; guarded by Client.mu
	// requests from here are under way that may end in a grant; guarded by keeper.mu.
	requests int
	// unlisted counts up, by maxListed a keep-alive, to the number of locks that the
	// service has not listed for so long; guarded by keeper.mu.
	unlisted int
	// trouble is why the last attempt to renew from here failed; nil = it was answered.
	// Guarded by keeper.mu.
	trouble error
	// renewing says that a keep-alive from here is under way, by the keeper's own clock.
	// Guarded by keeper.mu.
	renewing bool
	// known is the session on which this seat was kept alive last, introducing that this
	// is under way. Guarded by keeper.mu.
	known       *session
	introducing bool

	mu struct {
		sync.Mutex
		who   *identity // nil until it is open
		nonce uint64    // of the OpenClient that is not answered yet, or 0
	}
}

func newSeat(c *Client) *seat {
	s := &seat{c: c, opening: make(chan struct{}, 1)}
	s.opening <- struct{}{}
	return s
}

// seatFor is the seat of a wait, or of what does not wait. It is given back with leave.
func (c *Client) seatFor(o AcquireOptions) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.main
	if o.Wait != 0 && c.opt.ClientID == "" {
		if n := len(c.mu.free); n > 0 {
			s, c.mu.free = c.mu.free[n-1], c.mu.free[:n-1]
		} else {
			s = newSeat(c)
		}
	}
	s.users++
	return s
}

// stay keeps a seat for one more user. One that nobody has, because a lock is released from
// where it was waited for, is no wait's before it is given back.
func (s *seat) stay() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.users == 0 {
		s.c.mu.free = slices.DeleteFunc(s.c.mu.free, func(x *seat) bool { return x == s })
	}
	s.users++
}

// leave gives a seat back. The one who had it last is the next to be used, so that
// few are in use and the others are forgotten by the service in time.
func (s *seat) leave() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.users--; s.users == 0 && s != s.c.main {
		s.c.mu.free = append(s.c.mu.free, s)
	}
}

// identify returns who sits here. Only one call opens the identity; the others wait.
func (s *seat) identify(ctx context.Context) (*identity, error) {
	if who := s.current(); who != nil {
		return who, nil
	}
	select {
	case <-s.opening:
		defer func() { s.opening <- struct{}{} }()
	case <-ctx.Done():
		return nil, (&call{op: "open client"}).fail(ended(ctx))
	}
	if who := s.current(); who != nil {
		return who, nil
	}
	nonce := s.nonce()
	a, err := do(ctx, s.c, &call{op: "open client"}, func(ctx context.Context, stub pb.LockServiceClient) (*pb.Answer, error) {
		return stub.OpenClient(ctx, &pb.OpenClientRequest{Nonce: nonce})
	})
	if err != nil {
		return nil, err
	}
	if err := wire.AnswerError(a); err != nil {
		return nil, (&call{op: "open client"}).fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.nonce = 0
	s.mu.who = newIdentity(cluster.ClientID(a.GetClientId()), false, s.c.opt.FirstRequest)
	return s.mu.who, nil
}

func (s *seat) current() *identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.who
}

// nonce is the same until it is answered, so that a lost answer does not leave a
// second client behind.
func (s *seat) nonce() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.nonce == 0 {
		s.mu.nonce = s.c.opt.Rand()
	}
	return s.mu.nonce
}

// forget drops an identity that the service no longer knows; the next request opens another.
func (s *seat) forget(who *identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.who == who && !who.chosen {
		s.mu.who = nil
	}
}
