// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// mirrorBookmark is MirrorOptions.Bookmark where none is given.
const mirrorBookmark = time.Second

// MirrorOptions say what to mirror. The zero value is every lock.
type MirrorOptions struct {
	// Lock is one lock; without it, Prefix is that of the names of all locks to
	// mirror, "" for all there are.
	Lock   cluster.LockName
	Prefix string
	// Bookmark is how often a server says how far it has told, events or not, so that
	// LSN and Age move on. 0 = every second.
	Bookmark time.Duration
}

// Mirror is a copy of some locks, kept by a watch. It is at every moment the state
// at one LSN, a little in the past: to look at or to act upon, but no proof of who
// holds a lock now. Make it with NewMirror; it follows while Run runs. It is safe for use
// by several goroutines.
//
// Between the end of a grant and the next one there is a state in which nobody holds the
// lock, though somebody waits. It is seldom seen: what a server tells at once is one step.
type Mirror struct {
	c *Client
	o MirrorOptions

	// Owned by Run.
	coming lockStates // of a reset under way, nil without one
	part   int        // the piece that comes next
	events []Event    // of a message under way
	broken bool       // events do not fit what we have: a reset is to come
	before map[cluster.LockName]LockState

	mu struct {
		sync.RWMutex
		running   bool
		view      MirrorView
		heard     time.Duration // when a server last told how far it has told
		err       error         // of the Run that ended
		changed   chan struct{} // closed when anything above changes
		followers map[*follower]struct{}
	}
}

var errMirrorRuns = errors.New("this mirror runs already: one Run at a time")

// NewMirror makes a mirror that knows nothing yet.
func (c *Client) NewMirror(o MirrorOptions) *Mirror {
	m := &Mirror{c: c, o: o}
	m.o.Bookmark = cmp.Or(o.Bookmark, mirrorBookmark)
	m.mu.changed = make(chan struct{})
	m.mu.followers = map[*follower]struct{}{}
	return m
}

// Run follows the locks until it has to give up, with an error like that of
// Client.Watch. What the mirror knows stays, and another Run goes on there.
func (m *Mirror) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.mu.running {
		m.mu.Unlock()
		return errMirrorRuns
	}
	m.mu.running, m.mu.err = true, nil
	o := WatchOptions{Lock: m.o.Lock, Prefix: m.o.Prefix, After: m.mu.view.lsn, Bookmark: m.o.Bookmark}
	m.mu.Unlock()
	m.coming, m.events, m.broken, m.before = nil, nil, false, map[cluster.LockName]LockState{}

	w := m.c.watcher(o, func(e Event) bool {
		m.take(&e)
		return true
	})
	w.told = func(epoch cluster.Epoch) {
		if !m.commit(w.after, epoch) {
			m.broken, w.anew = true, true
		}
	}
	err := w.follow(ctx)

	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.running, m.mu.err = false, err
	m.wake()
	return err
}

// take collects what one message tells.
func (m *Mirror) take(e *Event) {
	switch {
	case e.Reset != nil:
		if e.Reset.Part == 0 {
			m.coming, m.part, m.events, m.broken = lockStates{}, 0, nil, false
		}
		if m.coming == nil || e.Reset.Part != m.part {
			m.coming, m.broken = nil, true
			return
		}
		m.part++
		m.coming.reset(e.Reset)
	case e.Kind != EventBookmark && !m.broken:
		m.events = append(m.events, *e)
	}
}

// commit makes what was collected the state at an LSN. False means that the events do
// not fit the state, which stays as it was.
func (m *Mirror) commit(at cluster.LSN, epoch cluster.Epoch) bool {
	if m.broken {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	x := &edit{locks: m.mu.view.locks, before: m.before}
	clear(x.before)
	if m.coming != nil {
		x.replace(m.coming)
		m.coming = nil
	}
	for i := range m.events {
		if !x.apply(&m.events[i]) {
			x.undo()
			return false
		}
	}
	clear(m.events)
	m.events = m.events[:0]
	m.mu.view = MirrorView{lsn: at, epoch: epoch, locks: x.locks}
	m.mu.heard = m.c.opt.Clock.Now()
	for f := range m.mu.followers {
		for name := range x.before {
			f.changed[name] = struct{}{}
		}
	}
	m.wake()
	return true
}

// wake wakes all who wait for a change. It is called with mu held.
func (m *Mirror) wake() {
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
}

// Get is the state of a lock, false where there is nothing to know: nobody holds
// it, nobody waits and it has no files.
func (m *Mirror) Get(lock cluster.LockName) (LockState, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.view.Get(lock)
}

// All yields the locks in the order of their names, all as they are at one LSN when
// the loop begins.
func (m *Mirror) All() iter.Seq[LockState] {
	return func(yield func(LockState) bool) {
		m.mu.RLock()
		all := m.mu.view.sorted()
		m.mu.RUnlock()
		for _, l := range all {
			if !yield(l) {
				return
			}
		}
	}
}

// LSN is that of the state; 0 before there is one.
func (m *Mirror) LSN() cluster.LSN {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.view.lsn
}

// Age is how long ago a server last said that there is nothing newer than LSN, false
// before there is a state. What a replica says may itself be as old as the storage
// timeout.
func (m *Mirror) Age() (time.Duration, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.c.opt.Clock.Now() - m.mu.heard, m.mu.view.lsn > 0
}

// View has f look at the state, all of it at one LSN. The mirror waits for f, which
// must not keep the view nor use the mirror.
func (m *Mirror) View(f func(MirrorView)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.mu.view)
}

// WaitUntil waits until f says yes to a state, the first time to the present one. States
// may be skipped while f or others are busy. It ends with the error of ctx, or of Run when
// that ends. What holds for View's f holds here.
func (m *Mirror) WaitUntil(ctx context.Context, f func(MirrorView) bool) error {
	for {
		m.mu.RLock()
		yes, changed, err := m.mu.view.lsn > 0 && f(m.mu.view), m.mu.changed, m.mu.err
		m.mu.RUnlock()
		switch {
		case yes:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Change is one lock that changed.
type Change struct {
	// Lock is its state now. Of a lock that is Gone, of which there is nothing to know,
	// it has only the name.
	Lock LockState
	Gone bool
	// LSN is that of the state. With the Last one of a round, what was yielded makes
	// all of that state.
	LSN  cluster.LSN
	Last bool
}

// follower is one loop over Changes.
type follower struct {
	changed map[cluster.LockName]struct{} // since its last round
}

// Changes yields every lock there is and then each that changes, round by round, in the
// order of names within one. A loop that is slow misses no lock, but states in between:
// it is told the present one, once. The sequence ends with the error of ctx, or of Run
// when that ends.
func (m *Mirror) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		f := m.enlist()
		defer m.dismiss(f)
		for {
			round, changed, err := m.round(f)
			for _, c := range round {
				if !yield(c, nil) {
					return
				}
			}
			if len(round) > 0 {
				continue
			}
			if err == nil {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					err = context.Cause(ctx)
				}
			}
			yield(Change{}, err)
			return
		}
	}
}

func (m *Mirror) enlist() *follower {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &follower{changed: map[cluster.LockName]struct{}{}}
	for name := range m.mu.view.locks {
		f.changed[name] = struct{}{}
	}
	m.mu.followers[f] = struct{}{}
	return f
}

func (m *Mirror) dismiss(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.followers, f)
}

// round takes what changed for a follower. Where that is nothing, there is what to
// wait for, or the error of a Run that ended.
func (m *Mirror) round(f *follower) (round []Change, changed chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.changed)) {
		l, there := m.mu.view.Get(name)
		l.Name = name
		round = append(round, Change{Lock: l, Gone: !there, LSN: m.mu.view.lsn})
	}
	if len(round) > 0 {
		round[len(round)-1].Last = true
	}
	clear(f.changed)
	return round, m.mu.changed, m.mu.err
}

// MirrorView is the state of a Mirror at one LSN, during one call.
type MirrorView struct {
	lsn   cluster.LSN
	epoch cluster.Epoch
	locks lockStates
}

// LSN is that of the state.
func (v MirrorView) LSN() cluster.LSN { return v.lsn }

// Epoch is the reign of which the server spoke.
func (v MirrorView) Epoch() cluster.Epoch { return v.epoch }

// Len is how many locks there are.
func (v MirrorView) Len() int { return len(v.locks) }

// Get is the state of a lock, false where there is nothing to know.
func (v MirrorView) Get(lock cluster.LockName) (LockState, bool) {
	l, ok := v.locks[lock]
	return l, ok
}

// All yields the locks in the order of their names.
func (v MirrorView) All() iter.Seq[LockState] { return slices.Values(v.sorted()) }

func (v MirrorView) sorted() []LockState {
	return slices.SortedFunc(maps.Values(v.locks), func(a, b LockState) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
}
