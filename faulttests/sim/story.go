// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// Sizes are small, so that a short story rotates, checkpoints and removes.
const (
	firstSegment    = 32 << 10
	segment         = 48 << 10
	maxBatch        = 8 << 10
	checkpointBytes = 40 << 10
)

// Story is one run. Make it and use it inside one synctest bubble.
type Story struct {
	Disk    *volumetest.Disk
	Profile volumetest.Profile
	Ledger  Ledger
	Log     zerolog.Logger
	Random  io.Reader
	// Clocks is the seed of what clocks on walls show.
	Clocks uint64
	// Pace is how long a worker rests after a round, so that a story lasts.
	Pace time.Duration
	// Timing is that of every server; the zero value means Timing().
	Timing cluster.Timing
	// Lossy says that leases may end under their holders: a grant may then be
	// heard of after the next one.
	Lossy bool
	// Outages says that the power fails while clients look: what was just answered
	// may be in the log only.
	Outages bool
	// Breaks says that operators take locks away from holders who are not asked.
	Breaks bool

	progress atomic.Int32 // rounds or steps that clients finished
	workers  sync.WaitGroup
	stop     context.CancelFunc

	mu     sync.Mutex
	reigns []*Reign     // newest last
	last   *volume.Warm // the table of the reign that served last, as it stood at the End
	warm   *volume.Warm // for the next reign
	// backends are whole servers, in a Cluster, and audits those of all that ever were.
	backends []backend
	audits   []*audit
	witness  witness // of a Cluster
	book     logbook
}

// backend is whom a client asks: a primary or a whole server.
type backend interface {
	Do(context.Context, *locktable.Request) (locktable.Outcome, error)
}

// Reign is one server's process for one reign: it opens the volume, prepares,
// claims and runs, once.
type Reign struct {
	Host  *volumetest.Host
	audit *audit
	ready chan struct{} // closed when primary is set or the process has ended
	done  chan struct{}
	stop  context.CancelCauseFunc

	primary atomic.Pointer[primary.Primary]
	err     error // once done is closed
}

// Members are the servers of every story.
func Members() cluster.Members {
	var all cluster.Members
	for id := range cluster.ServerID(3) {
		all = append(all, cluster.Member{
			ID: id + 1, GRPC: fmt.Sprintf("h%d:1", id+1), HTTP: fmt.Sprintf("h%d:2", id+1), Peer: fmt.Sprintf("h%d:3", id+1),
		})
	}
	return all
}

// Timing is the default with short periods; none of them matters for safety.
func Timing() cluster.Timing {
	t := cluster.DefaultTiming()
	t.FencingPeriod = 20 * time.Millisecond
	return t
}

func (s *Story) timing() cluster.Timing {
	if s.Timing == (cluster.Timing{}) {
		return Timing()
	}
	return s.Timing
}

// SetWarm gives the next reign a replica's table.
func (s *Story) SetWarm(w *volume.Warm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warm = w
}

func (s *Story) takeWarm() *volume.Warm {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.warm
	s.warm = nil
	return w
}

// Begin starts a server's process; hook is asked before each of its calls.
func (s *Story) Begin(id cluster.ServerID, hook volumetest.Hook) *Reign {
	return s.begin(id, hook, &s.book)
}

func (s *Story) begin(id cluster.ServerID, hook volumetest.Hook, book *logbook) *Reign {
	host := s.Disk.Host(int(id), s.Profile)
	host.SetHook(hook)
	watching := newAudit(book)
	host.SetWatch(watching.Watch)
	ctx, stop := context.WithCancelCause(context.Background())
	r := &Reign{Host: host, audit: watching, ready: make(chan struct{}), done: make(chan struct{}), stop: stop}
	s.mu.Lock()
	s.reigns = append(s.reigns, r)
	s.mu.Unlock()
	go func() {
		defer close(r.done)
		r.err = s.process(ctx, r, id)
	}()
	return r
}

// process is what a server does for one reign.
func (s *Story) process(ctx context.Context, r *Reign, id cluster.ServerID) (err error) {
	ready := sync.OnceFunc(func() { close(r.ready) })
	defer ready()
	v, err := volume.Open(r.Host, volume.Options{Server: id, Random: s.Random, FirstSegment: firstSegment, Segment: segment, HistoryRate: historyOptions().Rate})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := v.RemoveLeftovers(); err != nil {
		return err
	}
	prepared, err := v.Prepare(ctx)
	if err != nil {
		return err
	}
	reign, err := v.Claim(ctx, prepared)
	if err != nil {
		return err
	}
	p := primary.New(reign, primary.Options{
		Server: id, Timing: s.timing(), Warm: s.takeWarm(), Log: s.Log.With().Int("server", int(id)).Logger(),
		MaxBatch: maxBatch, CheckpointBytes: checkpointBytes, ViewInterval: 50 * time.Millisecond, History: historyOptions(), TimeOfDay: s.timeOfDay(id),
	})
	r.primary.Store(p)
	ready()
	return p.Run(ctx)
}

// Do asks for something that a request does, and audits the answer.
func (r *Reign) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	what := fmt.Sprintf("%s/%d %v", q.Client, q.ID, q.Op)
	return r.hear(what, func(p *primary.Primary) (locktable.Outcome, error) { return p.Do(ctx, q) })
}

// hear asks the primary and audits what it says.
func (r *Reign) hear(what string, ask func(*primary.Primary) (locktable.Outcome, error)) (locktable.Outcome, error) {
	arrived := r.audit.arrive()
	out, err := ask(r.primary.Load())
	if err == nil {
		r.audit.leaves(out, arrived, what)
	}
	return out, err
}

// table is a copy of what the reign has committed, or nil where it does not serve.
func (r *Reign) table() *volume.Warm {
	p := r.primary.Load()
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := p.Snapshot(ctx)
	if err != nil {
		return nil
	}
	return &volume.Warm{At: s.At, Table: s.Table}
}

// Serving waits until the reign serves, or says false when it never will.
func (r *Reign) Serving() bool {
	<-r.ready
	for {
		p := r.primary.Load()
		if p == nil || p.State() == primary.StateEnded {
			return false
		}
		if p.State() == primary.StateServing {
			return true
		}
		select {
		case <-r.done:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the process as kill -9 does, and waits until it has wound up.
func (r *Reign) Kill() {
	r.Host.Kill()
	r.stop(errKilled)
	windUp(r.done)
}

// windUp waits for the end of a dead process. One that waits for ever would keep
// virtual time going for ever.
func windUp(done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(time.Hour):
		panic("sim: a dead process does not wind up")
	}
}

// pick is the reign that a client's n-th try goes to: all in turn, the newest first.
func (s *Story) pick(n int) backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backends) > 0 {
		return s.backends[n%len(s.backends)]
	}
	if len(s.reigns) == 0 {
		return nil
	}
	if r := s.reigns[len(s.reigns)-1-n%len(s.reigns)]; r.primary.Load() != nil {
		return r
	}
	return nil
}

// pickMostly is the newest reign, and for every third try an older one; nil
// where there is none, or it has not claimed yet.
func (s *Story) pickMostly(n int) *Reign {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reigns) == 0 {
		return nil
	}
	back := 0
	if n%3 == 2 {
		back = n / 3 % len(s.reigns)
	}
	if r := s.reigns[len(s.reigns)-1-back]; r.primary.Load() != nil {
		return r
	}
	return nil
}

// Work starts the clients: two that share a lock and a file, and one alone.
func (s *Story) Work(rounds int) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	for _, w := range []*worker{
		{story: s, id: "c1", lock: "a", file: "a.txt"},
		{story: s, id: "c2", lock: "a", file: "a.txt"},
		{story: s, id: "c3", lock: "deep/b", file: "dir/b.txt"},
	} {
		s.workers.Go(func() { w.run(ctx, rounds) })
	}
}

// finished is closed when all clients are done.
func (s *Story) finished() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		s.workers.Wait()
		close(done)
	}()
	return done
}

// End kills every process that still runs.
func (s *Story) End() {
	s.stop()
	s.workers.Wait()
	s.mu.Lock()
	reigns := s.reigns
	s.mu.Unlock()
	for _, r := range slices.Backward(reigns) {
		if w := r.table(); w != nil {
			s.last = w
			break
		}
	}
	for _, r := range reigns {
		r.Kill()
	}
}
