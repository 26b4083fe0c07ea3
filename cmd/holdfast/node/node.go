// SPDX-License-Identifier: Apache-2.0

// Package node is the composition root of one server: it joins volume, election,
// primary and replica, and switches roles.
//
// A node is a replica until the elector offers it a term. Then it claims an epoch
// with its prepared claim and runs a primary until that ends, for whatever reason,
// and is a replica again. It claims anew only when every goroutine of its former
// term has ended, and has the process exit when one is stuck.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/watch"
)

// Peers sends to the other servers.
type Peers interface {
	election.Transport
	// Push sends one push to a replica.
	Push(ctx context.Context, to cluster.ServerID, p push.Push) (push.Ack, error)
	// Handover nominates a server to follow the term of this epoch.
	Handover(ctx context.Context, to cluster.ServerID, epoch cluster.Epoch) error
	// Follow replaces the servers that can be reached, and their addresses. What is in flight to one that is gone, or has moved, fails.
	Follow(all cluster.Members)
}

// Options configure a Node.
type Options struct {
	Server  cluster.ServerID
	FS      vfs.FS
	Address string // for people, in claim.json
	DataDir string // for a copy of the table on a disk of this server's own; empty for none
	Timing  cluster.Timing
	Peers   Peers
	Log     zerolog.Logger
	// Random is the source of nonces, Rand of jitter.
	Random io.Reader
	Rand   *rand.Rand
	// Stuck is called when a goroutine of a term that has ended, or of a server that
	// should stop, does not return from the filesystem: the process should exit.
	Stuck func(error)
	// Moved reports whether the path leads to the volume, while what FS has open leads elsewhere
	// or nowhere. It may take as long as the filesystem does. nil = never.
	Moved func() bool
	// Members is the list of servers, with this one, as the caller read it from MEMBERS; nil: New reads it.
	Members *cluster.Membership
	// Known is what the Node before this one in the process knew; zero for the first one.
	Known replica.Known
	// Key is this process's key between servers, shown on the volume. Disowned returns which other server has
	// not known it for how long, though this server knows that one; see peertls. nil = none, ever.
	Key      volume.KeyID
	Disowned func() (cluster.ServerID, time.Duration)
	// Version and Path, the volume's directory, are shown in status.
	Version, Path string
	// Restart returns settings that were changed and count after a restart only, for status. nil = none, ever.
	Restart func() []string
	// Own is what the volume owns, which is a cell of a site, and Cells returns, for status, where each cell of it is served, from the servers
	// of this one. It never blocks. Both are nil for a volume of no site.
	Own   *cluster.Own
	Cells func(own cluster.Members) []serving.CellServers
	// Warnings are shown in status: what is wrong with the volume from the start.
	Warnings []string
	// Trouble returns what else is wrong, for status; "" for nothing. It never blocks. nil = nothing is, ever.
	Trouble func() string
	// FirstSegment, Segment, MaxBatch and CheckpointBytes are sizes in bytes; 0 means the default.
	FirstSegment, Segment int64
	MaxBatch              int
	CheckpointBytes       int64
	// History bounds the history of grants that ended.
	History primary.HistoryOptions
	// TimeOfDay returns this machine's time of day at a moment; see primary.Options.
	TimeOfDay func(time.Time) time.Time
	// Rules returns the access rules in force, for their quotas; see primary.Options. nil = there are none.
	Rules func() *access.Rules
	// Jumps are for tests of programs; see primary.Options.
	Jumps <-chan primary.Jump
	// Meter counts what the terms of this server do; nil for one of its own.
	Meter *meter.Meter
	// Slow is how long a call may take before it is logged; see primary.Options.
	Slow time.Duration
	// Traces says whether calls are traced; see primary.Options.
	Traces *serving.Traces
}

// Node is one server.
type Node struct {
	opt               Options
	vol               *volume.Volume
	elector           *election.Elector
	replica           *replica.Replica
	hub               *watch.Hub
	nonce             uint64
	timing            uint64 // the hash of opt.Timing
	began             time.Time
	canary            canary
	terms             terms
	list              atomic.Pointer[cluster.Membership] // the list of servers that this one follows
	known             atomic.Pointer[cluster.Membership] // the newest one that it believes: see newest
	canaryErrorLogged bool                               // owned by beats: that the canary cannot be written was logged
	absent            absent                             // owned by watchPrimaries

	mu struct {
		sync.Mutex
		role      election.Role
		primary   *primary.Primary // of the term that is not over, or nil
		inTerm    bool             // until every goroutine of the term has ended
		prepared  *volume.Prepared
		probed    time.Time // the last write to the volume that returned
		probeErr  error     // why the last one did not, nil if it did
		highest   cluster.Epoch
		known     replica.Known                       // what was committed, see known.go
		beat      uint64                              // the last value of this server's canary
		beatEpoch cluster.Epoch                       // the term that may have raised it last
		trouble   string                              // why its last try to be primary failed, "" if it did not
		signs     map[cluster.ServerID]volume.Process // the process that writes to the volume under an ID, as seen last
		setBack   behind                              // by the last read of the primary's canary
		unseen    error                               // why the last look at what other servers write failed, nil if it did not
		outdated  string                              // why this binary is too old for the cluster, "" if it is not
		joins     map[cluster.ServerID]string         // why servers that join are no members yet; of a primary
		foreign   map[cluster.ServerID]foreign        // the last stranger without a key of the volume, by the ID that it uses
	}
	prepare wake.Signal // wakes keepClaims
	reread  wake.Signal // has readMembers read
	learned wake.Signal // has followMembers look
}

// probeEvery is how often a server proves that it can write to the volume.
const probeEvery = time.Second

// New opens the volume and locks the server's ID on this host.
func New(opt Options) (*Node, error) {
	if err := opt.Timing.Validate(); err != nil {
		return nil, err
	}
	if opt.TimeOfDay == nil {
		opt.TimeOfDay = func(now time.Time) time.Time { return now.Round(0) }
	}
	if opt.Meter == nil {
		opt.Meter = &meter.Meter{}
	}
	vol, err := open(&opt)
	if err != nil {
		return nil, err
	}
	knew, err := knewBefore(opt, vol.Cluster().ID)
	if err != nil {
		return nil, errors.Join(err, vol.Close())
	}
	opt.Log = opt.Log.With().Uint32("server", uint32(opt.Server)).Logger()
	n := &Node{opt: opt, vol: vol, replica: replica.New(), hub: watch.New(opt.Timing.StorageTimeout), nonce: opt.Rand.Uint64(), timing: opt.Timing.Hash(), began: time.Now(), prepare: wake.NewSignal(), reread: wake.NewSignal(), learned: wake.NewSignal(), absent: absent{}}
	list := vol.Members()
	n.list.Store(&list)
	n.known.Store(&list)
	opt.Peers.Follow(list.Servers)
	n.mu.known, n.mu.signs = knew, map[cluster.ServerID]volume.Process{}
	n.mu.foreign = map[cluster.ServerID]foreign{}
	n.replica.SetFeed(pushed{n.hub.Feed(true)})
	n.replica.SetHistoryRate(opt.History.Rate)
	n.elector = election.New(election.Options{
		Self: opt.Server, Nonce: n.nonce, About: about(&opt), Members: list.Servers, First: firstOf(vol.Cluster()), Timing: opt.Timing,
		Transport: opt.Peers, Status: n.self, Rand: opt.Rand, Log: opt.Log,
		OnHigherEpoch: n.onHigherEpoch, OnStranger: n.onStranger,
	})
	return n, nil
}

// firstOf returns the place of the server that should be primary: those of the cells of a site begin with another one each, so that no
// host is primary of all.
func firstOf(c volume.Cluster) int {
	if c.Cell == nil {
		return 0
	}
	return int(c.Cell.Cell)
}

// open opens the volume. A server that joins makes its canary, which the others look for only when it is a member: no cache
// remembers then that there was none.
func open(opt *Options) (*volume.Volume, error) {
	vol, err := volume.Open(opt.FS, volume.Options{
		Server: opt.Server, Members: opt.Members, Address: opt.Address, Random: opt.Random,
		FirstSegment: opt.FirstSegment, Segment: opt.Segment, HistoryRate: opt.History.Rate, Staleness: opt.Timing.Staleness,
	})
	if err != nil {
		return nil, err
	}
	if m, listed := vol.Members().Servers.Find(opt.Server); listed && m.Joining {
		if err := vol.CreateCanary(); err != nil {
			return nil, errors.Join(err, vol.Close())
		}
	}
	return vol, nil
}

// Run serves until ctx ends. A primary hands over first, if another server is able. It returns an error that wraps cluster.ErrRemoved
// when it learns, from the volume or the primary, that this server was removed from the cluster.
func (n *Node) Run(ctx context.Context) error {
	if err := errors.Join(n.vol.RemoveLeftovers(), n.vol.KeepReserve()); err != nil {
		n.opt.Log.Warn().Err(err).Msg("clean up the volume's servers/")
	}
	if n.opt.DataDir != "" {
		if err := n.replica.Load(n.opt.DataDir, n.vol.Cluster().ID, n.hasBegun); err != nil {
			n.opt.Log.Warn().Err(err).Msg("start without a warm table")
		}
	}
	// What runs lives a little longer than ctx: long enough to hand over.
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	g, inner := errgroup.WithContext(inner)
	ended := make(chan struct{})
	defer close(ended)
	go n.watchEnd(inner, ended)
	g.Go(func() error { return n.elector.Run(inner) })
	g.Go(func() error { return n.hub.Run(inner) })
	g.Go(func() error { return n.keepClaims(inner) })
	g.Go(func() error { return n.reopens(inner) })
	g.Go(func() error { return n.beats(inner) })
	g.Go(func() error { return n.showSigns(inner) })
	g.Go(func() error { return n.watchSigns(inner) })
	g.Go(func() error { return n.watchCanary(inner) })
	g.Go(func() error { return n.watchPrimaries(inner) })
	g.Go(func() error { return n.watchSpace(inner) })
	g.Go(func() error { return n.watchTimings(inner) })
	g.Go(func() error { return n.followMembers(inner) })
	g.Go(func() error { return n.readMembers(inner) })
	g.Go(func() error { return n.roles(inner) })
	if n.opt.DataDir != "" {
		g.Go(func() error { return n.remember(inner) })
		g.Go(func() error {
			n.replica.Keep(inner, n.opt.DataDir, func(err error) { n.opt.Log.Warn().Err(err).Msg("data directory") })
			return nil
		})
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			n.leave()
			return context.Cause(ctx)
		case <-inner.Done():
			return context.Cause(inner)
		}
	})
	err := g.Wait()
	if n.opt.DataDir != "" {
		n.keepKnown(n.knows()) // only now it is known how far the last term came
	}
	if p := n.takePrepared(); p != nil {
		err = errors.Join(err, p.Discard())
	}
	return errors.Join(err, n.vol.Close())
}

// watchEnd has the process exit when Run does not return in time once it should: a call into a
// volume that hangs cannot be cancelled. A write that it makes late is the same as one of a
// process that was killed.
func (n *Node) watchEnd(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	t := time.NewTimer(n.opt.Timing.StorageTimeout)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		if n.opt.Stuck != nil {
			n.opt.Stuck(fmt.Errorf("a call into the volume has not come back %v after this server was to stop", n.opt.Timing.StorageTimeout))
		}
	}
}

const (
	// handoverWait bounds how long a primary takes to resign.
	handoverWait = 2 * time.Second
	// tellWait bounds how long it notifies its successor.
	tellWait = time.Second
)

// leave hands the primary role over, if this server has it and another one is able.
func (n *Node) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), handoverWait)
	defer cancel()
	to, err := n.Handover(ctx, 0)
	switch {
	case err == nil:
		n.opt.Log.Info().Uint32("to", uint32(to)).Msg("handed over")
	case !errors.Is(err, ErrNotPrimary):
		n.opt.Log.Warn().Err(err).Msg("stopping without a handover")
	}
}

// roles claims and serves whenever the elector offers a term.
func (n *Node) roles(ctx context.Context) error {
	refused := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.elector.Elected():
		}
		began := time.Now()
		n.setInTerm(true)
		var err error
		if refused {
			err = n.look(ctx)
		}
		if err == nil {
			err = n.serveTerm(ctx)
		}
		n.setInTerm(false)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, cluster.ErrRemoved) {
			return err
		}
		if refused = primary.Refused(err); refused {
			err = fmt.Errorf("%w: %w", election.ErrNeedsOperator, err)
		}
		n.tellTrouble(err)
		n.elector.Done(err, time.Since(began))
		n.prepare.Notify()
	}
}

// tellTrouble shows in status and in the log why this server is not primary.
func (n *Node) tellTrouble(err error) {
	trouble, level := "", zerolog.WarnLevel
	switch {
	case err == nil, errors.Is(err, election.ErrYield), errors.Is(err, volume.ErrOvertaken), errors.Is(err, volume.ErrFenced):
		level = zerolog.DebugLevel // another server is primary, or is about to
	case errors.Is(err, election.ErrNeedsOperator):
		trouble, level = "it cannot be primary: "+err.Error(), zerolog.ErrorLevel
	default:
		trouble = "its last term ended: " + err.Error()
	}
	n.opt.Log.WithLevel(level).Err(err).Msg("this server is not primary")
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.trouble = trouble
}

// noTermReason returns why this server is not primary, if none is.
func (n *Node) noTermReason() string {
	if _, _, known := n.Primary(); known {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.trouble
}

// look checks whether the volume can be taken over by now, after a claim was refused. Each claim
// uses a number for ever, so a server does not claim as long as it would be refused again.
func (n *Node) look(ctx context.Context) error {
	known := n.knows().LSN // first, like the history: a primary may go on meanwhile
	end, told, err := n.vol.Preview(ctx)
	if told = max(told, known); err == nil && end < told {
		err = fmt.Errorf("%w: LSN %d was committed, the log ends at %d", primary.ErrVolumeRolledBack, told, end)
	}
	if !primary.Refused(err) {
		return nil
	}
	why := "not claimed: the volume needs an operator, type holdfast fsck"
	if volume.TooOld(err) != nil {
		why = "not claimed: this server is too old for the volume"
	}
	n.opt.Log.Error().Err(err).Msg(why)
	return err
}

// serveTerm claims a term and serves it until it ends.
func (n *Node) serveTerm(ctx context.Context) error {
	prepared := n.takePrepared()
	if prepared == nil {
		return errors.New("no prepared claim")
	}
	if err := n.mayClaim(); err != nil {
		n.keepPrepared(prepared)
		return err
	}
	n.setRole(election.RoleCandidate, nil)
	defer n.setRole(election.RoleReplica, nil)
	r, err := n.vol.Claim(ctx, prepared)
	if errors.Is(err, volume.ErrNotClaimed) {
		n.keepPrepared(prepared)
	}
	if err != nil {
		return err
	}
	n.heardOf(r.Epoch())
	n.opt.Log.Info().Uint64("epoch", uint64(r.Epoch())).Msg("claimed")
	p := primary.New(r, primary.Options{
		Server: n.opt.Server, Timing: n.opt.Timing, Log: n.opt.Log,
		Known: n.knows().LSN, Warm: n.replica.HandOver(r.Epoch()), Confirm: n.elector.Confirm, Replicas: n.links(), Keeps: n.elector.MajorityOf, Watch: n.hub.Feed(false),
		MaxBatch: n.opt.MaxBatch, CheckpointBytes: n.opt.CheckpointBytes, History: n.opt.History, TimeOfDay: n.opt.TimeOfDay,
		Rules: n.opt.Rules, Jumps: n.opt.Jumps,
		Meter: n.opt.Meter, Slow: n.opt.Slow, Traces: n.opt.Traces, Version: n.opt.Version,
	})
	p.SetLevel(n.elector.LowestLevel())
	n.setRole(election.RoleFencing, p)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer n.learn(p)
	err = n.supervise(p, ended)
	n.opt.Meter.CountEnd(endOf(err))
	n.replica.TakeBack(p.Warm(), p.LSN() > 0)
	return err
}

// supervise sets the primary's quorum and the level that others can apply, ends the term where it
// should end, and has the process exit when a goroutine of the term does not return.
func (n *Node) supervise(p *primary.Primary, ended <-chan error) error {
	t := wake.Every(n.opt.Timing.Heartbeat)
	defer t.Stop()
	began := time.Now()
	quorum := quorum{heard: began, looked: began}
	var over time.Time // since when the term has ended
	stuck := n.opt.Stuck
	serving := p.Serving()
	for {
		select {
		case err := <-ended:
			return err
		case <-serving:
			serving = nil
		case <-t.C:
			t.Again()
		}
		now := time.Now()
		if late := quorum.look(now, wake.Longest(n.opt.Timing.Heartbeat), n.opt.Timing.StorageTimeout, n.elector.Majority()); late > timerLateness {
			p.TimerLate(now, late)
			n.opt.Log.Warn().Dur("late_by", late).Msg("this process did not run: its own timer was late")
		}
		p.SetLevel(n.elector.LowestLevel()) // before it serves, too: not one record may be too new
		switch p.State() {
		case primary.StateServing:
			n.setRole(election.RolePrimary, p)
			n.enforceLiveness(p, now, &quorum)
		case primary.StateEnded:
			n.setRole(election.RoleReplica, nil) // what is left of the term answers no client
			if over.IsZero() {
				over = now
			}
			if now.Sub(over) > n.opt.Timing.StorageTimeout && stuck != nil {
				stuck(fmt.Errorf("a goroutine of epoch %d is stuck in the filesystem", p.Epoch()))
				stuck = nil // once is enough
			}
		}
	}
}

// timerLateness is how late a timer of this process may be before that is logged.
const timerLateness = 100 * time.Millisecond

var (
	// ErrNoQuorum ends a term that no majority has heard for the quorum timeout.
	ErrNoQuorum = errors.New("no majority hears this primary")
	// ErrStalled ends a term whose volume stalls while another server's does not.
	ErrStalled = errors.New("the volume stalls here and not elsewhere")
)

// enforceLiveness applies the rules of PROTOCOL 2.3 and 2.4 to a serving primary.
func (n *Node) enforceLiveness(p *primary.Primary, now time.Time, q *quorum) {
	// Leases are counted while there is a quorum: that this server is late makes none shorter.
	p.SetQuorum(q.silent(now) <= n.opt.Timing.Suspicion)
	if q.lost(now, n.opt.Timing.QuorumTimeout, n.elector.Allowance()) {
		p.End(ErrNoQuorum)
	}
	if _, check := p.Ages(now); q.stalled(now, check, n.opt.Timing.StorageTimeout) && n.elector.FreshStorageElsewhere() {
		p.End(ErrStalled)
	}
}

// watchSpace samples the free space every second, on a goroutine of its own: if the filesystem
// does not report it, or hangs, nothing else is blocked.
func (n *Node) watchSpace(ctx context.Context) error {
	t := wake.Every(probeEvery)
	defer t.Stop()
	for {
		if err := n.vol.SampleSpace(); err != nil {
			n.opt.Log.Debug().Err(err).Msg("free space is not known")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
	}
}

// keepClaims keeps a claim prepared at all times. If it cannot, it logs why, once.
func (n *Node) keepClaims(ctx context.Context) error {
	t := wake.Every(probeEvery)
	defer t.Stop()
	said := ""
	for {
		err, why := n.keep(ctx), ""
		if err != nil {
			why = sameEachTry(err)
		}
		if why != "" && why != said && ctx.Err() == nil {
			n.opt.Log.Warn().Err(err).Msg("this server cannot take over until a claim is prepared")
		}
		said = why
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		case <-n.prepare:
		}
	}
}

// sameEachTry returns the text of an error of Prepare without the nonce, which each try draws anew.
func sameEachTry(err error) string {
	return regexp.MustCompile(`[0-9a-f]{32}`).ReplaceAllString(err.Error(), "NONCE")
}

func (n *Node) keep(ctx context.Context) error {
	n.mu.Lock()
	needed := n.mu.prepared == nil && !n.mu.inTerm
	n.mu.Unlock()
	if !needed {
		return nil
	}
	p, err := n.vol.Prepare(ctx)
	if err != nil {
		return err
	}
	n.keepPrepared(p)
	return nil
}

func (n *Node) keepPrepared(p *volume.Prepared) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.prepared = p
}

func (n *Node) takePrepared() *volume.Prepared {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.mu.prepared
	n.mu.prepared = nil
	return p
}

func (n *Node) setRole(role election.Role, p *primary.Primary) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.role != role {
		n.opt.Log.Info().Stringer("role", role).Uint64("epoch", uint64(n.mu.highest)).Msg("role")
	}
	n.mu.role, n.mu.primary = role, p
}

func (n *Node) setInTerm(inTerm bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.inTerm = inTerm
}

func (n *Node) heardOf(e cluster.Epoch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.highest = max(n.mu.highest, e)
}

// onHigherEpoch has a primary check its fence at once. Only the volume shows whether there is
// such an epoch.
func (n *Node) onHigherEpoch(cluster.Epoch) {
	if p := n.current(); p != nil {
		go p.CheckNow() //nolint:errcheck // a failed check ends the term
	}
}

// current returns the primary of this node's term, or nil.
func (n *Node) current() *primary.Primary {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.primary
}

// self returns the status that the elector sends to the others. Its storage is as old as what reads
// past the caches show: a server that reads a copy of the volume, or old data, neither votes nor
// claims, nor does one whose key another server does not find on its volume. A term that serves has checks of its own.
func (n *Node) self() election.Status {
	now := time.Now()
	lag := n.canary.lag(now)
	if _, age := n.disowned(); age > 0 {
		lag = max(lag, age, 2*n.opt.Timing.StorageTimeout)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.selfLocked(now)
	if s.Role != election.RolePrimary {
		s.Storage = max(s.Storage, lag)
	}
	return s
}

// storageAge returns how long ago a write to the volume or a check of the term succeeded.
func (n *Node) storageAge(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.selfLocked(now).Storage
}

func (n *Node) selfLocked(now time.Time) election.Status {
	s := election.Status{
		Role: n.mu.role, Epoch: n.highestLocked(), LSN: n.replica.LSN(),
		Able: n.mu.prepared != nil && n.mu.outdated == "", Storage: now.Sub(n.mu.probed), FeatureLevel: volume.FeatureLevel, Timing: n.timing,
	}
	p := n.mu.primary
	if p != nil {
		s.Epoch = p.Epoch() // a higher one is of another server, or was never served
	}
	switch {
	case p == nil:
	case p.State() == primary.StateEnded:
		s.Role = election.RoleReplica // what is left of the term answers no client
	case p.State() == primary.StateServing:
		s.Progress, s.Storage = p.Ages(now)
		s.LSN, s.Beat = p.LSN(), n.mu.beat
	case p.State() == primary.StateFencing:
		// Another server takes over from a takeover that hangs. What that does late, even after
		// other terms, breaks nothing: in the epochs below its own it sets fences, which each
		// successor has set, too; all else it writes into its own epoch's directory, whose fence
		// was set before a successor looked for its START. A START that comes later begins a term
		// that has answered nothing.
		s.Progress = p.Unanswered(now)
	}
	return s
}

// highestKnown returns the highest epoch that this node knows of.
func (n *Node) highestKnown() cluster.Epoch {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.highestLocked()
}

func (n *Node) highestLocked() cluster.Epoch { return max(n.mu.highest, n.replica.Epoch()) }

// link is the replication.Link to one replica.
type link struct {
	peers Peers
	to    cluster.ServerID
}

// Push sends one push.
func (l link) Push(ctx context.Context, p push.Push) (push.Ack, error) {
	return l.peers.Push(ctx, l.to, p)
}
