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

	"github.com/holdfast-lock/holdfast/primary/watch"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrSetBack says that the volume lacks records that were committed: somebody put
// an older copy of it in its place, or its filesystem lost what it had synced.
var ErrSetBack = errors.New("the volume is older than what this server knows")

// ErrResigned is the cause of a reign that ended on purpose.
var ErrResigned = errors.New("resigned")

// Options are what a primary needs besides its reign.
type Options struct {
	Server cluster.ServerID
	Timing cluster.Timing
	Log    zerolog.Logger
	// Warm is the replica's table, or nil. The reign takes it over; see Primary.Warm.
	Warm *volume.Warm
	// Known is the highest LSN that this server was ever told is committed. A
	// log that ends before it was set back, and nobody reigns on it.
	Known cluster.LSN
	// Confirm is asked once, before the first fence is set, whether this
	// server should still take over; nil means yes. An error ends the reign.
	Confirm func(context.Context) error
	// Replicas are fed with every committed frame, in order, after its check.
	Replicas map[cluster.ServerID]Link
	// Watch is fed likewise, and told of losses; nil for none.
	Watch *watch.Feed
	// MaxBatch is the size at which a batch takes no further call, in bytes; 0
	// means 512 KiB. With one append more it must fit into the first segment.
	MaxBatch int
	// CheckpointBytes is how much log makes a checkpoint worth its while, in
	// bytes; 0 means 64 MiB. A large table asks for twice its own size.
	CheckpointBytes int64
	// OpenFiles is how many protected files may be open while nobody uses them; 0 means a share
	// of the descriptors that the process may have, 512 at most.
	OpenFiles int
	// ViewInterval is how old the views for people are at most while the table is not large;
	// 0 means 1 s.
	ViewInterval time.Duration
	// History bounds what is kept of grants that ended.
	History HistoryOptions
	// TimeOfDay is what this machine's clock on the wall shows at a moment, for people: operators
	// and NTP set it, and nothing is an age by it. nil = that of the moment itself.
	TimeOfDay func(time.Time) time.Time
}

// Primary is one reign, from its claim to its end. Do, Renew, KeepAlive and Read
// may be called from any goroutine at any time.
type Primary struct {
	opt   Options
	reign *volume.Reign
	queue queue
	feed  feed
	acks  *acks        // nil where answers wait for no replica
	warm  *volume.Warm // owned by Run

	state    atomic.Int32 // a State
	quorum   atomic.Bool
	began    time.Time    // with its monotonic reading: ages are counted from here, not from the time of day
	progress atomic.Int64 // nanoseconds since began, at the core loop's last round with nothing in flight
	checked  atomic.Int64 // nanoseconds since began, at the last passed check
	logBytes atomic.Int64 // of log behind the last checkpoint
	logLimit atomic.Int64 // of logBytes, for the next one
	noSpace  atomic.Bool  // the next segment cannot be made
	// filesFailed says that a protected file could not be written, once in this reign.
	filesFailed atomic.Bool
	overslept   atomic.Pointer[overslept] // nil if no timer ever was late
	end         struct {
		sync.Mutex
		at wal.Position
	}
	// level is that of SetLevel; 0 until it is told.
	level atomic.Uint32

	// Owned by the housekeeper: the LSN of the last checkpoint, and those of adopted
	// ones that are damaged.
	checkpointed cluster.LSN
	damaged      []cluster.LSN

	// Set by the takeover before any goroutine starts.
	source  volume.Source
	log     *wal.Log
	unread  *volume.Unread
	adopted cluster.LSN
	history *historian

	// writers is owned by the core loop for changes; the housekeeper reads it.
	files struct {
		sync.Mutex
		writers map[cluster.FileName]*fileWriter
	}

	index   indexer
	wake    struct{ segments, housekeeper chan struct{} }
	serving chan struct{} // closed when the reign begins to serve
	wg      sync.WaitGroup
}

// State says how far a primary is.
type State int32

// The states of a primary, in order.
const (
	StateFencing State = iota
	StateServing
	StateEnded
)

// New makes a primary for a claimed reign. Run does the rest.
func New(reign *volume.Reign, opt Options) *Primary {
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
	opt.Log = opt.Log.With().Uint64("epoch", uint64(reign.Epoch())).Logger()
	p := &Primary{opt: opt, reign: reign, warm: opt.Warm, began: time.Now()}
	p.queue.wake = make(chan struct{}, 1)
	p.serving = make(chan struct{})
	p.wake.segments = make(chan struct{}, 1)
	p.wake.housekeeper = make(chan struct{}, 1)
	p.index.wake = make(chan struct{}, 1)
	p.files.writers = map[cluster.FileName]*fileWriter{}
	p.quorum.Store(true)
	p.acks = newAcks(p)
	p.history = newHistorian(p)
	return p
}

// Run takes over and serves until the reign ends: fenced, resigned, stopped by
// ctx, or because the volume failed. It returns why, when every goroutine of the
// reign has ended, and then gives the claim's lock back.
func (p *Primary) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.reign.Depose(context.Cause(ctx)) }) //nolint:errcheck // its cause is what Err returns
	defer stop()

	core, err := p.takeOver(ctx)
	if err == nil {
		p.serve(core)
		err = p.reign.Err()
	} else {
		err = p.reign.Depose(err)
	}
	p.state.Store(int32(StateEnded))
	p.queue.close()
	p.wg.Wait()
	if core != nil {
		p.warm = core.leave()
	}
	if p.log != nil {
		err = errors.Join(err, p.log.Close())
	}
	p.opt.Log.Info().Err(err).Msg("reign ended")
	return errors.Join(err, p.reign.Release())
}

// serve runs the core loop in this goroutine and the others beside it.
func (p *Primary) serve(c *core) {
	p.state.Store(int32(StateServing)) // first: a housekeeper that has to write a checkpoint at once calls
	p.wg.Go(c.commits)
	p.wg.Go(p.segments)
	p.wg.Go(p.housekeeper)
	p.wg.Go(p.writeViews)
	p.wg.Go(p.history.run)
	p.wg.Go(p.indexFiles)
	p.startPushers()
	p.startWatch()
	close(p.serving)
	p.opt.Log.Info().Uint64("lsn", uint64(c.table.LSN())).Msg("serving")
	c.run()
}

// Warm returns the table that the reign leaves, at the position that it says; nil where it may
// be ahead of the volume's log. It is that of a takeover that failed before anything was decided
// on it, or of a reign all of whose records were durable before a check that it passed. It is
// called after Run.
func (p *Primary) Warm() *volume.Warm { return p.warm }

// Serving is closed when the reign begins to serve.
func (p *Primary) Serving() <-chan struct{} { return p.serving }

// Epoch is the reign's number.
func (p *Primary) Epoch() cluster.Epoch { return p.reign.Epoch() }

// State says how far this primary is. It has ended as soon as its reign has,
// even while one of its goroutines is still stuck in the filesystem.
func (p *Primary) State() State {
	if p.reign.Err() != nil {
		return StateEnded
	}
	return State(p.state.Load())
}

// LSN is the last one that was committed.
func (p *Primary) LSN() cluster.LSN { return p.Committed().LSN }

// Committed is the end of what was committed: durable, and checked. It is zero before the reign
// has begun.
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

// Ages are how long ago the core loop made a round and the volume passed a check. A check
// that does not come back counts from its beginning, whatever others say meanwhile. A step of
// the time of day changes neither.
func (p *Primary) Ages(now time.Time) (progress, check time.Duration) {
	age := now.Sub(p.began)
	return age - time.Duration(p.progress.Load()), max(age-time.Duration(p.checked.Load()), p.reign.Unchecked(now))
}

// Unanswered is how long a takeover has waited for a call into the volume that has not come
// back: 0 in the waits that it makes by itself, and in its work in memory.
func (p *Primary) Unanswered(now time.Time) time.Duration { return p.reign.Unanswered(now) }

// SetQuorum tells whether a majority hears this primary. Without it every call
// is answered NO_QUORUM and the serving clock stands still.
func (p *Primary) SetQuorum(ok bool) { p.quorum.Store(ok) }

// SetLevel tells the lowest feature level of all servers that are reached: the primary decides
// what every one of them can apply. Until it is told, it decides all that this binary can.
func (p *Primary) SetLevel(level uint32) { p.level.Store(level) }

// Depose ends the reign.
func (p *Primary) Depose(cause error) { p.reign.Depose(cause) } //nolint:errcheck // Run returns it

// CheckNow checks the volume at once, as when somebody speaks of a higher epoch.
func (p *Primary) CheckNow() error { return p.check() }

func (p *Primary) check() error {
	if err := p.reign.Check(); err != nil {
		return err
	}
	p.checked.Store(int64(time.Since(p.began)))
	return nil
}

// watch checks once a second, idle or not, also that the directory is still the same.
func (p *Primary) watch() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-p.reign.Done():
			return
		case <-t.C:
		}
		if p.check() != nil || p.reign.CheckPath() != nil {
			return
		}
	}
}

// segments keeps the next log segment ready. A full disk deposes nobody.
func (p *Primary) segments() {
	backoff := 100 * time.Millisecond
	for {
		if !p.log.NextReady() {
			err := p.log.PrepareNext(p.reign.Context())
			switch {
			case err == nil:
				p.noSpace.Store(false)
				backoff = 100 * time.Millisecond
				p.queue.poke()
			case p.reign.Err() != nil:
				return
			case volume.IsFull(err):
				p.noSpace.Store(true)
				p.opt.Log.Warn().Err(err).Msg("no space for the next log segment")
				if !p.sleep(backoff) {
					return
				}
				backoff = min(2*backoff, 5*time.Second)
				continue
			default:
				p.Depose(fmt.Errorf("prepare the next segment: %w", err))
				return
			}
		}
		select {
		case <-p.reign.Done():
			return
		case <-p.wake.segments:
		}
	}
}

// sleep waits unless the reign ends first.
func (p *Primary) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.reign.Done():
		return false
	case <-t.C:
		return true
	}
}

// poke wakes a goroutine that may be awake.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Do executes a request and returns its outcome. It takes the request over, data
// included: the caller must not change it any more. A repeat of a request, also of
// one that is still waiting, gets the same answer. When ctx ends first the
// request goes on; Cancel ends it.
func (p *Primary) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if status, msg := q.Validate(p.opt.Timing); status != cluster.StatusOK {
		return locktable.Outcome{Status: status, Message: msg, Client: q.Client, Request: q.ID}, nil
	}
	return p.await(ctx, &call{kind: callRequest, req: q})
}

// Renew extends the lease of a grant, on the word of whoever has its token.
func (p *Primary) Renew(ctx context.Context, lock cluster.LockName, token cluster.Token) (locktable.Outcome, error) {
	return p.await(ctx, &call{kind: callRenew, req: &locktable.Request{Lock: lock, Token: token}})
}

// Belief is what a client says with a keep-alive.
type Belief struct {
	// Held is how many tokens it believes it holds; negative is no belief.
	Held int
	// Digest is that of those tokens. Where it is not nil, Held says nothing.
	Digest *cluster.Digest
	// PlacesOnly leaves its grants alone: they are neither renewed nor listed.
	PlacesOnly bool
}

// KeepAlive renews everything the client holds or waits for. Where it does not hold
// what it believes, grants lists what it has by the table, and is not nil even if that is
// nothing. Asks are to holders among its grants.
func (p *Primary) KeepAlive(ctx context.Context, client cluster.ClientID, b Belief) (
	grants []locktable.Grant, asks []locktable.Ask, out locktable.Outcome, err error,
) {
	c := &call{kind: callKeepAlive, req: &locktable.Request{Client: client}, belief: b}
	out, err = p.await(ctx, c)
	if err != nil || out.Status != cluster.StatusOK {
		return nil, nil, out, err // the core loop may still be writing c
	}
	return c.grants, c.asks, out, nil
}

// View is what a read sees: the table at a position. It is valid during the call only.
type View struct {
	Table *locktable.Table
	At    wal.Position
	// Remaining tells what is left of a live lease.
	Remaining func(cluster.LockName, cluster.Token) time.Duration
	// Grace tells what is left to a holder who was asked to let go.
	Grace func(cluster.Token) time.Duration
	// Heard tells whether the client was heard in this reign.
	Heard func(cluster.ClientID) bool
}

// Read lets f look at the table. What f saw may be told when Read returns OK.
func (p *Primary) Read(ctx context.Context, f func(View)) (locktable.Outcome, error) {
	return p.await(ctx, &call{kind: callRead, read: f})
}

// Resign ends the reign on purpose: admits nothing more, commits what is decided, logs
// Resigned and stops.
func (p *Primary) Resign(ctx context.Context, reason string) error {
	out, err := p.await(ctx, &call{kind: callResign, req: &locktable.Request{Reason: reason}})
	if err == nil && out.Status != cluster.StatusOK {
		err = fmt.Errorf("resign: %v", out.Status)
	}
	return err
}

// await queues a call and waits for its answer.
func (p *Primary) await(ctx context.Context, c *call) (locktable.Outcome, error) {
	answer := make(chan locktable.Outcome, 1)
	c.done = func(out locktable.Outcome) { answer <- out }
	c.abandoned = new(atomic.Bool)
	p.submit(c)
	select {
	case out := <-answer:
		return out, nil
	case <-ctx.Done():
		c.abandoned.Store(true)
		return locktable.Outcome{}, context.Cause(ctx)
	case <-p.reign.Done():
	}
	// The core loop may be stuck in the filesystem: nobody waits for it.
	select {
	case out := <-answer:
		return out, nil
	default:
		return unknown(), nil
	}
}

// submit queues calls; the done of each is called once.
func (p *Primary) submit(calls ...*call) {
	status := cluster.StatusSecondaryMode
	switch p.State() {
	case StateServing:
		p.queue.put(calls...)
		return
	case StateFencing:
		status = cluster.StatusServerFencing
	}
	for _, c := range calls {
		c.done(locktable.Outcome{Status: status})
	}
}
