// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

var (
	errRefused = errors.New("connection refused")
	errFenced  = errors.New("fenced by a later claim")
	errVolume  = errors.New("the volume does not answer")
	errLonely  = errors.New("no majority for the quorum timeout")
	errCannot  = errors.New("cannot read the old term")
)

// world is a cluster of simulated servers, their network and the volume's
// register of claims, inside one synctest bubble.
type world struct {
	t       testing.TB
	timing  cluster.Timing
	members cluster.Members

	mu struct {
		sync.Mutex
		rand    *rand.Rand
		cut     map[[2]cluster.ServerID]bool // from, to
		delay   time.Duration                // longest, one way
		loss    float64                      // share of messages lost
		running map[cluster.ServerID]*server
		epoch   cluster.Epoch // highest claimed
		fence   cluster.Epoch // every epoch below is fenced
		claims  int
		nonce   uint64
		refuse  map[cluster.ServerID]bool // nobody listens, the process lives
		dials   *world                    // whose servers are at the addresses; nil: its own
		shown   map[uint64]showing        // by nonce: what processes write to the volume
		old     bool                      // the servers booted from now on write no such thing
		signs   map[cluster.ServerID]election.Sign
		stale   map[cluster.ServerID]map[cluster.ServerID]election.Sign // what servers see of signs for ever
	}
}

// showing is the sign of life of a process on the volume.
type showing struct {
	id    cluster.ServerID
	count int
}

func newWorld(t testing.TB, n int, seed uint64) *world {
	w := &world{t: t, timing: cluster.DefaultTiming()}
	for id := 1; id <= n; id++ {
		w.members = append(w.members, cluster.Member{ID: cluster.ServerID(id)})
	}
	w.mu.rand = rand.New(rand.NewPCG(seed, 1))
	w.mu.cut = map[[2]cluster.ServerID]bool{}
	w.mu.refuse = map[cluster.ServerID]bool{}
	w.mu.running = map[cluster.ServerID]*server{}
	w.mu.shown = map[uint64]showing{}
	w.mu.signs = map[cluster.ServerID]election.Sign{}
	w.mu.stale = map[cluster.ServerID]map[cluster.ServerID]election.Sign{}
	w.mu.delay = time.Millisecond
	t.Cleanup(w.stop)
	return w
}

// copied is a world whose servers have a copy of the volume, with the addresses of w's servers in
// it, and listen elsewhere.
func (w *world) copied() *world {
	c := newWorld(w.t, len(w.members), 99)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.mu.dials, c.mu.nonce, c.mu.epoch, c.mu.fence = w, 1000, w.mu.epoch, w.mu.fence
	return c
}

// dialed is the world whose servers are at the addresses.
func (w *world) dialed() *world {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.dials != nil {
		return w.mu.dials
	}
	return w
}

// stop ends every server; synctest fails if a goroutine stays.
func (w *world) stop() {
	for _, id := range w.members.IDs() {
		w.resume(id)
		w.kill(id)
	}
}

func (w *world) startAll() {
	for _, id := range w.members.IDs() {
		w.start(id)
	}
}

func (w *world) random(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.mu.rand.Float64() * float64(d))
}

func (w *world) server(id cluster.ServerID) *server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.running[id]
}

// start boots a server with a nonce of its own.
func (w *world) start(id cluster.ServerID) *server {
	s := w.boot(id)
	w.mu.Lock()
	w.mu.running[id] = s
	w.mu.Unlock()
	return s
}

// boot runs a process that is not reachable by others yet.
func (w *world) boot(id cluster.ServerID) *server {
	w.mu.Lock()
	w.mu.nonce++
	s := &server{w: w, id: id, nonce: w.mu.nonce, higher: make(chan struct{}, 1)}
	s.mu.probed, s.mu.progress, s.mu.old = time.Now(), time.Time{}, w.mu.old
	r := rand.New(rand.NewPCG(w.mu.rand.Uint64(), s.nonce))
	w.mu.Unlock()
	s.e = election.New(election.Options{
		Self: id, Nonce: s.nonce, Members: w.members, Timing: w.timing,
		Transport: s, Status: s.status, Rand: r,
		OnHigherEpoch: func(cluster.Epoch) {
			select {
			case s.higher <- struct{}{}:
			default:
			}
		},
		OnConflict: func(id cluster.ServerID) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mu.conflicts = append(s.mu.conflicts, id)
		},
		OnStranger: func(x election.Stranger) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mu.strangers = append(s.mu.strangers, x)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Go(func() { s.e.Run(ctx) }) //nolint:errcheck // the cause of cancel
	s.wg.Go(func() { s.serve(ctx) })
	s.wg.Go(func() { s.probe(ctx) })
	s.wg.Go(func() { s.look(ctx) })
	return s
}

// kill ends a server at once; its address refuses from now on.
func (w *world) kill(id cluster.ServerID) {
	w.mu.Lock()
	s := w.mu.running[id]
	delete(w.mu.running, id)
	w.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// pause freezes a process; resume wakes it.
func (w *world) pause(id cluster.ServerID) {
	s := w.server(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.paused == nil {
		s.mu.paused = make(chan struct{})
	}
}

func (w *world) resume(id cluster.ServerID) {
	s := w.server(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.paused != nil {
		close(s.mu.paused)
		s.mu.paused = nil
	}
}

func (w *world) cut(from, to cluster.ServerID) { w.setLink(from, to, true) }

func (w *world) setLink(from, to cluster.ServerID, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.cut[[2]cluster.ServerID{from, to}] = cut
}

// isolate cuts a server off, from others and to others.
func (w *world) isolate(id cluster.ServerID) {
	for _, other := range w.members.IDs() {
		if other != id {
			w.cut(id, other)
			w.cut(other, id)
		}
	}
}

func (w *world) healLinks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.cut)
	clear(w.mu.refuse)
	w.mu.delay, w.mu.loss = time.Millisecond, 0
}

// lost reports whether a message from one to the other disappears.
func (w *world) lost(from, to cluster.ServerID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return from != to && (w.mu.cut[[2]cluster.ServerID{from, to}] || w.mu.rand.Float64() < w.mu.loss)
}

func (w *world) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.delay
}

func (w *world) claims() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.claims
}

// nominate has the primary of the newest epoch name a server.
func (w *world) nominate(id cluster.ServerID) bool {
	return w.server(id).e.Nominate()
}

// primary is the one server that serves and is not fenced.
func (w *world) primary() (cluster.ServerID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.mu.running {
		if role, epoch := s.role(); role == election.RolePrimary && epoch >= w.mu.fence {
			return id, true
		}
	}
	return 0, false
}

// serving counts the servers that believe they serve.
func (w *world) serving() (n int) {
	for _, id := range w.members.IDs() {
		if s := w.server(id); s != nil {
			if role, _ := s.role(); role == election.RolePrimary {
				n++
			}
		}
	}
	return n
}

// advance lets virtual time pass.
func (w *world) advance(d time.Duration) { <-time.After(d) }

// awaitPrimary waits for a primary that satisfies ok and tells how long it took.
func (w *world) awaitPrimary(limit time.Duration, ok func(cluster.ServerID) bool) (cluster.ServerID, time.Duration) {
	w.t.Helper()
	for began := time.Now(); ; w.advance(time.Millisecond) {
		if id, found := w.primary(); found && ok(id) {
			return id, time.Since(began)
		}
		if time.Since(began) > limit {
			w.dump()
			w.t.Fatalf("no such primary after %v and %d claims", limit, w.claims())
		}
	}
}

// awaitFencing waits until a server in the role fencing satisfies ok: that is
// what an election can be blamed for, the rest is the takeover.
func (w *world) awaitFencing(limit time.Duration, ok func(cluster.ServerID) bool) (cluster.ServerID, time.Duration) {
	w.t.Helper()
	for began := time.Now(); time.Since(began) <= limit; w.advance(time.Millisecond) {
		for _, id := range w.members.IDs() {
			s := w.server(id)
			if s == nil || !ok(id) {
				continue
			}
			if role, _ := s.role(); role != election.RoleReplica {
				return id, time.Since(began)
			}
		}
	}
	w.dump()
	w.t.Fatalf("nobody claims after %v", limit)
	return 0, 0
}

func anybody(cluster.ServerID) bool { return true }

func only(id cluster.ServerID) func(cluster.ServerID) bool {
	return func(x cluster.ServerID) bool { return x == id }
}

func not(id cluster.ServerID) func(cluster.ServerID) bool {
	return func(x cluster.ServerID) bool { return x != id }
}

// staysStable lets time pass and fails if anybody claims or the primary changes.
func (w *world) staysStable(d time.Duration) {
	w.t.Helper()
	id, ok := w.primary()
	if !ok {
		w.t.Fatal("there is no primary")
	}
	claims := w.claims()
	w.advance(d)
	now, ok := w.primary()
	if !ok || now != id || w.claims() != claims || w.serving() != 1 {
		w.dump()
		w.t.Fatalf("primary was %d and is %d (%v), claims %d -> %d, serving %d", id, now, ok, claims, w.claims(), w.serving())
	}
}

func (w *world) dump() {
	for _, id := range w.members.IDs() {
		s := w.server(id)
		if s == nil {
			w.t.Logf("server %d is down", id)
			continue
		}
		role, epoch := s.role()
		p, pe, ok := s.e.Primary()
		w.t.Logf("server %d: %v epoch %d, believes %d@%d %v, peers %+v", id, role, epoch, p, pe, ok, s.e.Peers())
	}
}
