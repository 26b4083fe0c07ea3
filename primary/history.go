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
)

// HistoryOptions bound the history of grants that ended. 0 means the default.
type HistoryOptions struct {
	// Rate is how many plain releases a second are told one by one; negative for
	// none. Other ends are always told.
	Rate int
	// FileBytes is the size at which the next file begins: 16 MiB.
	FileBytes int64
	// TotalBytes and Age bound what is kept: 256 MiB, 90 days.
	TotalBytes int64
	Age        time.Duration
	// Interval is how late what ended is written at most: 1 s.
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

// historian writes down what grants ended, behind their commit and a check, in a
// goroutine of its own. It is no part of any promise: its errors depose nobody, a crash
// loses what it had not written, and the next primary completes it.
type historian struct {
	p   *Primary
	opt HistoryOptions

	mu struct {
		sync.Mutex
		// batch is what ended behind from and is not written. Its ends are never changed,
		// only more are put behind them.
		batch history.Batch
		size  int
		from  cluster.LSN // what ended up to here is in the files
		upTo  cluster.LSN // of the last record that was committed
		// trouble says why nothing is written, and since when; nil if all is well.
		trouble  error
		since    time.Time
		failures int
	}
	wake chan struct{}

	// Owned by run.
	file *volume.HistoryFile
	n    uint32
	buf  []byte
	gap  history.Range // to be told; From 0: none
	kept map[history.File]keptHistory
	// clock is asked before anything is removed for its age.
	clock evenClock
}

func newHistorian(p *Primary) *historian {
	return &historian{p: p, opt: p.opt.History.complete(), wake: make(chan struct{}, 1), kept: map[history.File]keptHistory{}}
}

// adopt takes over what the takeover knows to have ended. It comes before everything else.
func (h *historian) adopt(ring *history.Ring, upTo cluster.LSN) {
	r := ring.Recent()
	h.mu.batch = history.Batch{Ends: r.Ends, Skips: r.Skips}
	h.mu.batch.Seal()
	h.mu.from, h.mu.upTo = min(r.From, upTo), upTo
	for i := range r.Ends {
		h.mu.size += r.Ends[i].Size()
	}
}

// take is handed what a batch ended, when it was committed and checked.
func (h *historian) take(b *batch) {
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
		poke(h.wake)
	}
}

// recent is what is not in the files yet.
func (h *historian) recent() history.Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.mu.batch.Ends)
	return history.Recent{From: h.mu.from, Ends: h.mu.batch.Ends[:n:n], Skips: slices.Clone(h.mu.batch.Skips)}
}

// run writes until the reign ends.
func (h *historian) run() {
	defer h.drop()
	t := time.NewTicker(h.opt.Interval)
	defer t.Stop()
	var after time.Time // the next try may begin
	backoff := time.Duration(0)
	resumed, tidied := false, time.Time{}
	for {
		select {
		case <-h.p.reign.Done():
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

// settle notes how a try ended and says when the next one may come.
func (h *historian) settle(err error, now time.Time, backoff time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		if h.mu.trouble != nil {
			h.p.opt.Log.Info().Int("failures", h.mu.failures).Msg("the history is written again")
		}
		h.mu.trouble, h.mu.failures = nil, 0
		return 0
	case h.p.reign.Err() != nil:
		return 0
	case h.mu.trouble == nil:
		h.mu.since = now
		h.p.opt.Log.Warn().Err(err).Msg("the history of grants is not written: trying again")
	}
	h.mu.trouble = err
	h.mu.failures++
	return min(max(2*backoff, h.opt.Interval), time.Minute)
}

// HistoryTrouble says why the history of grants is not written, "" if it is.
func (p *Primary) HistoryTrouble() string {
	h := p.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.trouble == nil {
		return ""
	}
	return fmt.Sprintf("the history of grants was not written for %v, %d tries failed: %v", time.Since(h.mu.since).Round(time.Second), h.mu.failures, h.mu.trouble)
}

// Recent is what ended and may not be in the files of the history yet.
func (p *Primary) Recent() history.Recent { return p.history.recent() }

// resume finds out what earlier primaries had no time to write: only that is written,
// and where nobody knows it, that.
func (h *historian) resume() error {
	files, err := h.p.reign.HistoryFiles()
	if err != nil {
		return err
	}
	tail, err := h.p.reign.HistoryTail(files)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// The history never tells more than the log: a takeover refuses such a volume.
	if tail.UpTo < h.mu.from {
		h.gap = history.Range{From: tail.UpTo + 1, To: h.mu.from}
		if len(tail.Tokens) > 0 { // of several ends by one record the last may be missing
			h.gap.From = tail.UpTo
		}
	}
	told := 0
	for _, e := range h.mu.batch.Ends {
		if e.LSN > tail.UpTo || e.LSN == tail.UpTo && !slices.Contains(tail.Tokens, e.Token) && len(tail.Tokens) > 0 {
			break
		}
		told++
		h.mu.size -= e.Size()
	}
	h.mu.batch.Ends = h.mu.batch.Ends[told:]
	for len(h.mu.batch.Skips) > 0 && h.mu.batch.Skips[0].To <= tail.UpTo {
		h.mu.batch.Skips = h.mu.batch.Skips[1:]
	}
	if h.gap.From == 0 {
		h.mu.from = tail.UpTo
	}
	return nil
}

// write writes all that waits. It says whether it began a file.
func (h *historian) write(now time.Time) (rotated bool, err error) {
	for more := true; more && err == nil; {
		var began bool
		began, more, err = h.writeSome(now)
		rotated = rotated || began
	}
	return rotated, err
}

// writeSome is one write. A crash in the middle of it leaves some of its lines, in order.
func (h *historian) writeSome(now time.Time) (began, more bool, err error) {
	h.mu.Lock()
	n, skips := min(len(h.mu.batch.Ends), historyWrite), len(h.mu.batch.Skips)
	ends, upTo, from := h.mu.batch.Ends[:n:n], h.mu.upTo, h.mu.from
	if more = n < len(h.mu.batch.Ends); more {
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
	if h.file == nil || h.file.Size >= h.opt.FileBytes {
		if err := h.begin(); err != nil {
			return false, false, err
		}
		began = true
	}
	h.encode(now, from, counted, ends, upTo)
	if err := h.file.Append(h.buf); err != nil {
		if !volume.IsFull(err) {
			h.drop()
		}
		return began, false, err
	}
	h.gap = history.Range{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range ends {
		h.mu.size -= ends[i].Size()
		h.mu.from = ends[i].LSN
	}
	h.mu.batch.Ends, h.mu.batch.Skips = h.mu.batch.Ends[n:], h.mu.batch.Skips[skips:]
	if !more {
		h.mu.from = upTo
	}
	return began, more, nil
}

// errNoSpace leaves what is left of a full disk to the log.
var errNoSpace = errors.New("no space is left for the log: the history waits")

// encode makes the lines of one write. What was skipped comes first: a line says that
// everything before it is told.
func (h *historian) encode(now time.Time, from cluster.LSN, skips []history.Skip, ends []history.End, upTo cluster.LSN) {
	h.buf = h.buf[:0]
	if h.file.Size == 0 {
		if h.gap.From > 0 {
			from = h.gap.From - 1
		}
		h.buf = history.AppendHead(h.buf, history.Head{
			File: history.File{Epoch: h.p.Epoch(), N: h.n}, Cluster: h.p.reign.Cluster().String(), After: from, Time: h.p.opt.TimeOfDay(now).UnixMilli(),
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
func (h *historian) begin() error {
	if h.file != nil {
		err := h.file.Close()
		h.file = nil
		if err != nil {
			return err
		}
	}
	h.n++
	file, err := h.p.reign.CreateHistory(h.n)
	if err != nil {
		return err
	}
	h.file = file
	return nil
}

// drop ends the file; the next write begins another.
func (h *historian) drop() {
	if h.file != nil {
		h.file.Close() //nolint:errcheck // what it lacks is told again, or lost with the host
		h.file = nil
	}
}
