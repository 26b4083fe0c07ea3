// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// slowestFailover is what nobody waits longer for after a kill, on a busy machine.
const slowestFailover = 15 * time.Second

// TestEveryVerdict kills primaries under load, with leases so short that some
// end, and asks every checker that looks on from outside.
func TestEveryVerdict(t *testing.T) {
	needFaults(t)
	b := newBattle(t, sourceText(t, 2<<20), 4, *faultSeed)
	for _, w := range b.workers {
		w.TTL, w.Lossy = shortTTL, true
	}
	var r check.Report
	view := check.StartViewPoller(t.Context(), b.c.Dir(), func() (hf.Epoch, bool) { return serving(t.Context(), b.c) }, &r)
	sampler := check.StartSampler(t.Context(), b.c.Dir(), func() []int { return pids(b.c) }, check.DefaultLimits(), &r)
	b.fight(t, 6, 5*time.Minute)
	view.Stop()
	sampler.Stop()
	check.CheckLiveness(b.nemesis.Strikes, b.ledger, slowestFailover, &r)
	for _, bad := range r.Violations() {
		t.Error(bad)
	}
	r.Add(b.end(t))
	r.NotApplicable(check.I4, "there is no history for porcupine")
	r.NotApplicable(check.I10, "nobody was frozen")
	r.NotApplicable(check.I13, "the log was too short for a checkpoint")
	t.Logf("\n%s", r.Text())
	if all := r.Unchecked(); len(all) > 0 {
		t.Errorf("nobody looked at %v", all)
	}
}

// longLog is enough for two checkpoints and for segments that are removed behind
// them, in bytes that clients append.
const longLog = 230 << 20

// TestLongLog appends so much that checkpoints are made and segments removed, kills
// primaries in between, and wants the checkpoints to be what the whole log makes.
func TestLongLog(t *testing.T) {
	needFaults(t)
	b := newBattle(t, sourceText(t, 8<<20), 8, *faultSeed)
	for _, w := range b.workers {
		w.Pace = 0
	}
	var r check.Report
	sampler := check.StartSampler(t.Context(), b.c.Dir(), func() []int { return pids(b.c) }, check.DefaultLimits(), &r)
	_, stop := b.work(t.Context())
	for part := int64(1); part <= 3; part++ {
		cluster.Await(t, 3*time.Minute, "a long log", func() bool {
			_, _, _, bytes := b.ledger.Count()
			return bytes > longLog*part/3
		})
		b.nemesis.Strike(t.Context())
	}
	stop()
	sampler.Stop()
	for _, bad := range r.Violations() {
		t.Error(bad)
	}
	r.Add(b.end(t))
	t.Logf("\n%s", r.Text())
	for _, x := range r.Results() {
		if x.Invariant.Number == check.I13 && x.Checked == 0 {
			t.Error("no checkpoint was compared with the log")
		}
	}
	// The volume alone no longer has the beginning, and the checker says so.
	var alone check.Report
	if _, err := check.CheckLog(check.LogOptions{Dir: b.c.Dir()}, &alone); err != nil || len(alone.Violations()) == 0 {
		t.Errorf("%v: nothing was removed from the volume, so the collector was not needed", err)
	}
}

// serving is the term that answers now.
func serving(ctx context.Context, c *cluster.Cluster) (hf.Epoch, bool) {
	p, epoch := c.Primary(ctx)
	return hf.Epoch(epoch), p != nil
}

func pids(c *cluster.Cluster) (all []int) {
	for _, s := range c.Servers() {
		if s.Running() {
			all = append(all, s.PID())
		}
	}
	return all
}
