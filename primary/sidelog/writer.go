// SPDX-License-Identifier: Apache-2.0

// Package sidelog writes side logs: of a primary, the history of grants that ended, and the index of appends to
// protected files; of every server, the audit.
//
// The commit path adds what was committed and checked. It never waits: a queue has bounded room, and what finds none
// is only counted. A goroutine of its own for each log writes what waits, within an interval. No promise depends on
// a side log: its errors do not end the term, a crash loses what was not written, and the next primary completes it
// from the log that it adopts. What the audit tells is in no log: what of it is lost stays lost, and is counted if it found no room.
package sidelog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/wake"
)

// writer is the bounded queue of one side log, and the loop of the one goroutine that empties it. What stands before
// wake does not change.
type writer[T any] struct {
	log      zerolog.Logger
	interval time.Duration // how late an entry is written at most
	// room bounds how many entries wait, roomBytes how much memory they take; 0: it does not.
	room, roomBytes int
	size            func(*T) int // of an entry in memory, in bytes
	// keeps is set if entries that could not be written wait for another try, which comes later and later. Otherwise
	// they are lost, and the next ones are tried in time.
	keeps          bool
	failing, works string // what is logged when writing begins to fail, and when it works again

	wake wake.Signal // run does not wait for the interval to end

	// mu guards what follows, and what a log has beside it. It is not held during a call to the volume.
	mu      sync.Mutex
	waiting []T // readers may have a part of it: entries are appended and never changed
	bytes   int // of waiting
	// trouble is why nothing is written, since when; nil if all is well.
	trouble error
	since   time.Time
	tries   int
}

// add adds an entry and reports whether it found room. Call it with mu held.
func (w *writer[T]) add(x T) bool {
	if len(w.waiting) >= w.room || w.roomBytes > 0 && w.bytes >= w.roomBytes {
		return false
	}
	w.waiting = append(w.waiting, x)
	w.bytes += w.size(&w.waiting[len(w.waiting)-1])
	return true
}

// remove removes the first n entries. Call it with mu held.
func (w *writer[T]) remove(n int) {
	for i := range w.waiting[:n] {
		w.bytes -= w.size(&w.waiting[i])
	}
	w.waiting = w.waiting[n:]
}

// hurry has run write soon.
func (w *writer[T]) hurry() {
	w.wake.Notify()
}

// errIdle says that nothing was to be written, which does not show whether it would work.
var errIdle = errors.New("nothing to write")

// run calls write once an interval, earlier after hurry and later after errors, until the term's ctx ends.
func (w *writer[T]) run(ctx context.Context, write func(now time.Time) error) {
	t := time.NewTicker(w.interval)
	defer t.Stop()
	var after time.Time // the next try may begin
	backoff := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.wake:
		}
		now := time.Now()
		if now.Before(after) {
			continue
		}
		if err := write(now); !errors.Is(err, errIdle) && ctx.Err() == nil {
			backoff = w.settle(err, now, backoff)
		}
		after = now.Add(backoff)
	}
}

// settle records how a try ended and returns how long to wait before the next.
func (w *writer[T]) settle(err error, now time.Time, backoff time.Duration) time.Duration {
	w.mu.Lock()
	was, tries := w.trouble, w.tries
	if err == nil {
		w.tries = 0
	} else if w.tries++; was == nil {
		w.since = now
	}
	w.trouble = err
	w.mu.Unlock()
	// Not under mu: the commit path takes it, and does not wait for whoever reads the log.
	switch {
	case err == nil && was != nil:
		w.log.Info().Int("failures", tries).Msg(w.works)
	case err != nil && was == nil:
		w.log.Warn().Err(err).Msg(w.failing)
	}
	if err == nil || !w.keeps {
		return 0
	}
	return min(max(2*backoff, w.interval), time.Minute)
}
