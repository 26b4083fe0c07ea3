// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/primary/protected"
	"github.com/holdfast-lock/holdfast/primary/replication"
	"github.com/holdfast-lock/holdfast/primary/sidelog"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrVolumeRolledBack means that the volume lacks records that were committed: it was replaced
// by an older copy, or its filesystem lost what it had synced.
var ErrVolumeRolledBack = errors.New("the volume is older than what this server knows")

// ErrResigned is the cause of a term that ended on purpose.
var ErrResigned = errors.New("resigned")

// HistoryOptions bound the history of grants that ended.
type HistoryOptions = sidelog.HistoryOptions

// Options are what a primary needs besides its term.
type Options struct {
	Server cluster.ServerID
	Timing cluster.Timing
	Log    zerolog.Logger
	// Warm is the replica's table, or nil. The term takes it over; see Primary.Warm.
	Warm *volume.WarmState
	// Known is the highest LSN that this server knows to be committed, 0 for none. If the
	// log ends before it, the takeover fails with ErrVolumeRolledBack.
	Known cluster.LSN
	// Confirm is asked once, before the first fence is set, whether this
	// server should still take over; nil means yes. An error ends the term.
	Confirm func(context.Context) error
	// Replicas are fed with every committed frame, in order, after its check.
	Replicas map[cluster.ServerID]replication.Link
	// Keeps reports whether this server would have the majority of another list of servers; nil = of any. It is called by the
	// core loop, and must not block.
	Keeps func(cluster.Members) bool
	// Watch is fed likewise, and with losses; nil for none.
	Watch *watch.Feed
	// MaxBatch is the size at which a batch takes no further call, in bytes; 0
	// means 512 KiB. With one append more it must fit into the first segment.
	MaxBatch int
	// CheckpointBytes is how much log causes a checkpoint, in bytes; 0 means 64 MiB. For
	// a large table it is twice the size of the last checkpoint.
	CheckpointBytes int64
	// OpenFiles is how many protected files may stay open while they are not used; 0 means a
	// share of the descriptors that the process may have, 512 at most.
	OpenFiles int
	// ViewInterval is how old the views for people are at most while the table is not large;
	// 0 means 1 s.
	ViewInterval time.Duration
	// History bounds the history of grants that ended.
	History HistoryOptions
	// TimeOfDay returns this machine's time of day at a moment, for people: operators and NTP
	// set it, and no age is computed from it. nil means that of the moment itself.
	TimeOfDay func(time.Time) time.Time
	// Rules returns the access rules in force, by whose quotas requests are refused; nil = there are none. It is asked by each
	// round of the core loop.
	Rules func() *access.Rules
	// Jumps move the clock of leases, for tests of programs that use locks (clientlib/holdfasttest).
	// nil in a server.
	Jumps <-chan Jump
	// Meter counts what this term does; nil for one of its own.
	Meter *meter.Meter
	// Slow is how long a call may take before a line of the log says where the time went; 0 for never.
	Slow time.Duration
	// Traces says whether calls are traced, in their contexts; nil = none is.
	Traces *serving.Traces
	// Version is that of this binary, for people.
	Version string
}

// Primary is one term, from its claim to its end. Run is called once, and Warm after it; the
// other methods may be called from any goroutine at any time.
type Primary struct {
	opt   Options
	term  *volume.Term
	queue queue
	warm  *volume.WarmState // owned by Run

	state    atomic.Int32 // a State
	quorum   atomic.Bool
	began    time.Time    // with its monotonic reading: ages are counted from here, not from the time of day
	progress atomic.Int64 // nanoseconds since began, at the core loop's last round with nothing in flight
	checked  atomic.Int64 // nanoseconds since began, at the last passed check
	logBytes atomic.Int64 // of log after the last checkpoint
	logLimit atomic.Int64 // of logBytes, for the next one
	noSpace  atomic.Bool  // the next segment cannot be made
	rounds   atomic.Int64 // nanoseconds since began, when the core loop's last round began
	away     atomic.Bool  // the core loop is in a call into the volume
	sizes    struct{ grants, waiters, clients atomic.Int64 }
	contents atomic.Pointer[contents]
	// checkpointAt is when the last checkpoint was written, in nanoseconds since began; 0 for none.
	checkpointAt atomic.Int64
	// slow counts the slow calls that no line of the log tells of.
	slow conns.Refusals
	// overslept is nil if no timer ever was late.
	overslept atomic.Pointer[overslept]
	end       struct {
		sync.Mutex
		at wal.Position
	}
	// level is that of SetLevel; 0 before the first call.
	level atomic.Uint32
	// clusterLevel is the feature level of the cluster; 0 before the adoption.
	clusterLevel wal.Level
	// members is the list of servers that was committed last; nil before the adoption.
	members atomic.Pointer[cluster.Membership]
	// shown is the version of the list that MEMBERS shows for certain; 0 before it was looked at.
	shown atomic.Uint64

	// Owned by the housekeeper: the LSN of the last checkpoint, those of adopted ones that are damaged, and whether
	// it reads what was adopted to find that out.
	checkpointed cluster.LSN
	damaged      []cluster.LSN
	verifying    bool

	// Set by the takeover before any goroutine starts.
	source  volume.Source
	log     *wal.Log
	unread  *volume.UnverifiedLog
	adopted cluster.LSN

	files       *protected.Files
	replication *replication.Replication

	history *sidelog.History
	index   *sidelog.Index
	wake    struct{ segments, housekeeper, members wake.Signal }
	serving chan struct{} // closed when the term begins to serve
	wg      sync.WaitGroup
}

// State is the phase of a primary's term.
type State int32

// The states of a primary, in order.
const (
	StateFencing State = iota // it takes over
	StateServing
	StateEnded
)

// New returns a primary for a claimed term. Run takes over and serves.
func New(term *volume.Term, opt Options) *Primary {
	if opt.MaxBatch == 0 {
		opt.MaxBatch = 512 << 10
	}
	if opt.TimeOfDay == nil {
		opt.TimeOfDay = func(now time.Time) time.Time { return now.Round(0) }
	}
	if opt.OpenFiles == 0 {
		opt.OpenFiles = openFiles()
	}
	if opt.CheckpointBytes == 0 {
		opt.CheckpointBytes = 64 << 20
	}
	if opt.ViewInterval == 0 {
		opt.ViewInterval = time.Second
	}
	if opt.Meter == nil {
		opt.Meter = &meter.Meter{}
	}
	opt.Log = opt.Log.With().Uint64("epoch", uint64(term.Epoch())).Logger()
	p := &Primary{opt: opt, term: term, warm: opt.Warm, began: time.Now()}
	p.queue.wake = wake.NewSignal()
	p.serving = make(chan struct{})
	p.files = protected.New(fileHost{p}, term, opt.Log)
	p.wake.segments = wake.NewSignal()
	p.wake.housekeeper = wake.NewSignal()
	p.wake.members = wake.NewSignal()
	p.quorum.Store(true)
	p.replication = replication.New(host{p}, replication.Options{
		Cluster: term.Cluster(), Epoch: term.Epoch(), Replicas: opt.Replicas, Timing: opt.Timing, Log: opt.Log,
	})
	p.history = sidelog.NewHistory(sidelog.HistoryConfig{
		HistoryOptions: opt.History, Dir: term.HistoryDir(), Files: term.HistoryWriter(), Log: opt.Log, Check: p.check, Full: p.Full, TimeOfDay: opt.TimeOfDay,
	})
	p.index = sidelog.NewIndex(term.IndexWriter(), opt.Log)
	return p
}

// Run takes over and serves until the term ends: fenced, resigned, stopped by
// ctx, or because the volume failed. It returns the cause when every goroutine of the
// term has ended and the claim's lock is released: ErrResigned after Resign, an error of
// which Refused reports true if no server can serve from the volume.
func (p *Primary) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.term.End(context.Cause(ctx)) }) //nolint:errcheck // its cause is what Err returns
	defer stop()

	core, err := p.takeOver(ctx)
	if err == nil {
		p.serve(core)
		err = p.term.Err()
	} else {
		err = p.term.End(err)
	}
	p.state.Store(int32(StateEnded))
	p.queue.close()
	p.wg.Wait()
	p.files.Wait()
	if core != nil {
		p.warm = core.leave()
	}
	if p.log != nil {
		err = errors.Join(err, p.log.Close())
	}
	p.opt.Log.Info().Err(err).Msg("term ended")
	return errors.Join(err, p.term.Release())
}

// serve runs the core loop in this goroutine and the others beside it.
func (p *Primary) serve(c *core) {
	p.rounds.Store(int64(p.age()))
	p.state.Store(int32(StateServing)) // first: a housekeeper that has to write a checkpoint at once calls
	p.wg.Go(c.commits)
	p.wg.Go(p.segments)
	p.wg.Go(p.housekeeper)
	p.wg.Go(p.writeViews)
	p.wg.Go(p.showMembers)
	p.wg.Go(func() { p.replication.Run(p.term.Context()) })
	p.wg.Go(func() { p.history.Run(p.term.Context()) })
	p.wg.Go(func() { p.index.Run(p.term.Context()) })
	p.startWatch()
	p.countTakeover()
	close(p.serving)
	p.opt.Log.Info().Uint64("lsn", uint64(c.table.LSN())).Msg("serving")
	c.run()
}

// Warm returns the table that the term leaves, with its position; nil if the table may be ahead
// of the volume's log. It is that of a takeover that failed before anything was decided on it, or
// of a term all of whose records were durable before a check that it passed. Call it after Run.
func (p *Primary) Warm() *volume.WarmState { return p.warm }

// Serving returns a channel that is closed when the term begins to serve.
func (p *Primary) Serving() <-chan struct{} { return p.serving }

// Epoch returns the term's number.
func (p *Primary) Epoch() cluster.Epoch { return p.term.Epoch() }

// State returns the phase of the term. It is StateEnded as soon as the term has ended, even
// while a goroutine is still stuck in the filesystem.
func (p *Primary) State() State {
	if p.term.Err() != nil {
		return StateEnded
	}
	return State(p.state.Load())
}

// LSN returns that of the last committed record.
func (p *Primary) LSN() cluster.LSN { return p.Committed().LSN }

// Committed returns the end of what was committed: durable, and checked. It is zero before
// START.
func (p *Primary) Committed() wal.Position {
	p.end.Lock()
	defer p.end.Unlock()
	return p.end.at
}

func (p *Primary) setEnd(at wal.Position) {
	p.end.Lock()
	defer p.end.Unlock()
	p.end.at = at
}

// Ages returns how long ago the core loop made a round and the last check passed. A check that
// does not return counts from its beginning, even if a later one passes. A step of the time of
// day changes neither.
func (p *Primary) Ages(now time.Time) (progress, check time.Duration) {
	age := now.Sub(p.began)
	return age - time.Duration(p.progress.Load()), max(age-time.Duration(p.checked.Load()), p.term.Unchecked(now))
}

// Unanswered returns how long a takeover has waited for a call into the volume that has not
// returned: 0 in its own waits and in its work in memory.
func (p *Primary) Unanswered(now time.Time) time.Duration { return p.term.Unanswered(now) }

// SetQuorum sets whether a majority hears this primary. Without one every call is answered
// NO_QUORUM and the serving clock stands still. A term begins with it.
func (p *Primary) SetQuorum(ok bool) { p.quorum.Store(ok) }

// SetLevel sets the lowest feature level of all servers that are reached: the primary decides
// only what each of them can apply. Before the first call it decides all that the cluster's level allows.
func (p *Primary) SetLevel(level uint32) { p.level.Store(level) }

// End ends the term with this cause, which Run returns.
func (p *Primary) End(cause error) { p.term.End(cause) } //nolint:errcheck // Run returns it

// CheckNow checks the fence at once, as after a message that names a higher epoch. It returns
// an error if the term has ended or ends by it.
func (p *Primary) CheckNow() error { return p.check() }

func (p *Primary) check() error {
	if err := p.term.Check(); err != nil {
		return err
	}
	p.checked.Store(int64(time.Since(p.began)))
	return nil
}

// watch checks once a second, idle or not, also that the directory is still the same.
func (p *Primary) watch() {
	t := wake.Every(time.Second)
	defer t.Stop()
	for {
		select {
		case <-p.term.Done():
			return
		case <-t.C:
			t.Again()
		}
		if p.check() != nil || p.term.CheckPath() != nil {
			return
		}
	}
}

// segments keeps the next log segment ready. A full disk does not end the term.
func (p *Primary) segments() {
	backoff := 100 * time.Millisecond
	for {
		if !p.log.NextReady() {
			err := p.log.PrepareNext(p.term.Context())
			switch {
			case err == nil:
				p.noSpace.Store(false)
				backoff = 100 * time.Millisecond
				p.queue.wake.Notify()
			case p.term.Err() != nil:
				return
			case vfs.IsFull(err):
				p.noSpace.Store(true)
				p.opt.Log.Warn().Err(err).Msg("no space for the next log segment")
				if !p.sleep(backoff) {
					return
				}
				backoff = min(2*backoff, 5*time.Second)
				continue
			default:
				p.End(fmt.Errorf("prepare the next segment: %w", err))
				return
			}
		}
		select {
		case <-p.term.Done():
			return
		case <-p.wake.segments:
		}
	}
}

// sleep waits, and returns false if the term ended first.
func (p *Primary) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.term.Done():
		return false
	case <-t.C:
		return true
	}
}

// Full reports whether the log cannot grow: there is no space for the next segment.
func (p *Primary) Full() bool { return p.noSpace.Load() }

// HistoryTrouble returns why the history of grants is not written, "" if it is.
func (p *Primary) HistoryTrouble() string { return p.history.Trouble() }

// Recent returns the ends of grants that may not be in the files of the history yet.
func (p *Primary) Recent() history.Recent { return p.history.Recent() }

// SyncIndex makes the index durable up to every append that was answered before, or gives up
// when ctx ends or after 2 s.
func (p *Primary) SyncIndex(ctx context.Context) { p.index.Sync(ctx) }

// Ended returns a channel that is closed when the term has ended.
func (p *Primary) Ended() <-chan struct{} { return p.term.Done() }

// overslept is by how much a timer of this process was late, and when.
type overslept struct {
	by time.Duration
	at time.Time
}

// TimerLate reports that a timer of this process was late by this much: the process did not
// run. The log names it for leases that end soon after.
func (p *Primary) TimerLate(now time.Time, by time.Duration) {
	p.overslept.Store(&overslept{by, now})
}
