// SPDX-License-Identifier: Apache-2.0

package protected

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	// hangAfter is how long one call of a file may take before the file counts as failing.
	hangAfter = 3 * time.Second
	// fileWait is how long an answer waits for a file that fails, fullWait where it fails for
	// want of space, which seldom comes back by itself.
	fileWait = 5 * time.Second
	fullWait = 1800 * time.Millisecond
	// lateLook is how often an answer that has waited for fullWait is examined again.
	lateLook = 200 * time.Millisecond
)

// fault is why a protected file cannot be written now, and since when. It is not changed.
type fault struct {
	text  string
	full  bool
	since time.Time
}

// patience returns how long the answer to an append waits for the file.
func (f *fault) patience() time.Duration {
	if f.full {
		return fullWait
	}
	return fileWait
}

// Failing returns why the file cannot be written now, for people; "" if it can.
func (w *Writer) Failing() string {
	if f := w.failing.Load(); f != nil {
		return f.text
	}
	return ""
}

// Tick notices that a call on the file hangs, and answers the appends that have waited too long
// for a file that fails. One goroutine calls it several times a second: run may be stuck.
func (w *Writer) Tick(now time.Time) {
	w.watch(now)
	w.answerLate(now)
}

// beginWork records that the next work on the file begins.
func (w *Writer) beginWork() { w.busy.Store(int64(time.Since(w.born)) + 1) }

// report sets whether appends may be admitted: nil if they may.
func (w *Writer) report(err error) {
	was := w.failing.Load()
	if err == nil {
		if was != nil {
			w.failing.Store(nil)
			w.log.Info().Msg("protected file works again")
		}
		return
	}
	f := &fault{text: err.Error(), full: vfs.IsFull(err), since: time.Now()}
	if f.full {
		f.text = "no space left on the volume: " + f.text
	}
	if was != nil {
		f.since = was.since
	}
	w.failing.Store(f)
	if was == nil {
		w.files.failed.Store(true)
		w.log.Error().Err(err).Msg("protected file fails; committed appends stay pending")
	}
}

// watch marks a file as failing whose call does not return. What run reports comes after the end
// of the call.
func (w *Writer) watch(now time.Time) {
	at := w.busy.Load()
	if at == 0 || w.failing.Load() != nil {
		return
	}
	// The work under way may take many calls: on a slow filesystem none of them hangs.
	age := min(now.Sub(w.born.Add(time.Duration(at-1))), w.files.term.UnansweredOf(w.name, now))
	if age < hangAfter {
		return
	}
	f := &fault{since: now.Add(-age), text: fmt.Sprintf("protected file %s: the filesystem has not answered a call for more than %v", w.name, hangAfter)}
	if !w.failing.CompareAndSwap(nil, f) {
		return
	}
	if w.busy.Load() != at { // the call returned, and the writer may not report again
		w.failing.CompareAndSwap(f, nil)
		return
	}
	w.files.failed.Store(true)
	w.log.Error().Msg("protected file hangs; committed appends stay pending")
}

// answerLate answers the appends that wait too long for a file that fails: they are
// committed, and not in the file yet. They stay pending.
func (w *Writer) answerLate(now time.Time) {
	f := w.failing.Load()
	if f == nil || !w.Pending() {
		return
	}
	for _, k := range w.takeDone(func(k *keptAppend) bool { return now.Sub(k.at) >= f.patience() }) {
		k.done(locktable.OutcomeOf(&k.rec).Unwritten(f.text))
	}
}

// DeliverAfter calls done, once, when what these writers were given is written: with out, or with
// StatusUnknown if the term ends first. For a file that is only slow it waits until it is written,
// for one that fails a bounded time, and then done gets what is known. inFile is set if out
// promises that bytes are in the file: of a repeated append, or of a read, whose out names no
// client. Otherwise out is a grant.
func DeliverAfter(writers []*Writer, inFile bool, out locktable.Outcome, done func(locktable.Outcome)) {
	x := &delayed{out: out, inFile: inFile, done: done, since: time.Now()}
	x.mu.left = slices.Clone(writers) // several answers share them
	if x.examine() {
		return
	}
	for _, w := range writers {
		w.put(job{done: func(err error) { x.pass(w, err) }})
	}
}

// delayed is an answer that waits for writes under way. Only what is in mu changes: the writers
// and the timer change it.
type delayed struct {
	out    locktable.Outcome
	inFile bool
	done   func(locktable.Outcome)
	since  time.Time
	mu     struct {
		sync.Mutex
		delivered bool
		left      []*Writer // whose writes are not done
		status    cluster.Status
		reason    string
	}
}

// pass records that a file's writes are done, or never will be.
func (x *delayed) pass(w *Writer, err error) {
	x.mu.Lock()
	x.mu.left = slices.DeleteFunc(x.mu.left, func(o *Writer) bool { return o == w })
	switch {
	case errors.Is(err, volume.ErrForeign):
		if x.inFile && x.mu.status == cluster.StatusNone {
			x.mu.status, x.mu.reason = cluster.StatusFileQuarantined, err.Error()
		}
	case err != nil:
		x.mu.status = cluster.StatusUnknown
	}
	x.deliver(len(x.mu.left) == 0)
}

// examine delivers the answer if all that it still waits for are files that have failed for long.
// It reports whether it did.
func (x *delayed) examine() bool {
	x.mu.Lock()
	now := time.Now()
	why, late := "", true
	for _, w := range x.mu.left {
		f := w.failing.Load()
		if late = f != nil && (now.Sub(x.since) >= x.patience(f) || now.Sub(f.since) >= x.patience(f)); !late {
			break
		}
		why = f.text
	}
	if late && x.mu.reason == "" {
		x.mu.reason = why
	}
	if !late && !x.mu.delivered {
		time.AfterFunc(max(lateLook, fullWait-now.Sub(x.since)), func() { x.examine() })
	}
	return x.deliver(late)
}

// patience is how long this answer waits for a file that fails.
func (x *delayed) patience(f *fault) time.Duration {
	if x.inFile {
		return f.patience()
	}
	return fileWait // a grant that passes an append is worse than one that comes late
}

// deliver delivers the answer if now is set and it was not delivered. It is called with mu held
// and unlocks it. It reports whether it delivered.
func (x *delayed) deliver(now bool) bool {
	out, pending := x.out, len(x.mu.left) > 0
	now = now && !x.mu.delivered
	x.mu.delivered = x.mu.delivered || now
	status, reason := x.mu.status, x.mu.reason
	x.mu.Unlock()
	switch {
	case !now:
		return false
	case status == cluster.StatusUnknown:
		out = serving.Unknown()
	case status == cluster.StatusFileQuarantined:
		out = out.Quarantined(reason)
	case pending && x.inFile && out.LSN != 0 && out.Client != "":
		out = out.Unwritten(reason)
	case pending && x.inFile: // a read of the file
		out = locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: reason, File: out.File}
	case pending:
		out.Message = "appends to a file of this lock that were committed before are not in it yet, and it takes no more until it works: " + reason
	}
	x.done(out)
	return true
}
