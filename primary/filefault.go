// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// hangAfter is how long one call of a file may take before the file counts as failing.
	hangAfter = 3 * time.Second
	// fileWait is how long an answer waits for a file that fails, fullWait where it fails for
	// want of space, which seldom comes back by itself.
	fileWait = 5 * time.Second
	fullWait = 1800 * time.Millisecond
	// lateLook is how often an answer that has waited for fullWait looks whether it goes on.
	lateLook = 200 * time.Millisecond
)

// fault says why a protected file cannot be written now, and since when.
type fault struct {
	text  string
	full  bool
	since time.Time
}

// patience is how long the answer to an append waits for the file.
func (f *fault) patience() time.Duration {
	if f.full {
		return fullWait
	}
	return fileWait
}

// begin notes that the next work on the file begins.
func (w *fileWriter) begin() { w.busy.Store(int64(time.Since(w.born)) + 1) }

// report tells the core loop whether appends may be admitted.
func (w *fileWriter) report(err error) {
	was := w.failing.Load()
	if err == nil {
		if was != nil {
			w.failing.Store(nil)
			w.log.Info().Msg("protected file works again")
		}
		return
	}
	f := &fault{text: err.Error(), full: volume.IsFull(err), since: time.Now()}
	if f.full {
		f.text = "no space left on the volume: " + f.text
	}
	if was != nil {
		f.since = was.since
	}
	w.failing.Store(f)
	if was == nil {
		w.p.filesFailed.Store(true)
		w.log.Error().Err(err).Msg("protected file fails; committed appends stay pending")
	}
}

// watch has a file fail whose call does not come back. It is called by the core loop: the
// writer is in the call. What the writer tells comes behind the end of the call.
func (w *fileWriter) watch(now time.Time) {
	at := w.busy.Load()
	if at == 0 || w.failing.Load() != nil {
		return
	}
	// What the writer is at may take many calls: on a slow filesystem none of them hangs.
	age := min(now.Sub(w.born.Add(time.Duration(at-1))), w.p.reign.UnansweredOf(w.name, now))
	if age < hangAfter {
		return
	}
	f := &fault{since: now.Add(-age), text: fmt.Sprintf("protected file %s: the filesystem has not answered a call for more than %v", w.name, hangAfter)}
	if !w.failing.CompareAndSwap(nil, f) {
		return
	}
	if w.busy.Load() != at { // it came back: nobody else would take this back
		w.failing.CompareAndSwap(f, nil)
		return
	}
	w.p.filesFailed.Store(true)
	w.log.Error().Msg("protected file hangs; committed appends stay pending")
}

// takeDone takes out those who wait for the answer to certain appends.
func (w *fileWriter) takeDone(of func(*keptAppend) bool) (taken []keptAppend) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.mu.kept {
		if k := &w.mu.kept[i]; k.done != nil && of(k) {
			taken = append(taken, *k)
			k.done = nil
		}
	}
	return taken
}

// tellLate answers the appends that wait too long for a file that fails: they are
// committed, and not in the file yet. They stay pending.
func (w *fileWriter) tellLate(now time.Time) {
	f := w.failing.Load()
	if f == nil || w.pending.Load() == 0 {
		return
	}
	for _, k := range w.takeDone(func(k *keptAppend) bool { return now.Sub(k.at) >= f.patience() }) {
		k.done(locktable.OutcomeOf(&k.rec).Unwritten(f.text))
	}
}

// delayed is an answer that waits for writes under way: until they are done, or for a
// bounded time for files that fail. A file that is only slow is waited for.
type delayed struct {
	answer
	since time.Time
	mu    struct {
		sync.Mutex
		told   bool
		left   []*fileWriter // whose writes are not done
		status cluster.Status
		reason string
	}
}

// delay has an answer leave behind the writes that it has to wait for.
func (a *answer) delay() {
	x := &delayed{answer: *a, since: time.Now()}
	x.mu.left = slices.Clone(a.after) // the batch is used again
	if x.look(); x.mu.told {
		return
	}
	for _, w := range a.after {
		w.barrier(func(err error) { x.pass(w, err) })
	}
}

// pass notes that a file's writes are done, or never will be.
func (x *delayed) pass(w *fileWriter, err error) {
	x.mu.Lock()
	x.mu.left = slices.DeleteFunc(x.mu.left, func(o *fileWriter) bool { return o == w })
	switch {
	case errors.Is(err, volume.ErrForeign):
		if x.inFile && x.mu.status == cluster.StatusNone {
			x.mu.status, x.mu.reason = cluster.StatusFileQuarantined, err.Error()
		}
	case err != nil:
		x.mu.status = cluster.StatusUnknown
	}
	x.tell(len(x.mu.left) == 0)
}

// look tells the answer when all that it still waits for are files that have failed for long.
func (x *delayed) look() {
	x.mu.Lock()
	now := time.Now()
	why, late := "", true
	for _, w := range x.mu.left {
		f := w.failing.Load()
		if late = f != nil && now.Sub(x.since) >= x.patience(f) || f != nil && now.Sub(f.since) >= x.patience(f); !late {
			break
		}
		why = f.text
	}
	if late && x.mu.reason == "" {
		x.mu.reason = why
	}
	if !late && !x.mu.told {
		time.AfterFunc(max(lateLook, fullWait-now.Sub(x.since)), x.look)
	}
	x.tell(late)
}

// patience is how long this answer waits for a file that fails.
func (x *delayed) patience(f *fault) time.Duration {
	if x.inFile {
		return f.patience()
	}
	return fileWait // a grant that passes an append is worse than one that comes late
}

// tell gives the answer, if that is to be and was not. It is called with mu held and gives
// it back.
func (x *delayed) tell(now bool) {
	out, pending := x.out, len(x.mu.left) > 0
	tell := now && !x.mu.told
	x.mu.told = x.mu.told || tell
	status, reason := x.mu.status, x.mu.reason
	x.mu.Unlock()
	switch {
	case !tell:
		return
	case status == cluster.StatusUnknown:
		out = unknown()
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
}
