// SPDX-License-Identifier: Apache-2.0

// Package protected writes the protected files of a term. Each file in use has one Writer: it
// verifies the file before an append to it is admitted, writes committed appends at their logged
// offsets, and keeps every append until the file has it durably.
//
// An error of one file concerns that file only: its appends stay pending, and the writer tries
// again. A file that was changed from outside is foreign: nothing is written to it any more.
//
// The lock of a Writer may be taken while that of Files is held. Neither is held during a call to
// the volume or to the host.
package protected

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

const (
	// syncWait bounds how long Sync waits for all files.
	syncWait = 2 * time.Second
	// maxTrouble bounds how many files Trouble names.
	maxTrouble = 3
)

// Host is what decides about the files: the core loop of the term. Its methods are called from any
// goroutine.
type Host interface {
	// Check checks the fence. It returns an error if the term has ended or ends by it.
	Check() error
	// Verified takes the result of a Writer.Verify. It must not block.
	Verified(*Verification)
	// Foreign takes the report that a bound file is foreign, and why. It must not block.
	Foreign(name cluster.FileName, why error)
}

// Files are the writers of one term. All methods are safe for use by several goroutines; the
// fields above failed do not change.
type Files struct {
	host Host
	term *volume.Term
	log  zerolog.Logger
	// failed is set when a file could not be written, once in the term.
	failed atomic.Bool
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		writers map[cluster.FileName]*Writer // the newest of each file that were not stopped
	}
}

// New returns the files of a term, none of which is in use.
func New(host Host, term *volume.Term, log zerolog.Logger) *Files {
	f := &Files{host: host, term: term, log: log}
	f.mu.writers = map[cluster.FileName]*Writer{}
	return f
}

// Start returns a new writer of a file, which runs until it is stopped or the term ends. redo are
// committed appends that the file may lack, in order of their offsets.
func (f *Files) Start(name cluster.FileName, state locktable.FileState, redo []locktable.Record) *Writer {
	w := &Writer{
		files: f, name: name, state: state,
		log:  f.log.With().Str("file", string(name)).Logger(),
		wake: wake.NewSignal(), stop: make(chan struct{}), retry: firstRetry, born: time.Now(),
	}
	if state.Quarantined {
		w.foreign = fmt.Errorf("%w: %s", volume.ErrForeign, state.Reason)
	}
	for _, rec := range redo {
		w.mu.kept = append(w.mu.kept, keptAppend{rec: rec, settled: state.Quarantined})
		if !state.Quarantined {
			w.pending.Add(1)
		}
	}
	f.mu.Lock()
	f.mu.writers[name] = w
	f.mu.Unlock()
	f.wg.Go(w.run)
	return w
}

// Stop ends a writer that is not needed any more. It is called once for a writer.
func (f *Files) Stop(w *Writer) {
	f.mu.Lock()
	if f.mu.writers[w.name] == w {
		delete(f.mu.writers, w.name)
	}
	f.mu.Unlock()
	close(w.stop)
}

// Wait waits until every writer has ended. No Start may follow.
func (f *Files) Wait() { f.wg.Wait() }

// Kept returns the appends up to lsn that the files may lack. A checkpoint has to carry them.
func (f *Files) Kept(lsn cluster.LSN) (recs []locktable.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.mu.writers {
		w.mu.Lock()
		for i := range w.mu.kept {
			if k := &w.mu.kept[i]; k.rec.LSN <= lsn {
				recs = append(recs, k.rec)
			}
		}
		w.mu.Unlock()
	}
	return recs
}

// PendingBytes returns the size of the appends that the files may lack.
func (f *Files) PendingBytes() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.mu.writers {
		w.mu.Lock()
		for i := range w.mu.kept {
			n += w.mu.kept[i].rec.Length
		}
		w.mu.Unlock()
	}
	return n
}

// Sync has every writer make its file durable. It waits until all have tried, ctx ends, or 2 s
// are over.
func (f *Files) Sync(ctx context.Context) {
	f.ask(ctx, syncWait, true)
}

// Drain waits until the appends under way are in their files, or for the limit.
func (f *Files) Drain(limit time.Duration) {
	f.ask(context.Background(), limit, false)
}

// ask gives every writer a job and waits until all have done it, ctx ends, or the limit is over.
func (f *Files) ask(ctx context.Context, limit time.Duration, sync bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f.mu.Lock()
	n := len(f.mu.writers)
	done := make(chan error, n)
	for _, w := range f.mu.writers {
		w.put(job{sync: sync, done: func(err error) { done <- err }})
	}
	f.mu.Unlock()
	for range n {
		select {
		case <-ctx.Done():
			return
		case <-done:
		}
	}
}

// Trouble returns a message for each file that cannot be written now, nil if all can. It names a
// few and counts the others. It visits the files only if one has failed in this term.
func (f *Files) Trouble() (all []string) {
	if !f.failed.Load() {
		return nil
	}
	why := map[cluster.FileName]string{}
	f.mu.Lock()
	for name, w := range f.mu.writers {
		if text := w.Failing(); text != "" {
			why[name] = text
		}
	}
	f.mu.Unlock()
	names := slices.Sorted(maps.Keys(why))
	for _, name := range names[:min(len(names), maxTrouble)] {
		all = append(all, "appends wait: "+why[name])
	}
	if more := len(names) - maxTrouble; more > 0 {
		all = append(all, fmt.Sprintf("appends to %d more files wait", more))
	}
	return all
}
