// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// HistoryOptions bound the history of grants that ended. 0 means the default.
type HistoryOptions struct {
	// Rate is how many plain releases a second get a line each; negative for none. Other
	// ends always get one.
	Rate int
	// FileBytes is the size at which the next file begins: 16 MiB.
	FileBytes int64
	// TotalBytes and Age bound what is kept: 256 MiB, 90 days.
	TotalBytes int64
	Age        time.Duration
	// Interval is how late an end is written at most: 1 s.
	Interval time.Duration
}

func (o HistoryOptions) complete() HistoryOptions {
	if o.FileBytes == 0 {
		o.FileBytes = 16 << 20
	}
	if o.TotalBytes == 0 {
		o.TotalBytes = 256 << 20
	}
	if o.Age == 0 {
		o.Age = 90 * 24 * time.Hour
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	return o
}

const (
	// historyMany is how many ends wait before they are written at once: about 64 KiB.
	historyMany = 200
	// historyEnds and historyBytes bound those that wait, when they cannot be written.
	historyEnds  = 1 << 16
	historyBytes = 32 << 20
	// historyWrite is how many ends one write has at most.
	historyWrite = 4096
)

// historyWriter records which grants ended, after their commit and a check, in a goroutine of
// its own. No promise depends on it: its errors do not end the term, a crash loses what it had
// not written, and the next primary completes it.
type historyWriter struct {
	p   *Primary
	opt HistoryOptions

	mu struct {
		sync.Mutex
		// batch is what ended after from and is not written. Its ends are never changed,
		// only more are appended.
		batch history.Batch
		size  int
		from  cluster.LSN // what ended up to here is in the files
		upTo  cluster.LSN // of the last record that was committed
		// trouble is why nothing is written, since when; nil if all is well.
		trouble  error
		since    time.Time
		failures int
	}
	wake chan struct{}

	// Owned by run.
	file    *volume.HistoryFile
	n       uint32
	written int // how many of the batch's ends the file has: the first ones of a record that is not whole in it
	buf     []byte
	gap     history.Range // to be written; From 0: none
	kept    map[history.File]keptHistory
	// clock is consulted before anything is removed for its age.
	clock evenClock
}

func newHistoryWriter(p *Primary) *historyWriter {
	return &historyWriter{p: p, opt: p.opt.History.complete(), wake: make(chan struct{}, 1), kept: map[history.File]keptHistory{}}
}

// adopt adds what the takeover found to have ended. It is called before everything else.
func (h *historyWriter) adopt(ring *history.Ring, upTo cluster.LSN) {
	r := ring.Recent()
	h.mu.batch = history.Batch{Ends: r.Ends, Skips: r.Skips}
	h.mu.batch.Seal()
	h.mu.from, h.mu.upTo = min(r.From, upTo), upTo
	for i := range r.Ends {
		h.mu.size += r.Ends[i].Size()
	}
}

// take adds what a batch ended, when it was committed and checked.
func (h *historyWriter) take(b *batch) {
	if b.Len() == 0 {
		return
	}
	h.mu.Lock()
	h.mu.upTo = b.End().LSN
	for i := range b.ended.Ends {
		e := &b.ended.Ends[i]
		if len(h.mu.batch.Ends) >= historyEnds || h.mu.size >= historyBytes {
			h.mu.batch.Skip(e.LSN, e.Time)
			continue
		}
		h.mu.batch.Ends = append(h.mu.batch.Ends, *e)
		h.mu.size += e.Size()
	}
	for _, k := range b.ended.Skips {
		h.mu.batch.Count(k)
	}
	many := len(h.mu.batch.Ends) >= historyMany
	h.mu.Unlock()
	if many {
		notify(h.wake)
	}
}

// recent returns what is not in the files yet.
func (h *historyWriter) recent() history.Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.mu.batch.Ends)
	return history.Recent{From: h.mu.from, Ends: h.mu.batch.Ends[:n:n], Skips: slices.Clone(h.mu.batch.Skips)}
}

// run writes until the term ends.
func (h *historyWriter) run() {
	defer h.drop()
	t := time.NewTicker(h.opt.Interval)
	defer t.Stop()
	var after time.Time // the next try may begin
	backoff := time.Duration(0)
	resumed, tidied := false, time.Time{}
	for {
		select {
		case <-h.p.term.Done():
			return
		case <-t.C:
		case <-h.wake:
			if !resumed {
				continue
			}
		}
		now := time.Now()
		if now.Before(after) {
			continue
		}
		var err error
		if !resumed {
			err = h.resume()
			resumed = err == nil
		}
		rotated := false
		if err == nil {
			rotated, err = h.write(now)
		}
		if err == nil && (rotated || now.Sub(tidied) > time.Hour) {
			tidied = now
			err = h.retain(now)
		}
		backoff = h.settle(err, now, backoff)
		after = now.Add(backoff)
	}
}

// settle records how a try ended and returns how long to wait before the next.
func (h *historyWriter) settle(err error, now time.Time, backoff time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		if h.mu.trouble != nil {
			h.p.opt.Log.Info().Int("failures", h.mu.failures).Msg("the history is written again")
		}
		h.mu.trouble, h.mu.failures = nil, 0
		return 0
	case h.p.term.Err() != nil:
		return 0
	case h.mu.trouble == nil:
		h.mu.since = now
		h.p.opt.Log.Warn().Err(err).Msg("the history of grants is not written: trying again")
	}
	h.mu.trouble = err
	h.mu.failures++
	return min(max(2*backoff, h.opt.Interval), time.Minute)
}

// HistoryTrouble returns why the history of grants is not written, "" if it is.
func (p *Primary) HistoryTrouble() string {
	h := p.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.trouble == nil {
		return ""
	}
	return fmt.Sprintf("the history of grants was not written for %v, %d tries failed: %v", time.Since(h.mu.since).Round(time.Second), h.mu.failures, h.mu.trouble)
}

// Recent returns the ends of grants that may not be in the files of the history yet.
func (p *Primary) Recent() history.Recent { return p.history.recent() }

// resume finds out what earlier primaries had no time to write: only that is written, and a gap
// for what is not known any more.
func (h *historyWriter) resume() error {
	files, err := h.p.term.HistoryFiles()
	if err != nil {
		return err
	}
	tail, err := h.p.term.HistoryTail(files)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// The history never has more than the log: a takeover refuses such a volume.
	if tail < h.mu.from {
		h.gap = history.Range{From: tail + 1, To: h.mu.from}
	}
	told := 0
	for _, e := range h.mu.batch.Ends {
		if e.LSN > tail {
			break
		}
		told++
		h.mu.size -= e.Size()
	}
	h.mu.batch.Ends = h.mu.batch.Ends[told:]
	for len(h.mu.batch.Skips) > 0 && h.mu.batch.Skips[0].To <= tail {
		h.mu.batch.Skips = h.mu.batch.Skips[1:]
	}
	if h.gap.From == 0 {
		h.mu.from = tail
	}
	return nil
}

// write writes all that waits. rotated reports whether it began a file.
func (h *historyWriter) write(now time.Time) (rotated bool, err error) {
	for more := true; more && err == nil; {
		var began bool
		began, more, err = h.writeSome(now)
		rotated = rotated || began
	}
	return rotated, err
}

// writeSome is one write. A crash in the middle of it leaves some of its lines, in order. The
// ends of one record are in one file, after an error all again in the next one: until then they
// stay in memory.
func (h *historyWriter) writeSome(now time.Time) (began, more bool, err error) {
	h.mu.Lock()
	left := h.mu.batch.Ends[h.written:]
	n, skips := min(len(left), historyWrite), len(h.mu.batch.Skips)
	ends, upTo, from := left[:n:n], h.mu.upTo, h.mu.from
	if more = n < len(left); more {
		upTo = 0
	}
	h.mu.batch.Seal()
	counted := slices.Clone(h.mu.batch.Skips)
	h.mu.Unlock()
	if n+skips == 0 && h.gap.From == 0 && upTo == from {
		return false, false, nil
	}
	if h.p.noSpace.Load() {
		return false, false, errNoSpace
	}
	if h.file == nil || h.file.Size >= h.opt.FileBytes && h.written == 0 {
		if err := h.begin(); err != nil {
			return false, false, err
		}
		began = true
	}
	h.encode(now, from, counted, ends, upTo)
	if err := h.file.Append(h.buf); err != nil {
		if !vfs.IsFull(err) {
			h.drop()
		}
		return began, false, err
	}
	h.gap = history.Range{}
	h.written += n
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.batch.Skips = h.mu.batch.Skips[skips:]
	h.forget(more)
	if !more {
		h.mu.from = upTo
	}
	return began, more, nil
}

// forget drops the ends of all records that are whole in the file. It is called with mu held.
func (h *historyWriter) forget(more bool) {
	all, whole := h.mu.batch.Ends, h.written
	for more && whole > 0 && all[whole-1].LSN == all[h.written].LSN {
		whole--
	}
	for i := range all[:whole] {
		h.mu.size -= all[i].Size()
		h.mu.from = all[i].LSN
	}
	h.mu.batch.Ends, h.written = all[whole:], h.written-whole
}

// errNoSpace leaves what is left of a full disk to the log.
var errNoSpace = errors.New("no space is left for the log: the history waits")

// encode encodes the lines of one write. What was skipped comes first, because a line implies
// that everything before it is in the history.
func (h *historyWriter) encode(now time.Time, from cluster.LSN, skips []history.Skip, ends []history.End, upTo cluster.LSN) {
	h.buf = h.buf[:0]
	if h.file.Size == 0 {
		if h.gap.From > 0 {
			from = h.gap.From - 1
		}
		h.buf = history.AppendHead(h.buf, history.Head{
			File: history.File{Epoch: h.p.Epoch(), N: h.n}, Cluster: h.p.term.Cluster().String(), After: from, Time: h.p.opt.TimeOfDay(now).UnixMilli(),
		})
	}
	if h.gap.From > 0 {
		h.buf = history.AppendGap(h.buf, h.gap)
	}
	for _, k := range skips {
		h.buf = history.AppendSkip(h.buf, k)
	}
	for i := range ends {
		h.buf = ends[i].AppendLine(h.buf)
	}
	if upTo > 0 {
		h.buf = history.AppendMark(h.buf, upTo)
	}
}

// begin begins the next file. The one before is durable then.
func (h *historyWriter) begin() error {
	if h.file != nil {
		err := h.file.Close()
		h.file = nil
		if err != nil {
			return err
		}
	}
	h.n++
	file, err := h.p.term.CreateHistory(h.n)
	if err != nil {
		return err
	}
	h.file = file
	return nil
}

// drop ends the file; the next write begins another.
func (h *historyWriter) drop() {
	h.written = 0
	if h.file != nil {
		h.file.Close() //nolint:errcheck // what it lacks is written again, or lost with the host
		h.file = nil
	}
}

// keptHistory is the size and beginning of a file of the history.
type keptHistory struct {
	size  int64
	began int64 // in milliseconds since 1970
}

const (
	// clockEven is how long the time of day has to advance evenly before files are removed by
	// it, clockStep by how much it may deviate then: it may be days ahead for a moment.
	clockEven = time.Hour
	clockStep = time.Minute
)

// evenClock compares the time of day with the monotonic clock.
type evenClock struct{ since, day time.Time }

// believed reports whether the time of day, which is day now, has advanced evenly for long.
func (c *evenClock) believed(now, day time.Time) bool {
	step := day.Sub(c.day) - now.Sub(c.since)
	if c.since.IsZero() || step.Abs() > clockStep {
		c.since, c.day = now, day
	}
	return now.Sub(c.since) >= clockEven
}

// retain removes the oldest files when there is too much of them, or when they are too
// old: what is in a file is older than the beginning of the next.
func (h *historyWriter) retain(now time.Time) error {
	files, err := h.p.term.HistoryFiles()
	if err != nil {
		return err
	}
	kept := make([]keptHistory, len(files))
	total := int64(0)
	for i, f := range files {
		if kept[i], err = h.look(f); err != nil {
			return err
		}
		total += kept[i].size
	}
	for i := len(kept) - 2; i >= 0; i-- {
		if kept[i].began == 0 { // a crash took its first line, or it is of another volume
			kept[i].began = kept[i+1].began
		}
	}
	day := h.p.opt.TimeOfDay(now)
	oldest := day.Add(-h.opt.Age).UnixMilli()
	if !h.clock.believed(now, day) {
		oldest = 0
	}
	gone := 0
	for i := 0; i+1 < len(files) && !h.mine(files[i]); i++ { // the newest stays
		if next := kept[i+1].began; total <= h.opt.TotalBytes && (next == 0 || next >= oldest) {
			break
		}
		total -= kept[i].size
		gone++
	}
	if gone == 0 {
		return nil
	}
	if err := h.p.check(); err != nil {
		return err
	}
	for _, f := range files[:gone] {
		if err := h.p.term.RemoveHistory(f); err != nil {
			return err
		}
		delete(h.kept, f)
	}
	h.p.opt.Log.Info().Int("files", gone).Msg("old history removed")
	return nil
}

// look reads the edges of a file, once unless it is being written.
func (h *historyWriter) look(f history.File) (k keptHistory, err error) {
	if k, ok := h.kept[f]; ok {
		return k, nil
	}
	head, size, err := h.p.term.HistoryHead(f)
	if err != nil {
		return k, err
	}
	k = keptHistory{size: size, began: head.Time}
	if !h.mine(f) {
		h.kept[f] = k
	}
	return k, nil
}

// mine reports whether a file is the one being written.
func (h *historyWriter) mine(f history.File) bool {
	return f == history.File{Epoch: h.p.Epoch(), N: h.n}
}
