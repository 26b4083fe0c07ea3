// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Fault is what goes wrong, and with which calls. The zero value of each
// selecting field selects all.
type Fault struct {
	// Ops are the kinds of calls; 0 = all.
	Ops Op
	// Under is a path from the share's root, "epochs/0000000002": calls on it
	// and on everything below it.
	Under string
	// Contains is a part of the path from the share's root, "/wal-". That path
	// begins with a slash. It is the one by which the file was last looked up.
	Contains string
	// Skip lets so many selected calls pass first: the n-th call has Skip n-1.
	Skip int
	// Times is how many calls go wrong; 0 = all until Release.
	Times int
	// Chance is the probability of each selected call going wrong, by the
	// share's seed; 0 = certain.
	Chance float64

	// Delay is waited before anything else, and a random part of Jitter on top.
	Delay, Jitter time.Duration
	// Hang holds the call until Release, as a hard mount does when its server
	// is silent. The call goes on then, and is done, however late. A caller who
	// is killed meanwhile dies, and its call is not done.
	Hang bool
	// Err is what the caller gets; 0 = what the call itself says.
	Err syscall.Errno
	// Effect says whether the call with an Err is done all the same. It counts
	// for Changes and Lock; other calls have nothing that could be done.
	Effect Effect
}

// Effect says what becomes of a call that reports an error.
type Effect int

// The effects.
const (
	// NotDone: the call changes nothing. An Fsync that is not done loses for
	// good what it should have made durable, as in a kernel's page cache: the
	// next one succeeds and does not bring it back.
	NotDone Effect = iota
	// Done: the call is done, then reported as failed.
	Done
	// DoneLate: the call is reported as failed at once and done at Release.
	DoneLate
)

// Rule is a Fault at work. Its methods are safe for use by several goroutines.
type Rule struct {
	fault Fault
	rules *rules

	calls, hits, waiting atomic.Int64

	mu       sync.Mutex // for closing released, and adding to late before that
	released chan struct{}
	late     sync.WaitGroup // effects that wait for released
}

// Calls is how many calls the fault selected, those that passed included.
func (r *Rule) Calls() int64 { return r.calls.Load() }

// Hits is how many calls went wrong, those that still wait included.
func (r *Rule) Hits() int64 { return r.hits.Load() }

// Waiting is how many calls hang now, and how many effects wait to be done late.
func (r *Rule) Waiting() int64 { return r.waiting.Load() }

// Release ends the fault. Calls that hang go on, and when it returns every
// late effect is done. A second call does nothing.
func (r *Rule) Release() {
	r.rules.remove(r)
	r.mu.Lock()
	if !r.isReleased() {
		close(r.released)
	}
	r.mu.Unlock()
	r.late.Wait()
}

func (r *Rule) isReleased() bool {
	select {
	case <-r.released:
		return true
	default:
		return false
	}
}

// afterRelease does something once the rule is released: at once when it is.
func (r *Rule) afterRelease(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isReleased() {
		go do()
		return
	}
	r.late.Go(do)
}

// selects says whether the fault strikes a call of which it knows the paths.
func (r *Rule) selects(op Op, paths []string, luck *luck) bool {
	f := &r.fault
	if f.Ops != 0 && f.Ops&op == 0 {
		return false
	}
	if (f.Under != "" || f.Contains != "") && !slices.ContainsFunc(paths, r.matches) {
		return false
	}
	n := r.calls.Add(1)
	if n <= int64(f.Skip) || f.Chance > 0 && !luck.chance(f.Chance) {
		return false
	}
	if hit := r.hits.Add(1); f.Times > 0 && hit > int64(f.Times) {
		r.hits.Add(-1)
		return false
	}
	return true
}

func (r *Rule) matches(path string) bool {
	if !strings.Contains(path, r.fault.Contains) {
		return false
	}
	rest, below := strings.CutPrefix(path, "/"+strings.Trim(r.fault.Under, "/"))
	return r.fault.Under == "" || below && (rest == "" || rest[0] == '/')
}

// rules are the faults of a share or a mount. Calls read them without a lock.
type rules struct {
	luck *luck

	mu  sync.Mutex // for changes of all
	all atomic.Pointer[[]*Rule]
}

func (s *rules) inject(f Fault) *Rule {
	r := &Rule{fault: f, rules: s, released: make(chan struct{})}
	s.change(func(all []*Rule) []*Rule { return append(all, r) })
	return r
}

func (s *rules) remove(r *Rule) {
	s.change(func(all []*Rule) []*Rule {
		return slices.DeleteFunc(all, func(x *Rule) bool { return x == r })
	})
}

func (s *rules) change(to func([]*Rule) []*Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := to(slices.Clone(s.current()))
	s.all.Store(&all)
}

func (s *rules) current() []*Rule {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// releaseAll ends every fault.
func (s *rules) releaseAll() {
	for _, r := range s.current() {
		r.Release()
	}
}

// luck is a random source by seed for several goroutines.
type luck struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newLuck(seed uint64) *luck {
	return &luck{rng: rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))}
}

// chance is true with the given probability.
func (l *luck) chance(p float64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.Float64() < p
}

// upTo is a random part of a duration.
func (l *luck) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.rng.Int64N(int64(d)))
}
