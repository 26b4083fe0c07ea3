// SPDX-License-Identifier: Apache-2.0

package protected

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
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

// Writer is the one writer of a protected file. The exported methods are safe for use by several
// goroutines. The goroutine of run does all that touches the file.
//
// Committed appends stay in kept until they are known to be durable in the file. After any
// error the descriptor is closed, and the file is opened, verified and written again from the
// first one kept: the path that the redo of a takeover takes too.
type Writer struct {
	// Not changed.
	files *Files
	name  cluster.FileName
	log   zerolog.Logger
	wake  wake.Signal
	stop  chan struct{} // closed when the file is no longer needed
	born  time.Time

	// pending counts appends that were decided and not yet answered: Expect adds, run subtracts.
	pending atomic.Int32
	// condemned is set by run when the file was found to be foreign, before pending appends are
	// answered so; the host learns of it later.
	condemned atomic.Bool
	// failing is why the file cannot be written now; nil when it can. Set by run, and by Tick
	// while run is stuck in a call.
	failing atomic.Pointer[fault]
	// busy is when the work on the file that is under way began, one or more calls, in
	// nanoseconds since born plus one; 0 while there is none. Set by run.
	busy atomic.Int64

	mu struct {
		sync.Mutex
		jobs []job
		// kept are appends not known to be durable in the file, in order of offset. Run alone
		// removes.
		kept  []keptAppend
		ended bool // jobs are refused
	}

	// Owned by run.
	waiting  []job                 // taken, and not done while the file fails
	file     *volume.ProtectedFile // nil when it has to be opened and verified
	state    locktable.FileState   // as of the last verification
	written  int                   // of kept: a prefix
	unsynced int                   // bytes of it
	foreign  error                 // wraps ErrForeign: nothing is written any more
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

// job is something for a writer to do besides writing what is kept. It is done once everything
// kept before it was written.
type job struct {
	verify *Verification // nil for other jobs
	sync   bool
	// done is called once: with the result of the verification or of an attempt to sync. For any
	// other job it is called with nil when all earlier appends are written, and with ErrForeign
	// when they never will be. It gets errEnded if the writer ended first.
	done func(error)
}

var errEnded = errors.New("the writer of this file has ended")

// Name returns the name of the file.
func (w *Writer) Name() cluster.FileName { return w.name }

// Expect counts an append that was decided: the file is Pending until it is answered. If it is
// committed, Append follows.
func (w *Writer) Expect() { w.pending.Add(1) }

// Append takes over an append that is committed now. Appends come in the order of the log. done is
// called once: with the outcome when the append is in the file, or will never be, or has waited
// too long for a file that fails, and with StatusUnknown if the writer ended first. It is nil if
// no caller waits.
func (w *Writer) Append(rec *locktable.Record, done func(locktable.Outcome)) {
	w.mu.Lock()
	ended := w.mu.ended
	if !ended { // not by give: its function would cost every append an allocation
		w.mu.kept = append(w.mu.kept, keptAppend{rec: *rec, at: time.Now(), done: done})
	}
	w.mu.Unlock()
	switch {
	case !ended:
		w.wake.Notify()
	case done != nil:
		done(serving.Unknown())
	}
}

// Verify has the file verified after everything that was appended so far, for an operation that
// is to be admitted. state is that of a bound file, otherwise zero. The host gets the result.
func (w *Writer) Verify(op locktable.Op, state locktable.FileState, bound bool) {
	v := &Verification{Writer: w, Op: op, state: state, bound: bound}
	w.put(job{verify: v, done: func(err error) {
		v.Err = err
		w.files.host.Verified(v)
	}})
}

// Pending reports whether appends are decided and not yet answered.
func (w *Writer) Pending() bool { return w.pending.Load() > 0 }

// Unsettled reports whether appends are pending, and where the table does not show the file as
// quarantined (sound) also whether it was found foreign.
func (w *Writer) Unsettled(sound bool) bool {
	return w.Pending() || sound && w.condemned.Load() // in this order: condemned is set first
}

// Clean reports whether every append is durable in the file and no job is left.
func (w *Writer) Clean() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.kept) == 0 && len(w.mu.jobs) == 0
}

// give does add, which gives the writer something, and wakes it. It does nothing and returns false
// if the writer has ended.
func (w *Writer) give(add func()) bool {
	w.mu.Lock()
	ended := w.mu.ended
	if !ended {
		add()
	}
	w.mu.Unlock()
	if !ended {
		w.wake.Notify()
	}
	return !ended
}

func (w *Writer) put(j job) {
	if !w.give(func() { w.mu.jobs = append(w.mu.jobs, j) }) {
		j.done(errEnded)
	}
}

// run is the writer's goroutine.
func (w *Writer) run() {
	defer w.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		kept := w.take()
		err := w.flush(kept)
		if err != nil && w.files.term.Err() != nil {
			return
		}
		if err == nil && w.foreign == nil && w.unsynced >= syncBytes {
			err = w.datasync()
		}
		w.work(err)
		w.busy.Store(0) // before the report that the file works
		w.report(err)
		timer.Reset(w.nextWait(err, len(kept)))
		select {
		case <-w.files.term.Done():
			return
		case <-w.stop:
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

// take returns what is kept, and takes over the jobs that came so far.
func (w *Writer) take() []keptAppend {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.mu.jobs = append(w.waiting, w.mu.jobs...), nil
	return w.mu.kept
}

// nextWait returns how long the writer may sleep: until its retry, its sync, or for an hour.
func (w *Writer) nextWait(err error, kept int) time.Duration {
	if err != nil {
		most := lastRetry
		if vfs.IsFull(err) {
			most = fullRetry
		}
		wait := min(w.retry, most)
		w.retry = min(2*w.retry, most)
		return wait
	}
	w.retry = firstRetry
	if kept > 0 && w.foreign == nil {
		return syncAfter
	}
	return time.Hour
}

// work does the jobs that the state of the file allows; err is the file's error, if any.
func (w *Writer) work(err error) {
	jobs := w.waiting
	w.waiting = nil
	for _, j := range jobs {
		w.beginWork()
		switch {
		case j.verify != nil:
			found := err
			if err == nil {
				j.verify.Facts, found = w.readFacts(j.verify)
			}
			j.done(found)
		case j.sync:
			if err == nil && w.foreign == nil {
				err = w.datasync()
			}
			j.done(err)
		case err != nil:
			w.waiting = append(w.waiting, j) // until the file works again
		default:
			j.done(w.foreign)
		}
	}
}

// flush writes everything kept that is not written, and answers.
func (w *Writer) flush(kept []keptAppend) error {
	if w.foreign != nil {
		w.answerForeign(kept)
		return nil
	}
	if w.written == len(kept) {
		return nil
	}
	w.beginWork()
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
		w.beginWork()
		w.report(nil) // first: a client whose append is answered may append more at once
		w.answerKept(w.written, w.written+n, locktable.OutcomeOf)
		w.written += n
	}
	return nil
}

// writeRun writes the next appends in one piece, at their logged offset.
func (w *Writer) writeRun(kept []keptAppend) (n int, err error) {
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

// answerForeign answers everything kept: committed, but not in the file.
func (w *Writer) answerForeign(kept []keptAppend) {
	w.answerKept(0, len(kept), func(rec *locktable.Record) locktable.Outcome {
		return locktable.OutcomeOf(rec).Quarantined(w.foreign.Error())
	})
}

// answerKept answers the appends at [from, to) of kept that were not answered yet.
func (w *Writer) answerKept(from, to int, outcome func(*locktable.Record) locktable.Outcome) {
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

// takeDone removes and returns the callbacks of the kept appends for which of reports true.
func (w *Writer) takeDone(of func(*keptAppend) bool) (taken []keptAppend) {
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

// failed handles an error of the file: it closes the descriptor, so that the next try verifies
// and writes everything kept again. A foreign file is quarantined if this term has not ended.
func (w *Writer) failed(err error, kept []keptAppend) error {
	w.closeFile()
	err = w.classifyMismatch(err)
	if !errors.Is(err, volume.ErrForeign) {
		return err
	}
	// The file may be foreign because a later term has written to it.
	if checkErr := w.files.host.Check(); checkErr != nil {
		return checkErr
	}
	w.foreign = err
	w.condemned.Store(true)
	// Both come first: a client that hears of the quarantine may ask for what mends it at once.
	w.report(nil)
	w.files.host.Foreign(w.name, err)
	w.answerForeign(kept)
	w.log.Error().Err(err).Msg("protected file quarantined")
	return nil
}

func (w *Writer) closeFile() {
	if w.file == nil {
		return
	}
	if err := w.file.Close(); err != nil {
		w.log.Warn().Err(err).Msg("close protected file")
	}
	w.file, w.written, w.unsynced = nil, 0, 0
}

// datasync makes what is written durable and forgets it.
func (w *Writer) datasync() error {
	if w.file == nil || w.written == 0 {
		return nil
	}
	w.beginWork()
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
func (w *Writer) finish() {
	w.mu.Lock()
	w.mu.ended = true
	jobs := slices.Concat(w.waiting, w.mu.jobs)
	w.mu.jobs = nil
	w.mu.Unlock()
	for _, k := range w.takeDone(func(*keptAppend) bool { return true }) {
		k.done(serving.Unknown())
	}
	for _, j := range jobs {
		j.done(errEnded)
	}
	w.closeFile()
}
