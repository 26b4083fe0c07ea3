// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	viewEvery = 20 * time.Millisecond
	// healWithin is how long the view may be of an older term than the one that serves.
	healWithin = 15 * time.Second
)

// ViewPoller reads lock_state.json repeatedly, as monitoring would.
type ViewPoller struct {
	path    string
	present func() (cluster.Epoch, bool)
	stop    context.CancelFunc
	running sync.WaitGroup

	// owned by run, and by Stop once that has ended
	reads   int
	there   bool // it was there once
	since   time.Time
	term    cluster.Epoch // that serves since then
	longest time.Duration // that the view was an older term's
	report  *Report
}

// StartViewPoller starts to read lock_state.json of a volume, until Stop or the end of ctx.
// present returns the epoch that serves now, if one does; nil = do not check that the view
// follows it. Findings go to the report.
func StartViewPoller(ctx context.Context, volumeDir string, present func() (cluster.Epoch, bool), r *Report) *ViewPoller {
	p := &ViewPoller{path: filepath.Join(volumeDir, viewName), present: present, report: r}
	ctx, p.stop = context.WithCancel(ctx)
	p.running.Go(func() { p.run(ctx) })
	return p
}

// Stop ends the poller and adds its figures to the report.
func (p *ViewPoller) Stop() {
	p.stop()
	p.running.Wait()
	p.report.Figure("lock_state.json", "read %d times; of an older term than the one that serves for %v at most", p.reads, p.longest.Round(time.Millisecond))
}

func (p *ViewPoller) run(ctx context.Context) {
	tick := time.NewTicker(viewEvery)
	defer tick.Stop()
	for {
		p.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads the view once.
func (p *ViewPoller) look(now time.Time) {
	b, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) && !p.there {
		return // a young volume
	}
	p.reads++
	p.report.Checked(I14, 1)
	if err != nil {
		p.report.Violation(I14, "%v", err)
		return
	}
	p.there = true
	var view struct {
		Epoch cluster.Epoch `json:"epoch"`
	}
	if err := json.Unmarshal(b, &view); err != nil {
		p.report.Violation(I14, "lock_state.json of %d bytes does not parse: %v", len(b), err)
		return
	}
	if p.present != nil {
		p.follow(view.Epoch, now)
	}
}

// follow checks that the view becomes the serving term's soon.
func (p *ViewPoller) follow(of cluster.Epoch, now time.Time) {
	term, serves := p.present()
	if !serves || term != p.term {
		p.term, p.since = term, now
		return
	}
	if of >= term {
		return
	}
	late := now.Sub(p.since)
	if late > healWithin && p.longest <= healWithin {
		p.report.Violation(I14, "lock_state.json is of epoch %d, %v after epoch %d began to serve", of, late.Round(time.Millisecond), term)
	}
	p.longest = max(p.longest, late)
}
