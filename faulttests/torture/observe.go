// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// observers are the checkers that run during a round.
type observers struct {
	archive   string
	collector *check.Collector
	view      *check.ViewPoller
	sampler   *check.Sampler
}

func observe(t *testing.T, s *Site, r *check.Report) *observers {
	t.Helper()
	o := &observers{archive: t.TempDir()}
	ctx, dir := t.Context(), s.Cluster.Dir()
	o.collector = check.StartCollector(ctx, dir, o.archive)
	o.view = check.StartViewPoller(ctx, dir, func() (hf.Epoch, bool) { return s.serving(ctx) }, r)
	o.sampler = check.StartSampler(ctx, dir, s.pids, check.DefaultLimits(), r)
	return o
}

// stop ends them; the log is complete when the servers have ended.
func (o *observers) stop() (most check.Usage, err error) {
	o.view.Stop()
	most = o.sampler.Stop()
	return most, o.collector.Stop()
}

// serving returns the epoch that serves now. It returns false while there is a fault, because the
// view may be late then.
func (s *Site) serving(ctx context.Context) (hf.Epoch, bool) {
	if s.struck.Load() {
		return 0, false
	}
	p, epoch := s.Cluster.Primary(ctx)
	return hf.Epoch(epoch), p != nil
}

func (s *Site) pids() (all []int) {
	for _, x := range s.Cluster.Servers() {
		if x.Running() {
			all = append(all, x.PID())
		}
	}
	return all
}
