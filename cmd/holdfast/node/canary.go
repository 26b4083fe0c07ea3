// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/api"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// canaryLook is how often a replica looks whether there is something to compare.
// It reads only when the primary has told a new value, or while plain reads lag.
const canaryLook = 200 * time.Millisecond

// beats raises this server's canary every second while it reigns, on a goroutine of
// its own: a write that hangs holds up nothing else.
func (n *Node) beats(ctx context.Context) error {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
		if p := n.current(); p != nil && p.State() == primary.StateServing {
			n.beat(p.Epoch())
		}
	}
}

// beat raises this server's canary. Its failure is said once, and deposes nobody:
// the reign has checks of its own.
func (n *Node) beat(e cluster.Epoch) {
	n.mu.Lock()
	value := max(uint64(time.Now().UnixMilli()), n.mu.beat+1) // rises over restarts, too
	n.mu.Unlock()
	err := n.vol.WriteCanary(e, value)
	if err != nil {
		if !n.mute {
			n.opt.Log.Warn().Err(err).Msg("the canary cannot be written: replicas cannot see whether the filesystem shows old data")
		}
		n.mute = true
		return
	}
	n.mute = false
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.beat = value
}

// watchCanary compares what the primary says it wrote with what this server reads.
func (n *Node) watchCanary(ctx context.Context) error {
	t := time.NewTicker(canaryLook)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			n.lookAtCanary()
		}
	}
}

func (n *Node) lookAtCanary() {
	id, epoch, beat := n.toldBeat()
	if !n.canary.hear(id, epoch, beat, time.Now()) {
		return
	}
	direct, directErr := n.vol.ReadCanary(id, volume.FlagDirect)
	plain, plainErr := n.vol.ReadCanary(id, volume.FlagRead)
	now := time.Now()
	if plainErr != nil {
		plain = 0 // as old as can be
	}
	if directErr == nil && n.canary.look(direct, plain, now) {
		n.opt.Log.Error().Uint32("primary", uint32(id)).Uint64("told", beat).Uint64("read", direct).
			Msg("A READ PAST THE CACHES SHOWS OLD DATA: this filesystem can hide a fence. Stop the servers and run holdfast doctor on two hosts")
	}
}

// toldBeat is what the primary told last.
func (n *Node) toldBeat() (id cluster.ServerID, epoch cluster.Epoch, beat uint64) {
	for _, p := range n.elector.Peers() {
		s := p.Status
		if p.Reachable && !p.Conflict && s.Role == election.RolePrimary && s.Beat > 0 && s.Epoch >= epoch {
			id, beat, epoch = p.ID, s.Beat, s.Epoch
		}
	}
	return id, epoch, beat
}

// maxTold bounds the values that plain reads have not shown yet.
const maxTold = 64

// canary is what is known of how old this server's reads are. The zero value is ready.
type canary struct {
	mu struct {
		sync.Mutex
		from    cluster.Epoch // the reign that told it
		told    uint64        // the last value that was told
		queue   []heard       // those that a plain read has not shown, oldest first
		status  api.CanaryStatus
		looked  time.Time
		alarmed bool // for this reign
	}
}

// heard is a value and when it was told.
type heard struct {
	value uint64
	at    time.Time
}

// hear notes what was told and says whether there is something to look for.
func (c *canary) hear(id cluster.ServerID, from cluster.Epoch, value uint64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	if id == 0 {
		return false
	}
	if from != m.from {
		m.from, m.told, m.queue, m.alarmed = from, 0, nil, false
	}
	if value > m.told {
		m.told = value
		if len(m.queue) == maxTold {
			m.queue = m.queue[:maxTold-1] // the oldest says how old the view is
		}
		m.queue = append(m.queue, heard{value, now})
	}
	return len(m.queue) > 0
}

// look takes what both reads showed, which began after the last hear. It says
// whether to raise the alarm: once for each reign.
func (c *canary) look(direct, plain uint64, now time.Time) (alarm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	m.looked = now
	m.status.Looks++
	for len(m.queue) > 0 && m.queue[0].value <= plain {
		m.queue = m.queue[1:]
	}
	if len(m.queue) > 0 {
		m.status.StaleReads++
		m.status.MaxLag = max(m.status.MaxLag, now.Sub(m.queue[0].at))
	}
	if direct >= m.told {
		return false
	}
	m.status.StaleDirectReads++
	alarm = !m.alarmed
	m.alarmed = true
	return alarm
}

// read is what status tells.
func (c *canary) read(now time.Time) api.CanaryStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.status
	if s.Looks > 0 {
		s.Age = now.Sub(c.mu.looked)
	}
	return s
}
