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

// Fault describes which calls fail, and how. The zero value of each
// selecting field selects all calls.
type Fault struct {
	// Ops are the kinds of calls; 0 = all.
	Ops Op
	// Under is a path from the share's root, "epochs/0000000002": calls on it
	// and on everything below it.
	Under string
	// Contains is a part of the path from the share's root, "/wal-". That path
	// begins with a slash. It is the one by which the file was last looked up.
	Contains string
	// Skip is how many selected calls pass first: to fail the n-th call use n-1.
	Skip int
	// Times is how many calls fail; 0 = all until Release.
	Times int
	// Chance is the probability with which each selected call fails, drawn with the
	// share's seed; 0 = always.
	Chance float64

	// Delay is waited before anything else, and a random part of Jitter on top.
	Delay, Jitter time.Duration
	// Hang holds the call until Release, as a hard mount does when its server
	// is silent. Then the call is executed, at any later time. If the caller
	// is killed meanwhile, its call is not executed.
	Hang bool
	// Err is the error that the caller gets; 0 = the result of the call itself.
	Err syscall.Errno
	// Effect is whether a call with an Err is executed nevertheless. It applies
	// to Changes and Lock; other calls have no effect.
	Effect Effect
}

// Effect is whether a call that reports an error is executed.
type Effect int

// The effects.
const (
	// NotDone means that the call changes nothing. An Fsync that is not executed loses for
	// good what it should have made durable, as in a kernel's page cache: the
	// next one succeeds and does not bring it back.
	NotDone Effect = iota
	// Done: the call is done, then reported as failed.
	Done
	// DoneLate: the call is reported as failed at once and done at Release.
	DoneLate
)

// Rule is an injected Fault. Its methods are safe for use by several goroutines.
type Rule struct {
	fault Fault
	rules *rules

	calls, hits, waiting atomic.Int64

	mu       sync.Mutex // for closing released, and adding to late before that
	released chan struct{}
	late     sync.WaitGroup // effects that wait for released
}

// Calls returns how many calls the fault selected, including those that passed.
func (r *Rule) Calls() int64 { return r.calls.Load() }

// Hits returns how many calls failed, including those that still hang.
func (r *Rule) Hits() int64 { return r.hits.Load() }

// Waiting returns how many calls hang now, plus how many late effects are still to come.
func (r *Rule) Waiting() int64 { return r.waiting.Load() }

// Release ends the fault. Hanging calls continue, and when Release returns every
// late effect has happened. A second call does nothing.
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

// selects reports whether the fault strikes a call of which it knows the paths.
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
