// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

const (
	// manyRows is the size of the table up to which the views follow within ViewInterval:
	// 10,000 locks with a receipt each, and their clients.
	manyRows = 30_000
	// viewShare is how many times longer than it took to write the views of a larger one the
	// pause after that is: it costs 2 % of a core and of the disk.
	viewShare = 49
	// viewsOwn is how often the viewer checks that the views are this term's: a primary that
	// was paused may have written them.
	viewsOwn = 4 * time.Second
)

// viewer keeps the two views for people current. No promise depends on them, so what fails is
// tried again later, does not end the term and blocks nothing: it has a goroutine of its own.
type viewer struct {
	p       *Primary
	at      cluster.LSN // of the views
	rows    int         // they had the last time
	looked  time.Time   // when it was seen that they are this term's
	backoff time.Duration
}

// writeViews is the viewer's goroutine. It removes what other terms left before it writes, so
// that it removes nothing of its own.
func (p *Primary) writeViews() {
	if p.term.Check() != nil {
		return
	}
	if err := p.term.RemoveTemporaries(); err != nil && p.term.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("remove what earlier primaries left of the views") // it only takes space
	}
	v := viewer{p: p}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-p.term.Done():
			return
		case <-t.C:
		}
		t.Reset(v.step(p.term.Context()))
	}
}

// step writes the views if they are stale, and returns how long to wait before the next step.
func (v *viewer) step(ctx context.Context) time.Duration {
	began := time.Now()
	if !v.stale(began) {
		return wake.Next(time.Now(), v.p.opt.ViewInterval/10)
	}
	rows, rested, err := v.write(ctx)
	took := time.Since(began)
	if err != nil && v.p.term.Err() == nil {
		if v.backoff == 0 {
			v.p.opt.Log.Warn().Err(err).Msg("the views lock_state.json and processed_requests.log are not written: trying again")
		}
		v.backoff = min(max(2*v.backoff, v.p.opt.ViewInterval), time.Minute)
		return v.backoff
	}
	v.backoff, v.looked, v.rows = 0, began, rows
	return pauseBehindViews(v.p.opt.ViewInterval, took, took-rested, rows)
}

// pauseBehindViews returns how long to wait after views of so many rows were written, which
// took so long and cost so much of that. What changes just after the beginning of one writing is
// seen at the end of the next: within the interval, if the rows are few.
func pauseBehindViews(interval, took, cost time.Duration, rows int) time.Duration {
	pause := max(interval/10, took, interval-interval/10-2*took)
	if rows > manyRows {
		pause = max(pause, viewShare*cost)
	}
	return pause
}

// stale reports whether the views are worth writing.
func (v *viewer) stale(now time.Time) bool {
	if v.at != v.p.LSN() {
		return true
	}
	if now.Sub(v.looked) < viewsOwn {
		return false
	}
	v.looked = now
	epoch, _ := v.p.term.ViewEpoch()
	return epoch != v.p.Epoch()
}

// write writes both views, and returns how many rows they have and how long it rested.
func (v *viewer) write(ctx context.Context) (rows int, rested time.Duration, err error) {
	limit := throttle.New(v.p.term.Done(), func() bool { return 0 < v.rows && v.rows <= manyRows })
	asked := time.Now()
	x, stop, err := v.p.replication.Export(ctx, limit)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	if err := v.p.term.Check(); err != nil {
		return 0, 0, err
	}
	var seen contents
	x.Entities = counted(x, &rows, &seen)
	if err := v.p.term.PublishViews(x, asked); err != nil {
		return 0, 0, err
	}
	v.p.contents.Store(&seen)
	v.at = x.At.LSN
	return rows, limit.Rested(), nil
}

// counted returns the entities of x, counts them in rows, and adds them to seen.
func counted(x checkpoint.Export, rows *int, seen *contents) func(func(locktable.Entity, error) bool) {
	return func(yield func(locktable.Entity, error) bool) {
		for e, err := range x.Entities {
			seen.add(&e)
			if *rows++; !yield(e, err) {
				return
			}
		}
	}
}
