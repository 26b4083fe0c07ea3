// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Ring is clients that wait for each other: each waits for a lock that the client of the next link holds, the last one for
// a lock of the first. That is no proof of a deadlock: a client is a process, in which one thread may wait while another one is
// about to release. So rings are told to people, and nothing is decided by them.
type Ring []RingLink

// RingLink is one client of a ring.
type RingLink struct {
	// Waiter is its place in the queue of the lock for which it waits.
	Waiter Waiter
	// Token is that of the grant for whose end it waits, by the client of the next link.
	Token cluster.Token
}

// tie keeps the index of the clients that hold and wait: no other client can be in a ring. It is called after either has changed.
func (t *Table) tie(c *client) {
	if tied := c.held > 0 && len(c.waits) > 0; tied != c.tied {
		if c.tied = tied; tied {
			t.tied.insert(c.id)
		} else {
			t.tied.remove(c.id)
		}
	}
}

// Rings returns rings of clients, at most so many, and looks at so many grants at most: enough looks find one of each
// set of clients that wait for each other. It is false if there may be more.
func (t *Table) Rings(most, looks int) (rings []Ring, all bool) {
	s := &ringSearch{looks: looks, state: map[*client]visit{}}
	for id := range t.tied.all() {
		if c := t.clients.get(id); s.state[c] == unvisited {
			s.walk(c, func(w *waiter, g *lock) bool {
				if s.state[g.client] == onPath {
					i := slices.IndexFunc(s.path, func(l ringStep) bool { return l.w.client == g.client })
					rings = append(rings, s.ring(s.path[i:]))
				}
				return len(rings) < most
			})
		}
		if s.looks == 0 || len(rings) == most {
			return rings, false
		}
	}
	return rings, true
}

// RingOf returns a ring in which a client waits for this lock, after so many looks at most; nil if it found none.
func (t *Table) RingOf(name cluster.LockName, looks int) (ring Ring) {
	l := t.locks.get(name)
	if l == nil || l.queued == 0 {
		return nil
	}
	s := &ringSearch{looks: looks, state: map[*client]visit{}}
	for first := range l.grants(0) {
		if first.permit.Limit != 0 {
			clear(s.state) // who waits for another one of the holders may not wait for this one
		}
		if !first.client.tied || s.state[first.client] != unvisited {
			continue
		}
		s.walk(first.client, func(w *waiter, _ *lock) bool {
			if w.lock == l && w.client != first.client && w.waitsFor(first) {
				last := &s.path[len(s.path)-1]
				last.token = first.token // and not another one with which it is shared
				ring = s.ring(s.path)
			}
			return ring == nil
		})
		if ring != nil || s.looks == 0 {
			return ring
		}
	}
	return nil
}

// visit is how far a search has got with a client.
type visit uint8

const (
	unvisited visit = iota
	onPath
	visited
)

// ringStep is a waiting request, and the grant behind which it waits.
type ringStep struct {
	w     *waiter
	token cluster.Token
}

// ringSearch walks from clients to those for whom they wait, depth first.
type ringSearch struct {
	looks int
	state map[*client]visit
	path  []ringStep
}

// walk visits a client, and all to whom it leads that were not visited. closes is called for each step of the path, with the path up to it; a step to a
// client that is on the path closes a ring. The walk ends where closes returns false, or after the last look.
func (s *ringSearch) walk(c *client, closes func(*waiter, *lock) bool) bool {
	s.state[c] = onPath
	for _, w := range c.waits {
		for g := range w.lock.grants(0) {
			if s.looks == 0 {
				return false
			}
			s.looks--
			if g.client == c || !g.client.tied || !w.waitsFor(g) {
				continue
			}
			s.path = append(s.path, ringStep{w, g.token})
			if !closes(w, g) || s.state[g.client] == unvisited && !s.walk(g.client, closes) {
				return false
			}
			s.path = s.path[:len(s.path)-1]
		}
	}
	s.state[c] = visited
	return true
}

func (s *ringSearch) ring(steps []ringStep) Ring {
	r := make(Ring, len(steps))
	for i, x := range steps {
		r[i] = RingLink{Waiter: x.w.view(), Token: x.token}
	}
	return r
}
