// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// Loops returns by how much each loop of this server is late that has to go round whatever the volume, a quorum and the other
// servers do. One that is late for long is stuck, and only a new process helps. It waits for nothing but memory.
func (n *Node) Loops(now time.Time) map[string]time.Duration {
	late := map[string]time.Duration{"election": n.elector.Late(now)}
	if p := n.current(); p != nil {
		late["core"] = p.Late(now)
	}
	return late
}

// Measures is what a server knows of itself beside its Status. What is of a primary is nil or zero without a term that serves.
type Measures struct {
	// Quorum reports whether this server reaches a majority.
	Quorum bool
	// CanaryLag is how old the volume is that reads past the caches show.
	CanaryLag time.Duration
	// Primary is how much this server has as primary, and Progress how long ago its core loop made a round with nothing in flight.
	Primary  *primary.Sizes
	Progress time.Duration
}

// Measures returns them. It waits for nothing but memory.
func (n *Node) Measures(now time.Time) Measures {
	m := Measures{Quorum: n.elector.Majority(), CanaryLag: n.canary.lag(now)}
	if p := n.current(); p != nil && p.State() == primary.StateServing {
		sizes := p.Sizes(now)
		m.Primary = &sizes
		m.Progress, _ = p.Ages(now)
	}
	return m
}

// Meter returns what counts the calls and terms of this server.
func (n *Node) Meter() *meter.Meter { return n.opt.Meter }

// endOf returns how a term ended that Run returned err for.
func endOf(err error) meter.End {
	for _, x := range []struct {
		cause error
		end   meter.End
	}{
		{primary.ErrResigned, meter.EndResigned},
		{election.ErrYield, meter.EndYielded},
		{volume.ErrFenced, meter.EndFenced},
		{volume.ErrOvertaken, meter.EndFenced},
		{ErrNoQuorum, meter.EndNoQuorum},
		{ErrStalled, meter.EndStalled},
		{context.Canceled, meter.EndStopped},
	} {
		if errors.Is(err, x.cause) {
			return x.end
		}
	}
	if primary.Refused(err) {
		return meter.EndRefused
	}
	return meter.EndFailed
}
