// SPDX-License-Identifier: Apache-2.0

package watch

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

	"github.com/holdfast-lock/holdfast/clientlib"
)

// defaultBookmark is Options.Bookmark where none is given.
const defaultBookmark = time.Second

// Options say what to mirror. The zero value is every lock.
type Options struct {
	// Lock is one lock. If it is empty, Prefix is that of the names of all locks to mirror,
	// "" for all there are.
	Lock   clientlib.LockName
	Prefix string
	// Bookmark is how often a server reports up to which LSN everything was sent, events or
	// not, so that LSN and Age move on. 0 = every second.
	Bookmark time.Duration
}

// source is what a mirror needs of a *clientlib.Client.
type source interface {
	WatchBatches(context.Context, clientlib.WatchOptions, func(clientlib.WatchBatch) error) error
	Clock() clientlib.Clock
}

// Mirror is a copy of some locks, kept up to date by a watch. At every moment it is the state of
// the service at one LSN, a little in the past: good to show and to act upon, but no proof of
// who holds a lock now. Make it with NewMirror; it follows while Run runs. It is safe for use
// by several goroutines.
//
// Between the end of a grant and the next one there is a state in which the lock is free, though
// clients wait for it. It is seldom seen: all that a server sends in one message is one step.
type Mirror struct {
	from source
	o    Options

	// Owned by Run.
	coming lockStates        // of a reset under way, nil without one
	part   int               // the piece that comes next
	events []clientlib.Event // of a message under way
	broken bool              // events do not fit what we have: a reset is to come
	before map[clientlib.LockName]LockState

	mu struct {
		sync.RWMutex
		running   bool
		view      View
		heard     time.Duration // when a server last reported its LSN, by the client's clock
		err       error         // of the Run that ended
		changed   chan struct{} // closed when anything above changes
		followers map[*follower]struct{}
	}
}

var errMirrorRuns = errors.New("this mirror runs already: one Run at a time")

// NewMirror makes a mirror that knows nothing yet.
func NewMirror(c *clientlib.Client, o Options) *Mirror { return newMirror(c, o) }

func newMirror(from source, o Options) *Mirror {
	m := &Mirror{from: from, o: o}
	m.o.Bookmark = cmp.Or(o.Bookmark, defaultBookmark)
	m.mu.changed = make(chan struct{})
	m.mu.followers = map[*follower]struct{}{}
	return m
}

// Run follows the locks until it has to give up, with an error like that of
// Client.Watch. What the mirror knows stays, and another Run goes on there. It is an error to
// call Run while another one runs.
func (m *Mirror) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.mu.running {
		m.mu.Unlock()
		return errMirrorRuns
	}
	m.mu.running, m.mu.err = true, nil
	o := clientlib.WatchOptions{Lock: m.o.Lock, Prefix: m.o.Prefix, After: m.mu.view.lsn, Bookmark: m.o.Bookmark}
	m.mu.Unlock()
	m.coming, m.events, m.broken, m.before = nil, nil, false, map[clientlib.LockName]LockState{}

	err := m.from.WatchBatches(ctx, o, m.apply)

	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.running, m.mu.err = false, err
	m.wake()
	return err
}

// apply makes the next state of what one message has. It returns ErrStartOver if that does not
// fit the present one.
func (m *Mirror) apply(b clientlib.WatchBatch) error {
	for i := range b.Events {
		m.take(&b.Events[i])
	}
	if b.LSN > 0 && !m.commit(b.LSN, b.Epoch) {
		m.broken = true
		return clientlib.ErrStartOver
	}
	return nil
}

// take collects an event of a message.
func (m *Mirror) take(e *clientlib.Event) {
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
	case e.Kind != clientlib.EventBookmark && !m.broken:
		m.events = append(m.events, *e)
	}
}

// commit makes what was collected the state at an LSN. It returns false if the events do not fit
// the state, which stays as it was.
func (m *Mirror) commit(at clientlib.LSN, epoch clientlib.Epoch) bool {
	if m.broken {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	x := &transaction{locks: m.mu.view.locks, before: m.before}
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
	m.mu.view = View{lsn: at, epoch: epoch, locks: x.locks}
	m.mu.heard = m.from.Clock().Now()
	for f := range m.mu.followers {
		for name := range x.before {
			f.changed[name] = struct{}{}
		}
	}
	m.wake()
	return true
}

// wake wakes all callers that wait for a change. It is called with mu held.
func (m *Mirror) wake() {
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
}

// Get returns the state of a lock, and false for a lock that has no holder, waiters and files.
func (m *Mirror) Get(lock clientlib.LockName) (LockState, bool) {
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

// LSN returns the LSN of the state; 0 before there is one.
func (m *Mirror) LSN() clientlib.LSN {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.view.lsn
}

// Age returns how long ago a server last reported that there is nothing newer than LSN, and false
// before there is a state. What a replica reports may itself be as old as the storage timeout.
func (m *Mirror) Age() (time.Duration, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.from.Clock().Now() - m.mu.heard, m.mu.view.lsn > 0
}

// View calls f with the state, all of it at one LSN. The mirror waits for f, which must not keep
// the view nor use the mirror.
func (m *Mirror) View(f func(View)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.mu.view)
}

// WaitUntil waits until f returns true for a state, first called with the present one. States may
// be skipped while f or others are busy. It ends with the error of ctx, or of Run when that ends.
// What holds for View's f holds here.
func (m *Mirror) WaitUntil(ctx context.Context, f func(View) bool) error {
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

// Change is the new state of a lock that changed.
type Change struct {
	// Lock is its state now. Where the lock is Gone, because it has no holder, waiters and files
	// any more, there is only the name.
	Lock LockState
	Gone bool
	// LSN is that of the state. After the Last change of a round, what was yielded is the whole
	// state at LSN.
	LSN  clientlib.LSN
	Last bool
}

// follower is one loop over Changes.
type follower struct {
	changed map[clientlib.LockName]struct{} // since its last round
}

// Changes yields every lock there is and then each that changes, round by round, in the order of
// names within one. A slow loop misses no lock, but states in between: it gets the present one,
// once. The sequence ends with the error of ctx, or of Run when that ends.
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
	f := &follower{changed: map[clientlib.LockName]struct{}{}}
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

// round takes what changed for a follower. Where that is nothing, it returns the channel to wait
// for, or the error of a Run that ended.
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

// View is the state of a Mirror at one LSN, during one call.
type View struct {
	lsn   clientlib.LSN
	epoch clientlib.Epoch
	locks lockStates
}

// LSN returns the LSN of the state.
func (v View) LSN() clientlib.LSN { return v.lsn }

// Epoch returns that of the term in which the server answered.
func (v View) Epoch() clientlib.Epoch { return v.epoch }

// Len returns how many locks there are.
func (v View) Len() int { return len(v.locks) }

// Get returns the state of a lock, and false for a lock that has no holder, waiters and files.
func (v View) Get(lock clientlib.LockName) (LockState, bool) {
	l, ok := v.locks[lock]
	return l, ok
}

// All yields the locks in the order of their names.
func (v View) All() iter.Seq[LockState] { return slices.Values(v.sorted()) }

func (v View) sorted() []LockState {
	return slices.SortedFunc(maps.Values(v.locks), func(a, b LockState) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
}
