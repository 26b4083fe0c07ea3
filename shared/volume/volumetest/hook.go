// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// The operations, as they stand in Call.Op. Replace is a series of the Replace ones.
const (
	OpOpen           = "open"
	OpMkdir          = "mkdir"
	OpRename         = "rename"
	OpLink           = "link"
	OpRemove         = "remove"
	OpReadDir        = "readdir"
	OpLstat          = "lstat"
	OpSyncDir        = "syncdir"
	OpSpace          = "space"
	OpTryLock        = "trylock"
	OpUnlock         = "unlock"
	OpReadAt         = "readat"
	OpWriteAt        = "writeat"
	OpSync           = "sync"
	OpDatasync       = "datasync"
	OpStat           = "stat"
	OpClose          = "close"
	OpReplaceCreate  = "replace-create"
	OpReplaceWrite   = "replace-write"
	OpReplaceSync    = "replace-sync"
	OpReplaceRename  = "replace-rename"
	OpReplaceSyncDir = "replace-syncdir"
	OpReplaceCleanup = "replace-cleanup"
)

// Call is one step of one host.
type Call struct {
	Index   int // counts a host's calls from 1
	Op      string
	Name    string // of a file, the name it was opened by, or that this host gave it since
	NewName string // of rename and link
	Offset  int64  // of reads and writes
	Length  int
}

// String describes the call for diagnostics.
func (c Call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", c.Index, c.Op, c.Name)
	if c.NewName != "" {
		fmt.Fprintf(&b, " -> %s", c.NewName)
	}
	if c.Op == OpReadAt || c.Op == OpWriteAt {
		fmt.Fprintf(&b, " [%d:+%d]", c.Offset, c.Length)
	}
	return b.String()
}

// Event is the beginning or the end of a call.
type Event struct {
	Call
	Done bool   // the call is about to return
	Err  error  // that it returns
	Data []byte // what a write writes, or a read has read; valid during the watch
}

// Watch sees calls begin, before they may be paused, and end. It may be called
// from several goroutines at a time and must neither wait nor make calls.
type Watch func(Event)

// Hook is asked before each call of a host what shall become of it. It may be
// called from several goroutines at a time and may use the Disk's own methods.
type Hook func(Call) Action

// Action is what becomes of a call. The zero Action lets it proceed.
type Action struct {
	kind  actionKind
	err   error
	gate  *Gate
	bytes int
}

type actionKind uint8

const (
	proceed actionKind = iota
	failBefore
	failAfter
	crashBefore
	crashTorn
	crashAfter
	pauseBefore
	pauseAfter
)

// Proceed lets the call happen.
func Proceed() Action { return Action{} }

// FailBefore makes the call fail without happening. A sync that fails so
// loses its pages: the next one will not write them (see the package doc).
func FailBefore(err error) Action { return Action{kind: failBefore, err: err} }

// FailAfter makes the call happen and report an error all the same.
func FailAfter(err error) Action { return Action{kind: failAfter, err: err} }

// Crash kills the process before the call happens.
func Crash() Action { return Action{kind: crashBefore} }

// CrashTorn kills the process when the first bytes of a write are done. Any
// other call does not happen.
func CrashTorn(bytes int) Action { return Action{kind: crashTorn, bytes: bytes} }

// CrashAfter kills the process when the call has happened, before it returns.
func CrashAfter() Action { return Action{kind: crashAfter} }

// Pause holds the call at the gate before it happens.
func Pause(gate *Gate) Action { return Action{kind: pauseBefore, gate: gate} }

// PauseAfter holds the call at the gate when it has happened, before it returns.
func PauseAfter(gate *Gate) Action { return Action{kind: pauseAfter, gate: gate} }

// At acts on the host's n-th call, of whatever kind.
func At(n int, action Action) Hook {
	return func(c Call) Action {
		if c.Index == n {
			return action
		}
		return Proceed()
	}
}

// AtOp acts on the n-th call, counted from now, of one operation on names that
// begin with prefix. n = 0 means all of them.
func AtOp(op, prefix string, n int, action Action) Hook {
	var seen atomic.Int64
	return func(c Call) Action {
		if c.Op != op || !strings.HasPrefix(c.Name, prefix) {
			return Proceed()
		}
		if count := seen.Add(1); n != 0 && count != int64(n) {
			return Proceed()
		}
		return action
	}
}

// From acts on the host's n-th call and all after it: with Pause it is a
// stopped process, with FailBefore a filesystem that went away.
func From(n int, action Action) Hook {
	return func(c Call) Action {
		if c.Index >= n {
			return action
		}
		return Proceed()
	}
}

// Script joins hooks. All are asked; the first that does not let the call
// proceed decides.
func Script(hooks ...Hook) Hook {
	return func(c Call) Action {
		decision := Proceed()
		for _, hook := range hooks {
			if a := hook(c); decision.kind == proceed {
				decision = a
			}
		}
		return decision
	}
}

// Gate is where paused calls wait. Make it where the test runs, inside the
// bubble under testing/synctest.
type Gate struct {
	arrived chan struct{}

	mu      sync.Mutex
	open    bool // guarded by mu
	waiters []*waiter
}

// NewGate makes a closed gate.
func NewGate() *Gate { return &Gate{arrived: make(chan struct{})} }

// Arrived is closed when the first call has reached the gate.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Resume opens the gate for good: all that wait go on, later calls pass.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	for _, w := range g.waiters {
		w.wake()
	}
	g.waiters = nil
}

// admit hands a waiter to the gate, which wakes it at Resume.
func (g *Gate) admit(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		w.wake()
		return
	}
	if g.waiters == nil {
		close(g.arrived)
	}
	g.waiters = append(g.waiters, w)
}

// waiter is one paused call. Its channel is made by the paused goroutine, so
// inside a synctest bubble the wait is a durable one.
type waiter struct {
	once sync.Once
	done chan struct{}
}

func (w *waiter) wake() { w.once.Do(func() { close(w.done) }) }
