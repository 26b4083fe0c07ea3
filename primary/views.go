// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// manyRows is the size of the table up to which the views follow within ViewInterval:
	// 10,000 locks with a receipt each, and their clients.
	manyRows = 30_000
	// viewShare is how many times longer than it took to write the views of a larger one the
	// pause behind that is: it costs 2 % of a core and of the disk.
	viewShare = 49
	// viewsOwn is how often it is looked whether the views are this reign's: a primary that
	// was asleep may have written them.
	viewsOwn = 4 * time.Second
)

// viewer keeps the two views for people current. Nothing rests on them, so what fails is
// tried again later, deposes nobody and holds up nothing: it has a goroutine of its own.
type viewer struct {
	p       *Primary
	at      cluster.LSN // of the views
	rows    int         // they had the last time
	looked  time.Time   // when it was seen that they are this reign's
	backoff time.Duration
}

// writeViews is the viewer's goroutine. It removes what others left before it writes, so that it
// removes nothing of its own.
func (p *Primary) writeViews() {
	if p.reign.Check() != nil {
		return
	}
	if err := p.reign.RemoveTemporaries(); err != nil && p.reign.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("remove what earlier primaries left of the views") // it only takes space
	}
	v := viewer{p: p}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-p.reign.Done():
			return
		case <-t.C:
		}
		t.Reset(v.step(p.reign.Context()))
	}
}

// step writes the views if they are old, and says when to look again.
func (v *viewer) step(ctx context.Context) time.Duration {
	began := time.Now()
	if !v.stale(began) {
		return v.p.opt.ViewInterval / 10
	}
	rows, rested, err := v.write(ctx)
	took := time.Since(began)
	if err != nil && v.p.reign.Err() == nil {
		if v.backoff == 0 {
			v.p.opt.Log.Warn().Err(err).Msg("the views lock_state.json and processed_requests.log are not written: trying again")
		}
		v.backoff = min(max(2*v.backoff, v.p.opt.ViewInterval), time.Minute)
		return v.backoff
	}
	v.backoff, v.looked, v.rows = 0, began, rows
	return pauseBehindViews(v.p.opt.ViewInterval, took, took-rested, rows)
}

// pauseBehindViews is how long the views are left as they are when those of so many rows
// took so long, and cost so much of that. What changes just behind the beginning of one
// writing is seen at the end of the next: within the interval, if the rows are few.
func pauseBehindViews(interval, took, cost time.Duration, rows int) time.Duration {
	pause := max(interval/10, took, interval-interval/10-2*took)
	if rows > manyRows {
		pause = max(pause, viewShare*cost)
	}
	return pause
}

// stale says that the views are worth writing.
func (v *viewer) stale(now time.Time) bool {
	if v.at != v.p.LSN() {
		return true
	}
	if now.Sub(v.looked) < viewsOwn {
		return false
	}
	v.looked = now
	epoch, _ := v.p.reign.ViewEpoch()
	return epoch != v.p.Epoch()
}

// write writes both views, and says how many rows they have and how long it rested.
func (v *viewer) write(ctx context.Context) (rows int, rested time.Duration, err error) {
	pace := v.p.newPace()
	pace.hurry = func() bool { return 0 < v.rows && v.rows <= manyRows }
	sleep := pace.sleep
	pace.sleep = func(d time.Duration) bool {
		began := time.Now()
		defer func() { rested += time.Since(began) }()
		return sleep(d)
	}
	asked := time.Now()
	x, stop, err := v.p.export(ctx, pace)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	if err := v.p.reign.Check(); err != nil {
		return 0, 0, err
	}
	x.Entities = counted(x, &rows)
	if err := v.p.reign.PublishViews(x, asked); err != nil {
		return 0, 0, err
	}
	v.at = x.At.LSN
	return rows, rested, nil
}

// counted counts what an export yields.
func counted(x volume.Export, rows *int) func(func(locktable.Entity, error) bool) {
	return func(yield func(locktable.Entity, error) bool) {
		for e, err := range x.Entities {
			if *rows++; !yield(e, err) {
				return
			}
		}
	}
}
