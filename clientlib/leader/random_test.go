// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// storyTime is how long a story lasts, in virtual time: a second or so.
	storyTime = 10 * time.Minute
	// longestCut and longestTTL bound for how long a client may not know that its grant was broken.
	longestCut, longestTTL = 25 * time.Second, time.Minute
)

// TestRandomClients tells stories of clients that are cut off at times, give up what they
// asked for and what they give back, and go on; of processes that die and come back under
// their name; and of an operator who breaks locks meanwhile. By their own count there are
// never two holders, and in the end every lock can be had.
func TestRandomClients(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				s := &story{
					t: t, w: w, seed: seed, locks: []cluster.LockName{"a", "b", "c"},
					held: map[cluster.LockName][]handle{}, broken: map[cluster.Token]time.Time{},
				}
				s.tell()
			})
		})
	}
}

// story is one of them.
type story struct {
	t     *testing.T
	w     *world
	seed  uint64
	locks []cluster.LockName

	mu     sync.Mutex
	held   map[cluster.LockName][]handle
	broken map[cluster.Token]time.Time
	all    sync.WaitGroup
}

// handle is a lock that somebody got.
type handle struct {
	who  string
	l    *clientlib.Lock
	o    clientlib.AcquireOptions
	life context.Context // of the process
}

func (s *story) random(n int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(n))) }

func (s *story) tell() {
	ctx, stop := context.WithTimeout(s.t.Context(), storyTime)
	defer stop()
	for i := range 3 {
		s.live(ctx, s.w.process(clientlib.Options{}), fmt.Sprint("client ", i), 100*i)
	}
	s.all.Go(func() { s.comeBack(ctx, s.random(3)) })
	operator := s.w.process(clientlib.Options{})
	s.all.Go(func() { s.breakLocks(ctx, operator, s.random(4)) })
	s.all.Wait()
	for _, name := range s.locks {
		s.canBeHad(operator, name)
	}
}

// live has a process work until its life ends, and its network fail at times.
func (s *story) live(life context.Context, p *process, who string, n int) {
	r := s.random(1000 + n)
	s.all.Go(func() {
		for life.Err() == nil {
			pause(life, r, 40*time.Second)
			p.net.Cut()
			pause(life, r, longestCut)
			if context.Cause(life) != errDied {
				p.net.Mend()
			}
		}
	})
	for g := range 3 {
		r := s.random(1001 + n + g)
		s.all.Go(func() {
			for life.Err() == nil {
				s.work(life, p, who, r)
			}
		})
	}
}

var errDied = errors.New("it was killed")

// comeBack is a process under a name of its own that is killed, and started again, and again.
func (s *story) comeBack(ctx context.Context, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		p := s.w.process(clientlib.Options{ClientID: "worker"})
		life, kill := context.WithCancelCause(ctx)
		s.live(life, p, fmt.Sprint("worker ", n), 1000+10*n)
		pause(ctx, r, 2*time.Minute)
		if ctx.Err() == nil {
			p.net.Cut()
			kill(errDied)
			pause(ctx, r, 5*time.Second)
		}
		defer kill(nil)
	}
}

// work gets a lock, if it can in time, holds it, and gives it back, if it can in time.
func (s *story) work(life context.Context, p *process, who string, r *rand.Rand) {
	pause(life, r, 3*time.Second)
	ttls := []time.Duration{2 * time.Second, 8 * time.Second, longestTTL / 2, longestTTL}
	o := clientlib.AcquireOptions{TTL: ttls[r.IntN(len(ttls))], Shared: r.IntN(4) == 0, Heartbeat: r.IntN(6) == 0}
	if r.IntN(6) == 0 {
		o.MaxHold = o.TTL + time.Duration(r.IntN(10))*time.Second
	}
	switch r.IntN(3) {
	case 0:
		o.Wait = clientlib.Forever
	case 1:
		o.Wait = time.Duration(1+r.IntN(20)) * time.Second
	}
	ctx, cancel := context.WithTimeout(life, time.Duration(1+r.IntN(30000))*time.Millisecond)
	l, err := p.c.Acquire(ctx, s.locks[r.IntN(len(s.locks))], o)
	cancel()
	if err != nil {
		return
	}
	s.got(handle{who: who, l: l, o: o, life: life})
	hold := 20 * time.Second
	if r.IntN(4) == 0 {
		hold = 250 * time.Second
	}
	held, enough := context.WithTimeout(l.Context(), time.Duration(r.Int64N(int64(hold))))
	for o.Heartbeat && held.Err() == nil {
		l.Renew(held) //nolint:errcheck // then it is lost
		pause(held, r, o.TTL/2)
	}
	select {
	case <-held.Done():
	case <-life.Done():
	}
	enough()
	ctx, cancel = context.WithTimeout(life, time.Duration(1+r.IntN(8000))*time.Millisecond)
	l.Release(ctx) //nolint:errcheck // it may be lost, or nobody may hear it
	cancel()
}

// got notes a grant. Whoever else believes that he has the lock must not, unless both share it.
// Of a break a holder who is cut off knows when his lease is over.
func (s *story) got(is handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := is.l.Name()
	for _, h := range s.held[name] {
		phase := h.l.State().Phase
		if h.l.Token() == is.l.Token() || h.o.Shared && is.o.Shared || context.Cause(h.life) == errDied || phase != clientlib.PhaseValid && phase != clientlib.PhaseJeopardy {
			continue
		}
		older := min(h.l.Token(), is.l.Token()) // a grant may be heard of when it was broken already
		if at, was := s.broken[older]; was && time.Since(at) < longestTTL+longestCut/2 {
			continue
		}
		s.t.Errorf("seed %d: TWO HOLDERS of %s: token %d of %s, %+v, until %v, and token %d is given to %s at %v",
			s.seed, name, h.l.Token(), h.who, h.o, h.l.State().Deadline, is.l.Token(), is.who, time.Now())
	}
	s.held[name] = append(s.held[name], is)
}

// breakLocks is the operator.
func (s *story) breakLocks(ctx context.Context, p *process, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, r, 15*time.Second)
		name := s.locks[r.IntN(len(s.locks))]
		info, err := p.c.Get(ctx, name)
		if err != nil || info.Holder == nil {
			continue
		}
		s.mu.Lock()
		s.broken[info.Holder.Token] = time.Now() // first: the next holder may be faster than the answer
		s.mu.Unlock()
		p.c.Break(ctx, name, clientlib.BreakOptions{Token: info.Holder.Token, Actor: "op", Reason: "test"}) //nolint:errcheck // it may have ended
	}
}

// canBeHad gets a lock that nobody uses any more: behind a place, and a grant, that nobody
// could be asked about.
func (s *story) canBeHad(p *process, name cluster.LockName) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	l, err := p.c.Acquire(ctx, name, clientlib.AcquireOptions{TTL: ttl, Wait: clientlib.Forever})
	if err != nil {
		info, _ := p.c.Get(s.t.Context(), name) //nolint:errcheck // for people
		s.t.Errorf("seed %d: nobody uses %s any more, and it cannot be had: %v; held by %+v", s.seed, name, err, info.Holder)
		return
	}
	s.got(handle{who: "the last one", l: l, life: s.t.Context()})
	if d := time.Since(began); d > 2*longestTTL+10*time.Second {
		s.t.Errorf("seed %d: %s took %v", s.seed, name, d)
	}
}

// pause is one of up to d, but not longer than ctx lasts.
func pause(ctx context.Context, r *rand.Rand, d time.Duration) {
	t := time.NewTimer(time.Duration(r.Int64N(int64(d))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
