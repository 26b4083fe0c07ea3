// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Append is one append that a client asked for.
type Append struct {
	Chunk
	File cluster.FileName
	Lock cluster.LockName
	// Acked says that the client was told it is done, with Receipt. Refused says that it was
	// told that it was not executed and never will be. With neither the append may be
	// in the file or not.
	Acked, Refused bool
	// Repeat says that an earlier try had done it, and its answer was lost.
	Repeat  bool
	Receipt wire.Receipt
	// After is the highest LSN that anybody had been told of when it was sent.
	After cluster.LSN
	// Sent and Answered are the client's times.
	Sent, Answered time.Time
}

// Grant is one lock that a client was told it holds.
type Grant struct {
	Client         int
	Holder         string // the command that the client names as the holder; "" = it names none
	Lock           cluster.LockName
	Token          cluster.Token
	Epoch          cluster.Epoch // that granted it
	After          cluster.LSN
	Sent, Answered time.Time
}

// Ledger collects what clients asked for and were told. It is safe for use by
// several goroutines.
type Ledger struct {
	mu struct {
		sync.Mutex
		appends []Append
		grants  []Grant
		holds   []Hold
		bad     []string
		high    cluster.LSN // that anybody was told of
		bytes   int64       // acknowledged
		unknown int         // operations that ended without an answer
	}
}

// High is the highest LSN that anybody was told of.
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

// Grant adds a grant that a client was told of.
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

// Violation notes something that must not happen.
func (l *Ledger) Violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bad = append(l.mu.bad, fmt.Sprintf(format, args...))
}

// Entries are copies of all that was noted.
func (l *Ledger) Entries() (appends []Append, grants []Grant, bad []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(appends, l.mu.appends...), append(grants, l.mu.grants...), append(bad, l.mu.bad...)
}

// Count is for showing progress.
func (l *Ledger) Count() (appends, grants, unknown int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.appends), len(l.mu.grants), l.mu.unknown, l.mu.bytes
}
