// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
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
// Committed appends stay in kept until they are known to be durable in the file. After any
// error the descriptor is closed, and the file is opened, verified and written again from the
// first one kept: the path that the redo of a takeover takes too. An error of one file concerns
// that file only.
type fileWriter struct {
	p    *Primary
	name cluster.FileName
	log  zerolog.Logger
	wake chan struct{} // capacity 1
	stop chan struct{} // closed when the file is no longer needed

	// pending counts appends that were decided and not yet answered: the core
	// loop adds, the writer subtracts.
	pending atomic.Int32
	// condemned is set when the file was found to be foreign, before pending appends are
	// answered so; the core loop learns of it later.
	condemned atomic.Bool
	// failing is why the file cannot be written now; nil when it can.
	failing atomic.Pointer[fault]
	// busy is when the work on the file that is under way began, one or more calls, in
	// nanoseconds since born plus one; 0 while there is none.
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
	foreign  error                 // quarantined: nothing is written any more
	answers  []keptAppend          // scratch
	retry    time.Duration
	// The first and the last time that the file looked foreign in a row; doubtedLast is zero
	// when it does not.
	doubted, doubtedLast time.Time
}

// keptAppend is an append that may have to be written again.
type keptAppend struct {
	rec     locktable.Record
	at      time.Time               // when it was committed
	done    func(locktable.Outcome) // nil once answered or if no caller waits
	settled bool                    // counted off pending
}

// verifyJob asks for a verification before something is admitted.
type verifyJob struct {
	op    locktable.Op
	state locktable.FileState
	bound bool
}

// fileJob is one job for the writer, besides writing what is kept. It is done once everything
// kept before it was written.
type fileJob struct {
	verify   *verifyJob
	verified func(verifyResult)
	// pass is called with nil when all earlier appends are written, with ErrForeign when
	// they never will be, or with errEnded when the term ended first.
	pass func(error)
	// synced is called after an attempt to sync.
	synced func(error)
}

func (p *Primary) newWriter(name cluster.FileName, state locktable.FileState, redo []locktable.Record) *fileWriter {
	w := &fileWriter{
		p: p, name: name, state: state,
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
			w.mu.kept[i].settled = true
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
	notify(w.wake)
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
	notify(w.wake)
}

var errEnded = errors.New("the writer of this file has ended")

func (w *fileWriter) refuse(j fileJob) {
	switch {
	case j.verify != nil:
		j.verified(verifyResult{writer: w, op: j.verify.op, err: errEnded})
	case j.pass != nil:
		j.pass(errEnded)
	case j.synced != nil:
		j.synced(errEnded)
	}
}

func (w *fileWriter) verify(v verifyJob, verified func(verifyResult)) {
	w.put(fileJob{verify: &v, verified: verified})
}

func (w *fileWriter) barrier(pass func(error)) { w.put(fileJob{pass: pass}) }

func (w *fileWriter) sync(synced func(error)) { w.put(fileJob{synced: synced}) }

// clean reports whether nothing is kept.
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

// take returns what is kept, and removes and returns the jobs that came so far.
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
		if err != nil && w.p.term.Err() != nil {
			w.refuseAll(jobs)
			return
		}
		if err == nil && w.foreign == nil && w.unsynced >= syncBytes {
			err = w.datasync()
		}
		jobs = w.work(jobs, err)
		w.busy.Store(0) // before the report that the file works
		wait := w.nextWait(err, len(kept))
		timer.Reset(wait)
		select {
		case <-w.p.term.Done():
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

// nextWait returns how long the writer may sleep: until its retry, its sync, or for an hour.
func (w *fileWriter) nextWait(err error, kept int) time.Duration {
	w.report(err)
	switch {
	case err != nil:
		most := lastRetry
		if vfs.IsFull(err) {
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
			v := verifyResult{writer: w, op: j.verify.op, err: err}
			if err == nil {
				v.facts, v.err = w.readFacts(*j.verify)
			}
			j.verified(v)
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
		if err := w.reopen(); err != nil {
			return w.failed(err, kept)
		}
	}
	for w.written < len(kept) {
		n, err := w.writeRun(kept[w.written:])
		if err != nil {
			return w.failed(err, kept)
		}
		w.begin()
		w.report(nil) // first: a client whose append is answered may append more at once
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
	first, last := &kept[0].rec, &kept[len(kept)-1].rec
	if err := w.matchesAppends(data, first.Offset, last.Offset+int64(len(last.Data))); err != nil {
		return 0, err
	}
	if err := w.file.WriteAt(data, first.Offset); err != nil {
		return 0, err
	}
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

// answerKept answers the appends at [from, to) of kept that were not answered yet.
func (w *fileWriter) answerKept(from, to int, outcome func(*locktable.Record) locktable.Outcome) {
	w.mu.Lock()
	w.answers = append(w.answers[:0], w.mu.kept[from:to]...)
	for i := range w.mu.kept[from:to] {
		k := &w.mu.kept[from+i]
		k.done, k.settled = nil, true
	}
	w.mu.Unlock()
	for i := range w.answers {
		k := &w.answers[i]
		if !k.settled {
			w.pending.Add(-1)
		}
		if k.done != nil {
			k.done(outcome(&k.rec))
		}
	}
	clear(w.answers)
}

// failed handles an error of the file: it closes the descriptor, so that the next try verifies
// and writes everything kept again. A foreign file is quarantined if this term has not ended.
func (w *fileWriter) failed(err error, kept []keptAppend) error {
	w.closeFile()
	err = w.classifyMismatch(err)
	if !errors.Is(err, volume.ErrForeign) {
		return err
	}
	// The file may be foreign because a later term has written to it.
	if checkErr := w.p.check(); checkErr != nil {
		return checkErr
	}
	w.foreign = err
	w.condemned.Store(true)
	// Both come first: a client that hears of the quarantine may ask for what mends it at once.
	w.report(nil)
	w.p.queue.put(&call{kind: callQuarantine, req: &locktable.Request{File: w.name, Reason: err.Error()}})
	w.tellForeign(kept)
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

// finish answers UNKNOWN to what is left when the term ends or the file is needed no more.
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

// SyncFiles has every writer make its file durable, and waits a bounded time: what a file could
// not take goes into the checkpoint.
func (p *Primary) SyncFiles(ctx context.Context) {
	p.askWriters(ctx, fileSyncWait, (*fileWriter).sync)
}

// drain waits a bounded time for the appends under way, so that they are answered before the
// term ends by Resign.
func (p *Primary) drain(limit time.Duration) {
	p.askWriters(context.Background(), limit, (*fileWriter).barrier)
}

// askWriters gives every writer a job and waits until all have done it or the time is over.
func (p *Primary) askWriters(ctx context.Context, limit time.Duration, ask func(*fileWriter, func(error))) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.files.Lock()
	n := len(p.files.writers)
	done := make(chan error, n)
	for _, w := range p.files.writers {
		ask(w, func(err error) { done <- err })
	}
	p.files.Unlock()
	for range n {
		select {
		case <-ctx.Done():
			return
		case <-done:
		}
	}
}
