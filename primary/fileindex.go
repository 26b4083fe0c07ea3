// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
)

const (
	// indexEntries are written at once when there are so many: some 64 KiB.
	indexEntries = 4096
	// indexAfter is how long fewer of them wait.
	indexAfter = time.Second
	// indexMost is how many may wait. Further ones are not indexed: the filesystem is too slow.
	indexMost = 1 << 18
	// indexSyncWait bounds how long a checkpoint waits for the index.
	indexSyncWait = 2 * time.Second
)

// indexer passes entries of the index from the commit path to its own goroutine. It takes
// records that were committed and checked, and those that the takeover adopted: the index of
// the previous term may lack the last ones.
type indexer struct {
	wake chan struct{} // capacity 1
	// adopted is set by the takeover and then owned by the goroutine, which writes it first.
	adopted []locktable.Record
	mu      struct {
		sync.Mutex
		entries []index.Entry
		lost    int // did not fit
		spare   []index.Entry
		syncs   []chan<- struct{} // closed when what came before is durable, or was given up
	}
}

// add adds the appends of a batch.
func (x *indexer) add(jobs []appendJob) {
	if len(jobs) == 0 {
		return
	}
	x.mu.Lock()
	before := len(x.mu.entries)
	for i := range jobs {
		if len(x.mu.entries) == indexMost {
			x.mu.lost += len(jobs) - i
			break
		}
		x.mu.entries = append(x.mu.entries, index.EntryOf(&jobs[i].rec))
	}
	after := len(x.mu.entries)
	x.mu.Unlock()
	if before == 0 || before < indexEntries && after >= indexEntries {
		notify(x.wake)
	}
}

// sync has everything so far written and made durable, and waits for that indexSyncWait at most.
func (x *indexer) sync(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, indexSyncWait)
	defer cancel()
	done := make(chan struct{})
	x.mu.Lock()
	x.mu.syncs = append(x.mu.syncs, done)
	x.mu.Unlock()
	notify(x.wake)
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// take removes and returns what is to be written; give returns the room for reuse.
func (x *indexer) take() (entries []index.Entry, lost int, syncs []chan<- struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	entries, lost, syncs = x.mu.entries, x.mu.lost, x.mu.syncs
	x.mu.entries, x.mu.lost, x.mu.syncs = x.mu.spare[:0], 0, nil
	x.mu.spare = nil
	return entries, lost, syncs
}

func (x *indexer) give(entries []index.Entry) {
	clear(entries)
	x.mu.Lock()
	defer x.mu.Unlock()
	if cap(entries) <= 4*indexEntries {
		x.mu.spare = entries[:0]
	}
}

// due reports whether something is to be written without waiting for more.
func (x *indexer) due() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.entries) >= indexEntries || len(x.mu.syncs) > 0
}

// SyncIndex makes the index durable up to every append that was answered before, or gives up
// when ctx ends or after 2 s.
func (p *Primary) SyncIndex(ctx context.Context) { p.index.sync(ctx) }

// indexFiles is the indexer's goroutine. What fails leaves a gap: no promise depends on the index.
func (p *Primary) indexFiles() {
	w := p.term.IndexWriter()
	defer w.Close() //nolint:errcheck // derived
	timer := time.NewTimer(indexAfter)
	defer timer.Stop()
	failing := false
	for recs := range slices.Chunk(p.index.adopted, indexEntries) {
		entries := make([]index.Entry, len(recs))
		for i := range recs {
			entries[i] = index.EntryOf(&recs[i])
		}
		if err := w.Write(entries); err != nil {
			p.opt.Log.Warn().Err(err).Msg("adopted appends are not indexed once more")
			break
		}
	}
	p.index.adopted = nil
	for {
		select {
		case <-p.term.Done():
			return
		case <-p.index.wake:
		}
		timer.Reset(indexAfter)
		for waiting := !p.index.due(); waiting; {
			select {
			case <-p.term.Done():
				return
			case <-timer.C:
				waiting = false
			case <-p.index.wake:
				waiting = !p.index.due()
			}
		}
		entries, lost, syncs := p.index.take()
		err := w.Write(entries)
		if err == nil && len(syncs) > 0 {
			err = w.Sync()
		}
		for _, done := range syncs {
			close(done)
		}
		if (err != nil || lost > 0) && !failing && p.term.Err() == nil {
			p.opt.Log.Warn().Err(err).Int("appends", len(entries)+lost).Msg("appends are not indexed: fsck cannot check their bytes")
		}
		failing = err != nil || lost > 0
		p.index.give(entries)
	}
}
