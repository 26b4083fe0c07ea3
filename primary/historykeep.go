// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/history"
)

// keptHistory is what is known of a file of the history.
type keptHistory struct {
	size  int64
	began int64 // in milliseconds since 1970
}

const (
	// clockEven is how long the time of day has to go on evenly before what it says is old
	// is removed, clockStep how far it may be out then: it may be days ahead for a moment.
	clockEven = time.Hour
	clockStep = time.Minute
)

// evenClock watches the time of day beside the monotonic clock.
type evenClock struct{ since, day time.Time }

// believed says that the time of day, which is day now, has gone on evenly for long.
func (c *evenClock) believed(now, day time.Time) bool {
	step := day.Sub(c.day) - now.Sub(c.since)
	if c.since.IsZero() || step.Abs() > clockStep {
		c.since, c.day = now, day
	}
	return now.Sub(c.since) >= clockEven
}

// retain removes the oldest files when there is too much of them, or when they are too
// old: what is in a file is older than the beginning of the next.
func (h *historian) retain(now time.Time) error {
	files, err := h.p.reign.HistoryFiles()
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
		if err := h.p.reign.RemoveHistory(f); err != nil {
			return err
		}
		delete(h.kept, f)
	}
	h.p.opt.Log.Info().Int("files", gone).Msg("old history removed")
	return nil
}

// look reads the edges of a file, once unless it is being written.
func (h *historian) look(f history.File) (k keptHistory, err error) {
	if k, ok := h.kept[f]; ok {
		return k, nil
	}
	head, size, err := h.p.reign.HistoryHead(f)
	if err != nil {
		return k, err
	}
	k = keptHistory{size: size, began: head.Time}
	if !h.mine(f) {
		h.kept[f] = k
	}
	return k, nil
}

// mine says that a file is the one being written.
func (h *historian) mine(f history.File) bool {
	return f == history.File{Epoch: h.p.Epoch(), N: h.n}
}
