// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// ErrCrashed is what every call of a dead process returns. No real call does:
// the process is not there to hear it. Code under test must wind up, writing nothing.
var ErrCrashed = errors.New("volumetest: this process is dead")

// maxTrace is how many of the latest calls a host remembers.
const maxTrace = 1 << 16

// Profile is the sort of filesystem a host mounts.
type Profile struct {
	Kind vfs.Kind
	// Stale is how long a network host believes its caches.
	Stale time.Duration
}

// ProfileLocal is a single-host filesystem: all processes see the same at once.
func ProfileLocal() Profile { return Profile{Kind: vfs.Kind{Name: "ext4"}} }

// ProfileNetwork is a network filesystem with NFS's manners and its default acdirmax.
func ProfileNetwork() Profile {
	return Profile{Kind: vfs.Kind{Name: "nfs", Network: true}, Stale: 30 * time.Second}
}

// Host is one process on one machine, with that machine's caches. It
// implements vfs.FS.
type Host struct {
	disk    *Disk
	id      int
	profile Profile

	// guarded by disk.mu
	dead   bool
	calls  int
	trace  []Call
	hook   Hook
	watch  Watch
	paused []*waiter
	files  map[*file]struct{}
	locks  map[*flock]struct{}
	cache  *cache    // nil where the filesystem is coherent
	lost   time.Time // when the machine lost its power
	// waiting are calls behind a delegation.
	waiting []string
}

// ID is the number the host was made with.
func (h *Host) ID() int { return h.id }

// Kind says which filesystem the profile imitates.
func (h *Host) Kind() vfs.Kind { return h.profile.Kind }

// SetHook sets what is asked before each later call; nil asks nobody.
func (h *Host) SetHook(hook Hook) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.hook = hook
}

// SetWatch sets who sees every later call begin and end; nil is nobody.
func (h *Host) SetWatch(watch Watch) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.watch = watch
}

// Calls is how many calls the host has made.
func (h *Host) Calls() int {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return h.calls
}

// Trace lists the host's calls in order, the oldest of very many left out.
func (h *Host) Trace() []Call {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return slices.Clone(h.trace)
}

// Dead reports whether the process was killed or lost its power.
func (h *Host) Dead() bool {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return h.dead
}

// Handles lists the names of the files that this host has open, in order.
func (h *Host) Handles() (names []string) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	for f := range h.files {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// Kill ends the process (kill -9): paused calls return, locks are released,
// what it wrote stays, and its kernel flushes what was not yet at the server.
func (h *Host) Kill() {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.die(flushCaches)
}

// PowerOff ends the machine of a network host: what was not yet at the server
// is lost, and the server keeps its locks until LoseLocks says that it has noticed.
func (h *Host) PowerOff() {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.die(keepLocks)
}

// LoseLocks is the server dropping the host's locks, as when a lease of the
// filesystem ran out. The host is not told.
func (h *Host) LoseLocks() {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	for l := range h.locks {
		l.release()
	}
}

// DropCaches forgets all clean cached names, attributes and data.
func (h *Host) DropCaches() {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if h.cache != nil {
		h.cache.drop()
	}
}

// ending is what becomes of a dying host's unflushed writes and locks.
type ending uint8

const (
	flushCaches ending = iota // the process died, its kernel lives
	dropCaches                // everything died
	keepLocks                 // the machine died, the server lives
)

// die is called with disk.mu held.
func (h *Host) die(how ending) {
	if h.dead {
		return
	}
	h.dead = true
	h.disk.hosts = slices.DeleteFunc(h.disk.hosts, func(o *Host) bool { return o == h })
	if how == flushCaches && h.cache != nil {
		nodes := slices.SortedFunc(maps.Keys(h.cache.views), func(a, b *inode) int {
			return cmp.Compare(a.number, b.number)
		})
		for _, n := range nodes {
			// A full disk loses the rest, as a kernel would: there is nobody left to tell.
			_ = h.flush(n)
		}
	}
	if how == keepLocks {
		h.lost, h.disk.dark[h.id] = time.Now(), true
	} else {
		for l := range h.locks {
			l.release()
		}
	}
	for f := range h.files {
		f.release()
	}
	for _, w := range h.paused {
		w.wake()
	}
	h.paused = nil
}

// step is one call, ready to be counted, failed or paused.
type step struct {
	call Call
	run  func() error  // with disk.mu held
	data func() []byte // of reads and writes: what was read, or is to be written
	torn func(n int)   // of writes: does the first n bytes
	lose func()        // of syncs: what a failed one leaves
	// conflicts are the files of which the server first takes back what others got; whether the call
	// changes something, or looks only. With disk.mu held.
	conflicts func() (_ []*inode, changes bool)
}

// do carries a step out as the hook decides. Errors get the call's name here.
func (h *Host) do(s step) error {
	return pathError(s.call.Op, s.call.Name, h.decide(s))
}

func (h *Host) decide(s step) (err error) {
	action, watch, err := h.announce(&s)
	if err != nil {
		return err
	}
	if watch != nil {
		defer func() {
			e := s.event()
			e.Done, e.Err = true, err
			watch(e)
		}()
	}
	if action.kind == pauseBefore {
		h.wait(action.gate)
	}
	h.recall(s)
	err = h.act(s, action)
	if action.kind == pauseAfter {
		h.wait(action.gate)
		if h.Dead() {
			return ErrCrashed
		}
	}
	return err
}

func (s *step) event() Event {
	e := Event{Call: s.call}
	if s.data != nil {
		e.Data = s.data()
	}
	return e
}

// announce counts the call, shows it and asks the hook, both without the mutex.
func (h *Host) announce(s *step) (Action, Watch, error) {
	h.disk.mu.Lock()
	if h.dead {
		h.disk.mu.Unlock()
		return Action{}, nil, ErrCrashed
	}
	h.calls++
	s.call.Index = h.calls
	if len(h.trace) == 2*maxTrace {
		h.trace = append(h.trace[:0], h.trace[maxTrace:]...)
	}
	h.trace = append(h.trace, s.call)
	hook, watch := h.hook, h.watch
	h.disk.mu.Unlock()
	if watch != nil {
		watch(s.event())
	}
	if hook == nil {
		return Action{}, watch, nil
	}
	return hook(s.call), watch, nil
}

func (h *Host) act(s step, action Action) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	switch {
	case h.dead:
		return ErrCrashed
	case action.kind == failBefore:
		if s.lose != nil {
			s.lose()
		}
		return action.err
	case action.kind == crashTorn && s.torn != nil:
		s.torn(action.bytes)
		h.die(flushCaches)
		return ErrCrashed
	case action.kind == crashBefore, action.kind == crashTorn:
		h.die(flushCaches)
		return ErrCrashed
	}
	err := s.run()
	switch action.kind {
	case crashAfter:
		h.die(flushCaches)
		return ErrCrashed
	case failAfter:
		return action.err
	default:
		return err
	}
}

// wait holds a call at a gate until it opens or the host dies.
func (h *Host) wait(gate *Gate) {
	w := &waiter{done: make(chan struct{})}
	h.disk.mu.Lock()
	if h.dead {
		h.disk.mu.Unlock()
		return
	}
	h.paused = append(h.paused, w)
	h.disk.mu.Unlock()
	gate.admit(w)
	<-w.done
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.paused = slices.DeleteFunc(h.paused, func(o *waiter) bool { return o == w })
}
