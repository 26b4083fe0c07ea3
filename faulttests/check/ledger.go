// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Append is one append that a client requested.
type Append struct {
	Chunk
	File cluster.FileName
	Lock cluster.LockName
	// Acked is true if the client got an acknowledgement, with Receipt. Refused is true if the client
	// was answered that the append was not executed and never will be. With neither, the append may be
	// in the file or not.
	Acked, Refused bool
	// Repeat is true if an earlier attempt had executed it, and its answer was lost.
	Repeat  bool
	Receipt wire.Receipt
	// After is the highest LSN in any answer to any client when the append was sent.
	After cluster.LSN
	// Sent and Answered are times of the client's clock.
	Sent, Answered time.Time
}

// Grant is one grant that a client got as an answer.
type Grant struct {
	Client         int
	Holder         string // the command that the client names as the holder; "" = it names none
	Lock           cluster.LockName
	Token          cluster.Token
	Epoch          cluster.Epoch // that granted it
	After          cluster.LSN
	Sent, Answered time.Time
}

// Ledger collects the requests of clients and their answers. It is safe for use by
// several goroutines.
type Ledger struct {
	mu struct {
		sync.Mutex
		appends []Append
		grants  []Grant
		holds   []Hold
		bad     []string
		high    cluster.LSN // in any answer
		bytes   int64       // acknowledged
		unknown int         // operations that ended without an answer
	}
}

// High returns the highest LSN in any answer so far.
func (l *Ledger) High() cluster.LSN {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.high
}

// Append adds an append that has ended, acknowledged or not.
func (l *Ledger) Append(a Append) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.appends = append(l.mu.appends, a)
	if a.Refused {
		return
	}
	if !a.Acked {
		l.mu.unknown++
		return
	}
	l.mu.high = max(l.mu.high, a.Receipt.LSN)
	l.mu.bytes += a.Receipt.Length
}

// Grant adds a grant that a client got.
func (l *Ledger) Grant(g Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.grants = append(l.mu.grants, g)
	l.mu.high = max(l.mu.high, cluster.LSN(g.Token))
}

// Unknown counts an operation other than an append that ended without an answer.
func (l *Ledger) Unknown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.unknown++
}

// Violation records something that must not happen.
func (l *Ledger) Violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bad = append(l.mu.bad, fmt.Sprintf(format, args...))
}

// Entries returns copies of all appends, grants and violations.
func (l *Ledger) Entries() (appends []Append, grants []Grant, bad []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(appends, l.mu.appends...), append(grants, l.mu.grants...), append(bad, l.mu.bad...)
}

// Count returns the numbers of appends, grants and operations without an answer, and the
// acknowledged bytes, to show progress.
func (l *Ledger) Count() (appends, grants, unknown int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.appends), len(l.mu.grants), l.mu.unknown, l.mu.bytes
}
