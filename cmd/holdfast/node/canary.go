// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
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
	value := max(uint64(n.opt.TimeOfDay(time.Now()).UnixMilli()), n.mu.beat+1) // rises over restarts, too
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

// hiddenName is for how long the cache of a network filesystem may hide a new name at most.
const hiddenName = 65 * time.Second

// namesLie is for how long a name may be hidden from this server: only what is read past the
// caches is as it is, and to read it takes a name.
func (n *Node) namesLie() time.Duration {
	if n.vol.Kind().Network {
		return hiddenName
	}
	return 0
}

func (n *Node) lookAtCanary() {
	if !n.canary.hear(n.toldBeat()) {
		return
	}
	id, told := n.canary.last()
	direct, directErr := n.vol.ReadCanary(id, volume.FlagDirect)
	plain, plainErr := n.vol.ReadCanary(id, volume.FlagRead)
	now := time.Now()
	if plainErr != nil {
		plain = 0 // as old as can be
	}
	if errors.Is(directErr, fs.ErrNotExist) && n.canary.unseenFor(now) >= n.namesLie() {
		direct, directErr = 0, nil // so is this: it was written before it was told
	}
	if directErr == nil && n.canary.look(direct, plain, now) {
		n.opt.Log.Error().Uint32("primary", uint32(id)).Uint64("told", told).Uint64("read", direct).
			Msg("A READ PAST THE CACHES SHOWS OLD DATA: this filesystem can hide a fence. Stop the servers and run holdfast doctor on two hosts")
	}
}

// toldBeat is what the primary told last, in answer to a question at its own address: anybody
// can send a ping in its name, and a server on a copy elsewhere does.
func (n *Node) toldBeat() (id cluster.ServerID, epoch cluster.Epoch, beat uint64, now time.Time) {
	for _, p := range n.elector.Peers() {
		s := p.Answered
		if p.Reachable && !p.Conflict && s.Role == election.RolePrimary && s.Beat > 0 && s.Epoch >= epoch {
			id, beat, epoch = p.ID, s.Beat, s.Epoch
		}
	}
	return id, epoch, beat, time.Now()
}

// maxTold bounds the values that reads have not shown yet.
const maxTold = 64

// canary is what is known of how old this server's reads are. The zero value is ready.
type canary struct {
	mu struct {
		sync.Mutex
		id      cluster.ServerID // who told last
		from    cluster.Epoch    // in which reign
		told    uint64           // the last value
		plain   unseen           // by reads through the caches
		direct  unseen           // by reads past them
		behind  time.Time        // how old the last read past the caches showed the volume; zero: it showed all
		status  api.CanaryStatus
		looked  time.Time
		alarmed bool // for this reign
	}
}

// unseen are the values that a kind of read has not shown, oldest first.
type unseen []heard

// heard is a value and when it was told.
type heard struct {
	value uint64
	at    time.Time
}

func (u *unseen) add(value uint64, at time.Time) {
	if len(*u) == maxTold {
		*u = (*u)[:maxTold-1] // the oldest says how old the view is
	}
	*u = append(*u, heard{value, at})
}

func (u *unseen) seen(value uint64) {
	for len(*u) > 0 && (*u)[0].value <= value {
		*u = (*u)[1:]
	}
}

// hear notes what was told and says whether there is something to look for. What reads past the
// caches have not shown is looked for when nobody tells anything any more, too.
func (c *canary) hear(id cluster.ServerID, from cluster.Epoch, value uint64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	if id == 0 {
		return len(m.direct) > 0
	}
	at := now
	if from != m.from {
		if len(m.direct) > 0 {
			at = m.direct[0].at // another reign makes the view no younger
		}
		m.from, m.told, m.plain, m.direct, m.alarmed = from, 0, nil, nil, false
	}
	m.id = id
	if value > m.told {
		m.told = value
		m.plain.add(value, now)
		m.direct.add(value, at)
	}
	return len(m.plain) > 0 || len(m.direct) > 0
}

// last is what was told last, and by whom.
func (c *canary) last() (cluster.ServerID, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.id, c.mu.told
}

// lag is how old the volume is that reads past the caches show: 0 where they show all that was told.
func (c *canary) lag(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.behind.IsZero() {
		return 0
	}
	return now.Sub(c.mu.behind)
}

// unseenFor is how long ago the oldest value was told that no read past the caches has shown.
func (c *canary) unseenFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.direct) == 0 {
		return 0
	}
	return now.Sub(c.mu.direct[0].at)
}

// look takes what both reads showed, which began after the last hear. It says
// whether to raise the alarm: once for each reign.
func (c *canary) look(direct, plain uint64, now time.Time) (alarm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	m.looked = now
	m.status.Looks++
	m.plain.seen(plain)
	if len(m.plain) > 0 {
		m.status.StaleReads++
		m.status.MaxLag = max(m.status.MaxLag, now.Sub(m.plain[0].at))
	}
	m.direct.seen(direct)
	m.behind = time.Time{}
	if len(m.direct) > 0 {
		m.behind = m.direct[0].at
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
