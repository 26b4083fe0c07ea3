// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

const (
	// indexMany is how many appends wait before they are written at once: some 64 KiB.
	indexMany = 4096
	// indexInterval is how late fewer of them are written at most.
	indexInterval = time.Second
	// indexRoom is how many may wait. Further ones are not indexed.
	indexRoom = 1 << 18
	// syncWait bounds how long Sync waits.
	syncWait = 2 * time.Second
)

// Index records where appends are in protected files and which request wrote them. What cannot be written leaves a
// gap. Run is called once; the other methods may be called by any goroutine.
type Index struct {
	writer[index.Entry]
	// Guarded by mu.
	lost  int               // entries that found no room
	syncs []chan<- struct{} // closed when what came before is durable, or was given up

	file *index.Writer // owned by Run
}

// NewIndex returns the index that is written to file.
func NewIndex(file *index.Writer, log zerolog.Logger) *Index {
	return &Index{file: file, writer: writer[index.Entry]{
		log: log, interval: indexInterval, room: indexRoom, size: func(*index.Entry) int { return 0 }, wake: wake.NewSignal(),
		failing: "appends are not indexed: fsck cannot check their bytes", works: "appends are indexed again",
	}}
}

// Adopt adds appends that the takeover found in the log, for the index of the previous term may lack them. They wait
// whatever room there is. It is called before the other methods.
func (x *Index) Adopt(appends []locktable.Record) {
	for i := range appends {
		x.waiting = append(x.waiting, index.EntryOf(&appends[i]))
	}
	x.hurry()
}

// Add adds an append that was committed and checked.
func (x *Index) Add(r *locktable.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.add(index.EntryOf(r)) {
		x.lost++
	}
	if len(x.waiting) >= indexMany {
		x.hurry()
	}
}

// Sync has all appends so far written and made durable. It waits for that until ctx ends, 2 s at most.
func (x *Index) Sync(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	done := make(chan struct{})
	x.mu.Lock()
	x.syncs = append(x.syncs, done)
	x.mu.Unlock()
	x.hurry()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Run writes until the term's ctx ends.
func (x *Index) Run(ctx context.Context) {
	defer x.file.Close() //nolint:errcheck // derived
	x.run(ctx, x.write)
}

func (x *Index) write(time.Time) error {
	x.mu.Lock()
	entries, lost, syncs := x.waiting, x.lost, x.syncs
	x.waiting, x.lost, x.syncs = nil, 0, nil
	x.mu.Unlock()
	err := x.file.Write(entries)
	if err == nil && len(syncs) > 0 {
		err = x.file.Sync()
	}
	for _, done := range syncs {
		close(done)
	}
	if lost > 0 {
		err = errors.Join(err, errors.New("the filesystem is too slow"))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%d appends: %w", len(entries)+lost, err)
	case len(entries) == 0:
		return errIdle
	}
	return nil
}
