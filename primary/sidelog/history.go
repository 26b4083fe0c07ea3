// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	files "github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
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
	// Bounds returns TotalBytes and Age as they are now, of a server that takes others while it runs. nil = as above.
	Bounds func() (totalBytes int64, age time.Duration)
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
	if o.Bounds == nil {
		total, age := o.TotalBytes, o.Age
		o.Bounds = func() (int64, time.Duration) { return total, age }
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	return o
}

const (
	// historyMany is how many ends wait before they are written at once: about 64 KiB.
	historyMany = 200
	// historyRoom and historyBytes bound those that wait, when they cannot be written. Further ones are counted.
	historyRoom  = 1 << 16
	historyBytes = 32 << 20
	// historyWrite is how many ends one write has at most.
	historyWrite = 4096
)

// HistoryConfig is what a History needs of the primary.
type HistoryConfig struct {
	HistoryOptions
	// Dir is the history on the volume.
	Dir historydir.Dir
	// Files writes those of the term. Only Run uses it.
	Files *files.Writer
	Log   zerolog.Logger
	// Check reads the own fence. Its error says that the term has ended.
	Check func() error
	// Full reports whether the log cannot grow: then what is left of the disk is left to it.
	Full func() bool
	// TimeOfDay returns this machine's time of day at a moment.
	TimeOfDay func(time.Time) time.Time
}

// History records which grants ended. What cannot be written waits; the next primary completes what is lost with a
// crash, or tells that it is not known. Run is called once; the other methods may be called by any goroutine.
type History struct {
	writer[history.End] // the ends after from that are not written
	cfg                 HistoryConfig

	// Guarded by mu.
	resumed    bool          // it is known what the files lack; set by Run
	skips      history.Batch // what was left out after from; it has no ends
	from, upTo cluster.LSN   // what ended up to from is in the files; upTo is the last record that was committed

	// Owned by Run.
	written int           // how many of the waiting ends the file has: the first ones of a record that is not whole in it
	gap     history.Range // to be written; From 0: none
	buf     []byte
	tidied  time.Time
	kept    map[files.Name]keptFile
	clock   evenClock // asked before anything is removed for its age
}

// NewHistory returns the history of a term.
func NewHistory(cfg HistoryConfig) *History {
	cfg.HistoryOptions = cfg.complete()
	return &History{cfg: cfg, kept: map[files.Name]keptFile{}, writer: writer[history.End]{
		log: cfg.Log, interval: cfg.Interval, room: historyRoom, roomBytes: historyBytes, size: (*history.End).Size, keeps: true,
		failing: "the history of grants is not written: trying again", works: "the history is written again",
		wake: wake.NewSignal(),
	}}
}

// Adopt adds what the takeover, which adopted the log up to an LSN, found to have ended. It is called before the
// other methods.
func (h *History) Adopt(ring *history.Ring, upTo cluster.LSN) {
	r := ring.Recent()
	h.waiting, h.skips.Skips = r.Ends, r.Skips
	h.skips.Seal()
	h.from, h.upTo = min(r.From, upTo), upTo
	for i := range r.Ends {
		h.bytes += r.Ends[i].Size()
	}
}

// Add adds what ended up to an LSN that was committed and checked. It keeps nothing of ended.
func (h *History) Add(ended *history.Batch, upTo cluster.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upTo = upTo
	for i := range ended.Ends {
		if e := &ended.Ends[i]; !h.add(*e) {
			h.skips.Skip(e.LSN, e.Time)
		}
	}
	for _, k := range ended.Skips {
		h.skips.Count(k)
	}
	if h.resumed && len(h.waiting) >= historyMany {
		h.hurry()
	}
}

// Recent returns the ends of grants that may not be in the files yet.
func (h *History) Recent() history.Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.waiting)
	return history.Recent{From: h.from, Ends: h.waiting[:n:n], Skips: slices.Clone(h.skips.Skips)}
}

// Trouble returns why the history is not written, "" if it is.
func (h *History) Trouble() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trouble == nil {
		return ""
	}
	return fmt.Sprintf("the history of grants was not written for %v, %d tries failed: %v", time.Since(h.since).Round(time.Second), h.tries, h.trouble)
}

// Run writes until the term's ctx ends.
func (h *History) Run(ctx context.Context) {
	defer h.drop()
	h.run(ctx, func(now time.Time) error { return h.write(ctx, now) })
}

// write writes all that waits, and removes what is too old.
func (h *History) write(ctx context.Context, now time.Time) error {
	if !h.resumed {
		if err := h.resume(ctx); err != nil {
			return err
		}
	}
	before := h.cfg.Files.Name()
	for more := true; more; {
		var err error
		if more, err = h.writeSome(now); err != nil {
			return err
		}
	}
	if h.cfg.Files.Name() == before && now.Sub(h.tidied) <= time.Hour {
		return nil
	}
	h.tidied = now
	return h.retain(ctx, now)
}

// resume finds out what earlier primaries had no time to write: only that is written, and a gap
// for what is not known any more.
func (h *History) resume(ctx context.Context) error {
	all, err := h.cfg.Dir.Files()
	if err != nil {
		return err
	}
	tail, err := h.cfg.Dir.Tail(ctx, all)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// The history never has more than the log: a takeover refuses such a volume.
	if tail < h.from {
		h.gap = history.Range{From: tail + 1, To: h.from}
	}
	told := 0
	for _, e := range h.waiting {
		if e.LSN > tail {
			break
		}
		told++
	}
	h.remove(told)
	for len(h.skips.Skips) > 0 && h.skips.Skips[0].To <= tail {
		h.skips.Skips = h.skips.Skips[1:]
	}
	if h.gap.From == 0 {
		h.from = tail
	}
	h.resumed = true
	return nil
}

// errNoSpace leaves what is left of a full disk to the log.
var errNoSpace = errors.New("no space is left for the log: the history waits")

// writeSome is one write; more reports whether another has to follow. A crash in the middle of it leaves some of its
// lines, in order. The ends of one record are in one file, after an error all again in the next one: until then they
// stay in memory.
func (h *History) writeSome(now time.Time) (more bool, err error) {
	h.mu.Lock()
	left := h.waiting[h.written:]
	n, skips := min(len(left), historyWrite), len(h.skips.Skips)
	ends, upTo, from := left[:n:n], h.upTo, h.from
	if more = n < len(left); more {
		upTo = 0
	}
	h.skips.Seal()
	counted := slices.Clone(h.skips.Skips)
	h.mu.Unlock()
	if n+skips == 0 && h.gap.From == 0 && upTo == from {
		return false, nil
	}
	if h.cfg.Full() {
		return false, errNoSpace
	}
	file, limit := h.cfg.Files, h.cfg.FileBytes
	if h.written > 0 { // the rest of a record
		limit = math.MaxInt64
	}
	if err := file.Begin(limit); err != nil {
		return false, err
	}
	h.encode(now, from, counted, ends, upTo)
	if err := file.Append(h.buf); err != nil {
		if !vfs.IsFull(err) {
			h.drop()
		}
		return false, err
	}
	h.gap = history.Range{}
	h.written += n
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skips.Skips = h.skips.Skips[skips:]
	h.forget(more)
	if !more {
		h.from = upTo
	}
	return more, nil
}

// forget removes the ends of all records that are whole in the file. Call it with mu held.
func (h *History) forget(more bool) {
	all, whole := h.waiting, h.written
	for more && whole > 0 && all[whole-1].LSN == all[h.written].LSN {
		whole--
	}
	if whole > 0 {
		h.from = all[whole-1].LSN
	}
	h.remove(whole)
	h.written -= whole
}

// encode encodes the lines of one write. What was skipped comes first, because a line implies
// that everything before it is in the history.
func (h *History) encode(now time.Time, from cluster.LSN, skips []history.Skip, ends []history.End, upTo cluster.LSN) {
	file := h.cfg.Files
	h.buf = h.buf[:0]
	if file.Size() == 0 {
		if h.gap.From > 0 {
			from = h.gap.From - 1
		}
		h.buf = history.AppendHead(h.buf, history.Head{
			File: history.File(file.Name()), Cluster: h.cfg.Dir.Cluster.String(), After: from, Time: h.cfg.TimeOfDay(now).UnixMilli(),
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

// drop ends the file; the next write begins another.
func (h *History) drop() {
	h.written = 0
	h.cfg.Files.Close() //nolint:errcheck // what it lacks is written again, or lost with the host
}

// keptFile is the size and beginning of a file of the history.
type keptFile struct {
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
func (h *History) retain(ctx context.Context, now time.Time) error {
	all, err := h.cfg.Dir.Files()
	if err != nil {
		return err
	}
	kept := make([]keptFile, len(all))
	total := int64(0)
	for i, f := range all {
		if kept[i], err = h.look(ctx, f); err != nil {
			return err
		}
		total += kept[i].size
	}
	for i := len(kept) - 2; i >= 0; i-- {
		if kept[i].began == 0 { // a crash took its first line, or it is of another volume
			kept[i].began = kept[i+1].began
		}
	}
	day := h.cfg.TimeOfDay(now)
	most, age := h.cfg.Bounds()
	oldest := day.Add(-age).UnixMilli()
	if !h.clock.believed(now, day) {
		oldest = 0
	}
	gone, own := 0, h.cfg.Files.Name()
	for i := 0; i+1 < len(all) && all[i] != own; i++ { // the newest stays
		if next := kept[i+1].began; total <= most && (next == 0 || next >= oldest) {
			break
		}
		total -= kept[i].size
		gone++
	}
	if gone == 0 {
		return nil
	}
	if err := h.cfg.Check(); err != nil {
		return err
	}
	for _, f := range all[:gone] {
		if err := h.cfg.Files.Remove(f); err != nil {
			return err
		}
		delete(h.kept, f)
	}
	h.log.Info().Int("files", gone).Msg("old history removed")
	return nil
}

// look reads the edges of a file, once unless it is being written.
func (h *History) look(ctx context.Context, f files.Name) (k keptFile, err error) {
	if k, ok := h.kept[f]; ok {
		return k, nil
	}
	head, size, err := h.cfg.Dir.Head(ctx, f)
	if err != nil {
		return k, err
	}
	k = keptFile{size: size, began: head.Time}
	if f != h.cfg.Files.Name() {
		h.kept[f] = k
	}
	return k, nil
}
