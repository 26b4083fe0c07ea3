// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// registration is a client identity and the requests under it. The first one opens the identity,
// and opens another one when the service has forgotten it.
//
// A wait keeps its number open for as long as it waits, and the low-water mark of its identity
// with it; the service would have to remember every request of this identity since. So each wait
// has a registration of its own, taken from a pool and given back when the wait is settled, and
// all else goes from the main registration, whose mark moves on. A grant belongs to the
// registration that it was waited for on, which is kept alive with it. A self-chosen identity has
// only one registration; see chosenWindow.
type registration struct {
	c       *Client
	opening chan struct{} // has an element while no call opens the identity
	users   int           // waits, and what ends them; guarded by Client.mu
	// requests counts those under way that may end in a grant; guarded by leaseRenewer.mu.
	requests int
	// unlisted counts up with each keep-alive, by maxListed, to the number of held locks, when
	// the service is made to list them; guarded by leaseRenewer.mu.
	unlisted int
	// trouble is why the last attempt to renew from here failed; nil = it was answered.
	// Guarded by leaseRenewer.mu.
	trouble error
	// renewing is set while a keep-alive of the renewer's own is under way. Guarded by
	// leaseRenewer.mu.
	renewing bool
	// known is the session on which this registration was kept alive last. subscribing is set
	// while that is under way. Guarded by leaseRenewer.mu.
	known       *session
	subscribing bool

	mu struct {
		sync.Mutex
		who   *identity // nil until it is open
		nonce uint64    // of the OpenClient that is not answered yet, or 0
	}
}

func newRegistration(c *Client) *registration {
	s := &registration{c: c, opening: make(chan struct{}, 1)}
	s.opening <- struct{}{}
	return s
}

// registrationFor returns the registration for an Acquire: one of its own for a wait, else the
// main one. The caller calls leave.
func (c *Client) registrationFor(o AcquireOptions) *registration {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.main
	if o.Wait != 0 && c.opt.ClientID == "" {
		if n := len(c.mu.free); n > 0 {
			s, c.mu.free = c.mu.free[n-1], c.mu.free[:n-1]
		} else {
			s = newRegistration(c)
		}
	}
	s.users++
	return s
}

// stay keeps a registration for one more user. A registration in the pool is taken out of it, so
// that no wait gets it before it is given back.
func (s *registration) stay() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.users == 0 {
		s.c.mu.free = slices.DeleteFunc(s.c.mu.free, func(x *registration) bool { return x == s })
	}
	s.users++
}

// leave gives a registration back. The pool is a stack, so that few registrations are in use and
// the service forgets the others in time.
func (s *registration) leave() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.users--; s.users == 0 && s != s.c.main {
		s.c.mu.free = append(s.c.mu.free, s)
	}
}

// identify returns the identity, and opens it if need be. Only one call opens it; the others
// wait.
func (s *registration) identify(ctx context.Context) (*identity, error) {
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
	s.mu.who = newIdentity(ClientID(a.GetClientId()), false, s.c.opt.FirstRequest)
	return s.mu.who, nil
}

func (s *registration) current() *identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.who
}

// nonce returns the same number until it is answered, so that a lost answer does not leave a
// second client at the service.
func (s *registration) nonce() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.nonce == 0 {
		s.mu.nonce = s.c.opt.Rand()
	}
	return s.mu.nonce
}

// forget drops an identity that the service no longer knows; the next request opens another.
func (s *registration) forget(who *identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.who == who && !who.chosen {
		s.mu.who = nil
	}
}
