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
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/wal"
)

// canaryLook is how often a replica checks whether there is something to compare. It reads the
// volume only when the primary has sent a new value, or while reads past the caches lag.
const canaryLook = 200 * time.Millisecond

// beats raises this server's canary every second while it is primary, on a goroutine of
// its own: a write that hangs blocks nothing else.
func (n *Node) beats(ctx context.Context) error {
	t := wake.Every(probeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
		if p := n.current(); p != nil && p.State() == primary.StateServing {
			n.beat(p)
		}
	}
}

// beat raises this server's canary. Its failure is logged once and does not end the term, which
// has checks of its own.
func (n *Node) beat(p *primary.Primary) {
	at := p.Committed()
	if at.LSN == 0 {
		return // the first record of the volume is on its way
	}
	n.mu.Lock()
	value := max(uint64(n.opt.TimeOfDay(time.Now()).UnixMilli()), n.mu.beat+1) // rises over restarts, too
	n.mu.beatEpoch = p.Epoch()
	n.mu.Unlock()
	err := n.vol.WriteCanary(volume.Canary{Epoch: p.Epoch(), Value: value, At: at})
	if err != nil {
		if !n.canaryErrorLogged {
			n.opt.Log.Warn().Err(err).Msg("the canary cannot be written: replicas cannot see whether the filesystem shows old data")
		}
		n.canaryErrorLogged = true
		return
	}
	n.canaryErrorLogged = false
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.beat = value
}

// watchCanary compares what the primary reports to have written with what this server reads.
func (n *Node) watchCanary(ctx context.Context) error {
	t := wake.Every(canaryLook)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
			n.lookAtCanary()
		}
	}
}

// hiddenName is for how long the cache of a network filesystem may hide a new name at most. Only
// the first terms of a server on a volume that was made without canaries bring a new one.
const hiddenName = 65 * time.Second

// namesLie returns for how long a name may be hidden from this server: reads past the caches are
// current, but need a name.
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
	stood := n.replica.At()
	direct, directErr := n.vol.ReadCanary(id, vfs.FlagDirect)
	plain, plainErr := n.vol.ReadCanary(id, vfs.FlagRead)
	now := time.Now()
	if plainErr != nil {
		plain = volume.Canary{} // as old as can be
	}
	unnamed := errors.Is(directErr, fs.ErrNotExist) && n.canary.unseenFor(now) >= n.namesLie()
	if unnamed || errors.Is(directErr, volume.ErrEmptyCanary) {
		direct, directErr = volume.Canary{}, nil // so is this: it was written before it was sent
	}
	if directErr != nil {
		return
	}
	if n.canary.look(direct.Value, plain.Value, now) {
		n.opt.Log.Error().Uint32("primary", uint32(id)).Uint64("told", told).Uint64("read", direct.Value).
			Msg("A READ PAST THE CACHES SHOWS OLD DATA: this filesystem can hide a fence. Stop the servers and run holdfast doctor on two hosts")
	}
	n.learnFrom(direct)
	if direct.Value >= told {
		n.compare(direct, stood)
	}
}

// compare compares a canary that is as new as the value sent with what this server knows, and
// with the position of its table before the canary was read.
func (n *Node) compare(c volume.Canary, stood wal.Position) {
	n.mu.Lock()
	was := n.mu.setBack
	n.mu.setBack = behind{}
	if known := n.mu.known; c.At.LSN > 0 && c.At.LSN < known.LSN && c.Epoch >= known.Epoch {
		n.mu.setBack = behind{c.At.LSN, known.LSN}
	}
	now := n.mu.setBack
	n.mu.Unlock()
	if now != (behind{}) && was == (behind{}) {
		n.opt.Log.Error().Uint64("epoch", uint64(c.Epoch)).Msg(now.String())
	}
	if n.canary.contradicts(c, n.replica.Epoch(), stood) && n.replica.Drop(stood) {
		n.opt.Log.Error().Uint64("lsn", uint64(stood.LSN)).Uint64("volume_lsn", uint64(c.At.LSN)).
			Msg("WHAT WAS PUSHED TO THIS SERVER IS NOT WHAT THE VOLUME SHOWS: somebody else than the primary reaches its peer port. The table is dropped; the primary sends it anew")
	}
}

// toldBeat returns the value that the primary sent last, in answer to a ping at its own address:
// any process can send a ping in its name, and a server on a copy elsewhere does.
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

// canary tracks how stale this server's reads of the volume are. The zero value is ready.
type canary struct {
	mu struct {
		sync.Mutex
		id      cluster.ServerID // of the last value
		from    cluster.Epoch    // in which term
		told    uint64           // the last value
		plain   unseen           // by reads through the caches
		direct  unseen           // by reads past them
		behind  time.Time        // how old the last read past the caches showed the volume; zero: it showed all
		status  serving.CanaryStatus
		looked  time.Time
		alarmed bool // for this term
		stood   [2]stand
	}
}

// stand is the position of a table when a canary was read, and the canary's value.
type stand struct {
	epoch cluster.Epoch
	value uint64
	lsn   cluster.LSN
}

// unseen are the values that a kind of read has not shown, oldest first.
type unseen []heard

// heard is a value and when it was received.
type heard struct {
	value uint64
	at    time.Time
}

func (u *unseen) add(value uint64, at time.Time) {
	if len(*u) == maxTold {
		*u = (*u)[:maxTold-1] // the oldest ones show how old the view is
	}
	*u = append(*u, heard{value, at})
}

func (u *unseen) seen(value uint64) {
	for len(*u) > 0 && (*u)[0].value <= value {
		*u = (*u)[1:]
	}
}

// hear records a received value and reports whether the volume is to be read. Values that reads
// past the caches have not shown are searched also when no more values come.
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
			at = m.direct[0].at // another term makes the view no younger
		}
		m.from, m.told, m.plain, m.direct, m.alarmed = from, 0, nil, nil, false
	}
	m.id = id
	risen := value > m.told
	if risen {
		m.told = value
		m.plain.add(value, now)
		m.direct.add(value, at)
	}
	return risen || len(m.direct) > 0
}

// last returns the last value received, and from which server.
func (c *canary) last() (cluster.ServerID, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.id, c.mu.told
}

// lag returns how old the volume is that reads past the caches show: 0 if they show all values
// received.
func (c *canary) lag(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.behind.IsZero() {
		return 0
	}
	return now.Sub(c.mu.behind)
}

// unseenFor returns how long ago the oldest value was received that no read past the caches has
// shown.
func (c *canary) unseenFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.direct) == 0 {
		return 0
	}
	return now.Sub(c.mu.direct[0].at)
}

// look records what both reads showed, which began after the last hear. It reports whether to
// raise the alarm: once for each term.
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

// contradicts reports whether a table that is fed by the term of epoch fed cannot be that of the
// volume. The two may differ only by what was committed between the canary and its reading, and that
// is in the next canary but one: the one after the next was made when the next had been written,
// so after this reading.
func (c *canary) contradicts(x volume.Canary, fed cluster.Epoch, stood wal.Position) bool {
	if x.At.LSN == 0 || x.Epoch != fed {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.mu.stood
	if s[0].epoch != x.Epoch || stood.LSN < s[0].lsn { // it is another one
		*s = [2]stand{}
	}
	if x.At.LSN == stood.LSN && x.At.Chain != stood.Chain || x.At.LSN < s[1].lsn {
		*s = [2]stand{}
		return true
	}
	if x.Value != s[0].value {
		*s = [2]stand{{x.Epoch, x.Value, stood.LSN}, s[0]}
	}
	return false
}

// read returns the part of status.
func (c *canary) read(now time.Time) serving.CanaryStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.status
	if s.Looks > 0 {
		s.Age = now.Sub(c.mu.looked)
	}
	return s
}
