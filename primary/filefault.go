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

// fault is why a protected file cannot be written now, and since when.
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

// begin records that the next work on the file begins.
func (w *fileWriter) begin() { w.busy.Store(int64(time.Since(w.born)) + 1) }

// report sets whether appends may be admitted: nil if they may.
func (w *fileWriter) report(err error) {
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
		w.p.filesFailed.Store(true)
		w.log.Error().Err(err).Msg("protected file fails; committed appends stay pending")
	}
}

// watch marks a file as failing whose call does not return. The core loop calls it, because the
// writer is in that call. What the writer reports comes after the end of the call.
func (w *fileWriter) watch(now time.Time) {
	at := w.busy.Load()
	if at == 0 || w.failing.Load() != nil {
		return
	}
	// The work under way may take many calls: on a slow filesystem none of them hangs.
	age := min(now.Sub(w.born.Add(time.Duration(at-1))), w.p.term.UnansweredOf(w.name, now))
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
	w.p.filesFailed.Store(true)
	w.log.Error().Msg("protected file hangs; committed appends stay pending")
}

// takeDone removes and returns the callbacks of the kept appends for which of reports true.
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
// bounded time for files that fail. For a file that is only slow it waits until it is written.
type delayed struct {
	answer
	since time.Time
	mu    struct {
		sync.Mutex
		delivered bool
		left      []*fileWriter // whose writes are not done
		status    cluster.Status
		reason    string
	}
}

// delay delivers an answer after the writes that it has to wait for.
func (a *answer) delay() {
	x := &delayed{answer: *a, since: time.Now()}
	x.mu.left = slices.Clone(a.after) // the batch is used again
	if x.look(); x.mu.delivered {
		return
	}
	for _, w := range a.after {
		w.barrier(func(err error) { x.pass(w, err) })
	}
}

// pass records that a file's writes are done, or never will be.
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

// look delivers the answer if all that it still waits for are files that have failed for long.
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
	if !late && !x.mu.delivered {
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

// tell delivers the answer if now is set and it was not delivered. It is called with mu held
// and unlocks it.
func (x *delayed) tell(now bool) {
	out, pending := x.out, len(x.mu.left) > 0
	tell := now && !x.mu.delivered
	x.mu.delivered = x.mu.delivered || tell
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

// maxTrouble bounds how many files FileTrouble names.
const maxTrouble = 3

// FileTrouble returns a message for each protected file that cannot be written now, nil if all
// can. It is called often, so it visits the files only if one has failed in this term.
func (p *Primary) FileTrouble() (all []string) {
	if !p.filesFailed.Load() {
		return nil
	}
	var names []cluster.FileName
	why := map[cluster.FileName]string{}
	p.files.Lock()
	for name, w := range p.files.writers {
		if f := w.failing.Load(); f != nil {
			names, why[name] = append(names, name), f.text
		}
	}
	p.files.Unlock()
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxTrouble)] {
		all = append(all, "appends wait: "+why[name])
	}
	if more := len(names) - maxTrouble; more > 0 {
		all = append(all, fmt.Sprintf("appends to %d more files wait", more))
	}
	return all
}
