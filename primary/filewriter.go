// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// syncAfter is how long written appends wait for an fdatasync when nothing else asks for one.
	syncAfter = time.Second
	// syncBytes of unsynced appends ask for an fdatasync at once.
	syncBytes = 4 << 20
	// writeBytes bounds one coalesced write.
	writeBytes = 1 << 20
	// firstRetry and lastRetry bound the back-off after a file's error, fullRetry that of
	// one for which there is no space.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	fullRetry  = 500 * time.Millisecond
)

// fileWriter is the one writer of a protected file. Its goroutine runs write.
//
// Committed appends stay in kept until they are known durable in the file. After
// any error the descriptor is closed, and the file is opened, verified and
// written again from the first one kept: the same path that a takeover's redo takes. An
// error of one file concerns that file only.
type fileWriter struct {
	p    *Primary
	name cluster.FileName
	log  zerolog.Logger
	wake chan struct{} // capacity 1
	stop chan struct{} // closed when the file is no longer needed

	// pending counts appends that were decided and not yet answered: the core
	// loop adds, the writer subtracts.
	pending atomic.Int32
	// condemned says that the file was found to be foreign. It is set before what is pending is
	// told so; the core loop hears of it later.
	condemned atomic.Bool
	// failing says why the file cannot be written now; nil when it can.
	failing atomic.Pointer[fault]
	// busy is when the work on the file that is under way began, one or more calls, in
	// nanoseconds since born and one; 0 while there is none.
	busy atomic.Int64
	born time.Time

	mu struct {
		sync.Mutex
		jobs []fileJob
		// kept are appends not known to be durable in the file, in order of offset.
		kept  []keptAppend
		ended bool // jobs are refused
	}

	// Owned by write.
	file     *volume.ProtectedFile // nil when it has to be opened and verified
	state    locktable.FileState   // as of the last verification
	written  int                   // of kept: a prefix
	unsynced int                   // bytes of it
	end      int64                 // of what was written
	foreign  error                 // quarantined: nothing is written any more
	answers  []keptAppend          // scratch
	retry    time.Duration
	// Between which times the file looked foreign, in a row; zero since it did not.
	doubted, doubtedLast time.Time
}

// keptAppend is an append that may have to be written again.
type keptAppend struct {
	rec  locktable.Record
	at   time.Time               // when it was committed
	done func(locktable.Outcome) // nil once answered or where nobody asks
	told bool                    // counted off pending
}

// verifyJob asks for a verification before something is admitted.
type verifyJob struct {
	op    locktable.Op
	state locktable.FileState
	bound bool
}

// fileJob is one thing for the writer to do, besides what stands in kept. It is
// done once everything kept before it was written.
type fileJob struct {
	verify *verifyJob
	word   func(verified)
	// pass is called when all earlier appends are written, with ErrForeign when
	// they never will be, or with errEnded when the reign ended first.
	pass func(error)
	// synced is called after an attempt to sync.
	synced func(error)
}

func (p *Primary) newWriter(name cluster.FileName, state locktable.FileState, redo []locktable.Record) *fileWriter {
	w := &fileWriter{
		p: p, name: name, state: state, end: state.End,
		log:  p.opt.Log.With().Str("file", string(name)).Logger(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), retry: firstRetry, born: time.Now(),
	}
	for _, rec := range redo {
		w.mu.kept = append(w.mu.kept, keptAppend{rec: rec})
		w.pending.Add(1)
	}
	if state.Quarantined {
		w.foreign = fmt.Errorf("%w: %s", volume.ErrForeign, state.Reason)
		w.pending.Store(0)
		for i := range w.mu.kept {
			w.mu.kept[i].told = true
		}
	}
	return w
}

func (p *Primary) startWriter(w *fileWriter) {
	p.files.Lock()
	p.files.writers[w.name] = w
	p.files.Unlock()
	p.wg.Go(w.write)
}

func (p *Primary) stopWriter(w *fileWriter) {
	p.files.Lock()
	if p.files.writers[w.name] == w {
		delete(p.files.writers, w.name)
	}
	p.files.Unlock()
	close(w.stop)
}

// append takes over an append that is committed now. Called in log order.
func (w *fileWriter) append(j appendJob, now time.Time) {
	w.mu.Lock()
	ended := w.mu.ended
	if !ended {
		w.mu.kept = append(w.mu.kept, keptAppend{rec: j.rec, at: now, done: j.done})
	}
	w.mu.Unlock()
	if ended {
		(&call{done: j.done}).answerUnknown()
		return
	}
	poke(w.wake)
}

func (w *fileWriter) put(j fileJob) {
	w.mu.Lock()
	ended := w.mu.ended
	if !ended {
		w.mu.jobs = append(w.mu.jobs, j)
	}
	w.mu.Unlock()
	if ended {
		w.refuse(j)
		return
	}
	poke(w.wake)
}

var errEnded = errors.New("the writer of this file has ended")

func (w *fileWriter) refuse(j fileJob) {
	switch {
	case j.verify != nil:
		j.word(verified{writer: w, op: j.verify.op, err: errEnded})
	case j.pass != nil:
		j.pass(errEnded)
	case j.synced != nil:
		j.synced(errEnded)
	}
}

func (w *fileWriter) verify(v verifyJob, word func(verified)) {
	w.put(fileJob{verify: &v, word: word})
}

func (w *fileWriter) barrier(pass func(error)) { w.put(fileJob{pass: pass}) }

func (w *fileWriter) sync(synced func(error)) { w.put(fileJob{synced: synced}) }

// clean says that nothing is kept.
func (w *fileWriter) clean() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.kept) == 0 && len(w.mu.jobs) == 0
}

// keptUpTo copies the appends up to lsn that the file may lack.
func (w *fileWriter) keptUpTo(lsn cluster.LSN) []locktable.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	var recs []locktable.Record
	for i := range w.mu.kept {
		if w.mu.kept[i].rec.LSN <= lsn {
			recs = append(recs, w.mu.kept[i].rec)
		}
	}
	return recs
}

// take looks at what is kept and takes the jobs that came before now.
func (w *fileWriter) take() (kept []keptAppend, jobs []fileJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs, w.mu.jobs = w.mu.jobs, nil
	return w.mu.kept, jobs
}

// write is the writer's goroutine.
func (w *fileWriter) write() {
	defer w.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var jobs []fileJob // waiting for a file that fails
	for {
		kept, more := w.take()
		jobs = append(jobs, more...)
		err := w.flush(kept)
		if err != nil && w.p.reign.Err() != nil {
			w.refuseAll(jobs)
			return
		}
		if err == nil && w.foreign == nil && w.unsynced >= syncBytes {
			err = w.datasync()
		}
		jobs = w.work(jobs, err)
		w.busy.Store(0) // before it is told that the file works
		wait := w.nextWait(err, len(kept))
		timer.Reset(wait)
		select {
		case <-w.p.reign.Done():
			w.refuseAll(jobs)
			return
		case <-w.stop:
			w.refuseAll(jobs)
			return
		case <-w.wake:
		case <-timer.C:
			if err == nil && w.foreign == nil && w.written > 0 {
				err := w.datasync()
				w.busy.Store(0)
				w.report(err)
			}
		}
	}
}

// nextWait is how long the writer may sleep: until its retry, its sync, or for ever.
func (w *fileWriter) nextWait(err error, kept int) time.Duration {
	w.report(err)
	switch {
	case err != nil:
		most := lastRetry
		if volume.IsFull(err) {
			most = fullRetry
		}
		wait := min(w.retry, most)
		w.retry = min(2*w.retry, most)
		return wait
	case kept > 0 && w.foreign == nil:
		w.retry = firstRetry
		return syncAfter
	default:
		w.retry = firstRetry
		return time.Hour
	}
}

// work does the jobs that the state of the file allows and returns the others.
func (w *fileWriter) work(jobs []fileJob, err error) (left []fileJob) {
	for _, j := range jobs {
		w.begin()
		switch {
		case j.verify != nil:
			v := verified{writer: w, op: j.verify.op, err: err}
			if err == nil {
				v.facts, v.err = w.look(*j.verify)
			}
			j.word(v)
		case j.synced != nil:
			if err == nil && w.foreign == nil {
				err = w.datasync()
			}
			j.synced(err)
		case err != nil:
			left = append(left, j) // a barrier waits until the file works again
		default:
			j.pass(w.foreign)
		}
	}
	return left
}

// flush writes everything kept that is not written, and answers.
func (w *fileWriter) flush(kept []keptAppend) error {
	if w.foreign != nil {
		w.tellForeign(kept)
		return nil
	}
	if w.written == len(kept) {
		return nil
	}
	w.begin()
	if w.file == nil {
		if err := w.reopen(kept); err != nil {
			return w.failed(err, kept)
		}
	}
	for w.written < len(kept) {
		n, err := w.writeRun(kept[w.written:])
		if err != nil {
			return w.failed(err, kept)
		}
		w.begin()
		w.report(nil) // first: who hears that it was written may ask for more at once
		w.answerKept(w.written, w.written+n, locktable.OutcomeOf)
		w.written += n
	}
	return nil
}

// writeRun writes the next appends in one piece, at their logged offset.
func (w *fileWriter) writeRun(kept []keptAppend) (n int, err error) {
	data := kept[0].rec.Data
	n = 1
	if len(kept) > 1 {
		data = append([]byte(nil), data...)
		for n < len(kept) && len(data)+len(kept[n].rec.Data) <= writeBytes {
			data = append(data, kept[n].rec.Data...)
			n++
		}
	}
	last := &kept[len(kept)-1].rec
	if err := w.fits(kept[:n], last.Offset+int64(len(last.Data))); err != nil {
		return 0, err
	}
	if err := w.file.WriteAt(data, kept[0].rec.Offset); err != nil {
		return 0, err
	}
	w.end = kept[0].rec.Offset + int64(len(data))
	w.unsynced += len(data)
	w.doubtedLast = time.Time{}
	return n, nil
}

// tellForeign answers everything kept: committed, but not in the file.
func (w *fileWriter) tellForeign(kept []keptAppend) {
	w.answerKept(0, len(kept), func(rec *locktable.Record) locktable.Outcome {
		return locktable.OutcomeOf(rec).Quarantined(w.foreign.Error())
	})
}

// answerKept answers the appends at [from, to) of kept that nobody has answered.
func (w *fileWriter) answerKept(from, to int, outcome func(*locktable.Record) locktable.Outcome) {
	w.mu.Lock()
	w.answers = append(w.answers[:0], w.mu.kept[from:to]...)
	for i := range w.mu.kept[from:to] {
		k := &w.mu.kept[from+i]
		k.done, k.told = nil, true
	}
	w.mu.Unlock()
	for i := range w.answers {
		k := &w.answers[i]
		if !k.told {
			w.pending.Add(-1)
		}
		if k.done != nil {
			k.done(outcome(&k.rec))
		}
	}
	clear(w.answers)
}

// failed takes an error of the file: it closes the descriptor, so that the next try
// verifies and writes everything kept again. A foreign file is quarantined, if this reign may still say so.
func (w *fileWriter) failed(err error, kept []keptAppend) error {
	w.closeFile()
	err = w.suspect(err)
	if !errors.Is(err, volume.ErrForeign) {
		return err
	}
	// The file may be foreign because a later reign has written to it.
	if checkErr := w.p.check(); checkErr != nil {
		return checkErr
	}
	w.foreign = err
	w.condemned.Store(true)
	w.tellForeign(kept)
	w.p.queue.put(&call{kind: callQuarantine, req: &locktable.Request{File: w.name, Reason: err.Error()}})
	w.log.Error().Err(err).Msg("protected file quarantined")
	return nil
}

func (w *fileWriter) closeFile() {
	if w.file == nil {
		return
	}
	if err := w.file.Close(); err != nil {
		w.log.Warn().Err(err).Msg("close protected file")
	}
	w.file, w.written, w.unsynced = nil, 0, 0
}

// datasync makes what is written durable and forgets it.
func (w *fileWriter) datasync() error {
	if w.file == nil || w.written == 0 {
		return nil
	}
	w.begin()
	if err := w.file.Datasync(); err != nil {
		// The kernel may call these pages clean now: everything since the last
		// good sync is written again through a new descriptor.
		w.closeFile()
		return err
	}
	w.mu.Lock()
	w.mu.kept = append([]keptAppend(nil), w.mu.kept[w.written:]...)
	w.mu.Unlock()
	w.written, w.unsynced = 0, 0
	return nil
}

// finish answers what is left when the reign or the need for the file ends.
func (w *fileWriter) finish() {
	w.mu.Lock()
	w.mu.ended = true
	jobs := w.mu.jobs
	w.mu.jobs = nil
	w.mu.Unlock()
	for _, k := range w.takeDone(func(*keptAppend) bool { return true }) {
		(&call{done: k.done}).answerUnknown()
	}
	w.refuseAll(jobs)
	w.closeFile()
}

func (w *fileWriter) refuseAll(jobs []fileJob) {
	for _, j := range jobs {
		w.refuse(j)
	}
}
